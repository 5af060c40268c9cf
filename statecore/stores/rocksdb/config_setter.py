"""Custom RocksDB options, as with Kafka Streams' ``rocksdb.config.setter``.

A setter is a callable ``(store name, options)`` in :class:`StoreSettings`. It is called each time a store is opened,
also read-only, once for each database (a store with segments has many, and the name is that of the segment), after
statecore's options were set and before anything on disk is touched::

    def larger_blocks(name: str, options: ConfigurableOptions) -> None:
        options.set_compression_type(DBCompressionType.lz4())
        options.table.set_block_size(16 << 10)

    StoreSettings(rocksdb_config_setter=larger_blocks)

As in Kafka Streams the options are those of the database and of the data families; the ``offsets`` family keeps its
own. ``options`` has every method of ``rocksdict.Options``, and ``table`` every method of
``rocksdict.BlockBasedOptions`` for the existing table format, including the shared block cache
(``options.tableFormatConfig()`` in Java). Options that correctness or Kafka Streams depends on are refused before the
store is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from statecore.errors import Invalid, StatecoreError
from statecore.stores.settings import RocksDBConfigSetter

_OPENING = "the store decides whether a database is created"
_ORDER = "scans would not show all rows in order"
_PLACE = "all files of a database are in its directory, where jobs and Kafka Streams look for them"
_FORMAT = "Kafka Streams, and the jobs that read databases, need block-based tables in SST files"
_SETTING = "it is StoreSettings.automatic_compaction"

PROTECTED_OPTIONS: Mapping[str, str] = {
    "set_atomic_flush": "rows and offset could disagree after a crash",
    "set_inplace_update_support": "query views would see later commits",
    "set_unordered_write": "query views would see parts of a commit",
    "set_paranoid_checks": "damage would go unnoticed",
    "set_wal_recovery_mode": "a damaged log could be read as a commit that never was",
    "set_wal_ttl_seconds": _PLACE,
    "set_wal_size_limit_mb": _PLACE,
    "set_wal_dir": _PLACE,
    "set_db_paths": _PLACE,
    "set_env": _PLACE,
    "set_enable_blob_files": _FORMAT,
    "set_plain_table_factory": _FORMAT,
    "set_cuckoo_table_factory": _FORMAT,
    "set_block_based_table_factory": "a new table format would lose the shared block cache; change options.table",
    "set_prefix_extractor": _ORDER,
    "set_memtable_factory": _ORDER,
    "optimize_for_point_lookup": "it creates a block cache of its own and an index that needs a prefix extractor",
    "set_compaction_style": "FIFO compaction deletes rows, and Kafka Streams uses universal compaction",
    "set_fifo_compaction_options": "FIFO compaction deletes rows",
    "optimize_level_style_compaction": "Kafka Streams uses universal compaction",
    "set_num_levels": "Kafka Streams opens databases of seven levels",
    "set_allow_ingest_behind": "Kafka Streams does not open databases with a reserved level",
    "set_disable_auto_compactions": _SETTING,
    "prepare_for_bulk_load": _SETTING,
    "create_if_missing": _OPENING,
    "create_missing_column_families": _OPENING,
    "set_error_if_exists": _OPENING,
    "load_latest": "options are set, not loaded",
}
"""Methods of ``rocksdict.Options`` that a setter may not call, and why. (rocksdict sets no comparator and no merge
operator, and raw mode is fixed when the object is created.)
"""

PROTECTED_TABLE: Mapping[str, str] = {
    "set_format_version": "it must be the version that Kafka Streams 4.3.1 writes and reads",
    "set_checksum_type": "without checksums damage would go unnoticed",
}
"""Methods of ``rocksdict.BlockBasedOptions`` that a setter may not call, and why."""


class _Guarded:
    """A proxy of a rocksdict object that refuses the protected methods."""

    def __init__(self, store: str, target: Any, protected: Mapping[str, str]) -> None:
        self._store = store
        self._target = target
        self._protected = protected

    def __getattr__(self, name: str) -> Any:
        if name in self._protected:
            raise Invalid(
                f"The RocksDB config setter of store {self._store} may not call {name}: {self._protected[name]}.",
                code="rocksdb-option-protected",
                action="Remove the call; the store was not opened and nothing was changed.",
                store=self._store,
                option=name,
            )
        return getattr(self._target, name)


class ConfigurableOptions(_Guarded):
    """The options passed to a setter: ``rocksdict.Options`` without the protected methods."""

    def __init__(self, store: str, options: Any, table: Any) -> None:
        super().__init__(store, options, PROTECTED_OPTIONS)
        # rocksdict.BlockBasedOptions of the same families, without the protected methods
        self.table = _Guarded(store, table, PROTECTED_TABLE)


def apply_config_setter(setter: RocksDBConfigSetter, store: str, options: Any, table: Any) -> None:
    """Call a setter for the options of a store, of which ``table`` is not yet a part."""
    try:
        setter(store, ConfigurableOptions(store, options, table))
    except StatecoreError:
        raise
    except Exception as error:
        raise Invalid(
            f"The RocksDB config setter of store {store} failed: {type(error).__name__}: {error}.",
            code="config-setter-failed",
            action="Correct the setter; the store was not opened and nothing was changed.",
            store=store,
        ) from error
