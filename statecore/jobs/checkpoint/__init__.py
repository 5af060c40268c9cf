"""Checkpoint: the newest snapshot, advanced by the tails of the changelogs."""
