"""A real Kafka broker (KRaft, one node, broker and controller in one process) on free ports of the loopback address.

::

    with Broker(directory) as broker:
        broker.bootstrap_servers            # "127.0.0.1:34567"

``directory`` holds everything: ``data/`` (the log directory), ``broker.properties``, ``broker.log`` and
``broker.json``, by which another process finds the running broker (``Broker.attach``) and stops it. A broker that was
stopped starts again on the same data and, where they are still free, on the same ports.

The log directory is formatted by ``kafka.tools.StorageTool``, once for each version of the jars: what it writes beside
``meta.properties`` does not depend on the cluster, so later brokers copy it and save one JVM start.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.harness import archives, jars, process_guard

SETTINGS: dict[str, str] = {
    "auto.create.topics.enable": "false",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    # Groups of the streams protocol are told their tasks within a heartbeat, and the dead are soon forgotten.
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.heartbeat.interval.ms": "300",
    "group.streams.min.heartbeat.interval.ms": "100",
    "group.streams.session.timeout.ms": "6000",
    "group.streams.min.session.timeout.ms": "1000",
    # Real data is old (flights of 2013): nothing is deleted by age unless a topic asks for it.
    "log.retention.ms": "-1",
    # The cleaner and retention act within a second of being asked for, instead of within minutes.
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.dedupe.buffer.size": "8388608",
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "2",
    "broker.heartbeat.interval.ms": "500",
    # One that is alone is fenced by nothing but a machine that stalls.
    "broker.session.timeout.ms": "120000",
}
"""What a test or demo broker sets besides its ports and directory; ``settings`` of a broker win over it."""

SOON_BACK = {"broker.session.timeout.ms": "6000"}
"""Of a broker that is killed: it is let in again after this time; one that was stopped, at once."""

_START_SECONDS = 600.0
_STOP_SECONDS = 60.0
_PORT_ATTEMPTS = 4


class BrokerFailed(RuntimeError):
    """The broker ended or did not answer; the message carries the end of its log."""


@dataclass(frozen=True)
class Node:
    """A node's place in its cluster.

    Attributes:
        id: its number.
        cluster_id: the id of the cluster; None: one of its own.
        quorum: controller ports of all nodes by number; empty: it is the only one.
    """

    id: int = 1
    cluster_id: str | None = None
    quorum: Mapping[int, int] = field(default_factory=dict)


class Broker:
    """One broker process.

    Args:
        directory: where data, log and pid file of this broker live; made when it is absent.
        heap_mb: upper bound of the JVM's heap.
        settings: broker settings that win over ``SETTINGS``.
        owner: the broker is killed as soon as this process is gone; None: it lives on after this process (the demo).
        throughput: False starts fastest (C1 compiler only, serial collector); True is for long streams of data.
        listeners: further listeners by name, each with its security protocol (``{"TLS": "SSL"}``); ``address`` tells
            where they are. What they need besides (keystores, JAAS) goes into ``settings``.
        node: this node in a cluster of several; None: a cluster of its own. See ``tests.harness.cluster``.
    """

    def __init__(
        self,
        directory: Path,
        *,
        heap_mb: int = 512,
        settings: Mapping[str, str] | None = None,
        owner: int | None = None,
        throughput: bool = False,
        listeners: Mapping[str, str] | None = None,
        node: Node | None = None,
    ) -> None:
        self.directory = directory.resolve()
        self.heap_mb = heap_mb
        self.settings = {**SETTINGS, **(settings or {})}
        self.owner = owner
        self.throughput = throughput
        self.listeners = dict(listeners or {})
        self.node = node or Node()
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def log_file(self) -> Path:
        return self.directory / "broker.log"

    @property
    def data_directory(self) -> Path:
        return self.directory / "data"

    @property
    def bootstrap_servers(self) -> str:
        """``127.0.0.1:port`` of the running broker."""
        return f"127.0.0.1:{self._record()['port']}"

    def address(self, listener: str) -> str:
        """``127.0.0.1:port`` of one of the further listeners of the running broker."""
        return f"127.0.0.1:{self._record()['listeners'][listener]}"

    @property
    def pid(self) -> int:
        """Process id of the JVM (or of its guard, which hands signals on)."""
        return int(self._record()["pid"])

    @property
    def running(self) -> bool:
        """Whether the recorded process still lives (the very process, not a later one with its pid)."""
        try:
            record = self._record()
        except FileNotFoundError:
            return False
        if self._child is not None:
            self._child.poll()  # reaps it: a zombie is not a broker
        return process_guard.started_at(int(record["pid"])) == str(record["started_at"])

    @classmethod
    def attach(cls, directory: Path) -> Broker | None:
        """The broker that some process started in this directory, or None when none runs there."""
        found = cls(directory)
        return found if found.running else None

    def start(self) -> Broker:
        """Starts the broker and returns when it answers requests.

        Raises:
            BrokerFailed: it ended or did not answer in time.
        """
        if self.running:
            raise BrokerFailed(f"a broker already runs in {self.directory} (pid {self.pid})")
        self.directory.mkdir(parents=True, exist_ok=True)
        self._format()
        remembered = self._last_ports()
        for attempt in range(_PORT_ATTEMPTS):
            ports = remembered if remembered and attempt == 0 else self._free_ports()
            self._launch(*ports)
            if self._wait_until_answering(ports[0]):
                return self
            # Another process may have taken a port between our look and the broker's bind.
            if not self._address_was_taken():
                break
        raise BrokerFailed(f"the broker in {self.directory} did not start; end of its log:\n{self.log_tail()}")

    def stop(self) -> None:
        """Ends the broker cleanly (SIGTERM), after a while by force; nothing happens when it does not run."""
        if not self.running:
            return
        self._signal(signal.SIGTERM)
        if not self._wait_until_gone(_STOP_SECONDS):
            self.kill()

    def detach(self) -> None:
        """Lets the broker outlive this object: it is somebody else's to stop (``attach``), or its guard's."""
        if self._child is not None:
            self._child.returncode = 0  # else Popen warns, when it is collected, of a child that is left behind
            self._child = None

    def kill(self) -> None:
        """Ends the broker at once (SIGKILL), as when a machine is lost."""
        if not self.running:
            return
        # The session holds the JVM and, where there is one, its guard: both were started by start().
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._wait_until_gone(_STOP_SECONDS)

    def freeze(self) -> None:
        """Stops the broker where it is (SIGSTOP), and returns when none of its threads does anything any more.

        Some go on for a moment after the signal was sent, for longer on a busy machine, and answer.
        """
        if self.owner is not None:
            raise RuntimeError("the signal would stop its guard: freeze a broker that this test has started")
        self._signal(signal.SIGSTOP)
        deadline = time.monotonic() + _STOP_SECONDS
        while any(state not in "TtZX" for state in self._thread_states()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the broker {self.pid} did not stop")
            time.sleep(0.002)

    def thaw(self) -> None:
        """Lets a frozen broker go on; nothing happens to one that is not."""
        self._signal(signal.SIGCONT)

    def log_tail(self, characters: int = 4000) -> str:
        """The end of the broker's log."""
        try:
            return self.log_file.read_text(errors="replace")[-characters:]
        except FileNotFoundError:
            return "(no log)"

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _record(self) -> dict[str, Any]:
        record: dict[str, Any] = json.loads((self.directory / "broker.json").read_text())
        return record

    def _last_ports(self) -> list[int] | None:
        try:
            record = self._record()
        except FileNotFoundError:
            return None
        return [record["port"], record["controller_port"], *record.get("listeners", {}).values()]

    def _free_ports(self) -> list[int]:
        ports = free_ports(2 + len(self.listeners))
        # The quorum is told the ports of its controllers before any of them starts.
        ports[1] = self.node.quorum.get(self.node.id, ports[1])
        return ports

    def _format(self) -> None:
        if (self.data_directory / "meta.properties").exists():
            return
        shutil.copytree(_template(), self.data_directory, dirs_exist_ok=True)
        (self.data_directory / "meta.properties").write_text(
            f"version=1\nnode.id={self.node.id}\ncluster.id={self.node.cluster_id or kafka_uuid()}\n"
            f"directory.id={kafka_uuid()}\n"
        )

    def _launch(self, port: int, controller_port: int, *more: int) -> None:
        listeners = dict(zip(self.listeners, more, strict=True))
        properties = {
            **_properties(self.node, port, controller_port, self.data_directory, listeners, self.listeners),
            **self.settings,
        }
        (self.directory / "broker.properties").write_text("".join(f"{k}={v}\n" for k, v in properties.items()))
        quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *archives.options("broker")]
        speed = ["-XX:+UseParallelGC"] if self.throughput else quick
        command = [
            *(jars.java(), f"-Xmx{self.heap_mb}m", "-Xms64m", *speed, "-Xshare:auto"),
            *("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true"),
            *("-cp", jars.classpath(), "kafka.Kafka", str(self.directory / "broker.properties")),
        ]
        if self.owner is not None:
            command = process_guard.command_line(self.owner, command)
        with self.log_file.open("wb") as log:
            self._child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=self.directory
            )
        record = {
            "pid": self._child.pid,
            "started_at": process_guard.started_at(self._child.pid),
            "port": port,
            "controller_port": controller_port,
            "listeners": listeners,
        }
        staged = self.directory / "broker.json.tmp"
        staged.write_text(json.dumps(record))
        staged.rename(self.directory / "broker.json")

    def _wait_until_answering(self, port: int) -> bool:
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and self.running:
            if _answers(port):
                return self.running  # not a stranger on a port that was taken from us
            time.sleep(0.05)
        self.kill()
        return False

    def _wait_until_gone(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.running and time.monotonic() < deadline:
            time.sleep(0.02)
        gone = not self.running
        if gone and self._child is not None:
            self._child.wait()  # it may have ended between the two looks of `running`; nobody else would reap it
        return gone

    def _address_was_taken(self) -> bool:
        return "Address already in use" in self.log_tail(100_000)

    def _thread_states(self) -> list[str]:
        """``R``, ``S``, ``T`` and so on of each thread of the process (``proc(5)``)."""
        found = []
        for path in Path(f"/proc/{self.pid}/task").glob("*/stat"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
                found.append(path.read_text().rpartition(")")[2].split()[0])
        return found

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)


def _properties(
    node: Node, port: int, controller_port: int, data: Path, more: Mapping[str, int], protocols: Mapping[str, str]
) -> dict[str, str]:
    quorum = node.quorum or {node.id: controller_port}
    served = [f"{name}://127.0.0.1:{at}" for name, at in {"BROKER": port, **more}.items()]
    spoken = {"BROKER": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **protocols}
    return {
        "process.roles": "broker,controller",
        "node.id": str(node.id),
        "controller.quorum.voters": ",".join(f"{voter}@127.0.0.1:{at}" for voter, at in quorum.items()),
        "listeners": ",".join([*served, f"CONTROLLER://127.0.0.1:{controller_port}"]),
        "advertised.listeners": ",".join(served),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in spoken.items()),
        "inter.broker.listener.name": "BROKER",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(data),
    }


