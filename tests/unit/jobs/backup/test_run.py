"""A state directory is published as it lies, whole or not at all, and nothing in it changes."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import Corrupted, Fenced, Invalid, NotFound
from statecore.faults import BACKUP_POINTS, PUBLISH_POINTS, VARIABLE, FaultInjected, InjectedFault
from statecore.filesystem import file_sha256
from statecore.formats.checkpoint import encode_checkpoint
from statecore.formats.kinds import StoreKind
from statecore.formats.releases import OFFSETS_COLUMN_FAMILY
from statecore.formats.rocksdb_log import read_manifest
from statecore.jobs.backup.report import SNAPSHOT_REPORT, Outcome
from statecore.jobs.fetch.request import FetchRequest
from statecore.jobs.fetch.run import run_fetch
from statecore.repository.repository import create_repository
from statecore.repository.upload import SMALL
from statecore.statedir.database_state import read_database_state
from statecore.statedir.readonly_database import Database
from statecore.statedir.state_directory import StateDirectory
from tests.harness import s3_server
from tests.harness.creation import interrupt_creation
from tests.harness.filesystems import without_clones
from tests.harness.raising import raises
from tests.harness.tiers import three_of
from tests.unit.doctor.stored import CASES, write_golden
from tests.unit.jobs.backup.snapshots import World, tree

ROWS = {b"key-%d" % number: b"value" * number for number in range(50)}
CLICKS = {"clicks": {"kind": "window", "retention": "10m"}}
INTERVAL = 300_000


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def clicks(tmp_path: Path) -> World:
    """With a windowed store of two segments at one offset."""
    world = World(tmp_path, **CLICKS)
    world.write(ROWS, 7)
    for segment in (0, INTERVAL):
        segment_of(world, segment, 9)
    return world


def segment_of(world: World, start: int, offset: int | None, rows: dict[bytes, bytes] | None = None) -> Path:
    path = world.database("clicks", segment=start)
    rows = {b"window-%d" % start: b"v"} if rows is None else rows
    world.write(rows, offset, path=path, kind="window", changelog=world.changelog("clicks"))
    return path


def left_open(path: Path) -> None:
    """Make a database say that somebody has it open, as a kill after a flush leaves it."""
    set_status(path, 1)


def set_status(path: Path, status: int | None) -> None:
    """Give a database a status; ``None`` for none, as transactional stores leave it that never were anything else."""
    from rocksdict import AccessType, Options, Rdict, WriteBatch

    families = {name: Options(raw_mode=True) for name in Rdict.list_cf(str(path), Options(raw_mode=True))}
    database = Rdict(str(path), Options(raw_mode=True), column_families=families, access_type=AccessType.read_write())
    batch = WriteBatch(raw_mode=True)
    if status is None:
        batch.delete(b"status", database.get_column_family_handle("offsets"))
    else:
        batch.put(b"status", status.to_bytes(8), database.get_column_family_handle("offsets"))
    database.write(batch)
    del batch
    database.close()
    (path / "rocksdict-config.json").unlink()
    (path / "statecore-witness").unlink(missing_ok=True)


def test_what_was_closed_is_published_as_it_lies(world: World) -> None:
    world.write(ROWS, 7)
    before = tree(world.path / "0_0")
    report = world.snapshot()
    assert report.outcome is Outcome.PUBLISHED
    assert [(store.task, store.store, store.offsets, store.tail) for store in report.stores] == [
        ("0_0", "counts", {"app-counts-changelog-0": 7}, -1)
    ]
    assert tree(world.path / "0_0") == before
    (path,) = world.laid_out().values()
    assert world.rows(path) == (ROWS, {world.changelog(): 7}, 0)
    linked = {name for name in before if name.endswith(".sst")}
    assert linked
    for name in linked:
        assert (path / Path(name).name).read_bytes() == before[name][2]
    assert not list(path.glob("statecore-witness")), "it is for Kafka Streams"
    assert [one.name for one in (world.path / ".statecore").iterdir()] == []


def test_the_manifest_says_what_is_known_and_nothing_else(world: World) -> None:
    world.write(ROWS, 7)
    world.snapshot()
    ((_, store),) = world.stored().items()
    (end,) = store.changelogs
    assert (end.offset, end.end, end.topic_id, end.log_end) == (7, 8, "", -1)
    assert (store.read_at_ms, store.stream_time, store.content, store.restored_by_kafka_streams) == (
        None,
        -1,
        None,
        False,
    )
    assert store.isolation == "read_uncommitted"
    (database,) = store.databases
    assert database.segment is None
    assert not database.runs
    names = {file.name.rstrip("0123456789-") for file in database.base if not file.name.endswith(".sst")}
    assert names == {"CURRENT", "IDENTITY", "MANIFEST", "OPTIONS"}


def test_a_report_is_a_document(world: World) -> None:
    world.write(ROWS, 7)
    report = world.snapshot()
    document = json.loads(json.dumps(report.to_json()))
    assert document["outcome"] == "published"
    assert SNAPSHOT_REPORT.from_json(document) == report


def test_nothing_new_publishes_nothing(world: World) -> None:
    world.write(ROWS, 7)
    first = world.snapshot()
    again = world.snapshot()
    assert (again.outcome, again.snapshot, again.put_bytes) == (Outcome.UNCHANGED, first.snapshot, 0)
    assert len(world.shelf.head().snapshots) == 1


def test_files_that_the_newest_snapshot_has_are_not_put_again(world: World) -> None:
    world.write(ROWS, 7)
    world.snapshot()
    before = set(world.database().glob("*.sst"))
    world.write({b"more": b"1"}, 8)
    assert set(world.database().glob("*.sst")) & before
    report = world.snapshot()
    assert report.outcome is Outcome.PUBLISHED
    (store,) = report.stores
    assert 0 < report.put_bytes == store.new_bytes < store.bytes
    (path,) = world.laid_out().values()
    assert world.rows(path) == ({**ROWS, b"more": b"1"}, {world.changelog(): 8}, 0)


def blobs_of(world: World, *kinds: str) -> list[Path]:
    """Files of the repository, by the directories that they are in."""
    below = world.root / "repository" / "apps" / "app"
    return sorted(path for kind in kinds for path in (below / kind).rglob("*") if path.is_file())


def damage(path: Path, kind: str) -> None:
    """Damage a blob, whatever else has its file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()
    if kind != "missing":
        path.write_bytes(content if kind == "flipped" else content[:-1])


