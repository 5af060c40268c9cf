"""Diff: a state directory compared with another one, a snapshot or its changelogs."""
