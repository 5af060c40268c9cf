"""Disk layout of each release of Kafka Streams, as data.

::

    release                     3.9                       4.2                       4.3, 4.4
    --------------------------  ------------------------  ------------------------  ----------------------------------
    RocksDB                     7.9.2                     10.1.3                    10.1.3
    newest SST format           5                         6                         6
    offsets of a store          .checkpoint               .checkpoint               column family offsets (KIP-1035);
                                                                                    grace buffers and stores of the
                                                                                    application's own classes in
                                                                                    .checkpoint_<store>
    .checkpoint                 kept after a close;       kept after a close;       read and deleted at a start,
                                under exactly-once also   under exactly-once also   where it wins over the stores
                                that of the last start    that of the last start
    position of a store         <store>.position          <store>.position          column family offsets; a file that
                                                                                    was left is merged, never deleted
    kinds with headers          none                      none                      as below (KIP-1271)
    status of a database        none                      none                      open, closed; 4.4 writes none with
                                                                                    transactional stores (KIP-892)

    kind                                 data column family                 directory                    older families
    -----------------------------------  ---------------------------------  ---------------------------  --------------
    key-value, versioned-key-value       default                            rocksdb/<store>
    list                                 default                            rocksdb/<store>
    timestamped-key-value                keyValueWithTimestamp              rocksdb/<store>              default
    headers-key-value                    keyValueWithTimestampAndHeaders    rocksdb/<store>              default, (1)
    window, join-window                  default                            <store>/<store>.<start ms>
    timestamped-window                   keyValueWithTimestamp              <store>/<store>.<start ms>   default
    headers-window                       keyValueWithTimestampAndHeaders    <store>/<store>.<start ms>   default, (1)
    session                              default                            <store>/<store>.<start ms>
    headers-session                      sessionKeyValueWithHeaders         <store>/<store>.<start ms>   default
    emit-final-window, -sliding-window   default                            <store>/<store>.<start ms>
    headers-emit-final-(sliding-)window  windowKeyValueWithHeaders          <store>/<store>.<start ms>   default
    emit-final-session                   default                            <store>/<store>.<start ms>
    headers-emit-final-session           sessionKeyValueWithHeaders         <store>/<store>.<start ms>   default
    grace-buffer                         default                            <store>/<store>.0

    custom (persistent, of the application's own class): determined by that class

    (1) keyValueWithTimestamp

Global stores are in ``global/``, in the same two layouts. Older families may still have rows of an
older format; Kafka Streams reads them below the newer ones and moves them one by one (``DualColumnFamilyAccessor``). A
database with a family that its kind does not have makes ``KafkaStreams.start()`` fail, so 4.2 and older open none that
has ``offsets``; and 3.9 reads no SST file of format 6.

From the sources of 3.9.1, 4.2.0, 4.3.1 and 4.4.0 (``RocksDBStore.openDB`` and its subclasses, ``AbstractSegments``,
``StateDirectory``, ``ProcessorStateManager``, ``LegacyCheckpointingStateStore``), and verified on their directories.
Kinds are named as in ``stores.yaml`` (:class:`statecore.formats.kinds.StoreKind`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

DEFAULT_COLUMN_FAMILY = "default"  # Family that every RocksDB database has; plain stores keep their rows here
OFFSETS_COLUMN_FAMILY = "offsets"  # Family with offsets, status and position (KIP-1035, AbstractColumnFamilyAccessor)
GLOBAL = "global"  # Directory of the global stores, which every instance of an application has; also their task name
PLAIN_PARENT = "rocksdb"  # Directory of unsegmented stores, in a task's directory
LOCK_FILE = ".lock"  # Lock file of an application's directory, locked while the application runs

PROCESS_FILE = "kafka-streams-process-metadata"
"""Process id file of an application's directory; the application writes it when it is missing."""

CHECKPOINT_FILE = ".checkpoint"  # Offsets of all stores of a task, in its directory or global/
POSITION_SUFFIX = ".position"  # Suffix of a store's position file: <store>.position
_WITH_TIMESTAMPS = "keyValueWithTimestamp"
_WITH_HEADERS = "keyValueWithTimestampAndHeaders"
_SESSION_WITH_HEADERS = "sessionKeyValueWithHeaders"
_WINDOW_WITH_HEADERS = "windowKeyValueWithHeaders"


@dataclass(frozen=True)
class KindOnDisk:
    """Layout of a store kind on disk."""

    family: str = DEFAULT_COLUMN_FAMILY  # column family of its rows
    segmented: bool = False  # whether it is a directory of databases, one per segment
    offset_inside: bool = True  # whether the release reads its offset from the family offsets
    older: frozenset[str] = frozenset()  # families that may have rows of an older format


