"""Download the files of a fetch, and build its stores on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from statecore.errors import Corrupted
from statecore.jobs.engine import Engine, Workers
from statecore.jobs.fetch.digests import FetchedContents
from statecore.jobs.fetch.files import FetchedFiles
from statecore.jobs.fetch.plan import FetchPlan
from statecore.jobs.in_process_engine import InProcessEngine
from statecore.jobs.job import Job
from statecore.jobs.pipeline import staging
from statecore.jobs.pipeline.build_stage import build_images
from statecore.jobs.pipeline.image_tasks import ImageResult
from statecore.jobs.pipeline.staging_place import DirectoryPlace
from statecore.jobs.process_engine import ProcessEngine
from statecore.repository.download import DownloadResult

_SMALL = 64 << 20
"""Bytes below which this process builds the stores itself, because worker processes take longer to start."""

_LINKING = ("statecore.jobs.pipeline.image_tasks", "statecore.images.image", "statecore.images.bases")
_PRELOADED = (*_LINKING, "statecore.images.kernels.kernel")


@dataclass(frozen=True)
class FetchBuilder:
    """Builds the stores of one fetch.

    Attributes:
        files: the downloaded files.
        contents: the known digests of the stores.
    """

    job: Job
    files: FetchedFiles
    contents: FetchedContents

    def run(
        self, todo: FetchPlan, at_hand: Mapping[str, Path], work: Path
    ) -> tuple[DownloadResult, dict[tuple[str, str], ImageResult]]:
        """Download and build; files that were damaged locally since their download are downloaded again."""
        with self._engine(todo).start("fetch", self.job.spec) as workers:
            came = self._download(todo, at_hand)
            try:
                return came, self._build(workers, todo, work)
            except Corrupted as error:
                self.job.say(f"Downloaded again, because it was damaged on this machine: {error.what}")
            again = self._download(todo, {})
            came = DownloadResult(came.bytes + again.bytes, came.files + again.files, came.kept_bytes, came.kept)
            return came, self._build(workers, todo, work)

    def _engine(self, todo: FetchPlan) -> Engine:
        """Processes for much work; this process alone for little, or if files only need to be linked."""
        is_small = todo.file_bytes < _SMALL or all(store.is_linked(self.contents.of(store)) for store in todo.stores)
        if self.job.context.request.processes == 1 or (self.job.context.request.processes is None and is_small):
            return InProcessEngine(_LINKING)
        return ProcessEngine(self.job.context.request.processes, _PRELOADED)

    def _download(self, todo: FetchPlan, at_hand: Mapping[str, Path]) -> DownloadResult:
        with self.job.phase("download"):
            self.job.progress.phase(
                "download", sum(one.snapshot.file_bytes for one in todo.stores if not one.left), "bytes"
            )

            def advance(amount: int) -> None:
                self.job.progress.advance(amount)
                self.job.faults.reach("fetch.during-download")

            came = self.files.download(self.job.context.repository, todo.stores, at_hand, advance)
            self.job.progress.done()
        self.job.faults.reach("fetch.after-download")
        return came

    def _build(self, workers: Workers, todo: FetchPlan, work: Path) -> dict[tuple[str, str], ImageResult]:
        with self.job.phase("build"):
            place = DirectoryPlace(str(self.files.path.absolute()))
            place.prepare()
            staging.clear_attempts(work)
            hashed, count = self.files.hashed, self.job.context.request.count
            stores = [store.built(hashed, self.contents.of(store), count=count) for store in todo.stores]
            budget = self.job.context.request.memory_budget
            application_id, progress = self.job.spec.application_id, self.job.progress
            images = build_images(workers, application_id, stores, place, work, budget, progress)
            for store in todo.stores:
                self.contents.compare(store, images[store.key].image.content)
        self.job.faults.reach("fetch.after-images")
        return images
