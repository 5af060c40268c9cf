"""Every implementation of the seam, each with a fresh place of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from statecore.blobs.base import Blobs
from statecore.blobs.directory import DirectoryBlobs

IMPLEMENTATIONS: dict[str, Callable[[Path], Blobs]] = {
    "directory": lambda place: DirectoryBlobs(place / "blobs"),
}
