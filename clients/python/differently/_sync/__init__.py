"""The client for code without asyncio."""

# Made from _async: python scripts/sync_client.py
