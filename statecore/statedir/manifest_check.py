"""Detects a MANIFEST that has lost its end, by comparing it with OPTIONS and SST files.

RocksDB opens such a database without an error. This library's own databases are guarded by
:mod:`statecore.stores.rocksdb.manifest_guard`. A database that Kafka Streams wrote has no such record, but OPTIONS,
which name every column family, and SST files that its MANIFEST no longer names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from statecore.errors import Corrupted
from statecore.filesystem import open_regular
from statecore.formats.releases import CHECKPOINT_FILE, OFFSETS_COLUMN_FAMILY
from statecore.formats.rocksdb_log import Manifest, families_of_log, first_sequence, read_manifest
from statecore.formats.topic_partition import TopicPartition
from statecore.statedir.checkpoint_overlay import migrated
from statecore.statedir.database_state import DatabaseState
from statecore.stores.rocksdb.directory import current_manifest, data_files_in
from statecore.stores.rocksdb.files import check_blobs, sst_format_of
from statecore.stores.rocksdb.options_file import families_in, newest_options
from statecore.words import shortened_list

_NAMED = 5
_LOG_BYTES = 1 << 20


@dataclass(frozen=True)
class ManifestCheck:
    """The MANIFEST of a database without a writer, compared with its files.

    Attributes:
        listed: SST and blob files that it names.
        present: SST and blob files on disk.
        blobs_damaged: whether a blob file is missing or truncated.
        offsets_flushed: whether bookkeeping was flushed since the database was last opened.
        unlisted: complete SST files that it does not name.
        lost_end: why it must have lost its end; empty if nothing indicates that.
        foreign_log: why a log beside it is another database's; empty if nothing indicates that.
    """

    listed: frozenset[str]
    present: frozenset[str]
    blobs_damaged: bool
    offsets_flushed: bool
    unlisted: tuple[str, ...] = ()
    lost_end: str = ""
    foreign_log: str = ""

    @property
    def missing(self) -> tuple[str, ...]:
        """Files that it names and that do not exist."""
        return tuple(sorted(self.listed - self.present))


def check_manifest(path: Path, state: DatabaseState | None, *, written_here_last: bool = False) -> ManifestCheck | None:
    """Compare a MANIFEST with OPTIONS, SST files and logs; ``None`` if they cannot be parsed: RocksDB reports why."""
    try:
        name, data = current_manifest(path)
        manifest = read_manifest(data)
        present = data_files_in(path)
        families = families_in(newest_options(path))
        foreign = _foreign_log(path, manifest, has_logs=written_here_last)
    except (OSError, ValueError):
        return None
    named = frozenset(manifest.names)
    unnamed = () if state is None else tuple(file for file in sorted(present - named) if sst_format(path / file))
    lost_end = "" if state is None else _lost_end(manifest, data, families, unnamed, state)
    flushed = manifest.flushed_since(name, OFFSETS_COLUMN_FAMILY)
    return ManifestCheck(named, present, _blobs_damaged(path, manifest), flushed, unnamed, lost_end, foreign)


def why_flush_lost(
    unlisted: Sequence[str], entries: Mapping[TopicPartition, int], *, has_rows: bool, has_offsets_family: bool
) -> str:
    """Why the MANIFEST of a database of 4.2 or older must have lost its end; empty if nothing indicates that.

    These releases write ``.checkpoint`` only after a flush, so a store without a row has no offset in it.

    Args:
        unlisted: complete SST files that the MANIFEST does not name.
        entries: the store's entries in ``.checkpoint``.
        has_rows: whether the database has a row.
        has_offsets_family: whether a newer release has opened it.
    """
    if has_offsets_family or has_rows or not unlisted or not migrated(entries):
        return ""
    files = shortened_list(unlisted, _NAMED)
    return f"it has no row, though {CHECKPOINT_FILE} has its offset, and does not name {files}"


def sst_format(file: Path) -> int | None:
    """The format version of an SST file; ``None`` if it is not one or is incomplete."""
    try:
        return sst_format_of(file)
    except (OSError, ValueError):
        return None


def _lost_end(
    manifest: Manifest, data: bytes, families: frozenset[str], unnamed: tuple[str, ...], state: DatabaseState
) -> str:
    """Why a MANIFEST with this content must have lost its end; empty if it need not.

    A kill leaves unnamed SST files too, so they alone prove nothing. But whatever Kafka Streams flushes has a status,
    and RocksDB writes OPTIONS after it has created a column family. OPTIONS may have been copied from another store: no
    row is lost with a family that no file is left of. RocksDB ignores zeros at the end, which a file system leaves.
    """
    gone = sorted(families - frozenset(state.column_families))
    if gone and (unnamed or OFFSETS_COLUMN_FAMILY in gone):
        return f"its OPTIONS name the column family {', '.join(gone)}, which it does not have"
    rest = len(data) - manifest.valid_bytes
    if data.count(0, manifest.valid_bytes) < rest or (rest and unnamed):
        return f"its last whole entry ends at byte {manifest.valid_bytes} of {len(data)}"
    if manifest.missing_edits and unnamed:
        return "it ends within the entries of one flush"
    if unnamed and OFFSETS_COLUMN_FAMILY in state.column_families and state.status is None and not state.offsets:
        return (
            f"it has neither status nor offset, and does not name {shortened_list(unnamed, _NAMED)}, which RocksDB "
            "deletes when it opens the database"
        )
    return ""


def _foreign_log(path: Path, manifest: Manifest, *, has_logs: bool) -> str:
    """Why a log is not this database's; empty if nothing indicates that.

    RocksDB replays a log whatever its sequence numbers are, except for rows of families that it does not know. Rows of
    a log from which nothing was flushed are younger than those in SST files, but for ingested files: only this library
    ingests files and leaves rows in a log (``has_logs``). Kafka Streams writes no row to a log.
    """
    logs = (log for log in path.glob("*.log") if log.stem.isdigit() and log.is_file())
    for log in sorted(log for log in logs if int(log.stem) >= manifest.log):
        with open_regular(log) as file:
            data = file.read(_LOG_BYTES)
        families, first = families_of_log(data), first_sequence(data)
        if unknown := sorted(number for number in families if number > manifest.greatest_family):
            if len(unknown) < len(families):
                return f"{log.name} has rows of the column family {unknown[0]}, which its MANIFEST does not have"
        elif families and first is not None and first <= manifest.last_flushed and not has_logs:
            return (
                f"{log.name} begins at the sequence number {first}, and its SST files have rows up to "
                f"{manifest.last_flushed}"
            )
    return ""


def _blobs_damaged(path: Path, manifest: Manifest) -> bool:
    try:
        check_blobs(path, path, manifest.blobs.values())
    except Corrupted:
        return True
    return False
