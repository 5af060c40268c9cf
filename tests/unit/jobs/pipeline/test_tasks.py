"""Tasks under retries: complete results of an earlier attempt are reused, others replaced."""

from __future__ import annotations

import errno
import itertools
import json
import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from statecore import filesystem
from statecore.changelog.model import IsolationLevel, OffsetRange, ReadStatistics
from statecore.errors import Capacity, Corrupted, Invalid, Retryable, StatecoreError
from statecore.formats.kinds import StoreKind
from statecore.formats.segments import Segmentation
from statecore.formats.topic_partition import TopicPartition
from statecore.images.model import BaseDatabases, RunFormat
from statecore.jobs.engine.protocol import Failure
from statecore.jobs.pipeline import staging
from statecore.jobs.pipeline.image_tasks import ImageResult, ImageTask, build_stores
from statecore.jobs.pipeline.range_tasks import read_ranges
from statecore.jobs.pipeline.ranges import RANGE_RESULT, ClusterSettings, RangeResult, RangeTask
from statecore.jobs.pipeline.staging_place import DirectoryPlace, StagingPlace, TemporaryPlace
from statecore.jobs.pipeline.store_to_build import AppliedRuns, StoreToBuild
from statecore.objectstore.base import Blobs
from statecore.objectstore.directory import DirectoryBlobs
from tests.harness import mounts
from tests.harness.verify_image import verify_image
from tests.unit.images.changelog import CuttingRunBuilder, batches

RECORDS = [(b"key-%03d" % (offset % 50), b"value %d" % offset) for offset in range(200)]
CHANGELOG = TopicPartition("app-store-changelog", 0)


