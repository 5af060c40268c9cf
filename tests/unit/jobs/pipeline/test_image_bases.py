"""Images on base directories: linked, never written to, and only where they end where the runs begin."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from statecore.errors import Corrupted, Invalid, NotFound, StatecoreError
from statecore.formats.kinds import StoreKind
from statecore.formats.releases import GLOBAL
from statecore.formats.topic_partition import TopicPartition
from statecore.images.image import SegmentedRuns, build_image
from statecore.images.model import BaseDatabases, RunFile
from statecore.images.runs import RunBuilder
from statecore.jobs.bases.base_database import BaseDirectory
from statecore.jobs.engine.protocol import Failure
from statecore.jobs.pipeline import staging
from statecore.jobs.pipeline.image_tasks import ImageResult, ImageTask, build_stores
from statecore.jobs.pipeline.staging_place import DirectoryPlace, StagingPlace
from statecore.jobs.pipeline.store_to_build import AppliedRuns, StoreToBuild
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.settings import KEEP_FILES
from tests.harness.verify_image import verify_image
from tests.unit.images.changelog import Record, batch
from tests.unit.images.test_linked_bases import segments, states
from tests.unit.images.test_segmented_image import KIND as WINDOW
from tests.unit.images.test_segmented_image import SEGMENTATION
from tests.unit.images.test_segmented_image import batch as windows

CHANGELOG = TopicPartition("app-store-changelog", 0)
RECORDS: list[Record] = [
    (b"key-%03d" % (offset * 7 % 90), None if offset % 11 == 0 else b"value %d" % offset) for offset in range(400)
]
START, END = 300, 400


def runs_of(path: Path, start: int, end: int) -> list[RunFile]:
    path.mkdir(parents=True)
    builder = RunBuilder(
        StoreKind.KEY_VALUE,
        path,
        base=BaseDatabases(all_databases=start > 0),
        changelog=CHANGELOG,
        store="store",
        start=start,
    )
    builder.add(batch(RECORDS[start:end], start))
    return builder.finish(end)


@pytest.fixture
def live(tmp_path: Path) -> Path:
    """A store of the application's directory, as it was left at offset 300."""
    path = tmp_path / "state/app/0_0/rocksdb/store"
    path.parent.mkdir(parents=True)
    build_image(path, StoreKind.KEY_VALUE, runs_of(tmp_path / "old", 0, START), {CHANGELOG: START - 1})
    return path


def todo(tmp_path: Path, live: Path, *, runs: list[RunFile] | None = None) -> ImageTask:
    """The store, to be built on that directory and the runs of what came since."""
    place = DirectoryPlace(str(tmp_path / "plan"))
    begin_try(place)
    runs = runs_of(tmp_path / "new", START, END) if runs is None else runs
    for run in runs:
        place.blobs().put_if_absent(staging.run_name(run.run), run.path)
    built = StoreToBuild(
        "0_0",
        "store",
        StoreKind.KEY_VALUE,
        {CHANGELOG: END - 1},
        (AppliedRuns(tuple(run.run for run in runs)),),
        bases=(BaseDirectory(None, str(live), {CHANGELOG: START}),),
    )
    return ImageTask(place, place.directory, built, 64 << 20)


def begin_try(place: StagingPlace) -> None:
    """What the driver does before its workers begin."""
    assert isinstance(place, DirectoryPlace)
    place.prepare()
    staging.prepare(Path(place.directory))


def answer(task: ImageTask) -> ImageResult | Failure:
    [found] = build_stores([task])
    return found


def built(task: ImageTask) -> ImageResult:
    found = answer(task)
    assert isinstance(found, ImageResult), found
    return found


def refused(task: ImageTask) -> StatecoreError:
    found = answer(task)
    assert isinstance(found, Failure), found
    return found.to_error()


def image_path(task: ImageTask) -> Path:
    return staging.image_path(Path(task.directory), task.task, task.store) / staging.DATABASE


def whole_digest(tmp_path: Path) -> str | None:
    whole = runs_of(tmp_path / "whole", 0, END)
    return build_image(tmp_path / "whole-image", StoreKind.KEY_VALUE, whole, {CHANGELOG: END - 1}).digest


def test_the_directory_is_linked_unchanged_and_the_image_has_the_rows_of_the_whole_changelog(
    tmp_path: Path, live: Path
) -> None:
    before = states(live)
    task = todo(tmp_path, live)
    result = built(task)
    assert states(live) == before
    image = image_path(task)
    assert verify_image(image, StoreKind.KEY_VALUE, [CHANGELOG]).digest == whole_digest(tmp_path)
    assert result.image.offsets == {str(CHANGELOG): END - 1}
    assert all((image / file.name).samefile(file) for file in live.glob("*.sst"))
    assert len(list(image.glob("*.sst"))) > len(list(live.glob("*.sst")))


