"""Run the merges of a compaction: runs are downloaded, merged and uploaded.

Runs are processed in batches of :data:`BATCH_BYTES`, or one merge that has more: the disk takes at most twice that, and
small results until they fill a pack. Memory takes a few megabytes per core, whatever the sizes.

A missing or damaged run is found by its hash. Its database is left as it is, and the other merges continue, because
waiting for a repair would gain them nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from statecore.cores import usable_cores
from statecore.errors import Corrupted, Invalid
from statecore.faults import FaultPoints
from statecore.images.merge_writer import merge_runs
from statecore.images.model import RunFile
from statecore.jobs.compact.plan import Merge
from statecore.jobs.pipeline.batches import batched_by_bytes
from statecore.jobs.pipeline.run_publisher import ApplicationAddress, Publisher
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.download import FILES, download
from statecore.repository.manifest import Extent, StoredRun

BATCH_BYTES = 512 << 20
"""Bytes of runs that are downloaded at one time."""


@dataclass
class Merged:
    """Results of merges.

    Attributes:
        outputs: merged run of each merge, by its index in the plan; ``None`` if no row was left. Skipped merges are
            missing.
        findings: problems of skipped merges, for the operator.
        damaged: indexes of skipped merges whose files are damaged or missing.
    """

    outputs: dict[int, StoredRun | None] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    damaged: set[int] = field(default_factory=set)
    downloaded_bytes: int = 0
    written_bytes: int = 0


class Merger:
    """Runs merges."""

    def __init__(
        self,
        repository: ApplicationRepository,
        scratch: Path,
        advance: Callable[[int], None],
        faults: FaultPoints,
        batch_bytes: int,
    ) -> None:
        self._repository, self._scratch, self._advance, self._faults = repository, scratch, advance, faults
        self._batch_bytes = batch_bytes
        self._publisher = Publisher(ApplicationAddress.of(repository))
        self._made = Merged()

    def run(self, merges: Sequence[Merge]) -> Merged:
        """Run all merges; every output is durable on return."""
        outputs = self._scratch / "outputs"
        outputs.mkdir()
        for batch in batched_by_bytes(list(enumerate(merges)), lambda task: task[1].bytes, self._batch_bytes):
            inputs = self._scratch / "inputs"
            usable = self._intact(batch, inputs)
            self._faults.reach("compact.after-download")
            with ThreadPoolExecutor(usable_cores(), "statecore-compact") as pool:
                work = [pool.submit(_merged, one, inputs, outputs / str(number)) for number, one in usable]
                for (number, one), done in zip(usable, work, strict=True):
                    try:
                        self._keep(number, done.result())
                    except (Corrupted, Invalid) as error:
                        self._skip(number, one, error)
                    self._advance(one.bytes)
            shutil.rmtree(inputs)
            self._faults.reach("compact.after-merge")
        self._publisher.flush()
        return self._made

    def _intact(self, merges: Sequence[tuple[int, Merge]], directory: Path) -> list[tuple[int, Merge]]:
        """Download the runs of some merges; returns the merges whose runs are intact."""
        try:
            self._download([one for _, one in merges], directory)
            return list(merges)
        except Corrupted:  # find out which merge is affected; intact files are not downloaded again
            usable = []
            for number, one in merges:
                try:
                    self._download([one], directory)
                    usable.append((number, one))
                except Corrupted as error:
                    self._skip(number, one, error)
                    self._advance(one.bytes)
            return usable

    def _download(self, merges: Sequence[Merge], directory: Path) -> None:
        wanted = [file for one in merges for file in one.wanted]
        self._made.downloaded_bytes += download(self._repository, wanted, directory, keeps=False).bytes

    def _keep(self, number: int, output: RunFile | None) -> None:
        if output is None:
            self._made.outputs[number] = None
            return
        self._made.written_bytes += output.file_bytes

        def published(extents: Sequence[Extent]) -> None:
            self._made.outputs[number] = StoredRun(output.run, extents[0])
            output.path.unlink()

        self._publisher.publish([output], published)

    def _skip(self, number: int, merge: Merge, error: Corrupted | Invalid) -> None:
        if isinstance(error, Corrupted):
            self._made.damaged.add(number)
        self._made.findings.append(
            f"The runs of {merge.name} were not compacted, and stay as they are: {error.what} {error.action}"
        )


def _merged(merge: Merge, inputs: Path, path: Path) -> RunFile | None:
    runs = [RunFile.of(one.run, inputs / FILES / one.run.sha256) for one in merge.inputs]
    return merge_runs(path, runs, keep_tombstones=not merge.is_lowest)