class FakeCluster:
    """Nothing is reached."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def close(self) -> None: ...


class FakeReader:
    """Reads ``RECORDS``; counts the reads; ``trouble`` is called before each."""

    reads = 0
    trouble: Callable[[], None] = staticmethod(lambda: None)

    def __init__(self, *_: Any) -> None: ...

    def read(self, span: OffsetRange, *_: Any, **__: Any) -> Iterator[pa.RecordBatch]:
        type(self).reads += 1
        type(self).trouble()
        yield from batches(RECORDS[span.start : span.end], 50)

    @property
    def statistics(self) -> ReadStatistics:
        return ReadStatistics(records=len(RECORDS), position=len(RECORDS))


@pytest.fixture(autouse=True)
def reader(monkeypatch: pytest.MonkeyPatch) -> type[FakeReader]:
    fresh = type("Fresh", (FakeReader,), {"reads": 0})
    monkeypatch.setattr("statecore.changelog.cluster.Cluster", FakeCluster)
    monkeypatch.setattr("statecore.changelog.reader.ChangelogReader", fresh)
    return fresh


@pytest.fixture
def task(tmp_path: Path) -> RangeTask:
    place = DirectoryPlace(str(tmp_path / "plan"))
    prepare(place)
    return RangeTask(
        ClusterSettings("nowhere:1", {}, 1.0),
        place,
        "0_0",
        "store",
        StoreKind.KEY_VALUE,
        OffsetRange(CHANGELOG.topic, 0, 0, len(RECORDS)),
        "",
        IsolationLevel.READ_UNCOMMITTED,
        below=BaseDatabases.NONE,
        memory_budget=64 << 20,
    )


def prepare(place: StagingPlace) -> None:
    """What the driver does before its workers begin."""
    assert isinstance(place, DirectoryPlace)
    place.prepare()
    staging.prepare(Path(place.directory))


def directory(task: RangeTask) -> Path:
    assert isinstance(task.place, DirectoryPlace)
    return Path(task.place.directory)


def read_range(task: RangeTask) -> RangeResult | Failure:
    (answer,) = read_ranges([task])
    return answer


def build_store(task: ImageTask) -> ImageResult | Failure:
    (answer,) = build_stores([task])
    return answer


def read(task: RangeTask) -> RangeResult:
    answer = read_range(task)
    assert isinstance(answer, RangeResult), answer
    return answer


def image_task(task: RangeTask, result: RangeResult) -> ImageTask:
    offsets = {CHANGELOG: len(RECORDS) - 1}
    name = staging.result_name(task.task, task.store, result.offset_range)
    runs = AppliedRuns(result.runs, result.stream_time, name)
    built = StoreToBuild(task.task, task.store, task.kind, offsets, (runs,))
    return ImageTask(task.place, str(directory(task)), built, task.memory_budget)


def build(task: ImageTask) -> ImageResult:
    answer = build_store(task)
    assert isinstance(answer, ImageResult), answer
    return answer


def failure(answer: object) -> StatecoreError:
    assert isinstance(answer, Failure), answer
    return answer.to_error()


def run_file(task: RangeTask, result: RangeResult) -> Path:
    path = task.place.blobs().local_path(staging.run_name(result.runs[0]))
    assert path is not None
    return path


def result_file(task: RangeTask) -> Path:
    name = staging.result_name(task.task, task.store, task.offset_range)
    path = task.place.blobs().local_path(name)
    assert path is not None
    return path


def image_path(task: ImageTask) -> Path:
    return staging.image_path(Path(task.directory), task.task, task.store) / staging.DATABASE


def test_a_finished_range_is_not_read_again(task: RangeTask, reader: type[FakeReader]) -> None:
    first = read(task)
    assert read(task) == first
    assert reader.reads == 1


@pytest.mark.parametrize("content", ["", '{"task": "0_0", "sto', "[]", "{}", '{"version": 2}'])
def test_a_result_that_is_torn_or_of_another_release_is_read_again(
    task: RangeTask, reader: type[FakeReader], content: str
) -> None:
    first = read(task)
    result_file(task).write_text(content)
    assert read(task).runs == first.runs
    assert reader.reads == 2


def test_a_result_whose_runs_rocksdb_wrote_for_an_older_release_is_read_again(
    task: RangeTask, reader: type[FakeReader]
) -> None:
    first = read(task)
    document = json.loads(result_file(task).read_text())
    assert document["runs"][0]["format"] == "sst"
    document["runs"][0]["format"] = "sst-rocksdb"
    for version, said in ((1, "version 1"), (document["version"], "sst-rocksdb")):
        older = json.dumps({**document, "version": version})
        with pytest.raises(Invalid, match=said):
            RANGE_RESULT.decode(older.encode())
        result_file(task).write_text(older)
        assert read(task).runs == first.runs
    assert reader.reads == 3


def test_a_run_without_a_result_is_checked_before_it_is_reused(task: RangeTask, reader: type[FakeReader]) -> None:
    first = read(task)
    result_file(task).unlink()
    run_file(task, first).write_bytes(b"bytes that never reached the disk")
    assert read(task).runs == first.runs
    build(image_task(task, read(task)))


@pytest.mark.parametrize("damage", ["flipped", "cut", "missing"])
def test_a_changed_run_is_read_again(task: RangeTask, reader: type[FakeReader], damage: str) -> None:
    first = read(task)
    data = bytearray(run_file(task, first).read_bytes())
    data[len(data) // 2] ^= 1
    if damage == "missing":
        run_file(task, first).unlink()
    else:
        run_file(task, first).write_bytes(data if damage == "flipped" else data[:-9])
    again = read(task)
    assert again.runs == first.runs
    assert reader.reads == 2
    assert build(image_task(task, again)).image.rows == 50


def test_a_run_damaged_after_its_check_fails_once_and_is_read_again_by_the_retry(task: RangeTask) -> None:
    first = read(task)
    data = bytearray(run_file(task, first).read_bytes())
    data[len(data) // 2] ^= 1
    run_file(task, first).write_bytes(data)
    assert isinstance(failure(build_store(image_task(task, first))), Corrupted)
    prepare(task.place)
    assert build(image_task(task, read(task))).image.rows == 50


def test_the_second_attempt_returns_the_runs_of_the_first(task: RangeTask, reader: type[FakeReader]) -> None:
    winners: list[RangeResult] = []

    def another_finishes_first() -> None:
        if reader.reads == 1:
            winners.append(read(task))

    reader.trouble = staticmethod(another_finishes_first)  # type: ignore[assignment]
    second = read(replace(task, memory_budget=1 << 20))
    assert second.runs == winners[0].runs
    assert run_file(task, second).is_file()


def test_another_memory_budget_reuses_the_runs(task: RangeTask, reader: type[FakeReader]) -> None:
    assert read(task).runs == read(replace(task, memory_budget=1 << 20)).runs
    assert reader.reads == 1


def test_staging_that_was_moved_is_found(task: RangeTask, reader: type[FakeReader], tmp_path: Path) -> None:
    first = read(task)
    directory(task).rename(tmp_path / "elsewhere")
    moved = replace(task, place=DirectoryPlace(str(tmp_path / "elsewhere")))
    assert read(moved) == first
    assert reader.reads == 1
    assert build(image_task(moved, first)).image.rows == 50


def test_a_run_has_its_offsets_and_not_its_location(task: RangeTask) -> None:
    (run,) = read(task).runs
    assert (run.start, run.end, run.format) == (0, len(RECORDS), RunFormat.SST)
    assert str(directory(task)) not in repr(run)


def test_the_runs_of_a_range_that_needs_several_are_of_adjacent_offsets(tmp_path: Path) -> None:
    builder = CuttingRunBuilder(StoreKind.KEY_VALUE, tmp_path, memory_budget=1, base=BaseDatabases.ALL, start=100)
    for part in batches(RECORDS, 50):
        builder.add(part)
    runs = builder.finish(1000)
    assert len(runs) > 1
    assert [run.start for run in runs] == [100, *(run.end for run in runs[:-1])]
    assert runs[-1].end == 1000


def test_no_byte_of_a_run_is_copied_on_its_way_into_an_image(task: RangeTask) -> None:
    result = read(task)
    todo = image_task(task, result)
    build(todo)
    assert any(file.samefile(run_file(task, result)) for file in image_path(todo).glob("*.sst"))


def test_a_finished_image_is_reused_and_a_second_attempt_does_not_change_it(task: RangeTask) -> None:
    todo = image_task(task, read(task))
    first = build(todo)
    before = image_path(todo).stat().st_ino
    assert build(todo) == first
    assert image_path(todo).stat().st_ino == before


def test_an_image_that_another_attempt_publishes_meanwhile_is_not_discarded(
    task: RangeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark may run a task twice at once, and the driver may have the image of the first already."""
    todo = image_task(task, read(task))
    published: list[int] = []
    load = staging.load

    def load_late(final: Path) -> bytes | None:
        found = load(final)
        if not published:
            published.append(0)
            build(todo)
            published[0] = image_path(todo).stat().st_ino
        return found

    monkeypatch.setattr(staging, "load", load_late)
    build(todo)
    assert [image_path(todo).stat().st_ino] == published


