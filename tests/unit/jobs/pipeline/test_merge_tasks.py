"""Slices of a database as tasks: complete ones of an earlier attempt are reused, others merged again."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from statecore.changelog.model import OffsetRange, ReadStatistics
from statecore.errors import Capacity, Corrupted, NotFound, Retryable
from statecore.formats.kinds import StoreKind
from statecore.formats.segments import Segmentation
from statecore.formats.topic_partition import TopicPartition
from statecore.images.model import StoreDigest
from statecore.jobs.engine.processes import ProcessEngine
from statecore.jobs.engine.protocol import Failure
from statecore.jobs.pipeline import build_stage, staging
from statecore.jobs.pipeline.build_stage import build_images, stores_to_build
from statecore.jobs.pipeline.image_tasks import ImageResult, ImageTask, build_stores
from statecore.jobs.pipeline.merge_tasks import SliceResult, SliceTask, merge_slices, slice_tasks, slices_of
from statecore.jobs.pipeline.ranges import RANGE_RESULT, RangeResult
from statecore.jobs.pipeline.staging import FILES
from statecore.jobs.pipeline.staging_place import DirectoryPlace
from statecore.jobs.pipeline.store_to_build import AppliedRuns, StoreToBuild
from statecore.jobs.planning.plan import PartitionPlan, ReadPlan
from statecore.objectstore.base import Blobs
from statecore.objectstore.directory import DirectoryBlobs
from statecore.progress import NullProgress
from statecore.spec.model import ProcessingGuarantee
from tests.harness.case_selection import one_of
from tests.harness.verify_image import verify_image
from tests.unit.images.sst_files import Rows, written
from tests.unit.images.test_key_range_merge import many_blocks
from tests.unit.images.test_merge_writer import runs_of
from tests.unit.images.test_runs_digest import of_dict
from tests.unit.jobs import work
from tests.unit.jobs.fetch.fetching import cut, flipped
from tests.unit.jobs.support import spec

CHANGELOG = TopicPartition("app-store-changelog", 0)
KIND = StoreKind.KEY_VALUE


SLICE = 200_000


class Raided(DirectoryPlace):
    """A place from which another worker takes each run away as soon as it was found."""

    def blobs(self) -> Blobs:
        class Taken(DirectoryBlobs):
            def local_path(self, name: str) -> Path:
                path = super().local_path(name)
                if name.startswith(f"{FILES}/"):
                    path.unlink()
                return path

        return Taken(self.directory)


class Elsewhere(DirectoryPlace):
    """A place that is no directory of this machine."""

    def blobs(self) -> Blobs:
        class Remote(DirectoryBlobs):
            def local_path(self, name: str) -> None:  # type: ignore[override]
                return None

        return Remote(self.directory)


@pytest.fixture
def place(tmp_path: Path) -> DirectoryPlace:
    made = DirectoryPlace(str(tmp_path / "plan"))
    made.prepare()
    staging.prepare(tmp_path / "plan")
    return made


def contents(count: int, seed: int = 1) -> list[Rows]:
    source = random.Random(seed)
    return [
        {b"key-%05d" % source.randrange(4000): source.choice([None, source.randbytes(200)]) for _ in range(2000)}
        for _ in range(count)
    ]


def ranges_of(
    place: DirectoryPlace, path: Path, all_rows: Sequence[Rows], segment: int | None = None
) -> list[RangeResult]:
    """A range for each, read and put as a task of the first stage does it."""
    path.mkdir(parents=True, exist_ok=True)
    results = []
    for number, rows in enumerate(all_rows):
        span = OffsetRange(CHANGELOG.topic, 0, 100 * number, 100 * number + 100)
        file = replace(written(path / f"{number}.sst", rows), segment=segment, start=span.start, end=span.end)
        staging.keep(place.blobs(), file)
        result = RangeResult(
            "0_0", "store", span, (file.run,), ReadStatistics(records=1, position=span.end), 0.1, {}, {}
        )
        place.blobs().put_if_absent(staging.result_name("0_0", "store", span), RANGE_RESULT.encode(result))
        results.append(result)
    return results


def tasks_of(place: DirectoryPlace, results: Sequence[RangeResult]) -> list[SliceTask]:
    names = [staging.result_name(result.task, result.store, result.offset_range) for result in results]
    return slice_tasks(place, "0_0", "store", [run for one in results for run in one.runs], names, 0, SLICE)


def merged(tasks: Sequence[SliceTask]) -> list[SliceResult]:
    answers = merge_slices(tasks)
    assert len(answers) == len(tasks)
    found = [answer for answer in answers if isinstance(answer, SliceResult)]
    assert len(found) == len(tasks), answers
    return found


def built(
    place: DirectoryPlace, results: Sequence[RangeResult], slices: Sequence[SliceResult]
) -> ImageResult | Failure:
    parts = tuple(
        AppliedRuns(one.runs, one.stream_time, staging.result_name("0_0", "store", one.offset_range)) for one in results
    )
    store = StoreToBuild("0_0", "store", KIND, {CHANGELOG: 1}, parts)
    task = ImageTask(place, place.directory, store, 1 << 20, tuple(slices))
    (answer,) = build_stores([task])
    return answer


def content_of(answer: ImageResult | Failure) -> StoreDigest | None:
    assert isinstance(answer, ImageResult), answer
    return answer.image.content


def blob(place: DirectoryPlace, name: str) -> Path:
    return place.blobs().local_path(name) or Path()


def test_an_image_of_slices_has_the_rows_of_the_runs(place: DirectoryPlace, tmp_path: Path) -> None:
    rows = contents(5)
    results = ranges_of(place, tmp_path / "runs", rows)
    tasks = tasks_of(place, results)
    assert len(tasks) > 3
    slices = merged(random.Random(1).sample(tasks, len(tasks)))
    assert content_of(built(place, results, slices)) == of_dict(rows)
    image = staging.image_path(Path(place.directory), "0_0", "store") / staging.DATABASE
    assert verify_image(image, KIND, [CHANGELOG]).content == of_dict(rows)
    assert {file.stat().st_ino for file in image.glob("*.sst")} >= {
        blob(place, staging.run_name(run)).stat().st_ino for one in slices for run in one.made
    }, "no byte is copied"


def test_a_finished_slice_is_not_merged_again(place: DirectoryPlace, tmp_path: Path) -> None:
    results = ranges_of(place, tmp_path / "runs", contents(4))
    first = merged(tasks_of(place, results))
    for run in (run for one in results for run in one.runs):
        blob(place, staging.run_name(run)).write_bytes(b"nothing could be merged of this")
    assert merged(tasks_of(place, results)) == first


def test_a_slice_whose_worker_was_killed_is_merged_again_and_no_other(place: DirectoryPlace, tmp_path: Path) -> None:
    rows = contents(5)
    results = ranges_of(place, tmp_path / "runs", rows)
    tasks = tasks_of(place, results)
    (before,) = merged(tasks[:1])
    was = blob(place, before.name).stat().st_ino
    left = Path(place.directory) / "attempts"
    with (
        ProcessEngine(1, preloaded=()).start("test", spec()) as workers,
        pytest.raises(Capacity, match="while slices were merged"),
    ):
        workers.run(work.merge_and_die, [tasks[:2]], "slices were merged")
    assert len(list(left.rglob("merged-*"))) == 1, "it was killed in the middle"
    with pytest.raises(NotFound):
        place.blobs().head(tasks[1].name)
    place.prepare()
    assert not any(left.iterdir())
    slices = merged_by_processes(tasks)
    assert blob(place, before.name).stat().st_ino == was
    assert content_of(built(place, results, slices)) == of_dict(rows)


def merged_by_processes(tasks: Sequence[SliceTask]) -> list[SliceResult]:
    with ProcessEngine(2, preloaded=()).start("test", spec()) as workers:
        answers = workers.run(merge_slices, [[task] for task in tasks], "slices were merged")
    return sorted((one for one in answers if isinstance(one, SliceResult)), key=lambda one: one.part)


def test_a_slice_and_its_result_are_synced_once(
    place: DirectoryPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = tasks_of(place, ranges_of(place, tmp_path / "runs", contents(5)))
    merged(tasks[:1])
    forced: list[str] = []
    fsync = os.fsync

    def force(descriptor: int) -> None:
        forced.append(os.path.relpath(Path(f"/proc/self/fd/{descriptor}").readlink(), place.directory))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", force)
    (one,) = merged(tasks[1:2])
    assert len(one.made) == 1
    attempts = [name for name in forced if name.startswith("attempts/")]
    assert len(attempts) == 2, "as it is written, and, which costs nothing then, as it is put"
    assert len([name for name in forced if name.startswith("~partial/")]) == 1, "the word of it"
    assert set(forced) - set(attempts) - {name for name in forced if name.startswith("~partial/")} == {
        "files",
        "merged/0_0/store",
    }
    assert len(forced) == 5


@pytest.mark.parametrize("damage", [cut, flipped, Path.unlink])
@pytest.mark.parametrize("of", ["result", "file"])
def test_an_incomplete_slice_is_merged_again_to_the_same(
    place: DirectoryPlace, tmp_path: Path, damage: Callable[[Path], None], of: str
) -> None:
    rows = contents(4)
    results = ranges_of(place, tmp_path / "runs", rows)
    first = merged(tasks_of(place, results))
    victim = next(one for one in first if one.made)
    damage(blob(place, victim.name if of == "result" else staging.run_name(victim.made[0])))
    again = merged(tasks_of(place, results))
    assert [one.content for one in again] == [one.content for one in first]
    assert content_of(built(place, results, again)) == of_dict(rows)


def test_a_slice_damaged_after_its_check_fails_the_image_and_is_deleted(place: DirectoryPlace, tmp_path: Path) -> None:
    results = ranges_of(place, tmp_path / "runs", contents(4))
    slices = merged(tasks_of(place, results))
    victim = next(one for one in slices if one.made)
    flipped(blob(place, staging.run_name(victim.made[0])))
    answer = built(place, results, slices)
    assert isinstance(answer, Failure)
    assert isinstance(answer.to_error(), Corrupted)
    for name in (victim.name, staging.run_name(victim.made[0])):
        with pytest.raises(NotFound):
            place.blobs().head(name)


def test_a_damaged_run_is_deleted_with_the_result_of_its_range(place: DirectoryPlace, tmp_path: Path) -> None:
    results = ranges_of(place, tmp_path / "runs", contents(4))
    tasks = tasks_of(place, results)
    flipped(blob(place, staging.run_name(results[0].runs[0])))
    failures = [answer for answer in merge_slices(tasks) if isinstance(answer, Failure)]
    assert [type(failure.to_error()) for failure in failures] == [Corrupted]
    for name in (tasks[0].made_of[0], staging.run_name(results[0].runs[0])):
        with pytest.raises(NotFound):
            place.blobs().head(name)


def test_a_slice_whose_runs_were_deleted_by_another_task_can_be_retried(place: DirectoryPlace, tmp_path: Path) -> None:
    tasks = tasks_of(place, ranges_of(place, tmp_path / "runs", contents(4)))
    (late,) = merge_slices([replace(tasks[1], place=Raided(place.directory))])
    assert isinstance(late, Failure)
    error = late.to_error()
    assert (type(error), error.code) == (Retryable, "run-removed"), "no defect: a job says what is permanent"


def test_an_image_without_all_of_its_slices_is_not_built(place: DirectoryPlace, tmp_path: Path) -> None:
    results = ranges_of(place, tmp_path / "runs", contents(4))
    answer = built(place, results, merged(tasks_of(place, results))[:-1])
    assert isinstance(answer, Failure)
    assert isinstance(answer.to_error(), Corrupted)
    assert not staging.image_path(Path(place.directory), "0_0", "store").exists()


def test_small_stores_expired_segments_and_runs_elsewhere_are_not_divided(
    place: DirectoryPlace, tmp_path: Path
) -> None:
    old, live = (
        [run for one in ranges_of(place, tmp_path / str(of), contents(3, of), of) for run in one.runs] for of in (6, 7)
    )
    tasks = slice_tasks(place, "0_0", "store", [*old, *live], [], 7, SLICE)
    assert {task.segment for task in tasks} == {7}
    assert {run.segment for task in tasks for run in task.runs} == {7}
    assert slice_tasks(Elsewhere(place.directory), "0_0", "store", live, [], 7, SLICE) == []
    assert slice_tasks(place, "0_0", "store", live, [], 7) == [], "below the size that is worth it"


class Workers:
    """Works on all batches at once, in this process."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.ran: list[str] = []

    name = "nobody"

    def parallelism(self) -> int:
        return self.count

    def check(self, question: Any) -> Any:
        raise NotImplementedError

    def run(self, work: Callable[[Any], list[Any]], batches: Sequence[Any], doing: str) -> list[Any]:
        self.ran.append(work.__name__)
        return [answer for batch in batches for answer in work(batch)]


