"""Carries what the backends say back into the store, one pool at a time."""
