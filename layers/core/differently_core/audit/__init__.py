"""Pure decisions of the audit log: the canonical form of an event, and the Merkle tree over them."""
