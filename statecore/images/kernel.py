"""The door to the kernels of run building: machine code by name, arguments as integers and arrays.

The kernels themselves are in ``table_source`` (distinct keys), ``order_source`` (key order) and ``sst_source`` (SST
blocks, hashes). They are kept as machine code on disk (:mod:`statecore.kernels.native`), so that a worker process
loads them without Numba; it is imported only where they must be compiled.
"""

from __future__ import annotations

import statecore.extras.pipeline

import numpy as np

from statecore.kernels.library import KernelLibrary

NO_KEY = 0xFFFFFFFF
"""In place of an id where the record's key is null."""

INLINE_BYTES = 16
"""Keys up to this length live in their entry."""

ENTRY_WORDS = 4
"""Words of an entry of the key table."""

BATCH_WORDS = 5
"""Words that describe a batch to the kernels."""

SMALL_GROUP = 48
"""Groups of ties up to this size are ordered by comparing keys."""

LONGEST_HASHED = 240
"""Longest key that ``key_hash`` (and so the columnar SST writer) can hash."""

SECRET = np.frombuffer(
    bytes.fromhex(
        "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
        "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
        "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
        "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
    ),
    np.uint8,
)
"""XXH3's default secret, which ``key_hash`` and ``data_blocks`` read."""

_NAMES = (
    "tag_keys",
    "intern_keys",
    "rehash",
    "count_live",
    "keep_live",
    "survivors",
    "gather",
    "key_times",
    "common_prefix",
    "words_at",
    "key_lengths",
    "order_ties",
    "sort_words",
    "xxh64",
    "add_rows",
    "key_hash",
    "data_blocks",
    "fill_filter",
)
_DEPENDS = (
    __name__,
    "statecore.images.table_source",
    "statecore.images.order_source",
    "statecore.images.sst_source",
    "statecore.kernels.memory",
)
_KERNELS = KernelLibrary("statecore.images.kernel_source", _NAMES, _DEPENDS)

warm = _KERNELS.warm
"""See :meth:`KernelLibrary.warm`."""

run = _KERNELS.run
"""See :meth:`KernelLibrary.run`."""
