"""Immutable blobs, and pointers replaced by compare-and-swap, in a directory or in S3."""
