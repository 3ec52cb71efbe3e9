"""Adapters to the backends that sandboxes run on; `registry` finds them by kind."""
