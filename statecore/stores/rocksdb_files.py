"""Whole column families: files ingested, files merged, offsets looked through."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from statecore.formats import offsets as offset_format
from statecore.formats.position import decode_position
from statecore.stores.rocksdb_errors import translate


def ingest_files(path: Path, family: Any, runs: Sequence[Path]) -> list[Path]:
    """Move SST files into a flushed column family of the database at ``path``; see :meth:`RocksDBStore.ingest`."""
    from rocksdict import IngestExternalFileOptions

    before = set(path.glob("*.sst"))
    options = IngestExternalFileOptions()
    options.set_move_files(True)
    try:
        family.ingest_external_file([str(run) for run in runs], options)
    except Exception as error:
        raise translate(path, "Ingesting files into", error) from error
    return sorted(set(path.glob("*.sst")) - before, key=lambda file: int(file.stem))


def compact_files(path: Path, family: Any) -> None:
    """Merge all files of a column family of the database at ``path``; see :meth:`RocksDBStore.compact`."""
    from rocksdict import BottommostLevelCompaction, CompactOptions

    options = CompactOptions()
    options.set_bottommost_level_compaction(BottommostLevelCompaction.force())
    try:
        family.compact_range(None, None, options)
    except Exception as error:
        raise translate(path, "Compacting", error) from error


def check_offsets(chunks: Iterable[tuple[Sequence[bytes], Sequence[bytes]]]) -> None:
    """Decode every row of an ``offsets`` family.

    Raises:
        Corrupted: a row is not in its format.
    """
    for keys, values in chunks:
        for key, value in zip(keys, values, strict=True):
            if offset_format.partition_of_key(key) is None and key == offset_format.POSITION_KEY:
                decode_position(value)
            else:
                offset_format.decode_int64(value)
