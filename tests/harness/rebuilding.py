"""An application of ``tests.harness.kinds`` that is fed, lost, rebuilt by a restore, and opened again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from statecore.jobs.engine.protocol import Engine
from statecore.jobs.read_report import ReadReport
from statecore.jobs.restore.request import RestoreRequest
from statecore.jobs.restore.run import run_restore
from statecore.spark.engine import SparkEngine
from tests.harness import directory, topics
from tests.harness.broker import Broker
from tests.harness.fed_application import PARTITIONS, Answers, FedApplication, Rows, eventually, restored, table
from tests.harness.kinds import KindsApplication
from tests.harness.streams import StreamsApplication, StreamsJvm

__all__ = ["PARTITIONS", "Answers", "KindsWorld", "Rows", "eventually", "left_behind", "restored", "table"]


class KindsWorld(FedApplication):
    """The same, run in one JVM, and ways to lose and rebuild it.

    Attributes:
        engine: what a restore works on.
    """

    engine: Engine = SparkEngine(None, {})

    def __init__(
        self,
        broker: Broker,
        jvm: StreamsJvm,
        application_id: str,
        state_dir: Path,
        guarantee: str,
        kinds: KindsApplication,
        partitions: int = PARTITIONS,
        base: int | None = None,
        *,
        create: bool = True,
    ) -> None:
        servers = broker.bootstrap_servers
        super().__init__(servers, application_id, state_dir, guarantee, kinds, partitions, base, create=create)
        self.jvm = jvm

    def application(self) -> StreamsApplication:
        """The application, not started."""
        made = StreamsApplication(
            self.jvm,
            self.application_id,
            self.servers,
            self.state_dir,
            self.kinds.topology(self.inputs | self.outputs),
            guarantee=self.guarantee,
            stores=self.kinds.queries(self.base),
            properties=self.kinds.properties,
        )
        self.description = made.describe()
        return made

    def wait_for_globals(self, running: StreamsApplication) -> None:
        """Waits until global stores have all records of their topics: only they have their offsets."""
        for case in self.kinds.cases:
            if case.is_global and case.source:
                topic = self.inputs[case.source]
                last = {
                    one.key: one.value for part in range(PARTITIONS) for one in topics.read(self.servers, topic, part)
                }
                expected = {key: value for key, value in last.items() if key is not None and value is not None}
                assert expected
                found: Callable[[], Mapping[bytes, bytes]] = lambda store=case.store: {  # type: ignore[misc]  # noqa: E731
                    key: value for key, value, _ in running.query_rows(store, None)
                }
                assert eventually(found, expected) == expected

    def restore(
        self, *, spec: Mapping[str, Any] | None = None, engine: Engine | None = None, **changes: Any
    ) -> ReadReport:
        """Rebuilds the state, by the engine that the world has unless another is given."""
        wanted = {"transaction_wait": 5.0, **changes}
        request = RestoreRequest(state_dir=str(self.state_dir), spec=spec or self.spec(), **wanted)
        report = run_restore(request, engine or self.engine)
        assert isinstance(report, ReadReport)
        return report


def left_behind(application: Path) -> list[str]:
    """Every file in an application's directory but the lock, which Kafka Streams never deletes either."""
    return sorted(name for name in directory.files(application) if name != ".lock")
