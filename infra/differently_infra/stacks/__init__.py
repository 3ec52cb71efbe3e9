"""What is deployed, stack by stack: each only composes."""
