"""Task assignment of a standby group (KIP-441): pure functions."""
