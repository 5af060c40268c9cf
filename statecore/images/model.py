"""The nouns of building: a run, an image."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Run:
    """Rows of one offset range, last write per key, sorted in key order: one SST file.

    Attributes:
        path: the SST file.
        rows: rows with a value.
        deletes: tombstones in the file.
        bytes: bytes of keys and values of the rows.
        file_bytes: size of the file.
        sha256: hex digest of the whole file, taken when it was finished and compared again after ingest.
        digest: order-free digest of the rows (see ``statecore.images.digest``), 32 hex digits.
        min_key: smallest key, hex.
        max_key: greatest key, hex.
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


@dataclass(frozen=True)
class Image:
    """A built database of one store of one task.

    Attributes:
        path: the database directory.
        rows: live rows.
        bytes: bytes of keys and values of the rows.
        digest: order-free digest of the rows, equal for equal rows however they were built.
        file_bytes: bytes on disk.
        committed_offset: the offset in its ``offsets`` family; -4 (``OFFSET_UNKNOWN``) when the changelog is empty.
    """

    path: str
    rows: int
    bytes: int
    digest: str
    file_bytes: int
    committed_offset: int
