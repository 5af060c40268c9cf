"""RocksDB options, those of Kafka Streams 4.3.1 where rocksdict allows.

Kafka Streams opens every database with its own options, whatever wrote it; only the file contents must agree: the
comparator (bytewise, the default), the column families, and a table format that both sides read. From its OPTIONS
files: data families with universal compaction, no compression, bloom filter of 10 bits per key, 4 KiB blocks,
``optimize_filters_for_hits``, format version 6; the ``offsets`` family with library defaults and a small buffer;
``atomic_flush`` on.

Deliberate differences: indexes and filters are in the shared block cache (:mod:`.memory`), so that their memory is
bounded; memtables grow in small steps, because there may be a thousand of them; and the number of open files is limited
(:mod:`.file_limits`).
"""

from __future__ import annotations

import os
from typing import Any

from statecore.formats.releases import CURRENT
from statecore.stores.rocksdb.config_setter import apply_config_setter
from statecore.stores.rocksdb.file_limits import max_open_files, set_small_steps
from statecore.stores.rocksdb.memory import SharedMemory, memory_of
from statecore.stores.settings import StoreSettings

FORMAT_VERSION = CURRENT.sst_format
"""SST format version that Kafka Streams 4.3.1 writes (RocksDB 8.6 and newer read it)."""

BLOOM_BITS_PER_KEY = 10
BLOCK_BYTES = 4096
TARGET_FILE_BYTES = 64 << 20  # Size of the disjoint files that a compaction writes
_DATA_BUFFER_BYTES = 16 << 20
_OFFSETS_BUFFER_BYTES = 1 << 20
_DATA_ARENA_BYTES = 64 << 10
_OFFSETS_ARENA_BYTES = 8 << 10
"""A memtable with one row counts as one such block; RocksDB's default is an eighth of the buffer, up to 1 MiB."""


def data_options(*, format_version: int = FORMAT_VERSION) -> Any:
    """``rocksdict.Options`` of a data family, its database and ingested files, shared with no other database."""
    options = _without_table(automatic_compaction=False)
    options.set_block_based_table_factory(_table(format_version))
    return options


def offsets_options() -> Any:
    """``rocksdict.Options`` of the ``offsets`` column family."""
    from rocksdict import DBCompressionType, Options

    options = Options(raw_mode=True)
    options.set_compression_type(DBCompressionType.none())
    options.set_write_buffer_size(_OFFSETS_BUFFER_BYTES)
    options.set_arena_block_size(_OFFSETS_ARENA_BYTES)
    return options


class StoreOptions:
    """The options to open a store's database with."""

    def __init__(self, name: str, settings: StoreSettings) -> None:
        from rocksdict import BlockBasedOptions

        memory = memory_of(settings.memory)
        table = _in_cache(_table(), memory)
        self.automatic_compaction = settings.automatic_compaction  # whether RocksDB compacts in the background
        self.guards_manifest = settings.guards_manifest  # whether the guard record is written
        # rocksdict.Options of the database and of the data families
        self.database = _within(_without_table(settings.automatic_compaction), memory)
        if settings.rocksdb_config_setter is not None:
            apply_config_setter(settings.rocksdb_config_setter, name, self.database, table)
        self.database.set_block_based_table_factory(table)
        self.offsets = offsets_options()  # rocksdict.Options of the offsets family
        self.offsets.set_block_based_table_factory(_in_cache(BlockBasedOptions(), memory))
        self.memory = memory  # what the store shares with others

    def merging_in_steps(self) -> Any:
        """``rocksdict.Options`` for a database with too many files to merge at once; without the config setter."""
        options = _within(_without_table(automatic_compaction=True), self.memory)
        options.set_block_based_table_factory(_in_cache(_table(), self.memory))
        set_small_steps(options)
        return options


def _without_table(automatic_compaction: bool) -> Any:
    from rocksdict import DBCompactionStyle, DBCompressionType, Options

    options = Options(raw_mode=True)
    options.set_compression_type(DBCompressionType.none())
    options.set_compaction_style(DBCompactionStyle.universal())
    options.set_optimize_filters_for_hits(True)
    options.set_disable_auto_compactions(not automatic_compaction)
    options.set_target_file_size_base(TARGET_FILE_BYTES)
    options.set_write_buffer_size(_DATA_BUFFER_BYTES)
    options.set_max_write_buffer_number(3)
    options.set_atomic_flush(True)
    options.set_keep_log_file_num(1)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    return options


def _table(format_version: int = FORMAT_VERSION) -> Any:
    from rocksdict import BlockBasedOptions, ChecksumType

    table = BlockBasedOptions()
    table.set_bloom_filter(BLOOM_BITS_PER_KEY, False)
    table.set_block_size(BLOCK_BYTES)
    table.set_format_version(format_version)
    table.set_checksum_type(ChecksumType.xxh3())
    return table


def _in_cache(table: Any, memory: SharedMemory) -> Any:
    table.set_block_cache(memory.cache)
    table.set_cache_index_and_filter_blocks(True)
    return table


def _within(options: Any, memory: SharedMemory) -> Any:
    options.set_write_buffer_manager(memory.write_buffers)
    options.set_arena_block_size(_DATA_ARENA_BYTES)
    options.set_max_open_files(max_open_files())
    # Threads are shared by the process, which uses the largest value of any database; the value is Kafka Streams'.
    options.set_max_background_jobs(max(os.cpu_count() or 1, 2))
    return options
