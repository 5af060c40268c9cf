"""A database that Kafka Streams was killed at while it created it blocks nothing: it counts as not there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from statecore.discover.directory_stores import find_directory_stores
from statecore.doctor.diagnosis import diagnose_directory, inspect
from statecore.errors import Invalid
from statecore.formats.checkpoint import encode_checkpoint
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.releases import CHECKPOINT_FILE
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.bases.base import Base
from statecore.jobs.bases.directory_bases import DirectoryBases
from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.fields.catalog import TargetRelease
from statecore.jobs.migrate.request import MigrateRequest
from statecore.jobs.migrate.run import run_migrate
from statecore.spec.reader import parse_spec
from statecore.standby.promote.report import PromoteVerdict
from statecore.standby.promote.request import PromoteRequest
from statecore.standby.promote.run import run_promote
from statecore.statedir.database_state import create_database, read_database_state
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.stopped_store_offsets import read_stopped_store_offsets
from statecore.statedir.store_places import StorePlace
from statecore.stores.rocksdb.directory import families_of
from statecore.tasks.offset_sums import TaskDirectoryState, read_task_sum
from statecore.tasks.task_stores import TaskStores
from tests.harness.case_selection import three_of
from tests.harness.creation import interrupt_creation
from tests.unit.doctor.stored import write_database

APPLICATION, TASK, INTERVAL = "orders", "0_0", 300_000
STAMPED = "keyValueWithTimestamp"
KINDS = {"totals": StoreKind.KEY_VALUE, "clicks": StoreKind.TIMESTAMPED_WINDOW}
GUARANTEES = ["exactly_once_v2", "at_least_once"]
SEGMENTS = [2, 0, 1]
"""The newest one was being made; or, for a late record, the oldest, or one between two others."""


class World:
    """The directory of an application, and a copy of it that was closed further on."""

    def __init__(self, root: Path, guarantee: str = "at_least_once") -> None:
        self.said = {
            "application_id": APPLICATION,
            "bootstrap_servers": "localhost:9",
            "processing_guarantee": guarantee,
            "subtopologies": {
                "0": {
                    "stores": {
                        "totals": {"kind": "key-value"},
                        "clicks": {"kind": "timestamped-window", "retention": "10m"},
                    }
                }
            },
        }
        self.spec = parse_spec(self.said)
        self.live, self.warm = StateDirectory(root / "live", APPLICATION), StateDirectory(root / "warm", APPLICATION)
        self.file = root / "stores.yaml"
        self.file.write_text(json.dumps(self.said))

    def changelog(self, store: str, task: str = TASK) -> TopicPartition:
        return TopicPartition(f"{APPLICATION}-{store}-changelog", int(task[-1]))

    def path(self, store: str, segment: int = 0, task: str = TASK, at: StateDirectory | None = None) -> Path:
        task_path = (at or self.live).task_path(task)
        if KINDS[store].is_segmented:
            return task_path / store / f"{store}.{segment * INTERVAL}"
        return task_path / "rocksdb" / store

    def make(
        self,
        store: str,
        segments: Sequence[int] = (0,),
        task: str = TASK,
        offset: int = 9,
        at: StateDirectory | None = None,
    ) -> None:
        for segment in segments:
            path = self.path(store, segment, task, at)
            path.parent.mkdir(parents=True, exist_ok=True)
            create_database(path, KINDS[store], {self.changelog(store, task): offset})

    def place(self, store: str) -> StorePlace:
        segmented = KINDS[store].is_segmented
        path = self.path(store)
        return StorePlace(store, path.parent if segmented else path, segmented, TASK)


@pytest.fixture(params=GUARANTEES)
def world(tmp_path: Path, request: pytest.FixtureRequest) -> World:
    return World(tmp_path, request.param)


@pytest.fixture(params=[(), (STAMPED,)], ids=["default", "default and data"])
def families(request: pytest.FixtureRequest) -> tuple[str, ...]:
    found: tuple[str, ...] = request.param
    return found


@pytest.mark.parametrize("killed", SEGMENTS)
def test_everybody_sees_the_other_segments(world: World, families: tuple[str, ...], killed: int) -> None:
    others = [segment for segment in range(3) if segment != killed]
    world.make("totals")
    world.make("clicks", others)
    interrupt_creation(world.path("clicks", killed), *families)
    place = world.place("clicks")
    assert [segment.start for segment in place.segments] == [one * INTERVAL for one in others]

    found = read_task_sum(world.live, TASK, world.spec)
    assert (found.state, found.sum, [one.databases_differ for one in found.stores]) == (
        TaskDirectoryState.KNOWN,
        20,
        [False, False],
    )

    assert dict(read_stopped_store_offsets(place, (), StoreKind.UNKNOWN).offsets) == {world.changelog("clicks"): 9}
    clicks = {one.name: one for one in find_directory_stores(world.live)}["clicks"]
    assert (clicks.error, clicks.topics) == ("", {world.changelog("clicks").topic})

    (parent,) = DirectoryBases(world.live, world.spec, {}).of((TASK, "clicks"))
    assert isinstance(parent, Base)
    assert parent.segments == frozenset(others)

    inspected = {one.store: one for one in inspect(world.live, spec=world.spec).stores}["clicks"]
    assert ([one.start for one in inspected.databases], inspected.damage) == ([one * INTERVAL for one in others], ())
    codes = {one.code for one in diagnose_directory(world.live, spec=world.spec).findings}
    assert not codes & {"older-release", "half-migrated", "segments-disagree", "current-missing", "foreign-file"}


@pytest.mark.parametrize("killed", SEGMENTS)
def test_a_task_that_is_followed_stands_where_the_others_do_and_holds_nothing_unfinished(
    world: World, families: tuple[str, ...], killed: int
) -> None:
    others = [segment for segment in range(3) if segment != killed]
    world.make("totals")
    world.make("clicks", others)
    interrupt_creation(world.path("clicks", killed), *families)
    (world.path("clicks", 7)).mkdir()  # the same, killed before there was a file
    with world.live.lock():
        stores = TaskStores(world.spec, world.live, TASK)
        stores.open()
        assert stores.offsets() == {world.changelog("clicks"): 9, world.changelog("totals"): 9}
        stores.close()
    assert sorted(path.name for path in world.path("clicks").parent.iterdir()) == [
        f"clicks.{segment * INTERVAL}" for segment in others
    ]


@pytest.mark.parametrize("store", ["totals", "clicks"])
def test_a_store_whose_first_database_was_being_made_is_followed_from_the_start(world: World, store: str) -> None:
    other = next(one for one in KINDS if one != store)
    world.make(other)
    interrupt_creation(world.path(store))
    with world.live.lock():
        stores = TaskStores(world.spec, world.live, TASK)
        stores.open()
        assert stores.offsets() == {world.changelog(other): 9, world.changelog(store): OFFSET_UNKNOWN}
        stores.close()


def test_another_task_shows_the_current_release(world: World) -> None:
    interrupt_creation(world.path("totals"))
    assert world.place("totals").databases == (world.path("totals"),)  # as 4.2 leaves it, too
    world.make("clicks", task="0_1")
    assert world.place("totals").databases == ()


@pytest.mark.parametrize("evidence", ["rows", "checkpoint"])
def test_in_a_task_of_an_older_release_an_empty_store_is_there_whatever_another_task_is(
    world: World, evidence: str
) -> None:
    world.make("totals", task="0_1")
    write_database(world.path("totals"), {"default": []})
    if evidence == "rows":
        write_database(world.path("clicks"), {STAMPED: [(b"k", b"v")]})
    else:
        said = {world.changelog("totals"): OFFSET_UNKNOWN}
        (world.live.task_path(TASK) / CHECKPOINT_FILE).write_bytes(encode_checkpoint(said))
    assert world.place("totals").databases == (world.path("totals"),)
    codes = {
        (one.code, one.store) for one in diagnose_directory(world.live, spec=world.spec).findings if one.task == TASK
    }
    assert {code for code, store in codes if store == "totals"} == {"older-release"}


@pytest.mark.parametrize("rows", [[], [(b"k", b"v")]])
def test_what_an_older_release_has_left_is_still_refused(world: World, rows: list[tuple[bytes, bytes]]) -> None:
    write_database(world.path("totals"), {"default": [(b"k", b"v")]})
    write_database(world.path("clicks"), {STAMPED: [(b"k", b"v")]})
    write_database(world.path("clicks", 1), {STAMPED: rows})
    interrupt_creation(world.path("clicks", 2))
    with world.live.lock(), pytest.raises(Invalid):
        TaskStores(world.spec, world.live, TASK).open()
    assert world.path("clicks", 2).exists()


def test_rows_without_an_offset_beside_others_with_one_are_still_refused(world: World) -> None:
    world.make("clicks")
    write_database(world.path("clicks", 1), {STAMPED: [(b"k", b"v")]})
    with world.live.lock(), pytest.raises(Invalid):
        TaskStores(world.spec, world.live, TASK).open()


@pytest.mark.parametrize("killed", three_of(SEGMENTS))
def test_a_copy_at_a_higher_offset_is_promoted(world: World, families: tuple[str, ...], killed: int) -> None:
    others = [segment for segment in range(3) if segment != killed]
    for store, segments in (("totals", [0]), ("clicks", others)):
        world.make(store, segments)
        world.make(store, segments, offset=20, at=world.warm)
    interrupt_creation(world.path("clicks", killed), *families)
    report = run_promote(
        PromoteRequest(
            spec_path=str(world.file),
            standby_dir=str(world.warm.state_dir),
            state_dir=str(world.live.state_dir),
            apply=True,
            offline=True,
        )
    )
    assert [(one.verdict, one.ahead) for one in report.tasks] == [(PromoteVerdict.PROMOTED, 22)]
    for segment in others:
        assert read_database_state(world.path("clicks", segment)).offsets == {world.changelog("clicks"): 20}
    assert not world.path("clicks", killed).exists()


@pytest.mark.parametrize("to", ["4.2", "4.3"])
def test_a_directory_is_migrated_without_what_was_not_created_to_the_end(
    world: World, families: tuple[str, ...], to: str
) -> None:
    world.make("totals")
    world.make("clicks", [0, 1])
    killed = interrupt_creation(world.path("clicks", 2), *families)
    report = run_migrate(
        MigrateRequest(
            application_id=APPLICATION,
            state_dir=str(world.live.state_dir),
            spec_path=str(world.file),
            to=TargetRelease(to),
            apply=True,
        ),
        InProcessEngine(),
    )
    assert report.refused == ()
    assert all("offsets" in families_of(world.path("clicks", one)) for one in (0, 1)) is (to == "4.3")
    assert "offsets" not in families_of(killed)  # 4.2 opens it, and adds what is missing