@dataclass(frozen=True)
class OffsetFiles:
    """Offset files in a task's directory."""

    task: bool  # whether .checkpoint stays after a clean close
    # whether a writer that acts as this release may keep it while stores are open under exactly-once. 3.9.1 and 4.2.0
    # themselves do: they delete it at a start, and write it after the restore.
    task_while_open: bool
    stores: bool  # whether each store without its offset inside has a .checkpoint_<store>
    positions: bool  # whether each store has a <store>.position


@dataclass(frozen=True)
class Release:
    """Disk layout of a release of Kafka Streams."""

    name: str  # the release: 4.4
    rocksdb: str  # its version of RocksDB
    sst_format: int  # the newest SST format version that it reads, and the one that it writes
    offsets_inside: bool  # whether its databases have the family offsets
    files: OffsetFiles
    kinds: Mapping[str, KindOnDisk]  # layout of each kind that it knows
    transactional_stores: bool = False  # whether it knows enable.transactional.statestores (KIP-892)


def _kind(family: str = DEFAULT_COLUMN_FAMILY, *older: str, segmented: bool = False) -> KindOnDisk:
    return KindOnDisk(family, segmented, older=frozenset(older))


_KINDS_4_3 = {
    "key-value": _kind(),
    "timestamped-key-value": _kind(_WITH_TIMESTAMPS, DEFAULT_COLUMN_FAMILY),
    "headers-key-value": _kind(_WITH_HEADERS, DEFAULT_COLUMN_FAMILY, _WITH_TIMESTAMPS),
    "versioned-key-value": _kind(),
    "window": _kind(segmented=True),
    "timestamped-window": _kind(_WITH_TIMESTAMPS, DEFAULT_COLUMN_FAMILY, segmented=True),
    "headers-window": _kind(_WITH_HEADERS, DEFAULT_COLUMN_FAMILY, _WITH_TIMESTAMPS, segmented=True),
    "session": _kind(segmented=True),
    "headers-session": _kind(_SESSION_WITH_HEADERS, DEFAULT_COLUMN_FAMILY, segmented=True),
    "emit-final-window": _kind(segmented=True),
    "emit-final-sliding-window": _kind(segmented=True),
    "emit-final-session": _kind(segmented=True),
    "headers-emit-final-window": _kind(_WINDOW_WITH_HEADERS, DEFAULT_COLUMN_FAMILY, segmented=True),
    "headers-emit-final-sliding-window": _kind(_WINDOW_WITH_HEADERS, DEFAULT_COLUMN_FAMILY, segmented=True),
    "headers-emit-final-session": _kind(_SESSION_WITH_HEADERS, DEFAULT_COLUMN_FAMILY, segmented=True),
    "join-window": _kind(segmented=True),
    "list": _kind(),
    "grace-buffer": KindOnDisk(segmented=True, offset_inside=False),
}

_KINDS_4_2 = {
    name: KindOnDisk(kind.family, kind.segmented, offset_inside=False, older=kind.older)
    for name, kind in _KINDS_4_3.items()
    if not name.startswith("headers-")
}

_BESIDE = OffsetFiles(task=True, task_while_open=False, stores=False, positions=True)
_INSIDE = OffsetFiles(task=False, task_while_open=True, stores=True, positions=False)

RELEASES: Mapping[str, Release] = MappingProxyType(
    {
        release.name: release
        for release in (
            Release("3.9", "7.9.2", 5, False, _BESIDE, MappingProxyType(_KINDS_4_2)),
            Release("4.2", "10.1.3", 6, False, _BESIDE, MappingProxyType(_KINDS_4_2)),
            Release("4.3", "10.1.3", 6, True, _INSIDE, MappingProxyType(_KINDS_4_3)),
            Release("4.4", "10.1.3", 6, True, _INSIDE, MappingProxyType(_KINDS_4_3), transactional_stores=True),
        )
    }
)
"""Every known release, oldest first."""

CURRENT = RELEASES["4.4"]  # Release whose directory layout this library writes; 4.3 has the same

FAMILIES = frozenset({kind.family for kind in CURRENT.kinds.values()} | {DEFAULT_COLUMN_FAMILY, OFFSETS_COLUMN_FAMILY})
"""Every column family of any store kind, ``offsets`` included."""

FIRST_WITH_OFFSETS = next(name for name, release in RELEASES.items() if release.offsets_inside)

LAST_WITHOUT_OFFSETS = [name for name, release in RELEASES.items() if not release.offsets_inside][-1]
"""Newest release with offset files beside the stores; it opens no database with the family ``offsets``."""
