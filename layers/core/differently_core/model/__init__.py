"""Records and values: what a sandbox, an attempt, a pool, a quota and an event are."""
