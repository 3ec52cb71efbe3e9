"""Pure decisions on who may have what, and whose turn it is."""
