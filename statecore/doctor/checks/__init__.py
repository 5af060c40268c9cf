"""Pure functions that turn an inspection into findings, one subject per module."""
