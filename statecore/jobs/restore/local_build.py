"""Build images on this machine from published runs.

Workers that share only the repository with the driver publish their runs there. The driver then downloads the runs and
builds the images, as a fetch does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from statecore.jobs.fetch.files import FetchedFiles
from statecore.jobs.fetch.store_to_fetch import stores_to_fetch
from statecore.jobs.pipeline.image_tasks import ImageResult
from statecore.jobs.pipeline.stages import build_images
from statecore.jobs.pipeline.staging_place import DirectoryPlace
from statecore.jobs.pipeline.store_to_build import BaseDirectory
from statecore.jobs.processes import ProcessEngine
from statecore.jobs.versioned_start import VersionedStart
from statecore.progress import Progress
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.manifest import TaskManifest
from statecore.spec.model import ApplicationSpec
from statecore.statedir.state_directory import StateDirectory


def build_locally(
    repository: ApplicationRepository,
    parts: Sequence[TaskManifest],
    directory: StateDirectory,
    staging: Path,
    spec: ApplicationSpec,
    memory_budget: int,
    progress: Progress,
    bases: Mapping[tuple[str, str], tuple[BaseDirectory, ...]] = MappingProxyType({}),
) -> dict[tuple[str, str], ImageResult]:
    """Download the runs of stores, and build their images with processes of this machine.

    Returns:
        (task, store) → result.
    """
    stores = stores_to_fetch(parts, VersionedStart.LATEST)
    files = FetchedFiles(directory)
    files.ensure_free_space(stores)
    progress.phase("download", sum(store.snapshot.file_bytes for store in stores), "bytes")
    files.bring(repository, stores, {}, progress.advance)
    progress.done()
    place = DirectoryPlace(str(files.path.absolute()))
    place.prepare()
    with ProcessEngine().start("restore", spec) as here:
        built = [store.built(files.hashed, store.snapshot.content) for store in stores]
        built = [replace(one, bases=bases.get((one.task, one.store), one.bases)) for one in built]
        images = build_images(here, spec.application_id, built, place, staging, memory_budget, progress)
    files.drop()
    return images
