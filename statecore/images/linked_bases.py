"""Bases: closed databases below the runs of an image, linked and never written to.

A base is an image of ours or a database that Kafka Streams left. Before anything is built, each is opened read-only: it
must be of the kind, closed cleanly or transactional (its status is not open), and end exactly where the runs begin.
Then its SST files are hard-linked into the image's directory; files that RocksDB appends to (``CURRENT``, ``MANIFEST``,
``OPTIONS``, logs) are copied. Neither reads a row, so both cost milliseconds whatever the base's size.

**The identity of a base** is that of its image, where the caller knows that no process has opened it since. Otherwise
it is a hash over its MANIFEST's entry of every SST file (column family, level, number, size, first and last key,
sequence numbers, and the identity that RocksDB gives to each file it writes) and blob file, RocksDB's name for the
database (``IDENTITY``), and the logs, which are empty after a clean close. RocksDB's identities of files and databases
are random, so databases that were written separately, or copied and then written to, never share one. The two forms
have different prefixes.
"""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from statecore.errors import Fenced, Invalid
from statecore.filesystem import link_or_copy
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import STATUS_CLOSED
from statecore.formats.rocksdb_log import Manifest
from statecore.formats.topic_partition import TopicPartition, offsets_in_words
from statecore.images.model import segment_order
from statecore.stores.rocksdb.directory import identity_of, make_directory
from statecore.stores.rocksdb.errors import translate
from statecore.stores.rocksdb.files import manifest_of
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.settings import KEEP_FILES

_REBUILD = "Build the store without this base, from the start of its changelog."
_COPIED = ("IDENTITY", "OPTIONS-*", "*.log")


@dataclass(frozen=True)
class ImageBase:
    """One database below the runs."""

    path: Path  # its directory; closed, and opened by no process meanwhile
    # identity of its image (Image.identity), if the caller knows that no process has opened it since it was built;
    # otherwise None
    image: str | None = None


@dataclass(frozen=True)
class ImageBases:
    """The databases below the runs of a store.

    The image replaces their offsets. A position, which Kafka Streams keeps for queries that wait for one, stays: it is
    older than the rows then, so that such a query waits longer, and never sees too little.
    """

    # by segment, None for a store without segments. A store with segments has one for each existing segment; expired
    # ones are left out of the image.
    databases: Mapping[int | None, ImageBase]
    starts: Mapping[TopicPartition, int]  # offset at which the runs begin, by changelog partition
    # whether the databases store the next offset, as global stores do, not the last applied one
    global_store: bool = False

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """Offsets that each database must store."""
        return {partition: start - (not self.global_store) for partition, start in self.starts.items()}


@dataclass(frozen=True)
class CheckedBase:
    """A base that was checked."""

    path: Path
    identity: str
    sorted_runs: tuple[int, ...]  # bytes of the sorted runs of its rows, oldest first
    manifest: str  # name of its MANIFEST
    files: tuple[Path, ...]  # its SST files and blob files
    # files that a writer changes, before the check: hashes of CURRENT, MANIFEST and logs, by name
    state: Mapping[str, str]


def checked_bases(
    bases: ImageBases, kind: StoreKind, partitions: Sequence[TopicPartition]
) -> dict[int | None, CheckedBase]:
    """Check every base without changing it."""
    if not kind.is_segmented and not bases.databases:
        raise ValueError("a base has at least one database")
    if any((segment is not None) != kind.is_segmented for segment in bases.databases):
        raise ValueError(f"a {kind.value} store is {'' if kind.is_segmented else 'not '}divided into segments")
    if set(bases.starts) != set(partitions):
        raise ValueError("base and image have offsets of different partitions")
    return {
        segment: _checked(bases.databases[segment], kind, bases.offsets)
        for segment in sorted(bases.databases, key=segment_order)
    }


def refuse_advance(kind: StoreKind) -> None:
    """Refuse to build kinds on a base whose stores must be rebuilt from all records. Raises ``Invalid``."""
    if kind.is_versioned:
        raise Invalid(
            f"A {kind.value} store is built from all records of its changelog, and cannot be advanced from a base.",
            code="kind-unsupported",
            action=_REBUILD,
            kind=kind.value,
        )


def _checked(base: ImageBase, kind: StoreKind, offsets: Mapping[TopicPartition, int]) -> CheckedBase:
    path = base.path
    before = _state(path)
    with RocksDBStore(path, kind, read_only=True, settings=KEEP_FILES) as store:  # refuses other kinds and older rows
        status, stored = store.status, store.committed_offsets()
    if status not in (None, STATUS_CLOSED):
        raise _unfit(path, f"was not closed cleanly (status {status}), so its rows may be ahead of its offset")
    if not stored:
        raise _unfit(path, "has no offset")
    if stored != offsets:
        raise _unfit(path, f"has {offsets_in_words(stored)}, and these runs need {offsets_in_words(offsets)}")
    current, manifest = manifest_of(path)
    files = tuple(path / name for name in manifest.names)
    levels: dict[int, int] = defaultdict(int)
    newest = []
    for file in sorted(manifest.files.values(), key=lambda file: file.number):
        if file.family != kind.data_column_family:
            continue
        if file.level:
            levels[file.level] += file.size
        else:
            newest.append(file.size)
    sorted_runs = tuple(levels[level] for level in sorted(levels, reverse=True)) + tuple(newest)
    identity = f"rocksdb:{_files_identity(path, manifest)}" if base.image is None else f"image:{base.image}"
    return CheckedBase(path, identity, sorted_runs, current, files, before)


def _state(path: Path) -> dict[str, str]:
    """Hashes of the files of which every writer changes at least one, even one without a log."""
    try:
        names = ["CURRENT", (path / "CURRENT").read_text().strip(), *(file.name for file in path.glob("*.log"))]
        return {name: sha256((path / name).read_bytes()).hexdigest() for name in sorted(names)}
    except FileNotFoundError:  # no database, or one that changes: the check or the comparison reports it
        return {}


def _files_identity(path: Path, manifest: Manifest) -> str:
    logs = {file.name: sha256(file.read_bytes()).hexdigest() for file in path.glob("*.log") if file.stat().st_size}
    document = [
        identity_of(path),
        [[file.family, file.entry.hex()] for _, file in sorted(manifest.files.items())],
        sorted(logs.items()),
    ]
    if manifest.blobs:
        document.append([[blob.family, blob.entry.hex()] for _, blob in sorted(manifest.blobs.items())])
    return sha256(json.dumps(document, separators=(",", ":")).encode()).hexdigest()


def link_base(base: CheckedBase, target: Path) -> None:
    """Copy a base: hard links of its SST and blob files (copies on another file system), copies of the rest."""
    make_directory(target)
    try:
        for file in base.files:
            link_or_copy(file, target / file.name)
        for file in (base.path / base.manifest, *(file for name in _COPIED for file in base.path.glob(name))):
            shutil.copyfile(file, target / file.name)
        shutil.copyfile(base.path / "CURRENT", target / "CURRENT")
        changed = _state(target) != base.state
    except FileNotFoundError:
        changed = True
    except OSError as error:
        raise translate(base.path, "Linking", error) from error
    if changed:
        raise Fenced(
            f"The database at {base.path} was opened while an image was being built on it.",
            code="store-open",
            action="Stop the process that has it open, and build again.",
            store_path=str(base.path),
        )


def _unfit(path: Path, why: str) -> Invalid:
    return Invalid(
        f"The database at {path} cannot be a base: it {why}.",
        code="base-unfit",
        action=_REBUILD,
        store_path=str(path),
        reason=why,
    )
