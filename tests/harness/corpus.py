"""Applications of ``tests.harness.kinds`` that live once a run; who needs one takes a copy of its directory.

::

    corpus = Corpus(shared(tmp_path_factory), broker, streams_jvm)
    world, lived = corpus.take(PLAIN, Mode(EXACTLY_ONCE), state_dir)  # fed and closed

Under pytest-xdist all workers share it: the first to ask lets an application live, others wait for that. All copies
have the same topics and group, so one alone may be started (``to_run``); who asks for another gets another application.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import pickle
import shutil
import subprocess
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.harness.broker import Broker
from tests.harness.kinds import KindsApplication
from tests.harness.modes import Mode
from tests.harness.rebuilding import PARTITIONS, Answers, KindsWorld
from tests.harness.streams import StreamsJvm


@dataclass(frozen=True)
class Lived:
    """An application that was fed and closed.

    Attributes:
        application_id: its id.
        base: time of its first record (ms).
        description: the text of its topology.
        process: of the JVM that it ran in.
        answers: what it answered at last.
        inspected: what ``statecore inspect`` said while it ran.
        examined: what ``statecore doctor`` said then.
    """

    application_id: str
    base: int
    description: str
    process: int
    answers: Answers
    inspected: dict[str, Any]
    examined: dict[str, Any]


class Corpus:
    """What has lived in this run.

    Args:
        directory: shared by all workers.
        broker: has the topics.
        jvm: runs what has not lived yet, and who starts a copy.
    """

    def __init__(self, directory: Path, broker: Broker, jvm: StreamsJvm) -> None:
        self._directory, self._broker, self._jvm = directory, broker, jvm

    def take(
        self, kinds: KindsApplication, mode: Mode, state_dir: Path, *, to_run: bool = False
    ) -> tuple[KindsWorld, Lived]:
        """An application upon a copy of the directory that it left when it was closed.

        Args:
            kinds: its stores.
            mode: how it is configured.
            state_dir: receives the copy.
            to_run: whether it is going to be started, or fed.
        """
        for number in itertools.count():
            place = self._directory / f"{kinds.name}-{mode.name}-{number}"
            place.mkdir(parents=True, exist_ok=True)
            with (place / "lock").open("w") as lock:
                fcntl.lockf(lock, fcntl.LOCK_EX)
                if to_run and (place / "taken").exists():
                    continue
                if not (place / "lived").exists():
                    (place / "lived").write_bytes(pickle.dumps(self._live(kinds, mode, place)))
                if to_run:
                    (place / "taken").touch()
            break
        lived: Lived = pickle.loads((place / "lived").read_bytes())
        world = KindsWorld(
            *(self._broker, self._jvm, lived.application_id, state_dir, mode.guarantee, mode.of(kinds)),
            base=lived.base,
            create=False,
        )
        world.description = lived.description
        shutil.copytree(place / "state" / lived.application_id, world.directory)
        return world, lived

    def _live(self, kinds: KindsApplication, mode: Mode, place: Path) -> Lived:
        state_dir = place / "state"
        shutil.rmtree(state_dir, ignore_errors=True)  # of one who failed
        state_dir.mkdir()
        application_id = f"lived-{kinds.name}-{mode.name}-{uuid.uuid4().hex[:8]}"
        world = KindsWorld(self._broker, self._jvm, application_id, state_dir, mode.guarantee, mode.of(kinds))
        with world.application() as running:
            world.feed(kinds.feed(world.base, PARTITIONS))
            world.wait_for_globals(running)
            answers = world.answers(running)
            inspected, examined = (_beside(command, state_dir) for command in ("inspect", "doctor"))
        return Lived(application_id, world.base, world.description, self._jvm.pid, answers, inspected, examined)


def shared(factory: pytest.TempPathFactory) -> Path:
    """A directory that the workers of a run share."""
    base = factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "corpus"


def _beside(name: str, state_dir: Path) -> dict[str, Any]:
    """What a command says in a process of its own, while the application runs in this one."""
    command = [sys.executable, "-m", "statecore.cli.main", name, "--state-dir", str(state_dir), "--json"]
    process = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    assert process.returncode == 0, process.stdout + process.stderr
    said: dict[str, Any] = json.loads(process.stdout)
    return said
