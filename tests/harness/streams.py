"""Real Kafka Streams, driven from Python: one JVM with a py4j gateway, applications in it.

::

    with StreamsJvm(tmp_path / "streams.log") as jvm:
        with StreamsApplication(jvm, application_id, broker.bootstrap_servers, state_dir, topology) as application:
            wait_until_consumed(...)                       # tests.harness.topics
            rows = application.query_rows("store", 0)

``topology`` is a function that gets the ``StreamsJvm`` and returns a Java ``Topology``; ``jvm.functions``
(tests.harness.functions) makes the Java functions the DSL asks for. Nothing in here is compiled, and no record
passes through Python.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from tests.harness import archives, jars
from tests.harness.functions import Functions
from tests.harness.queries import Row, StoreQuery, digest, rows, values_of

Topology = Any
"""A Java ``org.apache.kafka.streams.Topology``."""

_RESTORE_LISTENER = "org.apache.kafka.streams.processor.StateRestoreListener"


_ENDED = ("ERROR", "PENDING_ERROR", "NOT_RUNNING")


class StreamsFailed(RuntimeError):
    """The application or its JVM did not do what was asked; the message carries the end of the JVM's log."""


class StreamsJvm:
    """A JVM with Kafka Streams on its class path and a py4j gateway. It ends when this process ends.

    Args:
        log_file: receives what the JVM prints: warnings and errors of Kafka Streams. heap_mb: upper bound of the
        heap; RocksDB's memory comes on top. log_level: of all loggers (slf4j-simple): ``warn``, ``info``, ``debug``.
        java_options: further options of the java command. ``None``: those that start and stop fastest; a benchmark
            gives ``()`` for what Java does by itself.
        streams_version: of Kafka Streams, where it is not the normal one.
        user: (uid, gid) it runs as, where it is another than this process's; root alone may ask for that.
        java: the java command, where it is not the normal one: a script that starts it as another user.
    """

    def __init__(
        self,
        log_file: Path,
        *,
        heap_mb: int = 768,
        log_level: str = "warn",
        java_options: tuple[str, ...] | None = None,
        streams_version: str = jars.KAFKA_VERSION,
        user: tuple[int, int] | None = None,
        java: str | None = None,
    ) -> None:
        self.log_file = log_file
        self.version = streams_version
        log_file.parent.mkdir(parents=True, exist_ok=True)
        if java_options is None:
            archive = archives.options("streams") if streams_version == jars.KAFKA_VERSION else []
            java_options = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *archive)
        if user is not None:
            java = str(_java_as(*user, log_file.with_suffix(".java")))
        with log_file.open("ab") as log:
            port, token, process = launch_gateway(
                port=0,
                jarpath=str(next(jars.pyspark_jars().glob("py4j-*.jar"))),
                classpath=jars.classpath(streams_version),
                javaopts=[
                    f"-Xmx{heap_mb}m",
                    f"-Dorg.slf4j.simpleLogger.defaultLogLevel={log_level}",
                    "-Dorg.slf4j.simpleLogger.showDateTime=true",
                    *java_options,
                ],
                die_on_exit=True,
                create_new_process_group=True,  # Ctrl-C is for the tests, which close it
                enable_auth=True,
                redirect_stderr=log,
                java_path=java or jars.java(),
                return_proc=True,
            )
        self.process: subprocess.Popen[bytes] = process
        self.gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
        self.jvm: Any = self.gateway.jvm
        self.functions = Functions(self.gateway)

    @property
    def pid(self) -> int:
        """Process id of the JVM."""
        return int(self.process.pid)

    def log_tail(self, characters: int = 4000) -> str:
        """The end of what the JVM printed."""
        return self.log_file.read_text(errors="replace")[-characters:] if self.log_file.exists() else "(no log)"

    def kill(self) -> None:
        """Ends the JVM at once (SIGKILL), as when a machine is lost."""
        self.process.kill()
        self._release()

    def close(self) -> None:
        """Ends the JVM; applications in it should be closed before."""
        with contextlib.suppress(Exception):  # the JVM may be gone already
            self.gateway.shutdown()
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()  # py4j's die-on-exit waits for this end of file
        try:
            self.process.wait(timeout=120)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self._release()

    def _release(self) -> None:
        self.process.wait()
        with contextlib.suppress(Exception):
            self.gateway.close()
        # Else every Java object that Python forgets from now on tries to reach the JVM, and logs that it cannot
        # whenever garbage is collected, in the middle of anything.
        self.gateway._gateway_client.is_connected = False
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def __enter__(self) -> StreamsJvm:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _java_as(uid: int, gid: int, script: Path) -> Path:
    """A java command that runs as another user: py4j starts a program of one word."""
    become = f"setpriv --reuid {uid} --regid {gid} --clear-groups"
    script.write_text(f'#!/bin/sh\nexec {become} {shlex.quote(jars.java())} "$@"\n')
    script.chmod(0o755)
    return script


