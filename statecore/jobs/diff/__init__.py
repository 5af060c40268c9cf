"""Diff: compares a state directory with another one, a snapshot or its changelogs."""
