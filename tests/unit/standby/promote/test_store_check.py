"""What is damaged, or of another release, on either side of a promotion."""

from __future__ import annotations

from pathlib import Path

import pytest

from statecore.formats.checkpoint import encode_checkpoint
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.releases import CHECKPOINT_FILE
from statecore.spec.model import StoreSpec
from statecore.standby.promote.report import PromoteVerdict
from statecore.standby.promote.store_check import damage, live_offset, why_wiped_there
from statecore.statedir.database_state import read_database_state
from statecore.statedir.file_trees import fingerprint
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.store_places import store_places
from statecore.stores.rocksdb.manifest_guard import RECORD_FILE
from statecore.stores.rocksdb.store import RocksDBStore
from tests.golden.directories import unpacked
from tests.harness.damage_cases import EXACTLY_ONCE, STAMPED
from tests.harness.damage_functions import TASK, cut, cut_manifest, database_of, manifest_of
from tests.unit.standby.promote.promoting import World, prices, verdicts, with_prices

GUARANTEES = ["exactly_once_v2", "at_least_once"]
CUTS = [30, 60, 90, 120]
"""Bytes off the end of a MANIFEST. RocksDB opens what is left, with the offset of the end, and rows are missing."""


@pytest.fixture(params=GUARANTEES)
def world(tmp_path: Path, request: pytest.FixtureRequest) -> World:
    return World(tmp_path, request.param)


def closed_twice(world: World, directory: StateDirectory, offset: int, *, task: str = "0_0") -> Path:
    """A store with rows in two files, of which its MANIFEST was told one after the other."""
    path = world.store(directory, "totals", 9, task=task)
    with RocksDBStore(path, StoreKind.KEY_VALUE) as store:
        for number in range(5):
            store.put(b"k%d" % number, b"v" * 100)
        store.put(b"key", f"{directory.state_dir.name} at {offset}".encode())
        store.commit({world.changelog("totals", task): offset})
    return path


@pytest.mark.parametrize("off", CUTS)
def test_a_copy_with_a_truncated_manifest_is_refused_and_the_others_are_promoted(world: World, off: int) -> None:
    cut(manifest_of(closed_twice(world, world.warm, 19)), -off)
    world.store(world.warm, "totals", 9, task="0_1")
    report = world.promote()
    assert verdicts(report) == {"0_0": PromoteVerdict.REFUSED, "0_1": PromoteVerdict.PROMOTED}
    assert (report.tasks[0].code, "MANIFEST" in report.tasks[0].why) == ("database-damaged", True)
    assert "statecore standby --once" in report.tasks[0].why
    assert not world.live.task_path("0_0").exists()


def test_a_copy_without_a_guard_record_is_taken_by_what_its_databases_say(world: World) -> None:
    (closed_twice(world, world.warm, 19) / RECORD_FILE).unlink()
    assert verdicts(world.promote()) == {"0_0": PromoteVerdict.PROMOTED}
    assert world.row("totals") == "warm at 19"


def test_a_partly_deleted_copy_is_refused(world: World) -> None:
    (world.store(world.warm, "totals", 9) / "CURRENT").unlink()
    world.store(world.warm, "clicks", 7)
    (task,) = world.promote().tasks
    assert task.verdict is PromoteVerdict.REFUSED
    assert task.code == "store-incomplete"


def test_an_expired_partly_deleted_segment_of_the_application_is_no_damage(world: World) -> None:
    for side, offset in ((world.warm, 7), (world.live, 17)):
        world.store(side, "clicks", offset, start=86_400_000_000)
    (world.store(world.live, "clicks", 17) / "CURRENT").unlink()
    (task,) = world.promote().tasks
    assert (task.verdict, task.code) == (PromoteVerdict.KEPT, "application-ahead")
    assert all(value in task.why for value in ("clicks", " 17 ", " 7"))


def test_a_partly_deleted_segment_of_a_copy_is_no_stray_directory(world: World) -> None:
    """Without it the copy would have the offset, and not the rows."""
    (world.store(world.warm, "clicks", 7) / "CURRENT").unlink()
    world.store(world.warm, "clicks", 7, start=1_800_000)
    (task,) = world.promote().tasks
    assert task.verdict is PromoteVerdict.REFUSED
    assert task.code == "store-incomplete"
    assert f"Move {world.warm.task_path('0_0') / 'clicks'} away" in task.why


@pytest.mark.parametrize("off", CUTS)
def test_a_torn_store_of_the_application_is_not_as_far_as_the_copy_whatever_offset_it_says(
    world: World, off: int
) -> None:
    world.store(world.warm, "totals", 15)
    cut(manifest_of(closed_twice(world, world.live, 19)), -off)
    (task,) = world.promote(apply=False).tasks
    assert (task.verdict, task.ahead) == (PromoteVerdict.PROMOTED, 16)
    report = world.promote()
    assert world.row("totals") == "warm at 15"
    (kept,) = Path(report.kept).iterdir()  # what is replaced is moved aside
    assert (kept / "rocksdb" / "totals").is_dir()


