"""Task directories go up and down between releases, and say and hold the same."""

from __future__ import annotations

import pickle
import stat
from pathlib import Path

import pytest

from statecore.conversion.execute import convert, verify_conversion
from statecore.errors import Corrupted
from statecore.faults import CONVERSION_POINTS, FaultInjected, InjectedFault
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import STATUS_KEY, decode_int64, offset_key
from statecore.formats.position import decode_position
from statecore.formats.releases import RELEASES
from statecore.formats.topic_partition import TopicPartition
from statecore.statedir.file_trees import link_tree
from statecore.stores.rocksdb.files import sst_formats
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.rocksdb.writes import ChangedDatabase
from tests.harness.case_selection import three_of
from tests.harness.raising import raises
from tests.unit.conversion.tasks import OLDER, Task, declared, golden_task
from tests.unit.doctor.stored import CASES, golden, write_golden

Rows = list[tuple[bytes, bytes]]


@pytest.mark.parametrize("release", OLDER)
def test_offsets_and_positions_of_an_older_release_move_into_the_stores_and_back(release: str, tmp_path: Path) -> None:
    task = golden_task(tmp_path, release)
    files, rows = task.files, task.databases
    assert files.keys() == {".checkpoint", "plain.position", "stamped.position"}
    plan = task.convert("4.3")
    assert set(plan.moved) == files.keys()
    assert not task.files
    for directory, families in task.databases.items():
        store = directory.removeprefix("rocksdb/")
        offsets = dict(families.pop("offsets"))
        assert decode_int64(offsets[STATUS_KEY]) == 0
        assert decode_int64(offsets[offset_key(TopicPartition(f"{task.application_id}-{store}-changelog", 1))]) == 20
        assert decode_position(offsets[b"position"]) == {f"{task.application_id}-in": {1: 19}}
        assert families == rows[directory]
    task.convert(release)
    assert task.files == files
    assert task.databases == rows


@pytest.mark.parametrize("case", three_of(CASES))
def test_a_store_of_any_kind_goes_down_and_up_and_down_with_the_same_rows(case: str, tmp_path: Path) -> None:
    made = write_golden(tmp_path / "app", case)
    store, changelog = made["store"], TopicPartition(made["changelog"], made["partition"])
    kind, application_id = StoreKind(made["kind"]), changelog.topic.removesuffix(f"-{store}-changelog")
    spec = declared(application_id, {store: (kind, changelog.topic)}) if kind in _TOLD_BY_SPEC else None
    task = Task(tmp_path / "app" / made["task"], application_id, spec=spec)
    before, last = task.databases, made["records"][-1]["offset"]
    position = _positions(before)
    down = task.convert("4.2", lose_headers=True)
    assert task.files[".checkpoint"] == sorted(["", "0", "1", f"{changelog.topic} {changelog.partition} {last}"])
    assert task.files.keys() == {".checkpoint", *([f"{store}.position"] if any(position) else [])}
    assert all("offsets" not in families for families in task.databases.values())
    older = task.databases
    if kind.value not in RELEASES["4.2"].kinds:
        assert sum(one.rewritten_bytes for one in down.stores) > 0
        assert all(kind.data_column_family not in families for families in older.values())
        task.spec = None
    else:
        assert older == {directory: _without_offsets(families) for directory, families in before.items()}
    up = task.convert("4.3")
    assert not up.left
    assert {directory: _without_offsets(families) for directory, families in task.databases.items()} == older
    if kind is StoreKind.GRACE_BUFFER:
        assert task.files.keys() == {f".checkpoint_{store}"}
    else:
        assert not task.files
        for families in task.databases.values():
            assert decode_int64(dict(families["offsets"])[offset_key(changelog)]) == last
    assert _positions(task.databases) == position
    task.convert("3.9")
    assert task.databases == older
    formats = [
        version for path in task.path.rglob("CURRENT") for one in sst_formats(path.parent).values() for version in one
    ]
    assert formats
    assert max(formats) <= 5


_TOLD_BY_SPEC = (StoreKind.HEADERS_EMIT_FINAL_WINDOW, StoreKind.HEADERS_EMIT_FINAL_SLIDING_WINDOW)


def _positions(databases: dict[str, dict[str, Rows]]) -> list[dict[str, dict[int, int]]]:
    found = [dict(families["offsets"]).get(b"position") for families in databases.values()]
    return [{} if one is None else decode_position(one) for one in found]


def _without_offsets(families: dict[str, Rows]) -> dict[str, Rows]:
    return {name: rows for name, rows in families.items() if name != "offsets"}


def test_files_that_an_older_rocksdb_reads_are_not_rewritten(tmp_path: Path) -> None:
    task = golden_task(tmp_path, "3.9")
    before = {path.name: path.stat().st_ino for path in task.path.rglob("*.sst")}
    task.convert("4.3")
    plan = task.convert("3.9")
    assert not any(one.rewrite for store in plan.stores for one in store.databases)
    assert {path.name: path.stat().st_ino for path in task.path.rglob("*.sst")} == before


