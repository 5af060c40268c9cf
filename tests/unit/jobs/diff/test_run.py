"""A comparison of two state directories: what is compared, what comes of it, and that nothing is changed or left."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import Corrupted, Invalid, NotFound
from statecore.formats.kinds import StoreKind
from statecore.jobs.diff.compare import DiffSide, DiffTask, bytes_read, compare_batch
from statecore.jobs.diff.report import DIFF_REPORT, DiffReport, DiffVerdict, ExistsIn, verdict_of, worst
from statecore.jobs.diff.request import DiffRequest
from statecore.jobs.diff.row_diff import RowCounts
from statecore.jobs.diff.run import run_diff
from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.engine.processes import ProcessEngine
from statecore.jobs.engine.protocol import Failure
from tests.harness.raising import raises
from tests.unit.doctor.stored import GOLDEN, Rows, offsets, write_database

LOG = "app-s-changelog"
ROWS: Rows = [(b"a", bytes(8) + b"1"), (b"b", bytes(8) + b"2"), (b"c", bytes(8) + b"3")]
OTHERS: Rows = [(b"b", bytes(8) + b"other"), (b"c", bytes(8) + b"3"), (b"d", bytes(8) + b"4")]


def write(state_dir: Path, rows: Rows, offset: int = 5, store: str = "s", task: str = "0_0") -> Path:
    families = {"default": [], "keyValueWithTimestamp": rows, "offsets": offsets(f"app-{store}-changelog", 0, offset)}
    write_database(state_dir / "app" / task / "rocksdb" / store, families)
    return state_dir


def diff(here: Path, there: Path, engine: Any = None, **asked: Any) -> DiffReport:
    asked.setdefault("application_id", None if "spec" in asked else "app")
    request = DiffRequest(state_dir=str(here), with_state_dir=str(there), **asked)
    return run_diff(request, engine or InProcessEngine())


def seen(path: Path) -> Mapping[str, tuple[int, int]]:
    return {str(one): (one.stat().st_mtime_ns, one.stat().st_ctime_ns) for one in (path, *path.rglob("*"))}


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return write(tmp_path / "here", ROWS)


@pytest.mark.parametrize("engine", [InProcessEngine(), ProcessEngine(1)], ids=["in process", "processes"])
def test_rows_are_counted_and_both_directories_stay_as_they_are(here: Path, tmp_path: Path, engine: Any) -> None:
    there = write(tmp_path / "there", OTHERS)
    before = seen(here), seen(there)
    report = diff(here, there, engine)
    assert (seen(here), seen(there)) == before
    (store,) = report.stores
    assert store.counts == RowCounts(equal=1, missing=1, extra=1, different=1)
    assert (store.task, store.store, store.kind) == ("0_0", "s", "timestamped-key-value")
    assert (store.verdict, report.verdict, report.verdict.exit_code) == (
        DiffVerdict.DIFFERENT,
        DiffVerdict.DIFFERENT,
        30,
    )
    assert store.offsets == store.reference_offsets == {f"{LOG}-0": 5}
    assert report.ran_on.executors == 1


def test_equal_rows_at_other_offsets_are_equal_and_other_rows_there_may_be_right(here: Path, tmp_path: Path) -> None:
    report = diff(here, write(tmp_path / "equal", ROWS, 7))
    assert (report.verdict, report.stores[0].reference_offsets) == (DiffVerdict.EQUAL, {f"{LOG}-0": 7})
    report = diff(here, write(tmp_path / "ahead", OTHERS, 7))
    assert (report.verdict, report.verdict.exit_code) == (DiffVerdict.AT_OTHER_OFFSETS, 31)


def test_a_store_that_one_side_lacks_is_missing_or_extra_with_all_its_rows(here: Path, tmp_path: Path) -> None:
    there = write(write(tmp_path / "there", ROWS), ROWS, store="more")
    report = diff(here, there)
    found = {store.store: store for store in report.stores}
    assert (found["more"].counts, found["more"].only) == (RowCounts(missing=3), ExistsIn.REFERENCE)
    report = diff(there, here)
    assert {one["store"]: one["only"] for one in report.to_json()["stores"]}["more"] == "state directory"
    found = {store.store: store for store in report.stores}
    assert (found["more"].counts, found["more"].only) == (RowCounts(extra=3), ExistsIn.STATE_DIRECTORY)
    assert diff(here, there, stores=("s",)).verdict is DiffVerdict.EQUAL


def test_only_the_tasks_and_stores_that_were_named_are_compared_and_others_are_refused(
    here: Path, tmp_path: Path
) -> None:
    write(here, ROWS, task="0_1")
    there = write(write(tmp_path / "there", ROWS), OTHERS, task="0_1")
    assert diff(here, there, tasks=("0_0",)).verdict is DiffVerdict.EQUAL
    assert [store.task for store in diff(here, there, tasks=("0_1",)).stores] == ["0_1"]
    with raises(NotFound, "store-not-found", store="words"):
        diff(here, there, stores=("words",))
    with raises(NotFound, "task-not-found", task="0_7"):
        diff(here, there, tasks=("0_7",))


def test_a_store_of_unknown_kind_is_compared_by_raw_rows(tmp_path: Path) -> None:
    for name, rows in (("here", ROWS), ("there", OTHERS)):
        write_database(tmp_path / name / "app" / "0_0" / "s" / "s.0", {"default": rows, "offsets": []})
    report = diff(tmp_path / "here", tmp_path / "there")
    assert report.stores[0].kind == "?"
    assert report.stores[0].counts == RowCounts(equal=1, missing=1, extra=1, different=1)
    (note,) = report.notes
    assert "--spec" in note


def test_databases_of_the_wrong_kind_are_refused_by_name(here: Path, tmp_path: Path) -> None:
    spec = {
        "application_id": "app",
        "bootstrap_servers": "nobody:1",
        "processing_guarantee": "at_least_once",
        "subtopologies": {"0": {"stores": {"s": {"kind": "key-value"}}}},
    }
    with raises(Invalid, "kind-mismatch") as refused:
        diff(here, write(tmp_path / "there", ROWS), spec=spec)
    assert "keyValueWithTimestamp" in refused.value.what


def test_a_damaged_block_is_an_error_and_no_difference(here: Path, tmp_path: Path) -> None:
    there = write(tmp_path / "there", [(b"%05d" % one, bytes(99)) for one in range(1000)])
    largest = max(there.rglob("*.sst"), key=lambda file: file.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 1
    largest.write_bytes(content)
    with pytest.raises(Corrupted):
        diff(here, there)


def test_the_report_is_a_document_that_is_read_again(here: Path, tmp_path: Path) -> None:
    report = diff(here, write(tmp_path / "there", OTHERS))
    document = report.to_json()
    assert document["version"] == 1
    assert DIFF_REPORT.from_json(document) == report


def test_what_differs_where_no_offset_is_known_on_both_sides_has_no_excuse() -> None:
    unlike = RowCounts(missing=1)
    assert verdict_of(unlike, {}, {"t-0": 5}) is DiffVerdict.DIFFERENT
    assert verdict_of(unlike, {"t-0": 4}, {"t-0": 5}) is DiffVerdict.AT_OTHER_OFFSETS
    assert verdict_of(RowCounts(equal=3), {"t-0": 4}, {"t-0": 5}) is DiffVerdict.EQUAL
    assert worst([DiffVerdict.EQUAL, DiffVerdict.DIFFERENT, DiffVerdict.AT_OTHER_OFFSETS]) is DiffVerdict.DIFFERENT
    assert worst([DiffVerdict.EQUAL]) is DiffVerdict.EQUAL
    assert worst([]) is DiffVerdict.NOTHING


def test_a_worker_that_does_not_see_a_directory_says_so(tmp_path: Path) -> None:
    side = DiffSide(str(tmp_path / "elsewhere"), {None: str(tmp_path / "elsewhere")}, {}, {}, 9)
    task = DiffTask(0, "0_0", "s", StoreKind.KEY_VALUE, side, side, 1, None, str(tmp_path))
    (failure,) = compare_batch([task, task])
    assert isinstance(failure, Failure)
    assert "does not exist on" in failure.to_error().what


def test_progress_sums_to_the_bytes_of_the_files(here: Path, tmp_path: Path) -> None:
    (tmp_path / "told").mkdir()
    database = {None: str(here / "app" / "0_0" / "rocksdb" / "s")}
    side = DiffSide(database[None], database, {}, {}, 9)
    tasks = [
        DiffTask(number, "0_0", "s", StoreKind.TIMESTAMPED_KEY_VALUE, side, side, 1, None, str(tmp_path / "told"))
        for number in range(2)
    ]
    compare_batch(tasks)
    assert bytes_read(tmp_path / "told") == 2 * 18


def test_directories_of_older_releases_compare_by_their_rows_and_the_offsets_in_their_files(tmp_path: Path) -> None:
    for version in ("3.9.1", "4.2.0"):
        with tarfile.open(GOLDEN / f"kafka-streams-{version}-task.tar.gz") as archive:
            archive.extractall(tmp_path / version / "old391", filter="data")
    report = diff(tmp_path / "3.9.1", tmp_path / "4.2.0", application_id="old391")
    assert report.verdict is DiffVerdict.EQUAL
    assert {(store.store, store.counts) for store in report.stores} == {
        ("plain", RowCounts(equal=9)),
        ("stamped", RowCounts(equal=9)),
    }
    for store in report.stores:
        assert store.offsets == {f"old391-{store.store}-changelog-1": 20}
        assert not store.reference_offsets  # its files name changelogs of another application
        assert len(store.position) == len(store.reference_position) == 1


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({}, "option-missing"),
        ({"with_changelog": True, "with_state_dir": "/b"}, "options-conflict"),
        ({"with_snapshot": "newest"}, "option-missing"),
        ({"with_snapshot": "newer", "repository": "file:///r"}, "snapshot-invalid"),
        ({"with_changelog": True}, "option-missing"),
        ({"with_state_dir": "/b", "ignore_expired": True}, "option-missing"),
        ({"with_state_dir": "/b", "application_id": None}, "option-missing"),
        ({"with_state_dir": "/b", "tasks": ("first",)}, "task-invalid"),
        ({"with_state_dir": ""}, "option-missing"),
    ],
)
def test_requests_that_make_no_sense_are_refused(asked: dict[str, Any], code: str) -> None:
    with raises(Invalid, code):
        DiffRequest(**{"state_dir": "/a", "application_id": "app", **asked})


def test_a_directory_is_not_compared_with_itself(here: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(here)
    for there in (here, tmp_path / "link"):
        with raises(Invalid, "options-conflict", options=["state_dir", "with_state_dir"]):
            diff(here, there)


def test_an_application_that_is_not_there_is_named(here: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="words"):
        diff(here, here, application_id="words")
    shutil.copytree(here, tmp_path / "there")
    shutil.rmtree(tmp_path / "there" / "app")
    with pytest.raises(NotFound, match="there"):
        diff(here, tmp_path / "there")