@dataclass(frozen=True)
class Restored:
    """What one changelog partition's restore came to.

    Attributes:
        store: name of the store.
        topic: its changelog topic.
        partition: of the changelog, which is the task's.
        records: that Kafka Streams applied; 0 when the local state was complete.
        started_ns: ``System.nanoTime`` when the restore began.
        ended_ns: when it was done or given up.
    """

    store: str
    topic: str
    partition: int
    records: int
    started_ns: int
    ended_ns: int


class StreamsApplication:
    """One Kafka Streams application (a ``KafkaStreams`` client) in a ``StreamsJvm``.

    Args:
        jvm: where it runs; several may share one.
        application_id: ``application.id``.
        bootstrap_servers: ``host:port`` of the broker.
        state_dir: ``state.dir``; the application's state is in ``state_dir/application_id``.
        topology: makes the topology, given the ``StreamsJvm``.
        guarantee: ``exactly_once_v2`` or ``at_least_once``.
        threads: ``num.stream.threads``.
        commit_interval_ms: ``commit.interval.ms``; short in tests, so that changelogs hold several transactions.
        standby_replicas: ``num.standby.replicas``.
        stores: how the stores are asked (serdes, plain or timestamped), by store name; needed for queries only.
        properties: any further Streams property, a text or a Java object (the class of tests.harness.config_setter);
            wins over the above.
    """

    def __init__(
        self,
        jvm: StreamsJvm,
        application_id: str,
        bootstrap_servers: str,
        state_dir: Path,
        topology: Callable[[StreamsJvm], Topology],
        *,
        guarantee: str = "exactly_once_v2",
        threads: int = 1,
        commit_interval_ms: int = 100,
        standby_replicas: int = 0,
        stores: Mapping[str, StoreQuery] | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        self.jvm = jvm
        self.application_id = application_id
        self.state_dir = state_dir
        self.stores = dict(stores or {})
        self.properties: dict[str, Any] = {
            "application.id": application_id,
            "bootstrap.servers": bootstrap_servers,
            "state.dir": str(state_dir),
            "processing.guarantee": guarantee,
            "num.stream.threads": str(threads),
            "commit.interval.ms": str(commit_interval_ms),
            "num.standby.replicas": str(standby_replicas),
            "replication.factor": "1",
            "auto.offset.reset": "earliest",
            # No machine stalls for so long that a member falls out. One that is killed keeps its tasks until then,
            # unless leave_group takes it out.
            "session.timeout.ms": "120000",
            "heartbeat.interval.ms": "1000",
            # A consumer with nothing to fetch waits so long before it fetches from further partitions or ends: with
            # Kafka's 500 ms a start that restores anything, and every close, take half a second and more of waiting.
            "fetch.max.wait.ms": "50",
            **(properties or {}),
        }
        if self.properties.get("group.protocol") == "streams":  # its brokers say how long a session is
            del self.properties["session.timeout.ms"], self.properties["heartbeat.interval.ms"]
        java_properties = jvm.jvm.java.util.Properties()
        for name, value in self.properties.items():
            java_properties.put(name, value)
        self.topology: Topology = None
        self._streams = self._client(topology, java_properties)
        listener, self._restores = jvm.functions.recorder(_RESTORE_LISTENER, "onBatchRestored")
        self._streams.setGlobalStateRestoreListener(listener)

    def _client(self, topology: Callable[[StreamsJvm], Topology], properties: Any) -> Any:
        """Makes the topology and its ``KafkaStreams``."""
        self.topology = topology(self.jvm)
        return self.jvm.jvm.org.apache.kafka.streams.KafkaStreams(self.topology, properties)

    def _start(self) -> None:
        self._streams.start()

    @property
    def state(self) -> str:
        """``CREATED``, ``REBALANCING``, ``RUNNING``, ``ERROR``, ``NOT_RUNNING``…"""
        return str(self._streams.state().toString())

    @property
    def directory(self) -> Path:
        """The application's own state directory."""
        return self.state_dir / self.application_id

    def describe(self) -> str:
        """The text of ``Topology.describe()``."""
        return str(self.topology.describe().toString())

    def start(self, timeout: float = 300.0) -> Self:
        """Starts it and returns when it is RUNNING, which is when all active tasks are restored.

        Raises:
            StreamsFailed: it threw, ended in ERROR, or was not RUNNING in time.
        """
        self.launch()
        self.wait_until_running(timeout)
        return self

    def launch(self) -> None:
        """Starts it without waiting."""
        try:
            self._start()
        except Exception as error:
            raise StreamsFailed(f"{self.application_id}: start() threw {error}\n{self.jvm.log_tail()}") from error

    def wait_until_running(self, timeout: float = 300.0) -> None:
        """Waits for RUNNING; see ``start``."""
        deadline = time.monotonic() + timeout
        while (state := self.state) != "RUNNING":
            if state in _ENDED or time.monotonic() > deadline:
                self._leave()
                raise StreamsFailed(f"{self.application_id} is {state}, not RUNNING:\n{self.jvm.log_tail()}")
            time.sleep(0.05)

    def close(self, timeout: float = 600.0) -> None:
        """Closes it cleanly: commits, writes offsets and status into the stores, and leaves the group at once."""
        java, has_failed = self.jvm.jvm, self.state in _ENDED
        operation = java.org.apache.kafka.streams.CloseOptions.GroupMembershipOperation.LEAVE_GROUP
        options = java.org.apache.kafka.streams.CloseOptions.groupMembershipOperation(operation)
        is_closed = self._streams.close(options.withTimeout(java.java.time.Duration.ofMillis(int(timeout * 1000))))
        if has_failed or not is_closed:  # one that failed was closed then, and stayed in its group
            self._leave()
        if not is_closed:
            raise StreamsFailed(f"{self.application_id} did not close in {timeout} s:\n{self.jvm.log_tail()}")

    def _leave(self) -> None:
        with contextlib.suppress(Exception):  # nobody waits for the group of one that failed otherwise
            leave_group(self.jvm, self.properties["bootstrap.servers"], self.application_id)

    def kill(self) -> None:
        """SIGKILL of the whole JVM, with every application in it."""
        self.jvm.kill()

    def restores(self) -> list[Restored]:
        """Every restore that has ended (or was suspended) in this client, in the order of their ends."""
        begun: dict[tuple[str, str, int], int] = {}
        done: list[Restored] = []
        for call in self._restores.toArray():
            nanos, method, arguments = call[0], call[1].getName(), call[2]
            key = (str(arguments[1]), str(arguments[0].topic()), int(arguments[0].partition()))
            if method == "onRestoreStart":
                begun[key] = int(nanos)
            else:
                done.append(Restored(*key, int(arguments[2]), begun.get(key, int(nanos)), int(nanos)))
        return done

    def wait_for_turn(self, timeout: float = 600.0) -> None:
        """Waits until each stream thread has begun another turn: what it had committed, its stores have, too."""
        before, deadline = self._turns(), time.monotonic() + timeout
        while any(now <= then for now, then in zip(self._turns(), before, strict=True)):
            if time.monotonic() > deadline:
                raise StreamsFailed(f"{self.application_id} has polled nothing for {timeout} s:\n{self.jvm.log_tail()}")
            time.sleep(0.02)

    def _turns(self) -> list[float]:
        """How often each stream thread has polled; a turn is to poll, to process and to commit."""
        java, metrics = self.jvm.jvm, self._streams.metrics()
        found = []
        for thread in self._streams.metadataForLocalThreads().toArray():
            tags = java.java.util.HashMap()
            tags.put("thread-id", thread.threadName())
            name = java.org.apache.kafka.common.MetricName("poll-total", "stream-thread-metrics", "", tags)
            found.append(float(metrics.get(name).metricValue()))
        return found

    def restored_records(self) -> dict[tuple[str, int], int]:
        """Records that Kafka Streams had to restore, by (store, partition); absent or 0: nothing."""
        total: dict[tuple[str, int], int] = {}
        for one in self.restores():
            total[one.store, one.partition] = total.get((one.store, one.partition), 0) + one.records
        return total

    def query_rows(self, store: str, partition: int | None) -> list[Row]:
        """Every answer of one partition of the store (None: a global store), by interactive queries, sorted by key."""
        return rows(self.jvm, self._streams, store, partition, self.stores[store])

    def get(self, store: str, partition: int, keys: Sequence[bytes]) -> list[bytes | None]:
        """The value of each key, asked for one by one of a key-value store with ``ByteArray`` serdes."""
        return values_of(self.jvm, self._streams, store, partition, keys, self.stores[store])

    def query_digest(self, store: str, partition: int | None) -> str:
        """SHA-256 (hex) over the same answers."""
        return digest(self.query_rows(store, partition))

    def tasks(self) -> list[tuple[int, int]]:
        """The active tasks of this client, each as (subtopology, partition)."""
        found = []
        for metadata in self._streams.metadataForLocalThreads().toArray():
            for task in metadata.activeTasks().toArray():
                found.append((int(task.taskId().subtopology()), int(task.taskId().partition())))
        return sorted(found)

    def store_tasks(self) -> list[tuple[str, str, int]]:
        """Every store of every active task, as (task ``0_1``, store, partition), in that order."""
        stores = stores_of(self.describe())
        return [(f"{sub}_{p}", store, p) for sub, p in self.tasks() for store in sorted(stores.get(sub, ()))]

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            with contextlib.suppress(Exception):  # the first error is the one to see
                self.close(5)


def leave_group(jvm: StreamsJvm, servers: str, group: str) -> None:
    """Takes all members out of a group: dead ones would keep their tasks until their sessions end."""
    java = jvm.jvm
    properties = java.java.util.Properties()
    properties.setProperty("bootstrap.servers", servers)
    admin = java.org.apache.kafka.clients.admin.Admin.create(properties)
    try:
        options = java.org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions()
        with contextlib.suppress(Exception):  # there are none
            admin.removeMembersFromConsumerGroup(group, options).all().get()
    finally:
        admin.close()


def stores_of(description: str) -> dict[int, set[str]]:
    """The store names of each subtopology, from the text of ``Topology.describe()``."""
    found: dict[int, set[str]] = {}
    for block in re.split(r"Sub-topology: ", description)[1:]:
        number = int(re.match(r"\d+", block)[0])  # type: ignore[index]
        names = {name for listed in re.findall(r"\(stores: \[([^]]*)\]\)", block) for name in listed.split(", ")}
        found[number] = names - {""}
    return found
