"""The nouns of building: a run, an image, and how a store is divided by time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Segmentation:
    """How the rows of a store are divided by time.

    Attributes:
        retention_ms: how long rows are kept.
        interval_ms: time that one segment spans.
    """

    retention_ms: int
    interval_ms: int


@dataclass(frozen=True)
class Run:
    """Rows of one offset range, last write per key, sorted in key order: one SST file.

    Attributes:
        path: the SST file (of versioned stores: the sorted records, see ``statecore.images.versions``).
        rows: rows with a value.
        deletes: tombstones in the file.
        bytes: bytes of keys and values of the rows.
        file_bytes: size of the file.
        sha256: hex digest of the whole file, taken when it was finished and compared again after ingest.
        digest: order-free digest of the rows (see ``statecore.images.digest``), 32 hex digits.
        min_key: smallest key, hex.
        max_key: greatest key, hex.
        segment: id of the segment that the rows lie in; ``None`` where the store has no segments.
    """

    path: str
    rows: int
    deletes: int
    bytes: int
    file_bytes: int
    sha256: str
    digest: str
    min_key: str
    max_key: str
    segment: int | None = None


@dataclass(frozen=True)
class Image:
    """A built store of one task: a database, or the directory of its segments' databases.

    Attributes:
        path: the directory of the store.
        rows: live rows.
        bytes: bytes of keys and values of the rows.
        digest: order-free digest of the rows, equal for equal rows however they were built.
        file_bytes: bytes on disk.
        offsets: what its ``offsets`` family says: by ``<topic>-<partition>`` the last applied offset (a global store:
            the next one), or -4 (``OFFSET_UNKNOWN``) when the changelog is empty.
        segments: databases of segments; 0 where the store has none.
        expired: rows left out because their segment has expired.
    """

    path: str
    rows: int
    bytes: int
    digest: str
    file_bytes: int
    offsets: Mapping[str, int]
    segments: int = 0
    expired: int = 0
