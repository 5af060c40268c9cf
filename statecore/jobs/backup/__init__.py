"""Backup: publishes the files of a state directory as a snapshot."""
