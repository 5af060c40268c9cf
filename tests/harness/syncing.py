"""What is forced to the disk, seen where the system is asked for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def synced_paths(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files and directories that this process forces to the disk from now on, in order; it grows."""
    fsync, synced = os.fsync, list[Path]()

    def noting(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    return synced
