"""Rows of older formats in stores that keep headers now: what real Kafka Streams makes of them, and after a repair."""

from __future__ import annotations

import copy
import shutil
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from statecore.errors import Invalid
from tests.harness import damage_functions
from tests.harness.broker import Broker
from tests.harness.case_selection import one_of
from tests.harness.command import examined, worse_than_notes
from tests.harness.emitting import EMITTING
from tests.harness.fed_application import Answers
from tests.harness.kinds import BEFORE_HEADERS, SINCE_HEADERS
from tests.harness.raising import raises
from tests.harness.rebuilding import KindsWorld, restored
from tests.harness.repairing import repair
from tests.harness.streams import StreamsFailed, StreamsJvm
from tests.integration.test_emitted import Emitted, emitted, feed

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
    assert {at for at in right if answers[at] != right[at]} == {("visits", 0)}
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

    unopened = _with_headers(world, tmp_path / "unopened")
    assert _found(unopened) == (22, [("visits", "kind-mismatch")])
    with raises(Invalid, "rebuild-source-unverified"):
        repair(application_id, unopened.state_dir, tmp_path / "stores.yaml")
    plan = repair(application_id, unopened.state_dir, tmp_path / "stores.yaml", apply=False)
    report = repair(application_id, unopened.state_dir, tmp_path / "stores.yaml", approved=plan.plan_id)
    assert ([one.stores for one in report.rebuilt], report.remaining) == ([("visits",)], ())
    assert _found(unopened) == (0, [])
    assert _opened(unopened) == (right, {})
    assert _found(unopened) == (0, [])


@pytest.mark.full
def test_results_after_an_upgrade_to_headers_are_those_without_one(
    broker: Broker, streams_jvm: StreamsJvm, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Joins find partners, and windows close, that were stored in the default format; not sessions, see above."""
    results: dict[str, Emitted] = {}
    base = 0
    for store_format in ("DEFAULT", "HEADERS"):
        name = f"emitting-{store_format.lower()}-{uuid.uuid4().hex[:8]}"
        state_dir = tmp_path_factory.mktemp("emitting")
        world = KindsWorld(broker, streams_jvm, name, state_dir, "at_least_once", EMITTING, partitions=1)
        base = world.base = base or world.base
        portions = EMITTING.feed(base, 1)
        half = len(portions) // 2
        with world.application():
            feed(world, portions[:half])
        world.kinds = replace(EMITTING, properties={**EMITTING.properties, "dsl.store.format": store_format})
        with world.application() as running:
            assert set(restored(running)) <= {"suppressed-store"}
            feed(world, portions[half:])
        results[store_format] = {role: one for role, one in emitted(world).items() if role != "session-results"}
    assert results["HEADERS"] == results["DEFAULT"]
