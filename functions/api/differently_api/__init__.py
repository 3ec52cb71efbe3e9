"""The HTTP API: a request is parsed, handed to one operation, and its outcome mapped to an answer."""
