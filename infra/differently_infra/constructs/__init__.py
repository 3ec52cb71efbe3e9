"""Parts that stacks are made of, one capability each."""
