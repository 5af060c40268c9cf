"""Which member of a group holds which tasks (KIP-441): pure functions."""