def test_an_image_that_lost_a_file_is_built_again(task: RangeTask) -> None:
    todo = image_task(task, read(task))
    first = build(todo)
    next(image_path(todo).glob("*.sst")).unlink()
    build(todo)
    assert verify_image(image_path(todo), StoreKind.KEY_VALUE, [CHANGELOG]).digest == first.image.digest


def test_an_image_of_a_run_that_was_damaged_since_is_built_again(task: RangeTask) -> None:
    """The file is a link to the run: who finds the one damaged and reads it again must not take the other."""
    result = read(task)
    todo = image_task(task, result)
    first = build(todo)
    file = run_file(task, result)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    assert read(task).runs == result.runs
    build(todo)
    assert verify_image(image_path(todo), StoreKind.KEY_VALUE, [CHANGELOG]).digest == first.image.digest


def test_an_image_that_was_moved_away_is_built_again(task: RangeTask, tmp_path: Path) -> None:
    todo = image_task(task, read(task))
    build(todo)
    image_path(todo).rename(tmp_path / "placed")
    build(todo)
    assert image_path(todo).is_dir()


def raising(error: BaseException) -> Callable[[], None]:
    def raise_it() -> None:
        raise error

    return raise_it


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), Capacity, "ran full"),
        (OSError(errno.EDQUOT, "Quota exceeded"), Capacity, "ran full"),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), Invalid, "/x"),
        (OSError(errno.EROFS, "Read-only file system", "/x"), Invalid, "is mounted read-only"),
        (OSError(errno.EIO, "Input/output error", "/x"), Retryable, "Input/output"),
        (OSError(errno.EUCLEAN, "Structure needs cleaning", "/x"), Retryable, "file system failed"),
        (MemoryError(), Capacity, "memory"),
    ],
)
def test_errors_of_the_system_say_their_kind_and_where(
    task: RangeTask, reader: type[FakeReader], error: BaseException, kind: type[StatecoreError], words: str
) -> None:
    reader.trouble = staticmethod(raising(error))  # type: ignore[assignment]
    found = failure(read_range(task))
    assert type(found) is kind
    assert words in found.what
    assert found.action
    assert (found.context["task"], found.context["store"]) == ("0_0", "store")
    assert not list(Path(directory(task), "attempts").iterdir())


