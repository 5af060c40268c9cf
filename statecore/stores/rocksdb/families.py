"""Operations on whole column families: ingestion, compaction, row format checks, offset checks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from statecore.errors import Corrupted, Invalid
from statecore.filesystem import FileId, file_id
from statecore.formats import offsets as offset_format
from statecore.formats.kinds import StoreKind
from statecore.formats.position import decode_position
from statecore.stores.rocksdb.errors import not_readable_here, translate
from statecore.stores.rocksdb.scan import ListScan

_MERGE_OPERANDS = re.compile(r"# merge operands=(\d+);")


def refuse_foreign_rows(path: Path, kind: StoreKind, families: Mapping[str, Any]) -> None:
    """Refuse rows that reads would miss or crash on.

    Kafka Streams also reads rows of an older format, below the newer ones; this library does not. RocksDB 9.8.4 crashes
    the process when it iterates over a merge operand without a merge operator.
    """
    for name, family in families.items():
        found = _MERGE_OPERANDS.search(family.property_value("rocksdb.aggregated-table-properties") or "")
        if found is not None and int(found[1]):
            raise not_readable_here(
                f"{path} has rows in {name} that can only be read with the merge operator they were written with.", path
            )
    for name in kind.older_column_families & families.keys():
        if next(ListScan(path, families[name]), None) is not None:
            raise Invalid(
                f"{path} is a {kind.value} store that still has rows of an older format in {name}.",
                code="older-row-format",
                action="Rebuild the store from its changelog, or have the application rewrite its rows first.",
                store_path=str(path),
                column_family=name,
            )


def refuse_unclean(path: Path, status: int | None, reason: tuple[str, str]) -> None:
    """Refuse a database that its last writer did not close; ``reason`` says why rows and offset may disagree then."""
    if status not in (None, offset_format.STATUS_CLOSED):
        raise Corrupted(
            f"{path} was not closed cleanly (status {status}), and {reason[0]}: its rows may be ahead of its offset, "
            "which exactly-once does not allow.",
            code="not-closed-cleanly",
            action=reason[1],
            store_path=str(path),
            status=status,
        )


def read_row(path: Path, family: Any, key: bytes | list[bytes]) -> Any:
    """The row of a key, or of several, in a column family; ``None`` if absent."""
    try:
        return family.get(key)
    except Exception as error:
        raise translate(path, "Reading", error) from error


def ingest_files(path: Path, where: Path, family: Any, runs: Sequence[Path]) -> list[Path]:
    """Move SST files into a flushed family of the database, see :meth:`RocksDBStore.ingest`."""
    from rocksdict import IngestExternalFileOptions

    before = _inodes(where)
    wanted = [_inode(run) for run in runs]
    options = IngestExternalFileOptions()
    options.set_move_files(True)
    try:
        family.ingest_external_file([str(run) for run in runs], options)
    except Exception as error:
        raise translate(path, "Ingesting files into", error) from error
    after = {inode: path / file.name for inode, file in _inodes(where).items()}
    linked = [after[inode] for inode in wanted if inode in after]
    if linked:
        return linked
    # Copied, from another file system.
    return sorted((after[inode] for inode in after.keys() - before.keys()), key=lambda file: int(file.stem))


def _inode(file: Path) -> FileId | None:
    try:
        return file_id(file.stat())
    except OSError:  # RocksDB reports it; or it has compacted the file meanwhile
        return None


def _inodes(path: Path) -> dict[FileId, Path]:
    found = {file: _inode(file) for file in path.glob("*.sst")}
    return {inode: file for file, inode in found.items() if inode is not None}


def compact_files(path: Path, family: Any) -> None:
    """Compact all files of a column family of the database at ``path``; see :meth:`RocksDBStore.compact`."""
    from rocksdict import BottommostLevelCompaction, CompactOptions

    options = CompactOptions()
    options.set_bottommost_level_compaction(BottommostLevelCompaction.force())
    try:
        family.compact_range(None, None, options)
    except Exception as error:
        raise translate(path, "Compacting", error) from error


def check_offsets(chunks: Iterable[tuple[Sequence[bytes], Sequence[bytes]]]) -> None:
    """Decode every row of an ``offsets`` family."""
    for keys, values in chunks:
        for key, value in zip(keys, values, strict=True):
            if offset_format.partition_of_key(key) is None and key == offset_format.POSITION_KEY:
                decode_position(value)
            else:
                offset_format.decode_int64(value)
