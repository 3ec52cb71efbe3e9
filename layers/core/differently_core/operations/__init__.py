"""Use cases: each reads a snapshot, decides, and applies the decision in one conditional write."""
