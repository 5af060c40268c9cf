"""Directories that real Kafka Streams left earlier, of every kind of store, are advanced, and it restores nothing."""

from __future__ import annotations

import shutil
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from statecore.jobs.bases.base import DIRECTORY
from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.read_report import ReadReport
from statecore.jobs.restore.advance import run_advance
from statecore.jobs.restore.request import AdvanceRequest
from tests.harness.broker import Broker
from tests.harness.case_selection import one_of
from tests.harness.feeds import EVENTS, MORE, SPAN, more
from tests.harness.kinds import HEADERS, PLAIN, SOURCES, KindsApplication
from tests.harness.modes import MODES, Mode
from tests.harness.rebuilding import PARTITIONS, KindsWorld, Rows, restored
from tests.harness.streams import StreamsJvm
from tests.integration.test_every_kind import valid_now

pytestmark = pytest.mark.integration

FEW = replace(
    PLAIN,
    name="few",
    cases=tuple(
        case
        for case in PLAIN.cases
        if case.store in ("key-value", "versioned-key-value", "timestamped-window", "session")
    ),
    feed=lambda base, partitions: [one for one in PLAIN.feed(base, partitions) if one[0] == EVENTS],
)
"""A store of each layout: the kinds themselves are restored by ``test_kinds.py``."""

# A window store without a record has no segment, so there is nothing to advance; what comes then is restored.
APPLICATIONS = (
    FEW,
    replace(PLAIN, cases=tuple(case for case in PLAIN.cases if case.store != "sparse-window")),
    HEADERS,
    SOURCES,
)
ALL = [pytest.param(mode, kinds, id=f"{mode.name}-{kinds.name}") for mode in MODES for kinds in APPLICATIONS]


def versioned_of(kinds: KindsApplication) -> set[str]:
    """Its versioned stores."""
    return {case.store for case in kinds.cases if case.kind.startswith("versioned")}


def without_versioned(kinds: KindsApplication, rows: Rows) -> Rows:
    """Rows of the others."""
    return {key: found for key, found in rows.items() if key[1] not in versioned_of(kinds) and any(found.values())}


@pytest.mark.parametrize(("mode", "kinds"), one_of(ALL))
def test_kafka_streams_restores_no_more_than_versioned_stores_after_its_own_directory_was_advanced(
    broker: Broker, streams_jvm: StreamsJvm, tmp_path: Path, mode: Mode, kinds: KindsApplication
) -> None:
    application_id = f"advance-{kinds.name}-{mode.name}-{uuid.uuid4().hex[:8]}"
    world = KindsWorld(broker, streams_jvm, application_id, tmp_path / "state", mode.guarantee, mode.of(kinds))
    with world.application():
        world.feed(kinds.feed(world.base, PARTITIONS))
    mode.assert_used(streams_jvm, world)
    shutil.copytree(world.directory, tmp_path / "left")
    with world.application() as running:
        world.feed([(role, more(world.base, PARTITIONS)) for role in world.inputs])
        before = world.answers(running, SPAN + MORE)
    written = world.rows()
    world.lose()
    shutil.copytree(tmp_path / "left", world.directory)
    request = AdvanceRequest(spec=world.spec(), state_dir=str(world.state_dir), transaction_wait=5.0)
    report = run_advance(request, InProcessEngine())
    assert isinstance(report, ReadReport)
    assert report.stores
    assert {store.base for store in report.stores} == {DIRECTORY}
    assert without_versioned(kinds, world.rows()) == without_versioned(kinds, written)
    with world.application() as running:
        assert set(restored(running)) - {"in-memory"} == versioned_of(kinds), "which stay as they are"
        assert valid_now(kinds, world.answers(running, SPAN + MORE)) == valid_now(kinds, before)
