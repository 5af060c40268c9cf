"""Stores that an application does not log (``withLoggingDisabled``), in tasks with stores that it does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from statecore.doctor.diagnosis import inspect
from statecore.errors import Invalid
from statecore.jobs.engine.in_process import InProcessEngine
from statecore.spec.reader import parse_spec
from statecore.statedir.state_directory import StateDirectory
from tests.harness.broker import Broker
from tests.harness.command import statecore_here
from tests.harness.kinds import UNLOGGED
from tests.harness.modes import EXACTLY_ONCE, each_guarantee
from tests.harness.raising import raises
from tests.harness.rebuilding import PARTITIONS, KindsWorld, restored
from tests.harness.streams import StreamsJvm

pytestmark = pytest.mark.integration

NOT_LOGGED = {"unlogged-table", "unlogged-window", "unlogged-put"}
LOGGED = {"timestamped-key-value", "logged-window", "counts"}


@pytest.mark.full
@each_guarantee
def test_a_store_that_is_not_logged_is_kept_or_empty_and_no_task_is_wiped(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path, tmp_path: Path, guarantee: str
) -> None:
    world = KindsWorld(broker, streams_jvm, application_id, state_dir, guarantee, UNLOGGED)
    world.engine = InProcessEngine()
    with world.application() as running:
        description = running.describe()
        world.feed(UNLOGGED.feed(world.base, PARTITIONS))
        answers = world.answers(running)
    assert all(answers[store, p] for store in LOGGED | NOT_LOGGED for p in range(PARTITIONS))
    rows = world.rows()

    # A topic that feeds a store is no changelog of it; the directory beside it says that it has none.
    (tmp_path / "describe.txt").write_text(description)
    words = ["discover", "--bootstrap-servers", world.servers, "--application-id", application_id, "--json"]
    words += ["--topology", str(tmp_path / "describe.txt")]
    told = _changelogs(words)
    assert told == dict.fromkeys(LOGGED) | dict.fromkeys(NOT_LOGGED, "?")
    told = _changelogs([*words, "--state-dir", str(state_dir)])
    assert told == dict.fromkeys(LOGGED) | dict.fromkeys(NOT_LOGGED, "none")

    # Not a fault of a directory, nor one that has to be declared to be none.
    directory = StateDirectory(state_dir, application_id)
    spec = parse_spec(world.spec())
    assert [store.problems for store in inspect(directory).stores if store.problems] == []
    assert [store.problems for store in inspect(directory, spec=spec).stores if store.problems] == []
    assert {store.store for store in inspect(directory).stores if not store.logged} == NOT_LOGGED

    # Undecided is refused, so is what has no changelog, and what nobody has declared.
    undecided, undeclared = world.spec(), world.spec()
    _with("unlogged-table", undecided)["changelog"] = "?"
    with raises(Invalid, "spec-undecided", stores=["unlogged-table"]):
        world.restore(spec=undecided, replace=True)
    with raises(Invalid, "store-not-logged", stores=["unlogged-table"]):
        world.restore(stores=("unlogged-table",), replace=True)
    for part in undeclared["subtopologies"].values():
        part["stores"] = {name: store for name, store in part["stores"].items() if name in LOGGED}
    if guarantee == EXACTLY_ONCE:
        with raises(Invalid, "placement-refused"):
            world.restore(spec=undeclared, replace=True)

    # Beside restored stores it is kept as it is.
    report = world.restore(replace=True)
    assert {store.store for store in report.stores} == LOGGED
    assert [note for note in report.notes if all(store in note for store in NOT_LOGGED)]
    assert world.rows() == rows
    with world.application() as running:
        assert restored(running) == {}
        assert world.answers(running) == answers

    # Where the task is new Kafka Streams makes it, and finds nothing wrong with the task.
    world.lose()
    world.restore()
    assert not NOT_LOGGED & {name.partition("/")[0] for _, name in world.rows()}
    for _ in range(2):
        with world.application() as running:
            assert restored(running) == {}
            now = world.answers(running)
        assert {key: found for key, found in now.items() if key[0] in LOGGED} == {
            key: found for key, found in answers.items() if key[0] in LOGGED
        }
        assert [found for (store, _), found in now.items() if store in NOT_LOGGED and found] == []
        assert [store.problems for store in inspect(directory, spec=spec).stores if store.problems] == []


def _with(store: str, spec: dict[str, Any]) -> dict[str, Any]:
    """What a spec says of a store."""
    parts: list[dict[str, Any]] = [part["stores"] for part in spec["subtopologies"].values()]
    return next(stores[store] for stores in parts if store in stores)  # type: ignore[no-any-return]


def _changelogs(words: list[str]) -> dict[str, str | None]:
    """What discover writes as the changelog of each store; None for the usual one."""
    process = statecore_here(*words)
    assert process.returncode == 0, process.stderr
    subtopologies = json.loads(process.stdout)["spec"]["subtopologies"]
    return {name: one.get("changelog") for part in subtopologies.values() for name, one in part["stores"].items()}
