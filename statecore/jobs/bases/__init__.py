"""Bases: stores of a snapshot or a directory, above which only the tail of a changelog is read."""
