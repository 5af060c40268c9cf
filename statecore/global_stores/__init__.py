"""Global stores that follow their topics and recover by themselves (KIP-406)."""
