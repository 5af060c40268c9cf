"""Rows of every store kind, one at a time: bytes to values and back. Pure functions, no columns.

For programs that read and write single rows, with the base package alone. The modules of :mod:`statecore.formats` do
the same for whole columns, for the pipeline, and describe the bytes (:mod:`statecore.formats.registry`); tests compare
both row by row, in both directions.

==============  ====================================================================================================
module          what
==============  ====================================================================================================
``keys``        keys of windows and sessions, those of emit-final stores too
``values``      values with timestamp and headers, as the kind has them
``headers``     the headers of a record, in a record batch and before a value
``lists``       rows of list stores: values without a join partner so far
``versions``    rows of versioned stores
``buffered``    rows of grace-period buffers
``row``         any row decoded for people; the rows of a changelog record
==============  ====================================================================================================
"""