def test_a_defect_in_a_task_is_named_with_its_trace_as_a_value(task: RangeTask, reader: type[FakeReader]) -> None:
    reader.trouble = staticmethod(raising(ZeroDivisionError("division by zero")))  # type: ignore[assignment]
    found = failure(read_range(task))
    assert found.exit_code == 1
    assert "ZeroDivisionError: division by zero" in found.what
    assert "raise_it" in found.context["trace"]
    json.dumps(found.to_json())


def test_an_executor_that_does_not_see_the_staging_directory_of_the_driver_says_so(
    task: RangeTask, reader: type[FakeReader]
) -> None:
    shutil.rmtree(directory(task))
    found = failure(read_range(task))
    assert isinstance(found, Invalid)
    assert "share" in found.action
    assert reader.reads == 0
    assert not directory(task).exists()


def test_files_of_dead_attempts_are_deleted_before_a_retry_and_results_are_kept(task: RangeTask) -> None:
    first = read(task)
    (directory(task) / "attempts" / "dead").mkdir()
    prepare(task.place)
    assert list(Path(directory(task), "attempts").iterdir()) == []
    assert read(task) == first


def test_a_permanent_failure_stops_the_other_tasks_until_the_next_attempt(task: RangeTask) -> None:
    wrong = replace(task, kind=StoreKind.WINDOW, segmentation=Segmentation(100, 50), store="windows")
    error = failure(read_range(wrong))
    assert error.exit_code == 13
    assert {"topic", "partition", "offset", "kind", "task", "store"} <= error.context.keys()
    assert isinstance(failure(read_range(task)), Retryable)
    prepare(task.place)
    read(task)


def test_a_disk_that_fills_at_any_moment_of_a_task_is_capacity_and_a_retry_gives_the_same(
    task: RangeTask, tmp_path: Path
) -> None:
    digest = build(image_task(task, read(task))).image.digest
    with mounts.disk(tmp_path / "disk", "64m") as disk:
        task = replace(task, place=DirectoryPlace(str(disk.path / "plan")))
        prepare(task.place)
        result = until_there_is_room(disk, task, lambda: read_range(task))
        built = until_there_is_room(disk, task, lambda: build_store(image_task(task, result)))
        assert built.image.digest == digest
        assert build_store(image_task(task, read(task))) == built
        verify_image(image_path(image_task(task, result)), StoreKind.KEY_VALUE, [CHANGELOG])


def until_there_is_room(disk: mounts.Disk, task: RangeTask, attempt: Callable[[], Any]) -> Any:
    """The answer of the first attempt that has room; each one has a page more than the one before."""
    for pages in range(1000):
        filler = disk.fill(leave=4096 * pages)
        answer = attempt()
        filler.unlink()
        if not isinstance(answer, Failure):
            assert pages >= 3  # else nothing was tried
            return answer
        assert isinstance(failure(answer), Capacity), failure(answer)
        prepare(task.place)
    raise AssertionError("it never had enough")


def test_a_batch_ends_at_the_task_that_fails_and_what_came_before_is_kept(
    task: RangeTask, reader: type[FakeReader]
) -> None:
    tasks = [replace(task, task=f"0_{number}") for number in range(3)]
    wrong = replace(tasks[1], kind=StoreKind.WINDOW, segmentation=Segmentation(100, 50), store="windows")
    good, bad = read_ranges([tasks[0], wrong, tasks[2]])
    assert isinstance(good, RangeResult)
    assert isinstance(failure(bad), Invalid)
    prepare(task.place)
    assert [type(answer) for answer in read_ranges(tasks)] == [RangeResult] * 3
    assert reader.reads == 4


