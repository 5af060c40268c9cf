"""All kernels of run building in one module, which is compiled into one file. Imported only to compile."""

from __future__ import annotations

from statecore.images.kernels.hash_source import add_rows, fill_filter, key_hash, xxh64
from statecore.images.kernels.order_source import common_prefix, key_lengths, order_ties, sort_words, words_at
from statecore.images.kernels.spill_source import (
    drop_first,
    keep_last,
    measure_packed,
    pack,
    repack,
    route,
    tag_packed,
    unpack,
)
from statecore.images.kernels.sst_source import data_blocks
from statecore.images.kernels.table_source import (
    append_keys,
    count_live,
    gather,
    intern_keys,
    keep_live,
    key_times,
    rehash,
    survivors,
    tag_keys,
)

__all__ = [
    "add_rows",
    "append_keys",
    "common_prefix",
    "count_live",
    "data_blocks",
    "drop_first",
    "fill_filter",
    "gather",
    "intern_keys",
    "keep_last",
    "keep_live",
    "key_hash",
    "key_lengths",
    "key_times",
    "measure_packed",
    "order_ties",
    "pack",
    "rehash",
    "repack",
    "route",
    "sort_words",
    "survivors",
    "tag_keys",
    "tag_packed",
    "unpack",
    "words_at",
    "xxh64",
]