@pytest.mark.parametrize("segment", one_of([None, 3]))
def test_how_many_workers_there_are_changes_no_byte_of_the_image(tmp_path: Path, segment: int | None) -> None:
    rows, images, files = contents(6), [], []
    kind, of = (KIND, None) if segment is None else (StoreKind.WINDOW, Segmentation(1000, 100))
    for count in (1, 2, 5):
        place = DirectoryPlace(str(tmp_path / str(count)))
        place.prepare()
        results = tuple(
            replace(one, stream_time=-1 if segment is None else 100 * segment)
            for one in ranges_of(place, tmp_path / "runs" / str(count), rows, segment)
        )
        spans = tuple((one.offset_range.start, one.offset_range.end) for one in results)
        times = {} if of is None else {"retention_ms": of.retention_ms, "segment_interval_ms": of.interval_ms}
        part = PartitionPlan("store", kind, "0_0", CHANGELOG.topic, "id", 0, 0, 600, 600, spans, **times)
        plan = ReadPlan("app", ProcessingGuarantee.AT_LEAST_ONCE, (part,))
        workers = Workers(count)
        stores = stores_to_build(plan, {("0_0", "store"): results})
        found = build_images(
            workers, "app", stores, place, Path(place.directory), 1 << 20, NullProgress(), slice_bytes=SLICE
        )
        assert workers.ran == ["merge_slices", "build_stores"]
        images.append(found["0_0", "store"].image)
        directory = staging.image_path(Path(place.directory), "0_0", "store")
        files.append(sorted(file.read_bytes() for file in directory.rglob("*.sst")))
    assert images[0].content == of_dict(rows)
    assert len({(image.identity, image.digest) for image in images}) == 1
    assert sum(len(data) > 50_000 for data in files[0]) > 6


