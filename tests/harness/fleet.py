"""One application on one version of Kafka Streams after another: closed, or killed at a moment, and started again.

::

    with Fleet(broker.bootstrap_servers, tmp_path / "fleet") as fleet:          # tests: the fixture ``fleet``
        world = fleet.application(application_id, state_dir, "exactly_once_v2", EVERY)
        with world.on("4.2.0") as running:                  # started; closed cleanly at the end of the block
            world.feed_all()
            before = world.answers(running)
        ...                                                 # migrate world.directory
        with world.on("4.4.0") as running:                  # the same application id, topics and directory
            assert world.restored(running) == {}            # but for what is in memory
            assert world.answers(running) == before

        told = world.live("4.4.0", Moment.FLUSHED)          # fed, and about to die
        fleet.kill("4.4.0")                                 # SIGKILL: everything that runs on that version dies with it
        with world.on("4.4.0") as running:
            assert world.answers(running) == told

A fleet has one JVM for each version, started when it is first asked for, with a small heap. Applications that are to
die at the same moment share one death: ``live`` for each, then one ``kill``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.harness import jars, topics
from tests.harness.fed_application import PARTITIONS, Answers, FedApplication, eventually, restored, table
from tests.harness.feeds import Portion
from tests.harness.flushing import flush
from tests.harness.kinds import KindsApplication
from tests.harness.queries import digest
from tests.harness.sources import RETENTION
from tests.harness.streams import StreamsApplication, StreamsFailed, StreamsJvm, leave_group
from tests.harness.topics import Record

VERSIONS: Mapping[str, str] = {"3.9": "3.9.1", "4.2": "4.2.0", "4.3": "4.3.1", "4.4": jars.KAFKA_VERSION}
"""Release, as ``statecore.formats.releases`` names it, and the version that stands for it."""

NEWEST = list(VERSIONS)[-1]
"""The newest release."""

GUARANTEES = ("at_least_once", "exactly_once_v2")

_HEAP_MB = 320
_COMMIT_INTERVAL_MS = 100
_COMMIT_SECONDS = 600.0


class Moment(Enum):
    """When an application is closed or killed; what the disk then has is what RocksDB has flushed by then."""

    CLEAN = "clean"
    """It was fed everything and closed."""
    FIRST_RUN = "first-run"
    """It was never closed before, and nothing is flushed: databases without rows, offsets and status."""
    AFTER_CLOSE = "after-close"
    """It was fed, closed and started again, and nothing that it was fed since is flushed."""
    FLUSHED = "flushed"
    """The same, and something that it was fed since is flushed; some was fed after that, too."""


class AnyVersion(StreamsApplication):
    """Closed as every version can be, and out of its group at once."""

    def close(self, timeout: float = 600.0) -> None:
        """Closes it cleanly: offsets and status are written; the group does not wait for it."""
        if not self._streams.close(self.jvm.jvm.java.time.Duration.ofMillis(int(timeout * 1000))):
            raise StreamsFailed(f"{self.application_id} did not close in {timeout} s:\n{self.jvm.log_tail()}")
        leave_group(self.jvm, self.properties["bootstrap.servers"], self.application_id)


class VersionedApplication(FedApplication):
    """One application with its topics and its directory, which runs on any version, one at a time.

    Args:
        fleet: where it runs.
        application_id: ``application.id``.
        state_dir: ``state.dir``.
        guarantee: ``at_least_once`` or ``exactly_once_v2``.
        kinds: its stores; ``tests.harness.fleet_kinds`` has those that every version knows.
        partitions: of its topics.
        base: time of the first record in ms; recent without.
    """

    def __init__(
        self,
        fleet: Fleet,
        application_id: str,
        state_dir: Path,
        guarantee: str,
        kinds: KindsApplication,
        partitions: int = PARTITIONS,
        base: int | None = None,
    ) -> None:
        super().__init__(fleet.servers, application_id, state_dir, guarantee, kinds, partitions, base)
        self.fleet = fleet
        self._fed: dict[str, list[Record]] = {}
        self._running: AnyVersion | None = None

    @property
    def in_memory(self) -> frozenset[str]:
        """The stores that have nothing on disk, and are restored at every start."""
        return frozenset(case.store for case in self.kinds.cases if case.kind == "in-memory")

    def application(self, version: str, **properties: str) -> AnyVersion:
        """The application on a version, not started; ``properties`` with ``_`` for ``.``."""
        made = AnyVersion(
            self.fleet.jvm(version),
            self.application_id,
            self.servers,
            self.state_dir,
            self.kinds.topology(self.inputs | self.outputs),
            guarantee=self.guarantee,
            commit_interval_ms=_COMMIT_INTERVAL_MS,
            stores=self.kinds.queries(self.base),
            properties={**self.kinds.properties, **{name.replace("_", "."): one for name, one in properties.items()}},
        )
        self.description = made.describe()
        return made

    def start(self, version: str, **properties: str) -> AnyVersion:
        """Starts it and returns when all active tasks are restored; somebody must close or kill it.

        Raises:
            StreamsFailed: it threw, or ended in ERROR.
        """
        made = self.application(version, **properties)
        if self._running is not None:  # it was killed, or failed
            leave_group(made.jvm, self.servers, self.application_id)
        self._running = made
        made.start()
        return made

    def close(self) -> None:
        """Closes what ``start`` started, cleanly."""
        assert self._running is not None, "it was not started"
        self._running.close()
        self._running = None

    @contextlib.contextmanager
    def on(self, version: str, **properties: str) -> Iterator[AnyVersion]:
        """Runs it on a version as long as the block lasts, and closes it cleanly."""
        try:
            yield self.start(version, **properties)
        except BaseException:
            if self._running is not None:
                with contextlib.suppress(Exception):  # the first error is the one to see
                    self._running.close(5)
            raise
        self.close()

    def portions(self, parts: int = 3) -> list[list[Portion]]:
        """The application's feed in so many parts, in its order."""
        every = self.kinds.feed(self.base, self.partitions)
        size = -(-len(every) // parts)
        return [every[start : start + size] for start in range(0, len(every), size)]

    def feed(self, portions: list[Portion]) -> None:
        """Produces portions and waits until the application has them and has committed, its global stores too."""
        for role, records in portions:
            self._fed.setdefault(role, []).extend(records)
        super().feed(portions)
        if self._running is None:
            return
        for case in self.kinds.cases:
            if case.is_global and case.source and case.query:
                expected = table(self._fed.get(case.source, ()), timestamped=case.query.timestamped)
                found = eventually(lambda store=case.store: self._running.query_rows(store, None), expected)  # type: ignore[misc, union-attr]
                assert found == expected, f"{case.store} has not come to the end of its topic"
        self._committed(self._running)

    def _committed(self, running: AnyVersion) -> None:
        """Waits until the stores' commit is done, and the markers are in the logs: the group's comes before both."""
        running.wait_for_turn()
        if self.guarantee != "at_least_once":
            topics.wait_until_stable(self.servers, self.changelogs(), _COMMIT_SECONDS)

    def answers(self, running: StreamsApplication, until: int | None = None, *, history: bool = False) -> Answers:
        """What every store that can be asked answers; the arguments are those of ``prepare``."""
        self.prepare(running, until, history=history)
        return self.asked(running)

    def prepare(self, running: StreamsApplication, until: int | None = None, *, history: bool = False) -> None:
        """Says how the stores are asked.

        Args:
            running: who is asked then.
            until: ms from ``base`` to the newest record, where that is not the newest that this object has fed it:
                only what is within the retention then is asked for.
            history: also the older versions of versioned stores, which a restarted application does not find.
        """
        newest = max((one.timestamp or 0 for fed in self._fed.values() for one in fed), default=self.base)
        since = (newest if until is None else self.base + until) - RETENTION + 1
        running.stores = {
            case.store: replace(case.query, since=-1 if case.query.shape == "versioned" and not history else since)
            for case in self.kinds.cases
            if case.query is not None
        }

    def digests(self, running: StreamsApplication) -> dict[tuple[str, int | None], str]:
        """The same as SHA-256 (hex) of each store's answers."""
        return {key: digest(rows) for key, rows in self.answers(running).items()}

    def restored(self, running: StreamsApplication) -> dict[str, int]:
        """Records that Kafka Streams had to restore, by store on disk; stores with none are left out."""
        return {store: records for store, records in restored(running).items() if store not in self.in_memory}

    def live(self, version: str, moment: Moment) -> Answers:
        """Lives on a version until the moment; what it answered last.

        It is closed then if the moment is ``CLEAN``, else running: ``Fleet.kill`` ends it.
        """
        first, second, third = self.portions()
        if moment in (Moment.AFTER_CLOSE, Moment.FLUSHED):
            with self.on(version):
                self.feed(first)
        running = self.start(version)
        if moment is Moment.FIRST_RUN or moment is Moment.CLEAN:
            self.feed(first)
        self.feed(second)
        if moment is Moment.FLUSHED:
            flush(running)
        self.feed(third)
        told = self.answers(running)
        if moment is Moment.CLEAN:
            self.close()
        return told

    def changelogs(self) -> list[str]:
        """The changelogs that there are, source topics and topics of global stores included."""
        names = [f"{self.application_id}-{case.store}-changelog" for case in self.kinds.cases if not case.source]
        names += [self.inputs[case.source] for case in self.kinds.cases if case.source]
        return [name for name in dict.fromkeys(names) if topics.partitions(self.servers, name)]

    def ends(self) -> dict[str, list[int]]:
        """The end offset of each partition of each changelog."""
        return {
            name: [topics.end_offset(self.servers, name, p) for p in range(topics.partitions(self.servers, name))]
            for name in self.changelogs()
        }


class Fleet:
    """JVMs with Kafka Streams of several versions, one each.

    Args:
        servers: ``host:port`` of the broker.
        directory: receives the logs of the JVMs.
        heap_mb: bound of each one's heap.
    """

    def __init__(self, servers: str, directory: Path, heap_mb: int = _HEAP_MB) -> None:
        self.servers, self.directory, self._heap_mb = servers, directory, heap_mb
        self._jvms: dict[str, StreamsJvm] = {}

    def jvm(self, version: str) -> StreamsJvm:
        """The JVM of a version (``4.2.0``, or the release ``4.2``), started when it is not there."""
        version = VERSIONS.get(version, version)
        if version not in self._jvms:
            log = self.directory / f"streams-{version}.log"
            self._jvms[version] = StreamsJvm(log, heap_mb=self._heap_mb, streams_version=version)
        return self._jvms[version]

    def kill(self, version: str) -> None:
        """Ends a version's JVM at once (SIGKILL), with every application in it; the next to be asked for is new."""
        self._jvms.pop(VERSIONS.get(version, version)).kill()

    def application(
        self,
        application_id: str,
        state_dir: Path,
        guarantee: str,
        kinds: KindsApplication,
        partitions: int = PARTITIONS,
        base: int | None = None,
    ) -> VersionedApplication:
        """An application; its input topics are made."""
        return VersionedApplication(self, application_id, state_dir, guarantee, kinds, partitions, base)

    def close(self) -> None:
        """Ends every JVM, at once: after a failure something may still run in it, and it would wait for that."""
        while self._jvms:
            self._jvms.popitem()[1].kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
