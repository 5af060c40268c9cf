"""Bases of an image: directories that exist, or databases made of links to downloaded files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from statecore.errors import Corrupted, NotFound
from statecore.filesystem import file_sha256, is_unmodified, link_or_copy
from statecore.formats.offsets import next_offset
from statecore.formats.releases import GLOBAL
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.bases.base_database import BaseDirectory, BaseFiles
from statecore.jobs.pipeline import staging
from statecore.jobs.pipeline.store_to_build import StoreToBuild
from statecore.objectstore.base import Blobs
from statecore.statedir.database_state import read_database_state

if TYPE_CHECKING:
    from statecore.images.linked_bases import ImageBases


def image_bases(scratch: Path, built: StoreToBuild, blobs: Blobs) -> ImageBases | None:
    """The databases below the runs: existing directories, or links to downloaded files."""
    from statecore.images.linked_bases import ImageBase, ImageBases

    databases: dict[int | None, ImageBase] = {}
    starts: dict[TopicPartition, int] = {}
    for number, base in enumerate(built.bases):
        if isinstance(base, BaseDirectory):
            if starts not in ({}, base.starts):
                raise ValueError("the databases of a store end at the same offsets")
            databases[base.segment], starts = ImageBase(Path(base.path)), dict(base.starts)
        else:
            directory = scratch / f"base-{number}"
            starts = _linked_base(directory, base, built, blobs)
            databases[base.segment] = ImageBase(directory)
    return ImageBases(databases, starts, global_store=built.task == GLOBAL) if databases else None


def _linked_base(directory: Path, base: BaseFiles, built: StoreToBuild, blobs: Blobs) -> dict[TopicPartition, int]:
    """Build a database of links to its files; returns by changelog partition the offset that it ends before."""
    directory.mkdir()
    for name, sha256 in base.files.items():
        try:
            path = blobs.local_path(staging.file_name(sha256))
        except NotFound as error:  # another store that uses it may have found it damaged and deleted it
            raise Corrupted(
                f"The file {name} of store {built.store!r} of task {built.task} is missing.",
                code="staged-file-missing",
                action="Run this again: the file is downloaded again.",
                task=built.task,
                store=built.store,
            ) from error
        if path is None:
            raise ValueError("bases are built on the machine that has their files")
        link_or_copy(path, directory / name)
        _check_base_file(built, directory / name, sha256)
    offsets = read_database_state(directory).offsets
    if offsets.keys() != built.offsets.keys():
        raise Corrupted(
            f"The base of store {built.store!r} of task {built.task} has offsets of "
            f"{', '.join(map(str, sorted(offsets))) or 'no partition'}, but the store has offsets of "
            f"{', '.join(map(str, sorted(built.offsets)))}.",
            code="base-offsets-mismatch",
            action="Take another snapshot, or build the store from its changelog.",
            task=built.task,
            store=built.store,
        )
    is_global = built.task == GLOBAL
    return {partition: next_offset(offset, is_global=is_global) for partition, offset in offsets.items()}


def _check_base_file(built: StoreToBuild, path: Path, sha256: str) -> None:
    """Check that a file of a base is still what was downloaded; it is not hashed after this. Raises ``Corrupted``."""
    if not is_unmodified(path, built.hashed.get(sha256)) and file_sha256(path) != sha256:
        raise Corrupted(
            f"The file {path.name} of store {built.store!r} of task {built.task} has changed since it was downloaded.",
            code="staged-file-corrupted",
            action="Check the disk, and run this again: the file is downloaded again.",
            task=built.task,
            store=built.store,
            file=path.name,
        )
