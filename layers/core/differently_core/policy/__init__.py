"""Pure decisions on where a sandbox may run."""
