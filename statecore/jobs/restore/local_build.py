"""Build images on this machine from the files of a repository, as a fetch does.

Two kinds of store need it: one that is based on a snapshot, whose tail was read into runs of the staging directory, and
any one whose workers share only the repository with the driver, and have published its runs there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from statecore.jobs.bases.base import Key
from statecore.jobs.bases.base_database import BaseDirectory
from statecore.jobs.context import JobContext
from statecore.jobs.engine.processes import ProcessEngine
from statecore.jobs.fetch.files import FetchedFiles
from statecore.jobs.fetch.store_to_fetch import bytes_of_files, stores_to_fetch
from statecore.jobs.fields.catalog import VersionedStart
from statecore.jobs.pipeline.build_stage import build_images
from statecore.jobs.pipeline.image_tasks import ImageResult
from statecore.jobs.pipeline.ranges import RangeResult
from statecore.jobs.pipeline.read_stage import ReadResult
from statecore.jobs.pipeline.staging import file_name
from statecore.jobs.pipeline.staging_place import DirectoryPlace
from statecore.jobs.restore.request import RestoreRequest
from statecore.repository.manifest import Extent, TaskManifest


def build_locally(
    context: JobContext[RestoreRequest],
    task_manifests: Sequence[TaskManifest],
    staging: Path,
    bases: Mapping[Key, tuple[BaseDirectory, ...]],
    at_hand: Mapping[str, Path],
) -> dict[Key, ImageResult]:
    """Download the runs of stores, and build their images with processes of this machine.

    Args:
        at_hand: local paths of files by hash; they are not downloaded.
    """
    progress, spec = context.progress, context.spec
    stores = stores_to_fetch(task_manifests, VersionedStart.LATEST)
    files = FetchedFiles(context.directory)
    files.ensure_free_space(stores, at_hand)
    progress.phase("download", bytes_of_files(stores), "bytes")
    files.download(context.repository, stores, at_hand, progress.advance)
    progress.done()
    place = DirectoryPlace(str(files.path.absolute()))
    place.prepare()
    with ProcessEngine().start("restore", spec) as workers:
        built = [store.built(files.hashed, store.snapshot.content) for store in stores]
        built = [replace(one, bases=bases.get((one.task, one.store), one.bases)) for one in built]
        budget = context.request.memory_budget
        images = build_images(workers, spec.application_id, built, place, staging, budget, progress)
    files.drop()
    return images


def staged_runs(read: ReadResult, staging: Path) -> tuple[ReadResult, dict[str, Path]]:
    """What was read, with a placeholder where runs were not published; and the paths of all its runs by hash."""
    results = {key: tuple(map(_with_extents, of_store)) for key, of_store in read.runs.items()}
    runs = (run for of_store in results.values() for result in of_store for run in result.runs)
    return read._replace(runs=results), {run.sha256: staging / file_name(run.sha256) for run in runs}


def _with_extents(result: RangeResult) -> RangeResult:
    return (
        result
        if result.extents
        else replace(result, extents=tuple(Extent("", 0, run.file_bytes) for run in result.runs))
    )