class Told(NullProgress):
    """The phases that were told, and how much of each."""

    def __init__(self) -> None:
        self.phases: dict[str, list[Any]] = {}

    def phase(self, name: str, total: int | None = None, unit: str = "") -> None:
        self.phases[name] = [total, unit, 0]

    def advance(self, amount: int = 1) -> None:
        list(self.phases.values())[-1][2] += amount


@pytest.mark.parametrize("count", [1, 6])
def test_merging_is_a_phase_of_its_own_where_there_is_something_to_merge(
    place: DirectoryPlace, tmp_path: Path, count: int
) -> None:
    results = tuple(ranges_of(place, tmp_path / "runs", contents(count)))
    spans = tuple((one.offset_range.start, one.offset_range.end) for one in results)
    part = PartitionPlan("store", KIND, "0_0", CHANGELOG.topic, "id", 0, 0, 600, 600, spans)
    plan = ReadPlan("app", ProcessingGuarantee.AT_LEAST_ONCE, (part,))
    told = Told()
    stores = stores_to_build(plan, {("0_0", "store"): results})
    build_images(Workers(2), "app", stores, place, Path(place.directory), 1 << 20, told, slice_bytes=SLICE)
    slices = len(tasks_of(place, results))
    merging = {"merge": [slices, "slices", slices]} if slices else {}
    assert told.phases == {**merging, "build": [1, "stores", 1]}


def test_merged_slices_are_counted_while_others_are_merged(place: DirectoryPlace, tmp_path: Path) -> None:
    tasks = tasks_of(place, ranges_of(place, tmp_path / "runs", contents(6)))
    done = build_stage._Slices(place, tasks, 1)
    assert done() == 0
    merged(tasks[:3])
    assert done() == 3
    merged(tasks[-1:])
    assert done() == 3, "they are begun in their order, and nobody has come so far"
    merged(tasks)
    assert done() == len(tasks)


def test_only_what_overlaps_and_is_large_is_divided(tmp_path: Path) -> None:
    runs = runs_of(tmp_path, many_blocks(3))
    assert slices_of(runs) == 1
    third = sum(run.file_bytes for run in runs) // 3
    assert slices_of(runs, third) == 3
    assert slices_of(runs[:1], third // 10) == slices_of([], third) == 1
    apart = runs_of(tmp_path, [{b"a": bytes(90_000)}, {b"b": bytes(90_000)}])
    assert slices_of(apart, third // 10) == 1
