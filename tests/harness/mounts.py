"""Small file systems of their own: full, read-only, such as clone files; overlays. Only root may mount them."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from statecore.faults import FaultPoints


class Disk:
    """A file system of a fixed size, mounted at ``path``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def remount(self, options: str) -> None:
        """Change its options: ``ro``, ``rw``, ``size=8m``."""
        _run("mount", "-o", f"remount,{options}", str(self.path))

    @property
    def free(self) -> int:
        """Bytes that are left."""
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    def fill(self, leave: int = 0) -> Path:
        """Take up all room but ``leave`` bytes; deleting the file that is returned makes room again."""
        file = self.path / f"filler-{time.monotonic_ns()}"
        with file.open("wb", buffering=0) as out:
            while (left := self.free - leave) > 0:
                out.write(bytes(min(left, 1 << 20)))
        return file


class FullFrom(FaultPoints):
    """Takes up all room, but ``leave`` bytes, the first time that a point is reached; ``filler`` is what took it."""

    def __init__(self, disk: Disk, point: str, leave: int = 0) -> None:
        self.disk, self.point, self.leave = disk, point, leave
        self.filler: Path | None = None

    def reach(self, point: str) -> None:
        super().reach(point)
        if point == self.point and self.filler is None:
            self.filler = self.disk.fill(self.leave)


@contextmanager
def disk(path: Path, size: str) -> Iterator[Disk]:
    """Mount a file system of this size (``8m``) at a new directory; the test is skipped where that is not permitted."""
    path.mkdir()
    try:
        _run("mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "statecore-test", str(path))
    except (subprocess.CalledProcessError, FileNotFoundError) as error:
        pytest.skip(f"no file system can be mounted here: {getattr(error, 'stderr', error)}")
    try:
        yield Disk(path)
    finally:
        _run("umount", "--lazy", str(path))


@contextmanager
def bound(path: Path) -> Iterator[None]:
    """Mount a directory upon itself: a mount of its own, of the same file system; skipped where not permitted."""
    with bound_at(path, path):
        yield


@contextmanager
def bound_at(source: Path, path: Path) -> Iterator[None]:
    """Mount a directory at another, which there is; the test is skipped where that is not permitted."""
    try:
        _run("mount", "--bind", str(source), str(path))
    except (subprocess.CalledProcessError, FileNotFoundError) as error:
        pytest.skip(f"nothing can be mounted here: {getattr(error, 'stderr', error)}")
    try:
        yield
    finally:
        _run("umount", "--lazy", str(path))


@contextmanager
def overlay(path: Path, fill: Callable[[Path], object]) -> Iterator[Path]:
    """Mount an overlay at a new directory, as a container's root is; skipped where that is not permitted.

    Args:
        path: where; its layers lie beside it.
        fill: makes what is in the lower layer, which it is given.
    """
    with disk(path, "256m") as layers:
        lower, upper, work, merged = (layers.path / name for name in ("lower", "upper", "work", "merged"))
        for one in (lower, upper, work, merged):
            one.mkdir()
        fill(lower)
        options = f"lowerdir={lower},upperdir={upper},workdir={work},redirect_dir=off"
        try:
            _run("mount", "-t", "overlay", "statecore-test", "-o", options, str(merged))
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no overlay can be mounted here: {error.stderr}")
        try:
            yield merged
        finally:
            _run("umount", "--lazy", str(merged))


CLONING = {"xfs": ("mkfs.xfs", 320), "btrfs": ("mkfs.btrfs", 120)}
"""File systems that can clone files: what makes one, and the megabytes that it takes at least, most of them holes."""


@contextmanager
def cloning_disk(path: Path, kind: str) -> Iterator[Path]:
    """Mount a file system of a kind of :data:`CLONING` at a new directory; the test is skipped where that cannot be."""
    make, megabytes = CLONING[kind]
    image = path.with_name(f"{path.name}.image")
    path.mkdir()
    with image.open("xb") as file:
        file.truncate(megabytes << 20)
    try:
        _run(make, "-q", str(image))
        _run("mount", "-o", "loop", str(image), str(path))
    except (subprocess.CalledProcessError, FileNotFoundError) as error:
        pytest.skip(f"no {kind} can be mounted here: {getattr(error, 'stderr', error)}")
    try:
        yield path
    finally:
        _run("umount", "--lazy", str(path))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
