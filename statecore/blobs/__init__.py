"""Blobs: bytes under a name that are written once, wherever they are kept."""
