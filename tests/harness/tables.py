"""An application that keeps its input as a plain and as a timestamped table: fed, lost, rebuilt, opened again."""

from __future__ import annotations

import copy
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from statecore.faults import FaultPoints
from statecore.jobs.engine.protocol import Engine
from statecore.jobs.read_report import ReadReport
from statecore.jobs.restore.request import RestoreRequest
from statecore.progress import Progress
from tests.harness import directory, topics
from tests.harness.applications import PLAIN_AND_STAMPED, two_stores
from tests.harness.broker import Broker
from tests.harness.on_spark import run_restore
from tests.harness.streams import StreamsApplication, StreamsJvm
from tests.harness.topics import Record

PARTITIONS = 2
NOW = int(time.time() * 1000)
KINDS = {"plain": "key-value", "stamped": "timestamped-key-value"}
Answers = dict[tuple[str, int], str]


class World:
    """One application over one input topic, its state directory, and ways to lose and rebuild it."""

    def __init__(self, broker: Broker, jvm: StreamsJvm, application_id: str, state_dir: Path, guarantee: str) -> None:
        self.servers, self.jvm = broker.bootstrap_servers, jvm
        self.application_id, self.state_dir, self.guarantee = application_id, state_dir, guarantee
        self.input = f"{application_id}-input"
        topics.create(self.servers, self.input, PARTITIONS)

    def at(self, state_dir: Path) -> World:
        """The same application with another state directory."""
        other = copy.copy(self)
        other.state_dir = state_dir
        return other

    def copied(self, name: str) -> World:
        """The same application upon a copy of its directory as it is now."""
        state_dir = self.state_dir.parent / name
        shutil.copytree(self.state_dir, state_dir)
        return self.at(state_dir)

    def feed(self, rounds: int = 3, keys: int = 200) -> None:
        """Updates of keys over two partitions; every fifth key is deleted at the end."""
        updates = [
            Record(b"key-%d" % key, b"round %d of %d" % (turn, key), key % PARTITIONS, NOW - rounds + turn)
            for turn in range(rounds)
            for key in range(keys)
        ]
        deletes = [Record(b"key-%d" % key, None, key % PARTITIONS, NOW) for key in range(0, keys, 5)]
        topics.produce(self.servers, self.input, updates + deletes)

    def application(self, jvm: StreamsJvm | None = None) -> StreamsApplication:
        return StreamsApplication(
            jvm or self.jvm,
            self.application_id,
            self.servers,
            self.state_dir,
            two_stores(self.input),
            guarantee=self.guarantee,
            stores=PLAIN_AND_STAMPED,
        )

    def live(self) -> Answers:
        """Run the application until it has consumed everything; what its stores answer."""
        with self.application() as running:
            topics.wait_until_consumed(self.servers, self.application_id, [self.input])
            return self.answers(running)

    def reopen(self) -> tuple[Answers, int]:
        """Start the application on what is there; what it answers, and how many records it had to restore."""
        with self.application() as running:
            return self.answers(running), sum(running.restored_records().values())

    @staticmethod
    def answers(running: StreamsApplication) -> Answers:
        return {(store, p): running.query_digest(store, p) for _, store, p in running.store_tasks()}

    def lose(self) -> None:
        shutil.rmtree(self.state_dir / self.application_id)

    def rows(self) -> dict[tuple[str, str], dict[str, list[tuple[bytes, bytes]]]]:
        """Every row of every data column family."""
        return {
            key: {name: rows for name, rows in families.items() if name != "offsets"}
            for key, families in directory.read_application(self.state_dir / self.application_id).items()
        }

    def spec(self) -> dict[str, Any]:
        """What statecore is told."""
        return dict(self.request().spec or {})

    def request(self, **changes: Any) -> RestoreRequest:
        spec: dict[str, Any] = {
            "application_id": self.application_id,
            "bootstrap_servers": self.servers,
            "processing_guarantee": self.guarantee,
            "subtopologies": {"0": {"stores": {name: {"kind": kind} for name, kind in KINDS.items()}}},
        }
        spec |= changes.pop("spec", {})
        return RestoreRequest(state_dir=str(self.state_dir), spec=spec, **{"transaction_wait": 5.0, **changes})

    def restore(
        self,
        *,
        faults: FaultPoints | None = None,
        progress: Progress | None = None,
        engine: Engine | None = None,
        **changes: Any,
    ) -> ReadReport:
        """Rebuilds the state, on Spark unless another engine is given."""
        report = run_restore(self.request(**changes), progress, faults=faults, engine=engine)
        assert isinstance(report, ReadReport)
        return report


@dataclass(frozen=True)
class Lived:
    """An application that was fed and closed; its directory and its topics are not changed.

    Attributes:
        world: the application.
        answers: what its stores answered.
        rows: of its databases.
    """

    world: World
    answers: Answers
    rows: dict[tuple[str, str], dict[str, list[tuple[bytes, bytes]]]]

    @staticmethod
    def of(world: World) -> Lived:
        """Feed an application, and run it until it has consumed everything."""
        world.feed()
        return Lived(world, world.live(), world.rows())

    def lost(self, state_dir: Path) -> World:
        """The application with a state directory in which nothing is."""
        return self.world.at(state_dir)

    def copied(self, state_dir: Path) -> World:
        """The application with a copy of its directory."""
        shutil.copytree(self.world.state_dir, state_dir, dirs_exist_ok=True)
        return self.world.at(state_dir)
