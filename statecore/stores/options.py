"""RocksDB options, as Kafka Streams 4.3.1 writes them where rocksdict lets us.

Kafka Streams opens every database with its own options, whatever wrote it; what must agree is what the files hold: the
comparator (bytewise, the default), the column families, and a table format both sides read. Seen in its OPTIONS files:
data families with universal compaction, no compression, bloom filter of 10 bits per key, 4 KiB blocks,
``optimize_filters_for_hits``, format version 6; the ``offsets`` family with library defaults and a small buffer;
``atomic_flush`` on.

Different on purpose: automatic compactions are off. A base that is opened to be advanced must not be rewritten file by
file; compaction happens when it is asked for, or in the application, or in a store whose settings say so.
"""

from __future__ import annotations

from typing import Any

FORMAT_VERSION = 6
"""Version of the SST format, the one Kafka Streams 4.3.1 writes (RocksDB 8.6 and newer read it)."""

BLOOM_BITS_PER_KEY = 10
BLOCK_BYTES = 4096
TARGET_FILE_BYTES = 64 << 20
"""Size of the disjoint files that a compaction writes."""

_DATA_BUFFER_BYTES = 16 << 20
_OFFSETS_BUFFER_BYTES = 1 << 20


def data_options(*, automatic_compaction: bool = False) -> Any:
    """``rocksdict.Options`` of a data column family, of the database itself, and of the SST files ingested into it."""
    from rocksdict import BlockBasedOptions, ChecksumType, DBCompactionStyle, DBCompressionType, Options

    table = BlockBasedOptions()
    table.set_bloom_filter(BLOOM_BITS_PER_KEY, False)
    table.set_block_size(BLOCK_BYTES)
    table.set_format_version(FORMAT_VERSION)
    table.set_checksum_type(ChecksumType.xxh3())
    options = Options(raw_mode=True)
    options.set_block_based_table_factory(table)
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


def offsets_options() -> Any:
    """``rocksdict.Options`` of the ``offsets`` column family."""
    from rocksdict import DBCompressionType, Options

    options = Options(raw_mode=True)
    options.set_compression_type(DBCompressionType.none())
    options.set_write_buffer_size(_OFFSETS_BUFFER_BYTES)
    return options
