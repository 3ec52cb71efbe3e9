"""What every part of Differently shares: errors, records, decisions, the store and the operations."""
