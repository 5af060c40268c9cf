"""Changelog topics: metadata, offsets, ranges and the columnar reader.

Records become Arrow columns, never Python objects.
"""
