"""Something else than Kafka Streams expects in its place: no start succeeds, and each does after a repair."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.broker import Broker
from tests.harness.case_selection import one_of
from tests.harness.command import examined, worse_than_notes
from tests.harness.damage_functions import OFFSETS, database_of, put, segments_of, tables_of
from tests.harness.fleet_kinds import SMALL
from tests.harness.modes import AT_LEAST_ONCE, EXACTLY_ONCE
from tests.harness.rebuilding import KindsWorld, restored
from tests.harness.repairing import repair
from tests.harness.streams import StreamsFailed, StreamsJvm

pytestmark = pytest.mark.integration

TASK, WINDOWS = "0_0", "timestamped-window"
PLAIN, STAMPED, SESSIONS = "key-value", "timestamped-key-value", "session"
LEFT_OUT = {"in-memory"}
"""Kafka Streams restores it at every start."""


def _replaced(path: Path, by: Callable[[Path], object] = Path.mkdir) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    by(path)


def _next_segment(application: Path, store: str) -> Path:
    """Where the segment after the newest one would be."""
    before, last = (int(path.name.rpartition(".")[2]) for path in segments_of(application, store)[-2:])
    return application / TASK / store / f"{store}.{2 * last - before}"


CASES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "segment": ("segment-stray", lambda at: (segments_of(at, WINDOWS)[0].with_name("notes.txt")).touch()),
    "segment-file": ("segment-stray", lambda at: _next_segment(at, SESSIONS).touch()),
    "lock": ("wrong-file-type", lambda at: _replaced(database_of(at, PLAIN) / "LOCK")),
    "identity": ("wrong-file-type", lambda at: _replaced(database_of(at, "versioned-key-value") / "IDENTITY")),
    "table": ("wrong-file-type", lambda at: _replaced(tables_of(database_of(at, STAMPED))[-1])),
    "checkpoint": ("checkpoint-unreadable", lambda at: _replaced(at / TASK / ".checkpoint")),
    "position": ("checkpoint-unreadable", lambda at: _replaced(at / TASK / f"{PLAIN}.position")),
    "store-checkpoint": ("checkpoint-unreadable", lambda at: _replaced(at / "1_0" / ".checkpoint_grace-Buffer")),
}
BY_HAND: dict[str, tuple[str, Callable[[Path], object]]] = {
    "number": ("task-name-invalid", lambda at: shutil.copytree(at / TASK, at / "0_2147483648")),
    "subtopology": ("task-undeclared", lambda at: (at / "7_0/rocksdb").mkdir(parents=True)),  # there is a global store
}
"""What no repair moves away."""


def _more_behind_a_position(application: Path) -> None:
    """Kafka Streams reads an empty position, and nothing behind its end."""
    put(database_of(application, SESSIONS), OFFSETS, b"position", bytes(5) + b"junk")


@pytest.mark.parametrize("guarantee", one_of([EXACTLY_ONCE, AT_LEAST_ONCE]))
def test_nothing_starts_with_it_and_all_does_after_a_repair(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path, tmp_path: Path, guarantee: str
) -> None:
    world = KindsWorld(broker, streams_jvm, application_id, state_dir, guarantee, SMALL, 1)
    with world.application():
        world.feed_all()
    with world.application() as running:
        right = world.answers(running)

    spec = world.write_spec(tmp_path / "stores.yaml")
    damaged = world.copied("damaged")
    for _, inflict in CASES.values():
        inflict(damaged.directory)
    _more_behind_a_position(damaged.directory)
    for name, (code, inflict) in {**CASES, **BY_HAND}.items():
        one = world.copied(name)
        inflict(one.directory)
        if name in BY_HAND:
            returned, findings = examined(one.state_dir, spec)
            assert (returned, [found["code"] for found in worse_than_notes(findings)]) == (21, [code])
        with pytest.raises(StreamsFailed), one.application():
            pass
    # Copies have no pipes, which nothing waits for.
    os.mkfifo(database_of(damaged.directory, PLAIN) / "000099.log")

    returned, findings = examined(damaged.state_dir, spec)
    assert returned == 21
    assert {one["code"] for one in worse_than_notes(findings)} == {code for code, _ in CASES.values()}
    first = repair(application_id, damaged.state_dir, spec)  # the store without its offset file is rebuilt after that
    wiped = {"grace-buffer-miskeyed"} if guarantee == EXACTLY_ONCE else set()  # the buffer would be restored then
    assert {one["code"] for one in first.remaining} == {"offset-missing"} | wiped
    assert repair(application_id, damaged.state_dir, spec).remaining == ()
    assert examined(damaged.state_dir, spec)[0] == 0
    with damaged.application() as running:
        assert damaged.answers(running) == right
        assert restored(running).keys() <= LEFT_OUT
