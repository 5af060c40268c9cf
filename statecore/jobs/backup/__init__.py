"""Backup: a state directory published as a snapshot, file by file."""