@pytest.mark.parametrize("kind", ["missing", "shorter", "flipped"])
@pytest.mark.parametrize("more", [False, True])
def test_a_damaged_blob_is_whole_after_the_next_snapshot_of_the_same(world: World, kind: str, more: bool) -> None:
    world.write({b"key-%d" % number: os.urandom(6000) for number in range(200)}, 7)
    rows = world.rows(world.database())[0]
    world.snapshot()
    assert blobs_of(world, "files")
    assert blobs_of(world, "packs")
    for number, path in enumerate(blobs_of(world, "files", "packs")):
        damage(path, kind)
        if more:
            rows |= {b"more": b"%d" % number}
            world.write({b"more": b"%d" % number}, 8 + number)
        report = world.snapshot()
        assert report.put_bytes > 0
        if not more:  # else RocksDB may have no use for that file any more
            (note,) = report.notes
            assert "file://" in note
            assert f"warning: {note}" in world.said
        (laid,) = world.laid_out(f"laid-{number}").values()
        assert world.rows(laid)[0] == rows


def test_a_file_that_had_to_be_put_elsewhere_is_published_although_nothing_else_is_new(world: World) -> None:
    """The others that it shared its pack with are not at hand together any more."""
    world.write(ROWS, 7)
    first = world.snapshot()
    (pack,) = blobs_of(world, "packs")
    content = pack.read_bytes()
    pack.unlink()
    pack.write_bytes(content[:-1])  # the last file alone is damaged
    again = world.snapshot()
    assert again.outcome is Outcome.PUBLISHED
    assert again.snapshot != first.snapshot
    assert again.identity == first.identity
    assert len(world.laid_out()) == 1
    assert world.snapshot().outcome is Outcome.UNCHANGED


def test_a_store_whose_copy_was_written_stands_only_as_long_as_its_files_are_there(world: World) -> None:
    world.write(ROWS, 7)
    left_open(world.database())
    world.snapshot()
    assert world.snapshot().outcome is Outcome.UNCHANGED
    for number, path in enumerate(blobs_of(world, "files", "packs")):
        damage(path, "missing")
        assert world.snapshot().outcome is Outcome.PUBLISHED
        (laid,) = world.laid_out(f"laid-{number}").values()
        assert world.rows(laid)[0] == ROWS


