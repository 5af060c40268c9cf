"""Stores whose changelogs have lost deletes that the stores never learned of: what real Kafka Streams answers then."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness import damage_functions, repairing, topics
from tests.harness.broker import Broker
from tests.harness.case_selection import one_of
from tests.harness.feeds import REFERENCE
from tests.harness.kinds import GLOBALS
from tests.harness.rebuilding import KindsWorld, eventually
from tests.harness.streams import StreamsJvm
from tests.harness.tables import PARTITIONS, World
from tests.harness.topics import Record
from tests.integration.test_doctor_topics import FORGETFUL, compact
from tests.integration.test_repair_topics import GUARANTEES, found, repair, truth

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    "offsets", one_of([[], [(None, "offset-missing"), (-4, "offset-unknown")]]), ids=["whole", "without-offset"]
)
@GUARANTEES
def test_a_store_that_is_older_than_the_deletes_that_its_changelog_keeps(
    broker: Broker,
    streams_jvm: StreamsJvm,
    application_id: str,
    state_dir: Path,
    guarantee: str,
    offsets: list[tuple[int | None, str]],
) -> None:
    """``offsets``: the same again, with another offset in the place of its own, and what the doctor calls that."""
    world = World(broker, streams_jvm, application_id, state_dir, guarantee)
    log = f"{application_id}-stamped-changelog"
    topics.create(world.servers, f"{application_id}-plain-changelog", PARTITIONS, topics.UNCLEANED)
    topics.create(world.servers, log, PARTITIONS, FORGETFUL)
    world.feed(keys=20)
    world.live()
    older = world.copied("older")
    deleted = (b"key-1", b"key-3")
    topics.produce(world.servers, world.input, [Record(key, None, 1) for key in deleted])
    topics.produce(world.servers, world.input, [Record(b"key-%d" % n, b"later", n % 2) for n in range(6, 16)])
    world.live()
    compact(broker, log, 1, deleted[0])
    assert all(record.value is not None for record in topics.read(world.servers, log, 1)), "no delete is left"
    right = truth(world)
    assert found(older) == (22, {("0_1", "stamped"): "stale"})

    opened = older.copied("opened")
    answers, records = opened.reopen()
    assert records > 0, "the rest of the log"
    assert {place for place in right if answers[place] != right[place]} == {("stamped", 1)}
    keys = {key for rows in opened.rows()["0_1", "stamped"].values() for key, _ in rows}
    assert {*deleted} <= keys, "deleted keys live on"

    repaired = older.copied("repaired")
    plan = repair(repaired)
    assert [(one.stores, one.tasks, one.codes) for one in plan.rebuilt] == [(("stamped",), ("0_1",), ("stale",))]
    assert repair(repaired, apply=True, approved=plan.plan_id).remaining == ()
    answers, less = repaired.reopen()
    assert answers == right
    assert less < records, "what the other stores lacked since the copy was made, and of this one nothing"

    # The same rows, without an offset of which the rest of the log could be counted.
    for offset, code in offsets:
        lives_on = guarantee == "at_least_once" or code == "offset-unknown"  # else its task is wiped
        opened, repaired = (older.copied(f"{code}-{name}") for name in ("opened", "repaired"))
        for one in (opened, repaired):
            database = damage_functions.database_of(one.state_dir / application_id, "stamped", "0_1")
            damage_functions.change_offsets(database, lambda _, offset=offset: offset)
        assert found(repaired) == (22 if lives_on else 21, {("0_1", "stamped"): code})
        answers, _ = opened.reopen()
        assert (answers["stamped", 1] != right["stamped", 1]) is lives_on
        assert repair(repaired, apply=True).remaining == ()
        assert repaired.reopen()[0] == right


@GUARANTEES
def test_a_global_store_without_an_offset_whose_topic_has_lost_deletes(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path, guarantee: str
) -> None:
    world = KindsWorld(broker, streams_jvm, application_id, state_dir, guarantee, GLOBALS, 1)
    topic = world.inputs[REFERENCE]
    for name, value in FORGETFUL.items():
        topics.configure(world.servers, topic, {name: value})
    topics.produce(world.servers, topic, [Record(key, b"there", 0) for key in (b"stays", b"goes")])
    with world.application() as running:
        eventually(lambda: len(running.query_rows("global-table", None)), 2)
    older = world.copied("older")
    topics.produce(world.servers, topic, [Record(b"goes", None, 0)])
    compact(broker, topic, 0, b"goes")
    world.state_dir = state_dir.parent / "empty"
    world.state_dir.mkdir()
    with world.application() as running:
        right = running.query_rows("global-table", None)
    assert b"goes" not in {key for key, _, _ in right}

    damage_functions.change_offsets(
        damage_functions.database_of(older.directory, "global-table", "global"), lambda _: None
    )
    repaired = older.copied("repaired")
    with older.application() as running:
        assert b"goes" in {key for key, _, _ in running.query_rows("global-table", None)}, "a deleted key lives on"
    spec = world.write_spec(state_dir.parent / "stores.yaml")
    report = repairing.repair(application_id, repaired.state_dir, spec)
    assert [(one["code"], one["severity"]) for one in report.found if one["severity"] != "note"] == [
        ("offset-missing", "loss")
    ]
    with repaired.application() as running:
        assert running.query_rows("global-table", None) == right
