"""The nouns of building: a run, an image, and how a store is divided by time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path


@dataclass(frozen=True)
class Segmentation:
    """How the rows of a store are divided by time.

    Attributes:
        retention_ms: how long rows are kept.
        interval_ms: time that one segment spans.
    """

    retention_ms: int
    interval_ms: int


class RunFormat(StrEnum):
    """What the file of a run is; a change that older releases cannot read gets a name of its own."""

    SST = "sst"
    """An SST file of the columnar writer (:mod:`statecore.images.sst`): the same bytes for the same rows."""

    RECORDS = "records"
    """Sorted records of a versioned store (:mod:`statecore.images.versions.sorted_records`), which are no rows yet:
    such a store is built from all of them, and cannot be advanced by a run."""


@dataclass(frozen=True)
class Run:
    """Rows of one offset range, last write per key, sorted in key order: one file, named by its hash.

    A run has no place. Whoever holds its bytes knows where they are (:class:`RunFile`, ``statecore/jobs/staging.py``).

    Attributes:
        sha256: hex digest of the whole file: its name, taken when it was finished and compared again after ingest.
        format: what the file is.
        rows: rows with a value.
        deletes: tombstones in the file.
        bytes: bytes of keys and values of the rows.
        file_bytes: size of the file.
        digest: order-free digest of the rows (see ``statecore.images.digest``), 32 hex digits.
        min_key: smallest key, hex.
        max_key: greatest key, hex.
        segment: id of the segment that the rows lie in; ``None`` where the store has no segments.
        start: first offset of the range.
        end: the offset it ends before; runs of a partition that are applied together have adjacent ranges.
        stream_time: greatest time of a row up to ``end`` in ms where rows expire, as whoever made it had seen; else -1.
    """

    sha256: str
    format: RunFormat
    rows: int
    deletes: int
    bytes: int
    file_bytes: int
    digest: str
    min_key: str
    max_key: str
    segment: int | None = None
    start: int = 0
    end: int = 0
    stream_time: int = -1


@dataclass(frozen=True, kw_only=True)
class RunFile(Run):
    """A run whose file is at hand.

    Attributes:
        path: the file; read or linked, never written to.
    """

    path: Path

    @property
    def run(self) -> Run:
        """The run, without the place."""
        return Run(**{item.name: getattr(self, item.name) for item in fields(Run)})

    @staticmethod
    def of(run: Run, path: Path) -> RunFile:
        """The run, with the place of its file."""
        return RunFile(**{item.name: getattr(run, item.name) for item in fields(Run)}, path=path)


@dataclass(frozen=True)
class Image:
    """A built store of one task: a database, or the directory of its segments' databases. It has no place either.

    Attributes:
        rows: live rows.
        bytes: bytes of keys and values of the rows.
        digest: order-free digest of the rows, equal for equal rows however they were built.
        file_bytes: bytes on disk.
        offsets: what its ``offsets`` family says: by ``<topic>-<partition>`` the last applied offset (a global store:
            the next one), or -4 (``OFFSET_UNKNOWN``) when the changelog is empty.
        segments: databases of segments; 0 where the store has none.
        expired: rows left out because their segment has expired.
    """

    rows: int
    bytes: int
    digest: str
    file_bytes: int
    offsets: Mapping[str, int]
    segments: int = 0
    expired: int = 0