def test_tasks_of_others_that_are_gone_are_named_and_what_is_taken_is_published(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(ROWS, 7)
    world.write(ROWS, 7, path=world.database(task="0_1"), changelog=world.changelog(partition=1))
    world.snapshot(tasks=("0_1",))
    theirs = set(blobs_of(world, "files", "packs"))
    world.snapshot(tasks=("0_0",))
    for path in theirs:
        path.unlink()
    world.write({b"more": b"1"}, 8)
    report = world.snapshot(tasks=("0_0",))
    assert report.outcome is Outcome.PUBLISHED
    (note,) = [note for note in report.notes if "were inherited" in note]
    assert "Tasks 0_1 " in note
    assert f"warning: {note}" in world.said
    assert world.snapshot(tasks=("0_1",)).put_bytes > 0
    assert {of[0] for of in world.laid_out()} == {"0_0", "0_1"}


def test_a_retry_finds_what_an_earlier_try_has_published(world: World) -> None:
    world.write(ROWS, 7)
    first = world.snapshot(request_id="one")
    shutil.rmtree(world.path / "0_0")
    again = world.snapshot(request_id="one")
    assert (again.outcome, again.snapshot, again.identity) == (Outcome.EARLIER, first.snapshot, first.identity)


@pytest.mark.parametrize("point", three_of(BACKUP_POINTS))
def test_a_try_that_dies_leaves_nothing_that_counts_and_the_next_one_finishes(world: World, point: str) -> None:
    world.write(ROWS, 7)
    before = tree(world.path / "0_0")
    with pytest.raises(FaultInjected):
        world.snapshot(request_id="one", faults=InjectedFault(point, "raise"))
    assert world.shelf.read_head() is None
    assert tree(world.path / "0_0") == before
    assert world.snapshot(request_id="one").outcome is Outcome.PUBLISHED


@pytest.mark.parametrize("point", three_of([*BACKUP_POINTS, *PUBLISH_POINTS]))
def test_a_command_that_is_killed_anywhere_is_finished_by_its_retry(world: World, tmp_path: Path, point: str) -> None:
    world.write(ROWS, 7)
    before = tree(world.path / "0_0")
    (tmp_path / "stores.yaml").write_text(json.dumps(world.spec))
    words = [sys.executable, "-m", "statecore.cli.main", "backup", "--json", "--offline", "--request-id", "one"]
    words += ["--spec", str(tmp_path / "stores.yaml"), "--state-dir", str(world.state_dir), "--repository", world.url]
    killed = subprocess.run(words, env={**os.environ, VARIABLE: f"{point}:kill"}, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL
    retried = subprocess.run(words, capture_output=True, check=True)
    earlier = point == "publish.after-head"
    assert json.loads(retried.stdout)["outcome"] == (Outcome.EARLIER if earlier else Outcome.PUBLISHED)
    assert len(world.shelf.head().snapshots) == 1
    assert tree(world.path / "0_0") == before
    (path,) = world.laid_out().values()
    assert world.rows(path) == (ROWS, {world.changelog(): 7}, 0)


def test_what_a_killed_try_leaves_is_swept_and_what_another_has_is_not(world: World) -> None:
    world.write(ROWS, 7)
    work = world.path / ".statecore"
    dead, alive, young = work / "snapshot-dead", work / "snapshot-alive", work / "snapshot-young"
    for path in (dead, alive, young):
        path.mkdir(parents=True)
        (path / "held").touch()
    for path in (dead, alive):
        os.utime(path, (time.time() - 3600,) * 2)
    with (alive / "held").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        world.snapshot()
    assert sorted(path.name for path in work.iterdir()) == ["snapshot-alive", "snapshot-young"]


def test_a_plan_says_what_would_be_taken_and_leaves_nothing(world: World) -> None:
    world.write(ROWS, 7)
    before = tree(world.path)
    report = world.snapshot(plan_only=True)
    assert report.outcome is Outcome.PLANNED
    assert [store.store for store in report.stores] == ["counts"]
    assert world.shelf.read_head() is None
    assert tree(world.path) == before
    assert not (world.path / ".statecore").exists()


def test_a_plan_says_how_many_files_and_bytes_would_be_taken_and_how_many_are_new(world: World) -> None:
    world.write(ROWS, 7)
    (first,) = world.snapshot(plan_only=True).stores
    (taken,) = world.snapshot().stores
    assert first == taken
    assert 0 < first.new_files == first.files
    assert 0 < first.new_bytes == first.bytes
    (known,) = world.snapshot(plan_only=True).stores
    assert (known.files, known.bytes) == (first.files, first.bytes)
    assert (known.new_files, known.new_bytes) == (0, 0)
    world.write({b"more": b"1"}, 8)
    (more,) = world.snapshot(plan_only=True).stores
    assert 0 < more.new_files < more.files
    report = world.snapshot()
    assert report.stores == (more,)
    assert report.put_bytes == more.new_bytes


def test_a_plan_knows_files_that_the_newest_snapshot_has_in_other_stores(tmp_path: Path) -> None:
    world = World(tmp_path, one={"kind": "key-value"}, two={"kind": "key-value"})
    for store in ("one", "two"):
        world.write(ROWS, 7, path=world.database(store), changelog=world.changelog(store))
    world.snapshot(stores=("one",))
    (planned,) = world.snapshot(stores=("two",), plan_only=True).stores
    (taken,) = world.snapshot(stores=("two",)).stores
    assert planned == taken
    assert taken.new_files < taken.files  # CURRENT says the same in both


def rewritten(path: Path, content: bytes) -> None:
    with path.open("r+b") as file:
        file.write(content)


def test_a_plan_reads_no_large_file(world: World) -> None:
    world.write({b"%05d" % number: os.urandom(1000) for number in range(2000)}, 7)
    world.snapshot()
    world.write({b"more": os.urandom(2 << 20)}, 8)
    large = {path: path.read_bytes() for path in world.database().glob("*.sst") if path.stat().st_size >= SMALL}
    assert max(map(len, large.values())) > 2 << 20
    for path, content in large.items():  # other bytes in the middle, which who reads them would see
        rewritten(path, content[:500_000] + bytes(1000) + content[501_000:])
    (planned,) = world.snapshot(plan_only=True).stores
    for path, content in large.items():
        rewritten(path, content)
    (taken,) = world.snapshot().stores
    assert planned == taken
    assert 2 << 20 < taken.new_bytes < taken.bytes


def test_a_plan_knows_a_store_that_has_to_be_closed_on_the_way(world: World) -> None:
    world.write(ROWS, 7)
    left_open(world.database())
    (first,) = world.snapshot(plan_only=True).stores
    assert (first.written, first.new_files) == (True, first.files)
    world.snapshot()
    (again,) = world.snapshot(plan_only=True).stores
    assert (again.written, again.new_files, again.new_bytes) == (True, 0, 0)
    assert world.snapshot().outcome is Outcome.UNCHANGED


def test_a_store_that_says_other_than_the_newest_snapshot_is_no_step_back(world: World) -> None:
    world.write(ROWS, 7)
    world.snapshot()
    shutil.rmtree(world.path / "0_0")
    world.write(ROWS, 5)
    with raises(Fenced, "snapshot-newer", task="0_0", store="counts", offset=8, end=6):
        world.snapshot()


def test_tasks_and_stores_that_were_not_asked_for_stay_as_they_are(tmp_path: Path) -> None:
    world = World(tmp_path, sums={"kind": "key-value"})
    for partition in (0, 1):
        for store in ("counts", "sums"):
            at = world.database(store, f"0_{partition}")
            world.write(ROWS, 5, path=at, changelog=world.changelog(store, partition))
    world.snapshot()
    before = world.stored()
    for partition in (0, 1):
        for store in ("counts", "sums"):
            at = world.database(store, f"0_{partition}")
            world.write({b"n": b"1"}, 6, path=at, changelog=world.changelog(store, partition))
    world.snapshot(tasks=("0_1",), stores=("sums",))
    after = world.stored()
    changed = {key for key in after if after[key] != before[key]}
    assert changed == {("0_1", "sums")}
    world.snapshot(partitions=(0,))
    assert {key for key, store in world.stored().items() if store.changelogs[0].offset == 5} == {("0_1", "counts")}


@pytest.mark.parametrize(
    ("changes", "code", "context"),
    [
        ({"tasks": ("0_7",)}, "task-not-found", {"tasks": ["0_7"]}),
        ({"stores": ("nothing",)}, "store-not-declared", {"stores": ["nothing"]}),
        ({"partitions": (3,)}, "task-not-found", {"tasks": None}),
    ],
)
def test_what_is_not_there_is_not_found(
    world: World, changes: dict[str, Any], code: str, context: dict[str, Any]
) -> None:
    world.write(ROWS, 7)
    with raises(NotFound, code, **context):
        world.snapshot(**changes)


def test_an_application_or_a_repository_that_is_not_there_is_not_found(world: World, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no directory"):
        world.snapshot()
    world.write(ROWS, 7)
    world.url = (tmp_path / "another").as_uri()
    with pytest.raises(NotFound, match="There is no repository"):
        world.snapshot()


# What cannot be taken


def refusal(world: World, **changes: Any) -> list[dict[str, str]]:
    """The problems of a snapshot that is refused, and changes nothing."""
    before = tree(world.path / "0_0")
    with raises(Invalid, "snapshot-refused") as caught:
        world.snapshot(**changes)
    assert world.shelf.read_head() is None
    assert tree(world.path / "0_0") == before
    assert not list((world.path / ".statecore").glob("snapshot-*"))
    problems: list[dict[str, str]] = caught.value.context["problems"]
    assert [problem for problem in problems if problem["what"] not in str(caught.value)] == []
    return problems


def codes(problems: list[dict[str, str]]) -> list[tuple[str, str]]:
    """Code and store of each problem, of task 0_0."""
    assert {problem["task"] for problem in problems} == {"0_0"}
    return [(problem["code"], problem["store"]) for problem in problems]


def test_every_reason_is_said_at_once(clicks: World) -> None:
    (clicks.path / "0_0" / "rocksdb" / "forgotten").mkdir()
    shutil.rmtree(clicks.path / "0_0" / "rocksdb" / "counts")
    clicks.spec["subtopologies"]["0"]["stores"]["absent"] = {"kind": "session", "retention": "10m"}
    assert sorted(codes(refusal(clicks))) == [
        ("store-directory-missing", "absent"),
        ("store-directory-missing", "counts"),
        ("store-undeclared", "forgotten"),
    ]


@pytest.mark.parametrize("declared", ["in-memory", "custom"])
def test_a_store_that_is_declared_as_one_of_another_class_is_refused_as_that(world: World, declared: str) -> None:
    world.write(ROWS, 7)
    world.spec["subtopologies"]["0"]["stores"]["counts"]["kind"] = declared
    problems = refusal(world)
    assert codes(problems) == [("kind-mismatch", "counts")]
    assert f"the spec says {declared}" in problems[0]["what"]


def test_an_undeclared_store_is_refused_and_may_be_left_out_by_name(world: World) -> None:
    world.write(ROWS, 7)
    (world.path / "0_0" / "forgotten").mkdir()
    assert codes(refusal(world)) == [("store-undeclared", "forgotten")]
    assert world.snapshot(stores=("counts",)).outcome is Outcome.PUBLISHED


def test_a_store_without_an_offset_is_refused(world: World) -> None:
    world.write(ROWS, None)
    assert codes(refusal(world)) == [("offset-missing", "counts")]


def test_an_offset_of_another_topic_is_refused(world: World) -> None:
    world.write(ROWS, 7, changelog=world.changelog("others"))
    (problem,) = refusal(world)
    assert problem["code"] == "changelog-mismatch"
    assert "app-others-changelog-0" in problem["what"]


@pytest.mark.parametrize("declared", ["timestamped-key-value", "headers-key-value"])
def test_a_store_of_another_kind_is_refused_under_its_own_path(world: World, declared: str) -> None:
    world.write(ROWS, 7)
    world.spec["subtopologies"]["0"]["stores"]["counts"]["kind"] = declared
    (problem,) = refusal(world)
    assert problem["code"] == "kind-mismatch"
    assert str(world.database()) in problem["what"]
    assert "snapshot-" not in problem["what"]


def test_a_store_of_another_shape_is_refused(world: World) -> None:
    world.write(ROWS, 7)
    world.spec["subtopologies"]["0"]["stores"]["counts"] = {"kind": "window", "retention": "10m"}
    assert codes(refusal(world)) == [("kind-mismatch", "counts"), ("store-undeclared", "counts")]


def test_rows_of_an_older_format_are_refused(world: World) -> None:
    from tests.unit.doctor.stored import offsets, write_database

    at = offsets("app-counts-changelog", 0, 7)
    write_database(world.database(), {"default": [(b"k", b"v")], "keyValueWithTimestamp": [], "offsets": at})
    world.spec["subtopologies"]["0"]["stores"]["counts"]["kind"] = "timestamped-key-value"
    assert codes(refusal(world)) == [("older-row-format", "counts")]


def test_a_database_of_an_older_release_is_refused(world: World) -> None:
    from tests.unit.doctor.stored import write_database

    write_database(world.database(), {"default": [(b"k", b"v")]})
    assert codes(refusal(world)) == [("database-of-older-release", "counts")]


@pytest.mark.parametrize("undecided", [{"kind": "?"}, {"kind": "key-value", "changelog": "?"}])
def test_what_nobody_has_decided_is_refused(world: World, undecided: dict[str, str]) -> None:
    world.write(ROWS, 7)
    world.spec["subtopologies"]["0"]["stores"]["counts"] = undecided
    undecided_kinds = ["counts"] if undecided["kind"] == "?" else []
    with raises(Invalid, "spec-undecided", stores=["counts"], kinds=undecided_kinds):
        world.snapshot()


@pytest.mark.parametrize(("said", "fits"), [(7, True), (-4, True), (6, False), (8, False)])
def test_a_checkpoint_that_contradicts_is_refused(world: World, said: int, fits: bool) -> None:
    world.write(ROWS, 7)
    (world.path / "0_0" / ".checkpoint").write_bytes(encode_checkpoint({world.changelog(): said}))
    if fits:
        assert world.snapshot().outcome is Outcome.PUBLISHED
    else:
        (problem,) = refusal(world)
        assert problem["code"] == "checkpoint-file-mismatch"
        assert f".checkpoint has {said}," in problem["what"]


def test_damage_is_corruption(world: World) -> None:
    world.write(ROWS, 7)
    for file in world.database().glob("*.sst"):
        file.write_bytes(file.read_bytes()[:-20] + bytes(20))
    with pytest.raises(Corrupted) as caught:
        world.snapshot()
    assert "snapshot-" not in caught.value.what


def test_a_manifest_that_lost_its_end_is_corruption(world: World) -> None:
    world.write(ROWS, 7)
    world.write({b"more": b"1"}, 8)
    (manifest,) = world.database().glob("MANIFEST-*")
    manifest.write_bytes(manifest.read_bytes()[:-30])
    with raises(Corrupted, "database-damaged"):
        world.snapshot()


def test_a_store_that_a_processor_has_open_is_refused(world: World) -> None:
    world.write(ROWS, 7)
    code = (
        "import sys; from statecore.stores.rocksdb.store import RocksDBStore\n"
        "from statecore.formats.kinds import StoreKind\n"
        f"with RocksDBStore({str(world.database())!r}, StoreKind.KEY_VALUE):\n"
        "    print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(Fenced, match=f"process {other.pid}"):
            world.snapshot()
        other.communicate()
    assert world.snapshot().outcome is Outcome.PUBLISHED


def test_another_job_s_lock_is_not_taken_for_a_running_application(world: World) -> None:
    world.write(ROWS, 7)
    with StateDirectory(world.state_dir, "app").lock(), pytest.raises(Fenced, match="holds its lock"):
        world.snapshot()


# Left open: at-least-once and exactly-once


def test_a_store_that_was_left_open_is_taken_closed_under_at_least_once(world: World) -> None:
    world.write(ROWS, 7)
    left_open(world.database())
    before = tree(world.path / "0_0")
    report = world.snapshot()
    assert tree(world.path / "0_0") == before
    (note,) = (note for note in report.notes if "was not closed" in note)
    assert f"offset 7 of {world.changelog()}" in note
    (path,) = world.laid_out().values()
    assert world.rows(path) == (ROWS, {world.changelog(): 7}, 0)
    again = world.snapshot()
    assert (again.outcome, again.snapshot) == (Outcome.UNCHANGED, report.snapshot)


def test_a_store_that_was_left_open_is_refused_under_exactly_once(world: World) -> None:
    world.spec["processing_guarantee"] = "exactly_once_v2"
    world.write(ROWS, 7)
    left_open(world.database())
    assert codes(refusal(world)) == [("not-closed-cleanly", "counts")]


def test_a_versioned_store_is_published_and_refused_where_it_was_left_open(tmp_path: Path) -> None:
    world = World(tmp_path, counts={"kind": "versioned-key-value", "retention": "10m"})
    world.write({b"\xff" * 8 + b"k": bytes(8) + b"v"}, 7, kind="versioned-key-value")
    world.snapshot()
    stored = world.stored()["0_0", "counts"]
    assert (stored.kind, stored.stream_time, stored.retention_ms) == (StoreKind.VERSIONED_KEY_VALUE, None, 600_000)
    left_open(world.database())
    with raises(Invalid, "snapshot-refused") as caught:
        world.snapshot()
    assert codes(caught.value.context["problems"]) == [("versioned-store-open", "counts")]


# Segments


def test_segments_in_agreement_are_published_as_they_lie(clicks: World) -> None:
    report = clicks.snapshot()
    (store,) = [store for store in report.stores if store.store == "clicks"]
    assert (store.databases, store.written) == (2, False)
    stored = clicks.stored()["0_0", "clicks"]
    assert [database.segment for database in stored.databases] == [0, 1]
    assert (stored.segment_interval_ms, stored.stream_time) == (INTERVAL, None)


def test_segments_that_disagree_are_lowered_to_the_smallest_offset_and_that_is_said(clicks: World) -> None:
    segment_of(clicks, 2 * INTERVAL, 20)
    before = tree(clicks.path / "0_0")
    report = clicks.snapshot()
    assert tree(clicks.path / "0_0") == before
    said = [note for note in report.notes if "all get the smallest" in note]
    assert len(said) == 1
    assert "offset 20 of app-clicks-changelog-0" in said[0]
    assert "offset 9 of app-clicks-changelog-0" in said[0]
    assert clicks.stored()["0_0", "clicks"].changelogs[0].offset == 9
    laid = {key[2]: path for key, path in clicks.laid_out().items() if key[1] == "clicks"}
    assert sorted(laid) == [0, 1, 2]  # type: ignore[type-var]
    for path in laid.values():
        rows, offsets, status = clicks.rows(path, "window")
        assert (len(rows), offsets, status) == (1, {clicks.changelog("clicks"): 9}, 0)
    assert clicks.snapshot().outcome is Outcome.UNCHANGED
    segment_of(clicks, 0, 12)
    assert clicks.snapshot().outcome is Outcome.PUBLISHED, "there are rows more, though ahead of the offset"
    assert clicks.stored()["0_0", "clicks"].changelogs[0].offset == 9
    segment_of(clicks, INTERVAL, 12)
    clicks.snapshot()
    assert clicks.stored()["0_0", "clicks"].changelogs[0].offset == 12


def test_segments_that_disagree_are_refused_under_exactly_once(clicks: World) -> None:
    clicks.spec["processing_guarantee"] = "exactly_once_v2"
    segment_of(clicks, 2 * INTERVAL, 20)
    assert codes(refusal(clicks)) == [("segment-offsets-differ", "clicks")]


def test_a_directory_that_is_no_segment_of_the_declared_interval_is_refused(clicks: World) -> None:
    segment_of(clicks, INTERVAL + 1, 9)
    (problem,) = refusal(clicks)
    assert (problem["code"], problem["store"]) == ("segment-interval-mismatch", "clicks")
    assert f"clicks.{INTERVAL + 1} " in problem["what"]


def test_a_windowed_store_without_a_segment_is_left_to_kafka_streams(tmp_path: Path) -> None:
    world = World(tmp_path, **CLICKS)
    world.write(ROWS, 7)
    (world.path / "0_0" / "clicks").mkdir()
    report = world.snapshot()
    assert any("clicks of task 0_0" in note for note in report.notes)
    stored = world.stored()["0_0", "clicks"]
    assert (stored.restored_by_kafka_streams, stored.databases, stored.changelogs[0].offset) == (True, (), -4)


def never_flushed(path: Path) -> None:
    """A database as Kafka Streams makes it, of which nothing has reached a file before the kill."""
    from rocksdict import Options, Rdict

    path.mkdir(parents=True)
    options = Options(raw_mode=True)
    database = Rdict(str(path), options)
    database.create_column_family("offsets", options).close()
    database.close()
    (path / "rocksdict-config.json").unlink()
    for file in path.glob("*.sst"):
        file.unlink()


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_a_segment_that_was_not_created_to_the_end_is_left_out(tmp_path: Path, guarantee: str) -> None:
    world = World(tmp_path, **CLICKS)
    world.spec["processing_guarantee"] = guarantee
    world.write(ROWS, 7)
    for segment in (0, INTERVAL):
        segment_of(world, segment, 9)
    interrupt_creation(world.database("clicks", segment=2 * INTERVAL))
    report = world.snapshot()
    assert report.outcome is Outcome.PUBLISHED
    assert {store.store: store.databases for store in report.stores} == {"counts": 1, "clicks": 2}


def ticked(path: Path) -> None:
    """Wait until files that are written from now on are seen to be younger than those before."""
    first, last = path / "first", path / "last"
    first.touch()
    last.touch()
    while last.stat().st_mtime_ns - first.stat().st_mtime_ns < 20_000_000:
        last.touch()


def test_a_segment_of_which_nothing_was_flushed_is_left_out_where_the_offset_is_older_than_it(clicks: World) -> None:
    ticked(clicks.root)
    never_flushed(clicks.database("clicks", segment=2 * INTERVAL))
    clicks.snapshot()
    assert [database.segment for database in clicks.stored()["0_0", "clicks"].databases] == [0, 1]


def test_a_segment_of_which_nothing_was_flushed_is_refused_where_the_offset_may_be_newer(tmp_path: Path) -> None:
    world = World(tmp_path, **CLICKS)
    world.write(ROWS, 7)
    never_flushed(world.database("clicks", segment=2 * INTERVAL))
    ticked(tmp_path)
    segment_of(world, 0, 9)
    assert codes(refusal(world)) == [("segment-not-flushed", "clicks")]


# Transactional stores


def transactional(world: World, guarantee: str = "exactly_once_v2") -> World:
    world.spec |= {"processing_guarantee": guarantee, "transactional_state_stores": True}
    return world


def segments(world: World) -> list[Path]:
    return sorted((world.path / "0_0" / "clicks").iterdir())


def test_segments_of_a_transactional_store_are_lowered_under_exactly_once(clicks: World) -> None:
    segment_of(clicks, 2 * INTERVAL, 20)
    before = tree(clicks.path / "0_0")
    transactional(clicks).snapshot()
    assert tree(clicks.path / "0_0") == before
    assert clicks.stored()["0_0", "clicks"].changelogs[0].offset == 9
    for key, path in clicks.laid_out().items():
        if key[1] == "clicks":
            rows, offsets, status = clicks.rows(path, "window")
            assert (len(rows), offsets, status) == (1, {clicks.changelog("clicks"): 9}, 0)


@pytest.mark.parametrize(("without", "taken"), [(3, True), (2, False)])
def test_segments_without_a_status_are_transactional_whatever_the_spec_says(
    clicks: World, without: int, taken: bool
) -> None:
    clicks.spec["processing_guarantee"] = "exactly_once_v2"
    segment_of(clicks, 2 * INTERVAL, 20)
    for segment in segments(clicks)[:without]:
        set_status(segment, None)
    if taken:
        clicks.snapshot()
        assert clicks.stored()["0_0", "clicks"].changelogs[0].offset == 9
    else:
        assert codes(refusal(clicks)) == [("segment-offsets-differ", "clicks")]


def test_a_transactional_store_is_published_as_it_lies_with_or_without_a_status(world: World) -> None:
    transactional(world).write(ROWS, 7)
    (store,) = world.snapshot().stores
    assert not store.written
    set_status(world.database(), None)
    (store,) = world.snapshot().stores
    assert not store.written
    (path,) = world.laid_out().values()
    assert world.rows(path) == (ROWS, {world.changelog(): 7}, None)


def test_a_transactional_store_that_says_open_was_open_without_transactions(clicks: World) -> None:
    transactional(clicks)
    left_open(clicks.database())
    left_open(segments(clicks)[0])
    problems = refusal(clicks)
    assert sorted(codes(problems)) == [("transactional-store-open", "clicks"), ("transactional-store-open", "counts")]
    assert all("--replace" in problem["what"] for problem in problems)


def test_a_segment_of_a_transactional_store_of_which_nothing_was_flushed(tmp_path: Path) -> None:
    world = transactional(World(tmp_path, **CLICKS))
    world.write(ROWS, 7)
    segment_of(world, 0, 9)
    ticked(tmp_path)
    never_flushed(world.database("clicks", segment=2 * INTERVAL))
    world.snapshot()
    assert [database.segment for database in world.stored()["0_0", "clicks"].databases] == [0]
    segment_of(world, INTERVAL, 20)  # flushed later than that segment was made, and not the one whose offset counts
    world.snapshot()
    stored = world.stored()["0_0", "clicks"]
    assert ([database.segment for database in stored.databases], stored.changelogs[0].offset) == ([0, 1], 9)
    segment_of(world, 0, 30)
    with raises(Invalid, "snapshot-refused") as caught:
        world.snapshot()
    assert codes(caught.value.context["problems"]) == [("segment-not-flushed", "clicks")]


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
@pytest.mark.parametrize("declared", [True, False])
def test_a_versioned_transactional_store_is_refused_where_nobody_is_asked(
    tmp_path: Path, guarantee: str, declared: bool
) -> None:
    world = World(tmp_path, counts={"kind": "versioned-key-value", "retention": "10m"})
    world.write({b"\xff" * 8 + b"k": bytes(8) + b"v"}, 7, kind="versioned-key-value")
    world.spec |= {"processing_guarantee": guarantee, "transactional_state_stores": declared}
    if not declared:
        set_status(world.database(), None)
    assert codes(refusal(world)) == [("versioned-store-ahead", "counts")]


# Kinds that have their own rules


def test_stores_that_are_not_logged_or_in_memory_are_left_out_and_named(tmp_path: Path) -> None:
    more = {"own": {"kind": "key-value", "changelog": "none"}, "memory": {"kind": "in-memory"}}
    world = World(tmp_path, **more)
    world.write(ROWS, 7)
    world.write(ROWS, None, path=world.database("own"))
    report = world.snapshot()
    assert [store.store for store in report.stores] == ["counts"]
    assert [note.partition(".")[0] for note in report.notes] == ["Left out: own", "Left out: memory"]


def test_stores_of_the_application_s_own_classes_are_left_out_and_named(tmp_path: Path) -> None:
    world = World(tmp_path, mine={"kind": "custom"})
    world.write(ROWS, 7)
    task = world.database("counts").parent.parent
    for name in ("mine", "elsewhere"):
        (task / name).mkdir()
        (task / name / "rows").write_text("rows")
    world.write(ROWS, None, path=world.database("mine"))
    report = world.snapshot()
    assert [store.store for store in report.stores] == ["counts"]
    assert [note.partition(".")[0] for note in report.notes] == ["Left out: mine"]


def global_world(tmp_path: Path, offset: int) -> World:
    world = World(tmp_path)
    world.write(ROWS, 7)
    world.spec["global_stores"] = {"products": {"kind": "key-value", "topic": "products"}}
    topic = world.changelog()._replace(topic="products", partition=3)
    world.write(ROWS, offset, path=world.database("products", "global"), changelog=topic)
    return world


def test_a_global_store_says_the_next_offset(tmp_path: Path) -> None:
    world = global_world(tmp_path, 5)
    world.snapshot()
    (end,) = world.stored()["global", "products"].changelogs
    assert (end.topic, end.partition, end.offset, end.end) == ("products", 3, 5, 5)


def test_a_global_store_without_an_offset_is_refused(tmp_path: Path) -> None:
    assert [problem["code"] for problem in refusal(global_world(tmp_path, -4))] == ["global-offset-unknown"]


def test_an_empty_changelog_stays_unknown(world: World) -> None:
    world.write({}, -4)
    world.snapshot()
    (end,) = world.stored()["0_0", "counts"].changelogs
    assert (end.offset, end.end) == (-4, 0)


@pytest.mark.parametrize("case", CASES)
def test_every_kind_is_published_as_kafka_streams_wrote_it(tmp_path: Path, case: str) -> None:
    world = World(tmp_path)
    made = write_golden(world.path, case)
    subtopology, _, partition = made["task"].partition("_")
    declared = {"kind": made["kind"], "changelog": made["changelog"]}
    if "segments" in made or made["kind"] == "versioned-key-value":
        declared["retention"] = "10m"
    if made["kind"] == "grace-buffer":
        del declared["retention"]
    world.spec["subtopologies"] = {subtopology: {"stores": {made["store"]: declared}}}
    before = tree(world.path)
    report = world.snapshot()
    assert report.outcome is Outcome.PUBLISHED
    assert {name: file for name, file in tree(world.path).items() if name != ".lock"} == before
    stored = world.stored()[made["task"], made["store"]]
    (end,) = stored.changelogs
    assert (end.topic, end.partition, end.end) == (made["changelog"], int(partition), made["log_end_offset"])
    assert stored.kind == made["kind"]
    laid = world.laid_out()
    rows = {
        f"{made['store']}.{(key[2] or 0) * (stored.segment_interval_ms or 0)}": dict(_rows(path))
        for key, path in laid.items()
    }
    expected = made.get("segments") or {f"{made['store']}.0": made["families"]}
    family = StoreKind(made["kind"]).data_column_family
    assert rows == {
        name: {bytes.fromhex(key): bytes.fromhex(value) for key, value in families.get(family, ())}
        for name, families in expected.items()
    }


def _rows(path: Path) -> list[tuple[bytes, bytes]]:
    with Database(path) as database:
        (family,) = database.families - {"offsets", "default"} or {"default"}
        return list(database.rows(family))


def test_what_is_published_of_every_shape_is_fetched(tmp_path: Path) -> None:
    world = World(tmp_path, **CLICKS, empty={"kind": "key-value"}, idle={"kind": "session", "retention": "10m"})
    world.write(ROWS, 7)
    segment_of(world, 0, 9)
    segment_of(world, INTERVAL, 12)
    world.write({}, -4, path=world.database("empty"), changelog=world.changelog("empty"))
    (world.path / "0_0" / "idle").mkdir()
    world.spec["global_stores"] = {"products": {"kind": "key-value", "topic": "products"}}
    topic = world.changelog()._replace(topic="products")
    world.write(ROWS, 5, path=world.database("products", "global"), changelog=topic)
    world.snapshot()
    elsewhere = tmp_path / "elsewhere"
    run_fetch(FetchRequest(repository=world.url, application_id="app", state_dir=str(elsewhere)))
    directory = StateDirectory(elsewhere, "app")
    found = {
        f"{task}/{store.store}/{path.name}": read_database_state(path)
        for task in ("0_0", "global")
        for store in directory.stores(task)
        for path in store.databases
    }
    assert {name: (list(state.offsets.values()), state.status) for name, state in found.items()} == {
        "0_0/counts/counts": ([7], 0),
        "0_0/clicks/clicks.0": ([9], 0),
        f"0_0/clicks/clicks.{INTERVAL}": ([9], 0),
        "0_0/empty/empty": ([-4], 0),
        "0_0/idle/idle.0": ([-4], 0),
        "global/products/products": ([5], 0),
    }
    assert world.rows(elsewhere / "app" / "0_0" / "rocksdb" / "counts")[0] == ROWS


# A repository on the disk of the directory


@pytest.fixture
def linked(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """With two snapshots of files that are large enough to be linked, on a file system that clones nothing."""
    without_clones(monkeypatch)
    two_snapshots(world)
    return world


def two_snapshots(world: World) -> None:
    before = os.umask(0o022)
    try:
        for number, offset in ((1, 7), (2, 9)):
            world.write({b"%d-%d" % (number, row): os.urandom(20_000) for row in range(70)}, offset)
            world.snapshot()
    finally:
        os.umask(before)


def live_and_published(world: World) -> dict[Path, Path]:
    """The SST files of the directory that are in the repository under another name, oldest first."""
    there = {path.stat().st_ino: path for path in (world.root / "repository").rglob("files/*/*")}
    live = sorted(world.path.glob("0_0/rocksdb/counts/*.sst"))
    return {path: there[path.stat().st_ino] for path in live if path.stat().st_ino in there}


def written_in_place(path: Path) -> None:
    """As ``cp`` and ``rsync --inplace`` do it."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(b"damage")


def fetched(world: World, into: Path, **more: Any) -> Any:
    said: list[str] = []
    request = FetchRequest(repository=world.url, application_id="app", state_dir=str(into), **more)
    return run_fetch(request, say=said.append), said


def test_what_is_written_into_a_live_file_is_found_by_the_next_fetch(linked: World, tmp_path: Path) -> None:
    new, old = linked.shelf.head().snapshots
    first, second = live_and_published(linked)
    written_in_place(second)
    elsewhere = tmp_path / "elsewhere"
    with raises(Corrupted, "blob-damaged") as caught:
        fetched(linked, elsewhere, snapshot=new.snapshot)
    assert caught.value.exit_code == 12
    assert not (elsewhere / "app" / "0_0").exists()
    report, said = fetched(linked, elsewhere)
    assert report.snapshot == old.snapshot
    assert any(f"{new.snapshot} is skipped" in line for line in said)
    assert linked.rows(elsewhere / "app/0_0/rocksdb/counts")[1] == {linked.changelog(): 7}
    written_in_place(first)
    third = tmp_path / "third"
    with pytest.raises(Corrupted, match="None of the 2 snapshots"):
        fetched(linked, third)
    assert not (third / "app" / "0_0").exists()


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("copied", [False, True])
def test_what_is_written_into_a_live_file_never_becomes_a_snapshot(world: World, copied: bool, written: bool) -> None:
    world.url += "?copy=1" if copied else ""
    two_snapshots(world)
    if written:
        left_open(world.database())
        world.snapshot()
    there, before = world.shelf.head(), tree(world.root / "repository")
    (changed, *_) = (path for path in sorted(world.database().glob("*.sst")) if path.stat().st_size > SMALL)
    digest = file_sha256(changed)
    written_in_place(changed)
    for _ in range(2):
        with raises(
            Corrupted,
            "immutable-file-changed",
            task="0_0",
            store="counts",
            path=str(changed),
            expected=digest,
            found=file_sha256(changed),
        ):
            world.snapshot()
        assert world.shelf.head() == there
    if copied:
        assert tree(world.root / "repository") == before


def test_a_file_that_changes_after_it_was_hashed_replaces_nothing_on_a_server(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.SECRET)
    with s3_server.serving() as server:
        world.url = server.bucket("states").below("repository").url
        create_repository(world.url)
        two_snapshots(world)
        there = world.shelf.head()
        (changed, *_) = (path for path in sorted(world.database().glob("*.sst")) if path.stat().st_size > SMALL)

        class Damage:
            def reach(self, point: str) -> None:
                if point == "backup.after-hashes":
                    written_in_place(changed)

        with raises(Corrupted, "upload-file-changed") as caught:
            world.snapshot(faults=Damage())
        assert changed.name in caught.value.what
        assert world.shelf.head() == there
        report, _ = fetched(world, tmp_path / "elsewhere")
        assert (report.snapshot, report.passed_over) == (there.snapshots[0].snapshot, ())


def test_a_changed_file_of_a_segment_is_named_by_its_own_path(clicks: World) -> None:
    clicks.snapshot()
    segment = clicks.database("clicks", segment=INTERVAL)
    live = read_manifest((segment / (segment / "CURRENT").read_text().strip()).read_bytes()).files.values()
    (number,) = (file.number for file in live if file.family != OFFSETS_COLUMN_FAMILY)
    changed = segment / f"{number:06d}.sst"
    with changed.open("r+b") as file:
        file.seek(5)  # of its rows: RocksDB reads the rest when it opens the database
        file.write(b"damage")
    with raises(Corrupted, "immutable-file-changed", task="0_0", store="clicks", path=str(changed)):
        clicks.snapshot()


@pytest.mark.parametrize("kind", ["", "flipped", "missing"])
def test_files_that_another_instance_gave_the_same_numbers_are_no_damage(world: World, kind: str) -> None:
    """Both started from one snapshot; the task went there and came back."""
    world.write(ROWS, 7)
    world.snapshot()
    elsewhere = world.root / "elsewhere"
    shutil.copytree(world.database(), elsewhere)
    world.write({b"more": b"1"}, 8)
    world.snapshot()
    world.write({b"more": b"2"}, 9, path=elsewhere)
    here, other = ({path.name: path for path in at.glob("*.sst")} for at in (world.database(), elsewhere))
    alike = [
        name
        for name in here.keys() & other.keys()
        if here[name].stat().st_size == other[name].stat().st_size
        and file_sha256(here[name]) != file_sha256(other[name])
    ]
    assert alike, "the same name and size, and another file"
    shutil.rmtree(world.database())
    elsewhere.rename(world.database())
    for path in blobs_of(world, "files", "packs") if kind else ():  # so that nothing tells which file it was
        damage(path, kind)
    report = world.snapshot()
    assert (report.outcome, bool(report.notes)) == (Outcome.PUBLISHED, bool(kind))
    (laid,) = world.laid_out().values()
    assert world.rows(laid)[0] == {**ROWS, b"more": b"2"}


def test_copies_that_were_asked_for_are_not_damaged_through_a_live_file(world: World, tmp_path: Path) -> None:
    world.url += "?copy=1"
    two_snapshots(world)
    assert live_and_published(world) == {}
    for path in world.path.glob("0_0/rocksdb/counts/*.sst"):
        written_in_place(path)
    report, _ = fetched(world, tmp_path / "elsewhere")
    assert (report.snapshot, report.passed_over) == (world.shelf.head().snapshots[0].snapshot, ())


def test_a_repository_s_files_keep_their_modes_whatever_is_fetched_over_them(linked: World) -> None:
    before = {path: path.stat().st_mode for path in live_and_published(linked).values()}
    assert len(before) == 2
    fetched(linked, linked.state_dir, replace=True)
    assert sorted(live_and_published(linked).values()) == sorted(before), "the same owner, and no byte was copied"
    linked.path.chmod(0o770)
    fetched(linked, linked.state_dir, replace=True)
    assert live_and_published(linked) == {}
    assert {path.stat().st_mode & 0o777 for path in linked.path.glob("0_0/rocksdb/counts/*.sst")} == {0o660}
    assert {path: path.stat().st_mode for path in before} == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_a_repository_s_files_keep_their_owner_whatever_is_fetched_over_them(linked: World, tmp_path: Path) -> None:
    published = list(live_and_published(linked).values())
    report, _ = fetched(linked, linked.state_dir, replace=True, owner="4242:4243")
    assert report.at_hand_bytes > 2_000_000
    placed = list(linked.path.glob("0_0/rocksdb/counts/*.sst"))
    assert {(path.stat().st_uid, path.stat().st_gid) for path in placed} == {(4242, 4243)}
    assert {(path.stat().st_uid, path.stat().st_gid) for path in published} == {(0, 0)}
    linked.url = (tmp_path / "of-root").as_uri()
    create_repository(linked.url)
    linked.snapshot()  # by root, of the files of 4242
    blobs = [path for path in (tmp_path / "of-root").rglob("*") if path.is_file()]
    assert {(path.stat().st_uid, path.stat().st_nlink) for path in blobs} == {(0, 1)}


# The command


def test_the_command_says_what_it_published_and_then_that_nothing_is_new(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from statecore.cli.main import main

    world.write(ROWS, 7)
    (tmp_path / "stores.yaml").write_text(json.dumps(world.spec))
    words = ["backup", "--spec", str(tmp_path / "stores.yaml"), "--state-dir", str(world.state_dir)]
    words += ["--repository", world.url, "--offline", "--task", "0_0"]
    assert main(words) == 0
    out = capsys.readouterr()
    assert "published 20" in out.out
    assert "the application may be started" in out.err
    assert main(words) == 0
    assert "nothing has changed since" in capsys.readouterr().out
