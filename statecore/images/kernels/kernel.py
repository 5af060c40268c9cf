"""Python interface of the kernels of run building, and the records shared with them.

The kernels are in ``table_source`` (distinct keys), ``order_source`` (key order), ``spill_source`` (records divided by
key range), ``hash_source`` (hashes) and ``sst_source`` (SST blocks); :mod:`statecore.kernels.library` describes how
they are called.
"""

from __future__ import annotations

import statecore.extras.pipeline

from typing import NamedTuple

import numpy as np

from statecore.kernels.library import KernelLibrary
from statecore.kernels.records import field_indexes

NO_KEY = 0xFFFFFFFF  # Id of a null key
INLINE_BYTES = 16  # Keys up to this length are stored in their entry
ENTRY_WORDS = 4  # Words of an entry of the key table


PACKED_HEADER = 16  # Bytes before the key of a packed record
PACKED_DELETE = 0xFFFFFFFF  # Value length of a packed delete


class Batch(NamedTuple):
    """Buffers of the values and timestamps of a batch."""

    offsets: int = 0  # Address of Arrow's offsets of the values
    width: int = 0  # Bytes of an offset: 4 or 8
    data: int = 0  # Address of the values' bytes
    valid: int = 0  # Address of one byte per row, 1 where there is a value; 0: no nulls
    stamps: int = 0  # Address of the timestamps; 0 where none are kept


class Used(NamedTuple):
    """Fill level of a key table."""

    keys: int = 0
    arena_bytes: int = 0
    null_keys: int = 0  # Records without a key


class Live(NamedTuple):
    """Rows of a batch that are still the last write of their key, and their value bytes."""

    rows: int = 0
    bytes: int = 0


class Needed(NamedTuple):
    """Key and value bytes of a row that did not fit."""

    key_bytes: int = 0
    value_bytes: int = 0


class Unpacked(NamedTuple):
    """Results of ``measure_packed``."""

    rows: int = 0
    key_bytes: int = 0
    value_bytes: int = 0


class Written(NamedTuple):
    """Results of ``data_blocks``."""

    bytes: int = 0  # Of whole blocks, their trailers included
    index_entries: int = 0
    index_bytes: int = 0
    last_block: int = 0  # Position of the last block in the file, which has no index entry yet
    last_block_bytes: int = 0  # Its content bytes, without the trailer


BATCH, USED, LIVE, NEEDED, UNPACKED, WRITTEN = (
    field_indexes(Batch),
    field_indexes(Used),
    field_indexes(Live),
    field_indexes(Needed),
    field_indexes(Unpacked),
    field_indexes(Written),
)

SMALL_GROUP = 48  # Largest group of ties that is ordered by comparing keys

SECRET = np.frombuffer(
    bytes.fromhex(
        "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
        "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
        "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
        "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
    ),
    np.uint8,
)
"""XXH3's default secret, read by ``key_hash`` and ``data_blocks``."""

_KERNELS = KernelLibrary("statecore.images.kernels.kernel_source")

warm = _KERNELS.warm  # See KernelLibrary.warm
run = _KERNELS.run  # See KernelLibrary.run