@pytest.mark.parametrize(("directories", "files"), [(0o750, 0o640), (0o2770, 0o660)])
def test_what_is_left_is_tidy_and_has_the_modes_that_it_had(directories: int, files: int, tmp_path: Path) -> None:
    task = golden_task(tmp_path, "4.2")
    task.path.chmod(directories)
    for path in task.path.rglob("*"):
        path.chmod(directories if path.is_dir() else files)
    (task.path / "windows").mkdir(mode=0o700)
    checkpoint = task.path / ".checkpoint"
    checkpoint.write_text(checkpoint.read_text().replace("2\n", "3\n", 1) + "old420-windows-changelog 1 5\n")
    for release in ("4.3", "3.9"):
        task.convert(release)
        for path in task.path.rglob("*"):
            assert path.name not in ("LOG", "rocksdict-config.json", "statecore-witness", "lost")
            if path.name.startswith("windows"):
                assert path.stat().st_mode & 0o777 == 0o700
            elif path.is_dir() or (path.parent.name in ("plain", "stamped") and path.stat().st_nlink == 1):
                assert stat.S_IMODE(path.stat().st_mode) == (directories if path.is_dir() else files), path
        assert all(not path.stat().st_size for path in task.path.rglob("*.log"))
        assert (task.path / "windows" / "windows.0" / "CURRENT").is_file()


def test_many_rows_with_headers_come_into_several_files(tmp_path: Path) -> None:
    made = write_golden(tmp_path / "app", "headers-key-value")
    application_id = made["changelog"].removesuffix(f"-{made['store']}-changelog")
    task = Task(tmp_path / "app" / made["task"], application_id)
    with RocksDBStore(task.path / "rocksdb" / made["store"], StoreKind.HEADERS_KEY_VALUE) as store:
        value = next(store.all())[1]
        store.put_all((b"%06d" % number, value) for number in range(70_000))
        store.commit({TopicPartition(made["changelog"], made["partition"]): 80_000})
    (move,) = task.convert("4.2", lose_headers=True, run_bytes=20).stores[0].databases[0].moves
    (rows,) = (families["keyValueWithTimestamp"] for families in task.databases.values())
    assert len(rows) == move.rows > 70_000
    assert 2 < len(list(task.path.rglob("*.sst"))) < 10


def test_a_plan_travels_to_other_processes(tmp_path: Path) -> None:
    plan = golden_task(tmp_path, "4.2").plan("4.3")
    assert pickle.loads(pickle.dumps(plan)) == plan


@pytest.mark.parametrize("point", three_of(CONVERSION_POINTS))
def test_a_killed_conversion_has_changed_no_live_file(point: str, tmp_path: Path) -> None:
    task = golden_task(tmp_path, "4.2")
    plan, before = task.plan("4.3"), {path: path.read_bytes() for path in task.path.rglob("*") if path.is_file()}
    link_tree(task.path, tmp_path / "copy")
    with pytest.raises(FaultInjected):
        convert(plan, tmp_path / "copy", InjectedFault(point))
    assert {path: path.read_bytes() for path in task.path.rglob("*") if path.is_file()} == before
    task.convert("4.3")


def test_a_refused_task_is_not_converted(tmp_path: Path) -> None:
    task = golden_task(tmp_path, "4.2")
    (task.path / ".checkpoint").write_text("torn")
    plan = task.plan("4.3")
    assert plan.is_empty
    with pytest.raises(ValueError, match="refused"):
        convert(plan, task.path)


class TestVerification:
    """Whatever is not as it was planned is found."""

    @pytest.fixture
    def task(self, tmp_path: Path) -> Task:
        return golden_task(tmp_path, "4.2")

    def test_a_copy_that_was_not_converted(self, task: Task) -> None:
        for release in ("4.3", "3.9"):
            with raises(Corrupted, "conversion-verification-failed", task="0_1"):
                verify_conversion(task.plan(release), task.path)

    def test_a_file_with_other_offsets(self, task: Task) -> None:
        task.convert("4.3")
        plan = task.plan("4.2")
        task.convert("4.2")
        file = task.path / ".checkpoint"
        file.write_text(file.read_text().replace(" 20", " 21"))
        with pytest.raises(Corrupted, match=r"\.checkpoint does not have the planned content"):
            verify_conversion(plan, task.path)

    def test_a_file_that_should_be_gone(self, task: Task) -> None:
        plan = task.convert("4.3")
        (task.path / "plain.position").write_text("0\n0\n")
        with pytest.raises(Corrupted, match=r"plain\.position"):
            verify_conversion(plan, task.path)

    def test_rows_that_are_missing(self, task: Task) -> None:
        plan = task.plan("3.9")
        database = plan.stores[0].databases[0]
        task.convert("3.9")
        with ChangedDatabase(task.path / database.directory, 5) as opened:
            opened.put("default", {b"key-0": b"something else"})
        with pytest.raises(Corrupted, match="9 rows in default"):
            verify_conversion(plan, task.path)

    def test_a_database_that_is_gone(self, task: Task) -> None:
        plan = task.convert("4.3")
        (task.path / "rocksdb" / "plain" / "CURRENT").unlink()
        with pytest.raises(Corrupted, match="plain is missing"):
            verify_conversion(plan, task.path)


def test_a_golden_file_of_each_kind_is_there() -> None:
    assert {golden(case)["kind"] for case in CASES} == set(RELEASES["4.3"].kinds)
