"""An application of named topologies, lost, rebuilt into the directories of its topologies, and opened again."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from statecore.jobs.in_process import InProcessEngine
from statecore.jobs.restore.request import RestoreRequest
from statecore.jobs.restore.run import run_restore
from tests.harness import directory, topics
from tests.harness.broker import Broker
from tests.harness.feeds import SPAN
from tests.harness.kinds import NAMED
from tests.harness.modes import each_guarantee
from tests.harness.named import NamedTopologies
from tests.harness.queries import Row
from tests.harness.rebuilding import PARTITIONS, restored
from tests.harness.streams import StreamsJvm

pytestmark = pytest.mark.integration


@each_guarantee
def test_stores_of_named_topologies_are_rebuilt_and_nothing_is_restored(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path, guarantee: str
) -> None:
    servers = broker.bootstrap_servers
    base = int(time.time() * 1000) - 2 * SPAN
    inputs = {role: f"{application_id}-{role}" for kinds in NAMED.values() for role in kinds.roles()}
    for topic in inputs.values():
        topics.create(servers, topic, PARTITIONS)
    cases = {case.store: case for kinds in NAMED.values() for case in kinds.cases}

    def application() -> NamedTopologies:
        fills = {name: lambda jvm, builder, of=kinds: of.fill(jvm, builder, inputs) for name, kinds in NAMED.items()}
        queries = {store: query for kinds in NAMED.values() for store, query in kinds.queries(base).items()}
        return NamedTopologies(
            streams_jvm, application_id, servers, state_dir, fills, guarantee=guarantee, stores=queries
        )

    def answers(running: NamedTopologies) -> dict[tuple[str, int], list[Row]]:
        return {(store, p): running.query_rows(store, p) for store in cases for p in range(PARTITIONS)}

    def rows() -> dict[tuple[str, str], Any]:
        return {
            key: {family: found for family, found in families.items() if family != "offsets"}
            for key, families in directory.read_application(state_dir / application_id).items()
        }

    stores: dict[str, dict[str, Any]] = {}
    with application() as running:
        for name, kinds in NAMED.items():
            for role, records in kinds.feed(base, PARTITIONS):
                topics.produce(servers, inputs[role], records)
            declared = kinds.subtopologies(running.describe_topology(name), inputs)
            for number, found in declared.items():
                for store, fields in found["stores"].items():
                    stores.setdefault(number, {})[store] = {**fields, "topology": name}
        topics.wait_until_consumed(servers, application_id, list(inputs.values()))
        before = answers(running)
    written = rows()
    assert {task for task, _ in written} == {f"__{name}__" for name in NAMED}
    shutil.rmtree(state_dir / application_id)

    spec = {
        "application_id": application_id,
        "bootstrap_servers": servers,
        "processing_guarantee": guarantee,
        "subtopologies": {number: {"stores": found} for number, found in stores.items()},
    }
    run_restore(RestoreRequest(state_dir=str(state_dir), spec=spec, transaction_wait=5.0), InProcessEngine())

    assert rows() == written
    with application() as running:
        assert restored(running) == {}
        assert answers(running) == before
        assert all(before.values())
