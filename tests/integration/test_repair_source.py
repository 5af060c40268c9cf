"""A table ahead of what its application has consumed: a join meets rows of its future, and none after a repair."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness import topics
from tests.harness.broker import Broker
from tests.harness.case_selection import one_of
from tests.harness.command import examined, worse_than_notes
from tests.harness.feeds import EVENTS, SOURCE, Portion
from tests.harness.kinds import KindCase, KindsApplication
from tests.harness.queries import StoreQuery
from tests.harness.rebuilding import KindsWorld
from tests.harness.repairing import repair
from tests.harness.sources import Sources
from tests.harness.streams import StreamsJvm
from tests.harness.topics import Record

pytestmark = pytest.mark.integration

RESULTS = "results"


def _joined(at: Sources) -> None:
    table = at.builder.table(at.topic(SOURCE), at.consumed(), at.materialized("source-table"))
    at.send(at.stream(EVENTS).join(table, at.both(), at.table_joined("joined")), RESULTS)


def _feed(base: int, partitions: int) -> list[Portion]:
    """The table's row before each event, which is written after it."""
    texts = ((SOURCE, b"first"), (EVENTS, b"one"), (SOURCE, b"second"), (EVENTS, b"two"))
    return [(role, [Record(b"key", text, 0, base + 1000 * n)]) for n, (role, text) in enumerate(texts)]


JOINED = KindsApplication(
    "joined",
    (KindCase("timestamped-key-value", "source-table", _joined, StoreQuery(True, value="String"), source=SOURCE),),
    _feed,
    {"topology.optimization": "all"},
    (RESULTS,),
)
"""Events, each with the row of a table at its time; the table's source topic is its changelog."""


def _results(world: KindsWorld) -> list[bytes | None]:
    return [one.value for one in topics.read(world.servers, world.outputs[RESULTS], 0)]


def _again(world: KindsWorld, state_dir: Path) -> list[bytes | None]:
    """What it writes when it consumes again all but the table's first record, upon this directory."""
    before = len(_results(world))
    world.state_dir = state_dir
    with world.application():
        world.wait({SOURCE, EVENTS})
    return _results(world)[before:]


@pytest.mark.parametrize("guarantee", one_of(["exactly_once_v2", "at_least_once"]))
def test_a_source_table_that_is_ahead_of_its_group(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path, tmp_path: Path, guarantee: str
) -> None:
    world = KindsWorld(broker, streams_jvm, application_id, state_dir, guarantee, JOINED, 1)
    with world.application():
        world.feed_all()
    right = [b"one+first", b"two+second"]
    assert _results(world) == right
    reset = {(world.inputs[SOURCE], 0): 1, (world.inputs[EVENTS], 0): 0}
    topics.commit(world.servers, application_id, reset)
    spec = world.write_spec(tmp_path / "stores.yaml")
    for name in ("opened", "repaired"):
        world.copied(name)
    code, findings = examined(tmp_path / "repaired", spec)
    assert (code, [one["code"] for one in worse_than_notes(findings)]) == (22, ["source-ahead"])

    assert _again(world, tmp_path / "opened") == [b"one+second", b"two+second"], "a row of its future"

    topics.commit(world.servers, application_id, reset)
    assert repair(application_id, tmp_path / "repaired", spec).remaining == ()
    assert _again(world, tmp_path / "repaired") == right
