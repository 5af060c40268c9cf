"""Reads job reports, of one directory and of all applications."""
