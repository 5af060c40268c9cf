"""Rows of every store kind, one at a time: bytes to values and back. Pure functions, no columns.

For programs that read and write single rows, with the base package alone. The modules of :mod:`statecore.formats` do
the same for whole columns, for the pipeline, and describe the bytes (:mod:`statecore.formats.registry`); tests compare
both row by row, in both directions.
"""