def test_the_plan_says_that_what_is_there_is_torn(tmp_path: Path) -> None:
    world = World(tmp_path, "at_least_once")
    world.store(world.warm, "totals", 15)
    cut(manifest_of(closed_twice(world, world.live, 19)), -60)
    (task,) = world.promote().tasks
    assert (task.code, task.why.startswith("totals ")) == ("store-damaged", True)


def test_a_torn_store_beside_one_that_is_further_is_left_and_the_plan_says_so(world: World) -> None:
    cut(manifest_of(closed_twice(world, world.live, 19)), -60)
    world.store(world.live, "clicks", 8)
    world.store(world.warm, "totals", 25)
    world.store(world.warm, "clicks", 7)
    before = fingerprint(world.live.task_path("0_0"))
    (task,) = world.promote().tasks
    assert task.verdict is PromoteVerdict.KEPT
    assert any("totals" in note and "statecore doctor" in note for note in task.notes)
    assert fingerprint(world.live.task_path("0_0")) == before


def test_a_partly_deleted_segment_makes_its_store_damaged(tmp_path: Path) -> None:
    world = World(tmp_path, "at_least_once")
    (world.store(world.live, "clicks", 7) / "CURRENT").unlink()
    world.store(world.live, "clicks", 7, start=1_800_000)
    world.store(world.warm, "clicks", 7)
    world.store(world.warm, "clicks", 7, start=1_800_000)
    (task,) = world.promote().tasks
    assert (task.verdict, task.code, task.why.startswith("clicks ")) == (
        PromoteVerdict.PROMOTED,
        "store-incomplete",
        True,
    )
    assert world.row("clicks") == "warm at 7"


def test_a_torn_versioned_store_is_made_empty_under_at_least_once_too(tmp_path: Path) -> None:
    world = with_prices(tmp_path, "at_least_once")
    world.store(world.live, "totals", 5)
    path = prices(world, 7)
    cut(manifest_of(path), -30)
    (task, _) = world.promote().tasks
    assert task.verdict is PromoteVerdict.PROMOTED
    assert any("prices" in note and "is created empty" in note for note in task.notes)
    assert set(read_database_state(path).offsets.values()) == {OFFSET_UNKNOWN}


def test_a_store_of_kafka_streams_whose_manifest_lost_its_end_is_damaged(tmp_path: Path) -> None:
    application = unpacked(EXACTLY_ONCE, tmp_path)
    places = store_places(StateDirectory(tmp_path, application.name))
    place = next(one for one in places if (one.task, one.store) == (TASK, STAMPED))
    store = StoreSpec(STAMPED, StoreKind.TIMESTAMPED_KEY_VALUE, 0, f"{application.name}-{STAMPED}-changelog")
    assert damage(place, store) is None
    cut_manifest(database_of(application, STAMPED), between=True)
    why = damage(place, store)
    assert why is not None
    assert why.code == "store-damaged"


@pytest.mark.parametrize(
    ("entry", "own", "code"), [(5, None, None), (OFFSET_UNKNOWN, None, "offset-missing"), (OFFSET_UNKNOWN, 9, None)]
)
def test_an_unknown_offset_in_the_file_of_a_task_is_none(
    tmp_path: Path, entry: int, own: int | None, code: str | None
) -> None:
    """Kafka Streams 4.3 skips it (``migrateLegacyOffsets``)."""
    world = World(tmp_path)
    world.store(world.live, "late", 9)
    task, changelog = world.live.task_path("0_0"), world.changelog("late")
    if own is None:
        (task / ".checkpoint_late").unlink()
    (task / CHECKPOINT_FILE).write_bytes(encode_checkpoint({changelog: entry}))
    (place,) = store_places(world.live)
    why = why_wiped_there(place, StoreKind.GRACE_BUFFER, changelog)
    assert (None if why is None else why.code) == code
    store = StoreSpec("late", StoreKind.GRACE_BUFFER, 0, changelog.topic)
    assert live_offset(place, store, changelog) == (own or entry)


def test_the_offset_in_a_file_of_a_store_without_a_database_does_not_keep_it(world: World) -> None:
    """Kafka Streams would trust the file, and answer without the rows."""
    task = world.live.task_path("0_0")
    (task / "rocksdb" / "totals").mkdir(parents=True)
    (task / CHECKPOINT_FILE).write_bytes(encode_checkpoint({world.changelog("totals"): 19}))
    world.store(world.warm, "totals", 9)
    assert verdicts(world.promote()) == {"0_0": PromoteVerdict.PROMOTED}
    assert world.row("totals") == "warm at 9"
