"""State in object storage: where it is, and that it is what it says. Format version 0: it may still change."""