def test_without_a_run_the_image_is_the_directory_with_the_new_offset(tmp_path: Path, live: Path) -> None:
    rows = verify_image(live, StoreKind.KEY_VALUE, [CHANGELOG])
    task = todo(tmp_path, live, runs=[])
    built(task)
    found = verify_image(image_path(task), StoreKind.KEY_VALUE, [CHANGELOG])
    assert (found.digest, found.offsets) == (rows.digest, {str(CHANGELOG): END - 1})


def test_a_finished_image_is_reused_without_its_base_directory(tmp_path: Path, live: Path) -> None:
    task = todo(tmp_path, live)
    first = built(task)
    live.rename(tmp_path / "elsewhere")
    assert built(task) == first


@pytest.mark.parametrize("offset", [250, 350])
def test_a_directory_that_ends_elsewhere_is_refused(tmp_path: Path, live: Path, offset: int) -> None:
    """Runs that begin elsewhere than the directory ends would leave out records, or apply them again."""
    task = todo(tmp_path, live)
    with RocksDBStore(live, StoreKind.KEY_VALUE, settings=KEEP_FILES) as store:
        store.put(b"key-001", b"other")
        store.commit({CHANGELOG: offset})
    before = states(live)
    error = refused(task)
    assert isinstance(error, Invalid)
    assert f"has offset {offset}" in error.what
    assert "offset 299" in error.what
    assert states(live) == before
    assert not image_path(task).exists()


def test_a_directory_that_is_open_is_refused_until_it_is_closed(tmp_path: Path, live: Path) -> None:
    task = todo(tmp_path, live)
    with RocksDBStore(live, StoreKind.KEY_VALUE, settings=KEEP_FILES):
        error = refused(task)
    assert isinstance(error, Invalid)
    assert "not closed cleanly" in error.what
    assert not image_path(task).exists()
    begin_try(task.place)
    built(task)


def test_a_missing_directory_is_reported(tmp_path: Path, live: Path) -> None:
    task = todo(tmp_path, live)
    live.rename(tmp_path / "elsewhere")
    error = refused(task)
    assert isinstance(error, NotFound)
    assert str(live) in error.what


def test_a_damaged_run_is_deleted_and_the_directory_is_unchanged(tmp_path: Path, live: Path) -> None:
    task = todo(tmp_path, live)
    before = states(live)
    [run] = task.built.runs
    path = task.place.blobs().local_path(staging.run_name(run))
    assert path is not None
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.unlink()
    path.write_bytes(data)
    assert isinstance(refused(task), Corrupted)
    assert not path.exists()
    assert states(live) == before


def test_each_segment_is_a_directory(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    builder = RunBuilder(WINDOW, tmp_path / "old", base=BaseDatabases.NONE, segmentation=SEGMENTATION)
    builder.add(windows([(b"a", 10, b"x"), (b"a", 60, b"y"), (b"b", 60, b"z")], 0))
    old = builder.finish(3)
    live = tmp_path / "live"
    build_image(live, WINDOW, old, {CHANGELOG: 2}, segmented=SegmentedRuns("w", SEGMENTATION, 60))
    (tmp_path / "new").mkdir()
    below = BaseDatabases(segments=frozenset(segments(live)))
    builder = RunBuilder(WINDOW, tmp_path / "new", base=below, segmentation=SEGMENTATION, start=3, stream_time=60)
    builder.add(windows([(b"a", 60, None), (b"c", 110, b"n")], 3))
    task = todo(tmp_path, live, runs=builder.finish(5))
    before = states(live)
    of_windows = replace(
        task.built,
        kind=WINDOW,
        offsets={CHANGELOG: 4},
        parts=(replace(task.built.parts[0], stream_time=110),),
        segmentation=SEGMENTATION,
        bases=tuple(BaseDirectory(segment, str(base.path), {CHANGELOG: 3}) for segment, base in segments(live).items()),
    )
    task = replace(task, built=of_windows)
    assert built(task).image.segments == 3
    assert states(live) == before
    assert verify_image(image_path(task), WINDOW, [CHANGELOG]).rows == 3
    # All end at the same offsets; one that does not is another one's.
    other = [replace(base, starts={CHANGELOG: 2 + number}) for number, base in enumerate(of_windows.bases)]
    again = replace(task, built=replace(of_windows, store="other", bases=tuple(other)))
    error = refused(again)
    assert (error.code, error.context["store"]) == ("defect", "other")
    assert "ValueError" in error.what


def test_the_directory_of_a_global_store_has_the_next_offset(tmp_path: Path) -> None:
    live = tmp_path / "global"
    build_image(live, StoreKind.KEY_VALUE, runs_of(tmp_path / "old", 0, START), {CHANGELOG: START})
    task = todo(tmp_path, live)
    of_global = replace(task.built, task=GLOBAL, offsets={CHANGELOG: END})
    built(replace(task, built=of_global))
    found = verify_image(image_path(replace(task, built=of_global)), StoreKind.KEY_VALUE, [CHANGELOG])
    assert (found.digest, found.offsets) == (whole_digest(tmp_path), {str(CHANGELOG): END})