def _template() -> Path:
    """A directory formatted by StorageTool, made on first use and shared by all brokers of this version."""
    template = jars.BUILD / f"broker-{jars.KAFKA_VERSION}"
    if (template / "meta.properties").exists():
        return template
    staging = jars.BUILD / f"{template.name}.{os.getpid()}"
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    properties = staging / "format.properties"
    plain = _properties(Node(), 9092, 9093, staging / "data", {}, {})
    properties.write_text("".join(f"{k}={v}\n" for k, v in plain.items()))
    command = [
        *(jars.java(), "-XX:TieredStopAtLevel=1", "-cp", jars.classpath(), "kafka.tools.StorageTool"),
        *("format", "--cluster-id", kafka_uuid(), "--config", str(properties)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BrokerFailed(f"StorageTool could not format a log directory:\n{done.stdout}\n{done.stderr}")
    with contextlib.suppress(OSError):  # another process was first: its template is as good
        (staging / "data").rename(template)
    shutil.rmtree(staging, ignore_errors=True)
    return template


def kafka_uuid() -> str:
    """A random id as Kafka writes them, for clusters and directories."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def free_ports(count: int) -> list[int]:
    """Ports of the loopback address without a listener at the moment, all different."""
    with contextlib.ExitStack() as held:
        taken = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in taken:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in taken]


@contextlib.contextmanager
def refusing_port() -> Iterator[int]:
    """A port of the loopback address that refuses every connection, and that nobody else is given meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def _answers(port: int) -> bool:
    """Whether a broker answers ApiVersions (v0): it does so only when it has joined and may serve requests."""
    header = struct.pack(">hhih", 18, 0, 1, -1)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(struct.pack(">i", len(header)) + header)
            return len(connection.recv(4)) == 4
    except OSError:
        return False
