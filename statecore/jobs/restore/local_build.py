"""Build images on this machine from published runs.

Workers that share only the repository with the driver publish their runs there. The driver then downloads the runs and
builds the images, as a fetch does.
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
from statecore.jobs.pipeline.staging_place import DirectoryPlace
from statecore.jobs.restore.request import RestoreRequest
from statecore.repository.manifest import TaskManifest


def build_locally(
    context: JobContext[RestoreRequest],
    task_manifests: Sequence[TaskManifest],
    staging: Path,
    bases: Mapping[Key, tuple[BaseDirectory, ...]],
) -> dict[Key, ImageResult]:
    """Download the runs of stores, and build their images with processes of this machine."""
    progress, spec = context.progress, context.spec
    stores = stores_to_fetch(task_manifests, VersionedStart.LATEST)
    files = FetchedFiles(context.directory)
    files.ensure_free_space(stores)
    progress.phase("download", bytes_of_files(stores), "bytes")
    files.download(context.repository, stores, {}, progress.advance)
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
