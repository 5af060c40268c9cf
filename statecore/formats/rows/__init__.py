"""The rows of every kind of store, one at a time: bytes in, values out, and back. Pure functions, no columns.

For programs that read and write single rows, with the base package alone. The modules of :mod:`statecore.formats` do
the same for whole columns, which is what the pipeline needs; tests hold one against the other, row by row, in both
directions. What the bytes are is drawn there, in the module that defines a kind's row format
(:mod:`statecore.formats.registry`).

==============  ====================================================================================================
module          what
==============  ====================================================================================================
``keys``        keys of windows and sessions, those of emit-final stores too
``values``      values with timestamp and headers, as the kind has them
``headers``     the headers of a record, in a record batch and in front of a value
``lists``       rows of list stores: values of a join that have not found a partner
``versions``    rows of versioned stores
``buffered``    rows of grace-period buffers
``row``         any row as a person reads it; the rows that a changelog record becomes
==============  ====================================================================================================
"""
