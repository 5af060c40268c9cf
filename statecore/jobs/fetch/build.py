"""Download the files of a fetch, and build its stores on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from statecore.errors import Corrupted
from statecore.jobs.engine.in_process import SMALL_BYTES, InProcessEngine
from statecore.jobs.engine.processes import ProcessEngine
from statecore.jobs.engine.protocol import Engine, Workers
from statecore.jobs.fetch.job import FetchJob
from statecore.jobs.fetch.plan import FetchPlan
from statecore.jobs.pipeline import staging
from statecore.jobs.pipeline.build_stage import build_images
from statecore.jobs.pipeline.image_tasks import ImageResult
from statecore.jobs.pipeline.staging_place import DirectoryPlace
from statecore.repository.download import DownloadResult

_LINKING = ("statecore.jobs.pipeline.image_tasks", "statecore.images.image", "statecore.images.linked_bases")
_PRELOADED = (*_LINKING, "statecore.images.kernels.kernel")


def download_and_build(
    job: FetchJob, plan: FetchPlan, at_hand: Mapping[str, Path], work: Path
) -> tuple[DownloadResult, dict[tuple[str, str], ImageResult]]:
    """Download and build; files that were damaged locally since their download are downloaded again."""
    with _engine(job, plan).start("fetch", job.spec) as workers:
        downloaded = _download(job, plan, at_hand)
        try:
            return downloaded, _build(job, workers, plan, work)
        except Corrupted as error:
            job.say(f"Downloaded again, because it was damaged on this machine: {error.what}")
        again = _download(job, plan, {})
        downloaded = DownloadResult(
            downloaded.bytes + again.bytes,
            downloaded.files + again.files,
            downloaded.existing_bytes,
            downloaded.existing,
        )
        return downloaded, _build(job, workers, plan, work)


def _engine(job: FetchJob, plan: FetchPlan) -> Engine:
    """Processes for much work; this process alone for little, or if files only need to be linked."""
    processes, count = job.request.processes, job.request.count
    is_small = plan.file_bytes < SMALL_BYTES or all(
        store.is_linked(job.contents.of(store), asked=count) for store in plan.stores
    )
    if processes == 1 or (processes is None and is_small):
        return InProcessEngine(_LINKING)
    return ProcessEngine(processes, _PRELOADED)


def _download(job: FetchJob, plan: FetchPlan, at_hand: Mapping[str, Path]) -> DownloadResult:
    with job.phase("download"):
        job.progress.phase("download", plan.file_bytes, "bytes")

        def advance(amount: int) -> None:
            job.progress.advance(amount)
            job.faults.reach("fetch.during-download")

        downloaded = job.files.download(job.repository, plan.stores, at_hand, advance)
        job.progress.done()
    job.faults.reach("fetch.after-download")
    return downloaded


def _build(job: FetchJob, workers: Workers, plan: FetchPlan, work: Path) -> dict[tuple[str, str], ImageResult]:
    with job.phase("build"):
        place = DirectoryPlace(str(job.files.path.absolute()))
        place.prepare()
        staging.clear_attempts(work)
        stores = [
            store.built(job.files.hashed, job.contents.of(store), count=job.request.count) for store in plan.stores
        ]
        budget = job.request.memory_budget
        images = build_images(workers, job.spec.application_id, stores, place, work, budget, job.progress)
        for store in plan.stores:
            job.contents.compare(store, images[store.key].image.content)
    job.faults.reach("fetch.after-images")
    return images
