"""Snapshots of application state in an object store. Format version 0: it may still change."""
