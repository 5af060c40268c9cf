"""Records of ``int64`` shared by kernels and their callers, each declared once as a ``NamedTuple``."""

from __future__ import annotations

from typing import Any, TypeVar, cast

Record = TypeVar("Record", bound=tuple[int, ...])


def field_indexes(record: type[Record]) -> Record:
    """The index of each word of a record, by field name.

    ``BATCH = field_indexes(Batch)`` gives ``BATCH.valid``, which a kernel reads as ``get(batch, BATCH.valid)``; Numba
    compiles the index as a constant. A caller creates the record with ``numpy.array(Batch(...), numpy.int64)`` and
    reads it back with ``Batch(*array.tolist())``. It has ``len(BATCH)`` words of eight bytes.
    """
    made: Record = cast(Any, record)(*range(len(cast(Any, record)._fields)))
    return made
