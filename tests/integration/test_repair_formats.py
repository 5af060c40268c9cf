"""Rows of older formats in stores that keep headers now: what real Kafka Streams makes of them, and after a repair."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path

import pytest

from tests.harness import damage_functions
from tests.harness.broker import Broker
from tests.harness.case_selection import one_of
from tests.harness.command import examined, worse_than_notes
from tests.harness.fed_application import Answers
from tests.harness.kinds import BEFORE_HEADERS, SINCE_HEADERS
from tests.harness.rebuilding import KindsWorld, restored
from tests.harness.repairing import repair
from tests.harness.streams import StreamsFailed, StreamsJvm

pytestmark = pytest.mark.integration

CODE = "older-rows-misread"


def _with_headers(world: KindsWorld, state_dir: Path, *, copied: bool = True) -> KindsWorld:
    """The same application with ``dsl.store.format=HEADERS``, upon a copy of its directory or an empty one."""
    if copied:
        shutil.copytree(world.state_dir, state_dir)
    else:
        state_dir.mkdir()
    other = copy.copy(world)
    other.kinds, other.state_dir = SINCE_HEADERS, state_dir
    return other


def _opened(world: KindsWorld) -> tuple[Answers, dict[str, int]]:
    with world.application() as running:
        return world.answers(running), restored(running)


def _with_older_row(world: KindsWorld) -> KindsWorld:
    """A row of the table from before it had timestamps, beside those that have them."""
    damage_functions.put(damage_functions.database_of(world.directory, "latest"), "default", b"from-before", b"of 2.2")
    return world


def _found(world: KindsWorld) -> tuple[int, list[tuple[str, str]]]:
    spec = world.write_spec(world.state_dir.parent / "stores.yaml")
    code, findings = examined(world.state_dir, spec)
    return code, sorted((one["store"], one["code"]) for one in worse_than_notes(findings))


@pytest.mark.parametrize("guarantee", one_of(["exactly_once_v2", "at_least_once"]))
def test_rows_that_the_format_with_headers_does_not_read_rightly(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path, tmp_path: Path, guarantee: str
) -> None:
    world = KindsWorld(broker, streams_jvm, application_id, state_dir, guarantee, BEFORE_HEADERS, 1)
    with world.application():
        world.feed_all()
    right, _ = _opened(_with_headers(world, tmp_path / "empty", copied=False))
    assert all(right.values())

    opened = _with_headers(world, tmp_path / "opened")
    answers, records = _opened(opened)
    assert records == {}
    assert answers["latest", 0] == right["latest", 0]
    assert answers["visits", 0] != right["visits", 0]
    assert [(key, value) for key, value, _ in answers["visits", 0]] == [
        (key, b"\0" + value) for key, value, _ in right["visits", 0]
    ]
    with pytest.raises(StreamsFailed):
        _opened(_with_older_row(_with_headers(world, tmp_path / "failing")))

    repaired = _with_older_row(_with_headers(opened, tmp_path / "repaired"))
    assert _found(repaired) == (22, [("latest", CODE), ("visits", CODE)])
    assert repair(application_id, repaired.state_dir, tmp_path / "stores.yaml").remaining == ()
    assert _found(repaired) == (0, [])
    assert _opened(repaired) == (right, {})
