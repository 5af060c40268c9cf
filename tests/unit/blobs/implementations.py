"""Every implementation of the seam, each with a fresh place of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from statecore.blobs.base import Blobs
from statecore.blobs.directory import DirectoryBlobs
from tests.harness.http_blobs import BlobServer, HttpBlobs

IMPLEMENTATIONS: dict[str, Callable[[Path], Blobs]] = {
    "directory": lambda place: DirectoryBlobs(place / "blobs"),
    "http": lambda place: HttpBlobs(BlobServer(place / "blobs").port),  # ends with the process
}
