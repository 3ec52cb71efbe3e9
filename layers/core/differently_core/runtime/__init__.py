"""Clock, ids, settings and telemetry: the only doors to time, chance, the environment and the log."""
