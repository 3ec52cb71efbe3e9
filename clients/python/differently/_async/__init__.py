"""The client for asyncio, and the source of the one without: `scripts/sync_client.py` writes `_sync` from it."""
