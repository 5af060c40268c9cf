"""Real Kafka Streams with persistent stores of the application's own classes, beside stores that are restored."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from statecore.doctor.diagnosis import diagnose_directory
from statecore.errors import Invalid
from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.fetch.request import FetchRequest
from statecore.jobs.fetch.run import run_fetch
from statecore.jobs.read_report import ReadReport
from statecore.jobs.restore.request import RestoreRequest
from statecore.jobs.restore.run import run_restore
from statecore.repository.repository import create_repository
from statecore.spec.reader import parse_spec
from statecore.statedir.state_directory import StateDirectory
from tests.harness import directory
from tests.harness.broker import Broker
from tests.harness.case_selection import one_of
from tests.harness.custom_stores import file_supplier, wrapped_supplier
from tests.harness.feeds import EVENTS, PRICES, REFERENCE
from tests.harness.kinds import KindCase, KindsApplication
from tests.harness.rebuilding import PARTITIONS, KindsWorld, restored
from tests.harness.repairing import repair
from tests.harness.sources import Sources
from tests.harness.streams import StreamsJvm
from tests.harness.topics import Record

pytestmark = [pytest.mark.integration]

RECORDS = 200
GUARANTEES = one_of(["exactly_once_v2", "at_least_once"])


def _put(of: Callable[[Sources], Any]) -> Callable[[Sources], None]:
    def add(at: Sources) -> None:
        at.put_all(EVENTS, at.stores.keyValueStoreBuilder, of(at), at.puts.key_value(at.puts.plain()))

    return add


def _feed(base: int, partitions: int) -> list[tuple[str, list[Record]]]:
    return [
        (
            EVENTS,
            [Record(b"key-%d" % i, b"value-%d" % i, p, base + i) for p in range(partitions) for i in range(RECORDS)],
        )
    ]


PLAIN = KindCase("key-value", "plain", _put(lambda at: at.stores.persistentKeyValueStore("plain")))
MINE = KindCase("custom", "mine", _put(lambda at: file_supplier(at.jvm, "mine")))
OTHER = KindCase("custom", "Ours.2_b-c.tmp", _put(lambda at: file_supplier(at.jvm, "Ours.2_b-c.tmp", "deep/er/rows")))
WRAPPED = KindCase("custom", "wrapped", _put(lambda at: wrapped_supplier(at.jvm, "wrapped")))
SECOND = KindCase("key-value", "second", _put(lambda at: at.stores.persistentKeyValueStore("second")))
TWO = KindsApplication("custom", (PLAIN, MINE), _feed)
MANY = KindsApplication("customs", (PLAIN, MINE, OTHER, WRAPPED), _feed)


class World(KindsWorld):
    """The same, restored in this process."""

    def restore(self, *, spec: Any = None, **changes: Any) -> ReadReport:
        """Rebuilds the state."""
        wanted = {"transaction_wait": 5.0, **changes}
        request = RestoreRequest(state_dir=str(self.state_dir), spec=spec or self.spec(), **wanted)
        report = run_restore(request, InProcessEngine())
        assert isinstance(report, ReadReport)
        return report

    def declared(self, store: str, **fields: str) -> dict[str, Any]:
        """The spec with another declaration of a store."""
        spec = self.spec()
        for part in spec["subtopologies"].values():
            if store in part["stores"]:
                part["stores"][store] = fields
        return spec


@pytest.fixture
def made(broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path) -> Callable[..., World]:
    def make(guarantee: str, kinds: KindsApplication = TWO, feed: Any = _feed) -> World:
        world = World(broker, streams_jvm, application_id, state_dir, guarantee, kinds)
        with world.application():
            world.feed(feed(world.base, PARTITIONS))
        return world

    return make


def started(world: World) -> dict[str, int]:
    """What Kafka Streams restores at a start."""
    with world.application() as running:
        return restored(running)


def changed(world: World) -> list[str]:
    """Every file of the application but those of ours and the lock."""
    return [name for name in directory.files(world.directory) if not name.startswith(".statecore")]


ALL = PARTITIONS * RECORDS


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_after_a_total_loss_only_the_custom_stores_are_restored(made: Callable[..., World], guarantee: str) -> None:
    world = made(guarantee, MANY)
    names = {MINE.store, OTHER.store, WRAPPED.store}
    world.lose()
    report = world.restore()
    assert {store.store for store in report.stores} == {"plain"}
    assert all(any(name in note for note in report.notes) for name in names)
    assert started(world) == dict.fromkeys(names, ALL)
    assert started(world) == {}
    rows = world.directory / "0_0" / "mine" / "rows"
    content = rows.read_bytes()

    # What was closed is kept, with its offset.
    report = world.restore(replace=True)
    assert rows.read_bytes() == content
    assert not [note for note in report.notes if "from the start" in note]
    assert started(world) == {}
    found = diagnose_directory(StateDirectory(world.state_dir, world.application_id), spec=parse_spec(world.spec()))
    assert [one.code for one in found.findings if one.severity.name != "NOTE"] == []

    # Without its offset one is restored; under exactly-once also those that its files may be of, by their names.
    (world.directory / "0_1" / f".checkpoint_{OTHER.store}").unlink()
    world.restore(replace=True)
    others = names if guarantee == "exactly_once_v2" else {OTHER.store}
    assert started(world) == dict.fromkeys(others, RECORDS)


@pytest.mark.full
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_custom_store_without_its_files_is_restored_whatever_offset_is_left(
    made: Callable[..., World], guarantee: str
) -> None:
    world = made(guarantee)
    shutil.rmtree(world.directory / "0_0" / "mine")
    world.restore(replace=True)
    assert started(world) == {"mine": RECORDS}


@pytest.mark.full
def test_declared_in_memory_the_whole_task_is_wiped(made: Callable[..., World]) -> None:
    world = made("exactly_once_v2")
    world.lose()
    report = world.restore(spec=world.declared("mine", kind="in-memory"))
    assert any("mine (kind in-memory)" in note for note in report.notes)
    assert started(world) == {"plain": ALL, "mine": ALL}


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_what_is_declared_as_another_kind_than_it_is_is_refused(made: Callable[..., World], guarantee: str) -> None:
    world = made(guarantee, KindsApplication("wrong", (PLAIN, SECOND, MINE), _feed))
    before = changed(world)
    for store, kind in [
        ("mine", "in-memory"),
        ("mine", "key-value"),
        ("plain", "custom"),
        ("plain", "in-memory"),
        ("plain", "timestamped-key-value"),
        ("plain", "session"),
    ]:
        spec = world.declared(store, kind=kind, **({"retention": "1d"} if kind == "session" else {}))
        for plan_only in (True, False):
            with pytest.raises(Invalid) as refused:
                world.restore(spec=spec, replace=True, plan_only=plan_only)
            assert refused.value.code == "kind-mismatch"
            assert refused.value.context["stores"] == [store]
    assert changed(world) == before
    assert started(world) == {}


@pytest.mark.full
def test_a_repair_leaves_the_directory_of_a_store_that_is_declared_in_memory(
    made: Callable[..., World], tmp_path: Path
) -> None:
    world = made("exactly_once_v2", KindsApplication("leftover", (PLAIN, SECOND), _feed))
    next((world.directory / "0_0/rocksdb/second").glob("MANIFEST-*")).unlink()
    spec = tmp_path / "stores.yaml"
    spec.write_text(yaml.safe_dump(world.declared("plain", kind="in-memory")))
    report = repair(world.application_id, world.state_dir, spec)
    assert [(one.stores, one.tasks) for one in report.rebuilt] == [(("second",), ("0_0",))]
    assert {(one["code"], one["severity"], one["store"]) for one in report.remaining} == {
        ("kind-mismatch", "warning", "plain")
    }
    assert started(world) == {}


@pytest.mark.full
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_fetch_places_a_task_that_has_a_custom_store(
    made: Callable[..., World], tmp_path: Path, guarantee: str
) -> None:
    world = made(guarantee)
    repository = (tmp_path / "repository").as_uri()
    create_repository(repository)
    world.restore(replace=True, repository=repository)
    world.lose()
    where = {"application_id": world.application_id, "state_dir": str(world.state_dir)}
    report = run_fetch(FetchRequest(repository=repository, **where))
    assert any("mine" in note for note in report.notes)
    assert started(world) == {"mine": ALL}
    (world.directory / "0_0" / ".checkpoint_mine").unlink(missing_ok=True)
    run_fetch(FetchRequest(repository=repository, replace=True, **where))
    assert started(world) == {"mine": RECORDS}


@pytest.mark.full
def test_a_custom_store_that_is_not_logged_is_kept_and_wipes_nothing(made: Callable[..., World]) -> None:
    def add(at: Sources) -> None:
        builder = at.store_builder(at.stores.keyValueStoreBuilder, file_supplier(at.jvm, "own")).withLoggingDisabled()
        at.put_into(EVENTS, builder, "own", at.puts.key_value(at.puts.plain()))

    own = KindCase("custom", "own", add, declared={"changelog": "none"})
    world = made("exactly_once_v2", KindsApplication("unlogged", (PLAIN, own), _feed))
    rows = world.directory / "0_0" / "own" / "rows"
    content = rows.read_bytes()
    world.restore(replace=True)
    assert rows.read_bytes() == content
    assert started(world) == {}
    world.lose()
    world.restore()
    assert started(world) == {}


def _global(name: str, of: Callable[[Sources], Any], role: str) -> Callable[[Sources], None]:
    def add(at: Sources) -> None:
        at.builder.globalTable(at.topic(role), at.consumed(), at.materialized(of(at)))

    add.__name__ = name
    return add


@pytest.mark.full
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_a_global_custom_store_is_kept_beside_one_that_is_restored(made: Callable[..., World], guarantee: str) -> None:
    mine = _global("mine", lambda at: file_supplier(at.jvm, "global-mine"), REFERENCE)
    plain = _global("plain", lambda at: at.stores.persistentKeyValueStore("global-plain"), PRICES)
    cases = (
        PLAIN,
        KindCase("custom", "global-mine", mine, source=REFERENCE, is_global=True),
        KindCase("key-value", "global-plain", plain, source=PRICES, is_global=True),
    )

    def feed(base: int, partitions: int) -> list[tuple[str, list[Record]]]:
        ((_, records),) = _feed(base, partitions)
        return [(role, records) for role in (EVENTS, REFERENCE, PRICES)]

    world = made(guarantee, KindsApplication("custom-globals", cases, feed), feed)
    world.lose()
    report = world.restore()
    assert "global-plain" in {store.store for store in report.stores}
    assert started(world) == {"global-mine": ALL}
    assert started(world) == {}
    world.restore(replace=True)
    assert (world.directory / "global" / "global-mine" / "rows").is_file()
    assert started(world) == {}
    shutil.rmtree(world.directory / "global" / "global-mine")
    world.restore(replace=True)
    assert started(world) == {"global-mine": ALL}