def several(task: RangeTask, count: int) -> list[RangeTask]:
    """Ranges of as many stores, each with rows of its own."""
    return [replace(task, store=f"store-{number}") for number in range(count)]


def images_of(tasks: list[RangeTask]) -> list[ImageTask]:
    results = read_ranges(tasks)
    assert [type(result) for result in results] == [RangeResult] * len(tasks)
    return [image_task(task, result) for task, result in zip(tasks, results, strict=True)]


class Counted:
    """How often the process forced something to the disk, started a thread, made a file or a directory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times: Counter[str] = Counter()
        for of, name in ((os, "fsync"), (os, "mkdir"), (threading.Thread, "start")):
            monkeypatch.setattr(of, name, self._counting(name, getattr(of, name)))

    def _counting(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            self.times[name] += 1
            return real(*arguments, **named)

        return call

    def of(self, work: Callable[[], object]) -> Counter[str]:
        """What one piece of work took."""
        self.times.clear()
        work()
        return Counter(self.times)


def test_a_small_store_partition_costs_few_forced_writes_and_no_thread(
    task: RangeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    def each(few: Counter[str], many: Counter[str]) -> dict[str, float]:
        return {name: max(0, (many[name] - few[name]) / 16) for name in ("fsync", "mkdir", "start")}

    images_of(several(task, 1))  # what a process does once
    # Its threads that wait for the disk come as they are needed, and stay.
    all_are_there = threading.Barrier(filesystem._FILES_AT_ONCE, timeout=60)
    list(filesystem._threads().map(lambda _: all_are_there.wait(), range(filesystem._FILES_AT_ONCE)))
    counted = Counted(monkeypatch)
    ranges = several(task, 21)
    few, many = counted.of(lambda: read_ranges(ranges[1:3])), counted.of(lambda: read_ranges(ranges[3:]))
    # The run and its name as a blob, the result and its name, and the directory of the store that it lies in.
    forced = each(few, many)
    assert (forced["fsync"], forced["start"]) == (6, 0)
    assert forced["mkdir"] < 3, "its attempt and its store's directory; and now and then the progress of the batch"
    images = images_of(ranges)
    few, many = counted.of(lambda: build_stores(images[1:3])), counted.of(lambda: build_stores(images[3:]))
    forced = each(few, many)
    assert forced["fsync"] <= 12, "seven files of a database and the word of it, each once, and their directories"
    assert forced["mkdir"] <= 4
    assert forced["start"] == 0


def test_a_range_of_a_job_without_retries_forces_its_run_to_the_disk_and_nothing_else(
    task: RangeTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = TemporaryPlace(str(tmp_path / "passing"))
    (tmp_path / "passing").mkdir()
    place.prepare()
    ranges = several(replace(task, place=place), 5)
    forced = Counted(monkeypatch).of(lambda: read_ranges(ranges))
    assert forced["fsync"] == 5


def test_small_images_are_built_two_at_once_and_one_that_fails_stops_the_others(task: RangeTask) -> None:
    both = threading.Barrier(2, timeout=120)
    begun = itertools.count(1)

    class Meeting(DirectoryBlobs):
        """The run of each image is found when another is being built; that of the fifth is not."""

        def local_path(self, name: str) -> Path:
            if name == run:
                number = next(begun)
                both.wait()
                if number == 5:
                    raise Capacity("The disk is full.", code="test-error", action="Free room.")
            return super().local_path(name)

    class At(DirectoryPlace):
        def blobs(self) -> Blobs:
            return Meeting(self.directory)

    assert isinstance(task.place, DirectoryPlace)
    images = [replace(one, place=At(task.place.directory)) for one in images_of(several(task, 12))]
    (run,) = {staging.run_name(one.built.parts[0].runs[0]) for one in images}  # all have the same rows
    answers = build_stores(images)
    failed = [answer for answer in answers if isinstance(answer, Failure)]
    assert [type(answer.to_error()) for answer in failed] == [Capacity]
    assert len(answers) == 6 == next(begun) - 1
