"""Immutable blobs, and pointers that are replaced by compare-and-swap: in a directory, or in S3."""
