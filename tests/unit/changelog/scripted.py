"""Brokers in this process that speak Kafka's protocol over real sockets and say what a test tells them to.

::

    with ScriptedBrokers() as brokers:
        brokers.add("orders", [part([batch(records)])])
        brokers.next(FetchRequest, CLOSE)                 # the next Fetch finds the connection closed
        ... Cluster(brokers.address) ...
        brokers.asked(FetchRequest)                       # what was asked, decoded by kafka-python

Without a script a broker answers honestly from its topics. Requests and responses are kafka-python's messages; what
lies between (frames, connections, versions) is made here.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import pytest
from kafka.net.connection import KafkaConnection
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.admin import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
)
from kafka.protocol.consumer.fetch import FetchRequest, FetchResponse
from kafka.protocol.consumer.group import OffsetFetchRequest, OffsetFetchResponse
from kafka.protocol.consumer.offsets import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse
from kafka.protocol.metadata.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from statecore.changelog.protocol import StreamsGroupDescribeRequest

CLOSE, SILENT = "close the connection", "never answer"
Answer = Any
"""A response; bytes that go out instead of one, as they are; `CLOSE` or `SILENT`; or what makes one of the request."""

_REQUESTS = {
    request.API_KEY: request
    for request in (
        ApiVersionsRequest,
        DescribeConfigsRequest,
        DescribeLogDirsRequest,
        DescribeQuorumRequest,
        FetchRequest,
        FindCoordinatorRequest,
        ListOffsetsRequest,
        MetadataRequest,
        OffsetFetchRequest,
        OffsetForLeaderEpochRequest,
        SaslAuthenticateRequest,
        SaslHandshakeRequest,
        StreamsGroupDescribeRequest,
    )
}
NEWEST = {key: (0, request.max_version) for key, request in _REQUESTS.items()}
"""API key → the versions that a broker knows which is as new as kafka-python."""

PATIENCE = 20.0
"""Seconds that a test waits for what is on its way; over only where it does not come."""


@dataclass
class Part:
    """A partition, as its leader has it. An offset that is not given is the one that follows from the batches.

    ``epoch_starts`` is where later epochs begin in it.
    """

    batches: Sequence[bytes] = ()
    leader: int = 0
    epoch: int = 7
    log_start: int = 0
    last_stable: int = -1
    log_end: int = -1
    aborted: Sequence[tuple[int, int]] = ()
    epoch_starts: Mapping[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.log_end < 0:
            self.log_end = max((_span(one)[1] + 1 for one in self.batches), default=self.log_start)
        if self.last_stable < 0:
            self.last_stable = self.log_end


@dataclass
class Topic:
    """A topic; ``error`` is what a broker answers instead of describing it."""

    name: str
    parts: dict[int, Part]
    topic_id: uuid.UUID = field(default_factory=uuid.uuid4)
    error: int = 0
    internal: bool = False
    configs: Mapping[str, str | None] = field(default_factory=lambda: {"cleanup.policy": "compact"})
    config_error: int = 0


@dataclass(frozen=True)
class Asked:
    """A request that arrived, at which broker and over which of its connections."""

    node: int
    connection: int
    request: Any


class ScriptedBrokers:
    """A cluster of brokers 0, 1, ...; a context manager."""

    def __init__(self, count: int = 1, versions: Mapping[int, tuple[int, int]] = NEWEST) -> None:
        self.topics: dict[str, Topic] = {}
        self.committed: dict[tuple[str, int], int] = {}
        self.committed_elsewhere = {("input", 0): 1}
        """Offsets that are told only to who asks for all of a group."""
        self.sizes: list[tuple[str, int, int]] = []
        """Replicas, as DescribeLogDirs has them: topic, partition, bytes."""
        self.versions = dict(versions)
        self.time_ms = 1_700_000_000_000
        """The controller's clock."""
        self.password: tuple[str, str] | None = None
        self.coordinator = 0
        self.advertised_host = "127.0.0.1"
        self._seen: list[Asked] = []
        self._defects: list[Exception] = []  # of a script, or of this module
        self._scripts: dict[tuple[int, int | None], deque[Answer]] = defaultdict(deque)
        self._changed = threading.Condition()
        self._connections: dict[int, list[socket.socket]] = defaultdict(list)
        self._threads: list[threading.Thread] = []
        self._listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
        self.ports = [listener.getsockname()[1] for listener in self._listeners]
        for node, listener in enumerate(self._listeners):
            self._start(self._accept, node, listener)

    def __enter__(self) -> ScriptedBrokers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in range(len(self._listeners)):
            self.stop(node)
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()
        assert not self._defects

    @property
    def address(self) -> str:
        """The bootstrap servers: the first broker."""
        return self.where(0)

    def where(self, node: int) -> str:
        """``host:port`` of a broker."""
        return f"127.0.0.1:{self.ports[node]}"

    def add(self, name: str, parts: Iterable[Part] | None = None, **values: Any) -> Topic:
        """Make a topic; one partition without records where none are given."""
        numbered = dict(enumerate([Part()] if parts is None else parts))
        self.topics[name] = made = Topic(name, numbered, **values)
        return made

    def next(self, kind: Any, *answers: Answer, node: int | None = None) -> None:
        """What the next requests of a kind get, at one broker or whichever they come to."""
        with self._changed:
            self._scripts[kind.API_KEY, node].extend(answers)

    def always(self, kind: Any, answer: Answer, node: int | None = None) -> None:
        """What all requests of a kind get that no other answer was meant for."""
        self.next(kind, *[answer] * 100_000, node=node)

    def honest(self, kind: Any) -> None:
        """Forget the answers to requests of a kind that have not been given."""
        with self._changed:
            for key in [key for key in self._scripts if key[0] == kind.API_KEY]:
                del self._scripts[key]

    def seen(self, kind: Any) -> list[Asked]:
        """The requests of a kind that have arrived."""
        with self._changed:
            return [one for one in self._seen if isinstance(one.request, kind)]

    def asked(self, kind: Any) -> list[Any]:
        """The same, without where they arrived."""
        return [one.request for one in self.seen(kind)]

    def wait(self, reached: Callable[[], bool]) -> None:
        """Wait until something is so that changes when a request or a connection comes or goes."""
        with self._changed:
            assert self._changed.wait_for(reached, PATIENCE)

    def open_connections(self, node: int = 0) -> int:
        """How many connections there are to a broker."""
        with self._changed:
            return len(self._connections[node])

    def stop(self, node: int) -> None:
        """Close a broker's port and connections."""
        with self._changed:
            connections = list(self._connections[node])
        for sock in [self._listeners[node], *connections]:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self._listeners[node].close()

    def hang_up(self, node: int) -> None:
        """Reset a broker's connections: by the time they are closed, the other side can send nothing more."""
        with self._changed:
            for sock in self._connections[node]:
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    sock.shutdown(socket.SHUT_RDWR)

    # Connections.

    def _start(self, call: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=call, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, node: int, listener: socket.socket) -> None:
        number = 0
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            number += 1
            with self._changed:
                self._connections[node].append(sock)
                self._changed.notify_all()
            self._start(self._serve, node, number, sock)

    def _serve(self, node: int, connection: int, sock: socket.socket) -> None:
        try:
            with sock, contextlib.suppress(OSError), sock.makefile("rb") as stream:
                while len(head := stream.read(4)) == 4:
                    (size,) = struct.unpack(">i", head)
                    answer = self._answer(node, connection, stream.read(size))
                    if answer == CLOSE:
                        return
                    if answer != SILENT:
                        sock.sendall(answer)
        except Exception as error:
            self._defects.append(error)
            raise
        finally:
            with self._changed:
                self._connections[node].remove(sock)
                self._changed.notify_all()

    def _answer(self, node: int, connection: int, frame: bytes) -> Any:
        key, version, correlation = struct.unpack_from(">hhi", frame)
        kind = _REQUESTS[key]
        request = kind.decode(frame, version=version, header=True)
        request.API_VERSION = version
        with self._changed:
            self._seen.append(Asked(node, connection, request))
            waiting = self._scripts[key, node] or self._scripts[key, None]
            answer = waiting.popleft() if waiting else self.respond
            self._changed.notify_all()
        if callable(answer):
            answer = answer(request)
        if isinstance(answer, bytes | str):
            return answer
        answer.API_VERSION = version
        answer.with_header(correlation_id=correlation)
        return bytes(answer.encode(header=True, framed=True))

    # Honest answers.

    def respond(self, request: Any) -> Any:
        """What an honest broker says."""
        name = f"_{type(request).__name__.removesuffix('Request').lower()}"
        return getattr(self, name)(request)

    def _apiversions(self, request: Any) -> Any:
        one = ApiVersionsResponse.ApiVersion
        keys = [one(api_key=key, min_version=low, max_version=high) for key, (low, high) in self.versions.items()]
        return ApiVersionsResponse(error_code=0, api_keys=keys, throttle_time_ms=0)

    def _saslhandshake(self, request: Any) -> Any:
        return SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN", "OAUTHBEARER"])

    def _saslauthenticate(self, request: Any) -> Any:
        said = request.auth_bytes.decode()
        right = self.password is not None and tuple(said.split("\0")[1:]) == self.password
        right |= said.startswith("n,,\x01auth=Bearer ")  # any token is
        return SaslAuthenticateResponse(
            error_code=0 if right else 58,
            error_message=None if right else "Authentication failed",
            auth_bytes=b"",
            session_lifetime_ms=0,
        )

    def _metadata(self, request: Any) -> Any:
        broker = MetadataResponse.MetadataResponseBroker
        names = list(self.topics) if request.topics is None else [topic.name for topic in request.topics]
        return MetadataResponse(
            throttle_time_ms=0,
            brokers=[
                broker(node_id=node, host=self.advertised_host, port=port, rack=None) for node, port in self._ports()
            ],
            cluster_id="scripted",
            controller_id=0,
            topics=[self._described(name) for name in names],
        )

    def _ports(self) -> Iterable[tuple[int, int]]:
        return enumerate(self.ports)

    def _described(self, name: str) -> Any:
        described = MetadataResponse.MetadataResponseTopic
        part = described.MetadataResponsePartition
        topic = self.topics.get(name)
        if topic is None or topic.error:
            code = 3 if topic is None else topic.error
            return described(error_code=code, name=name, topic_id=uuid.UUID(int=0), is_internal=False, partitions=[])
        parts = [
            part(
                error_code=0 if one.leader >= 0 else 5,
                partition_index=number,
                leader_id=one.leader,
                leader_epoch=one.epoch,
                replica_nodes=[0],
                isr_nodes=[0],
                offline_replicas=[],
            )
            for number, one in topic.parts.items()
        ]
        return described(error_code=0, name=name, topic_id=topic.topic_id, is_internal=topic.internal, partitions=parts)

    def _describeconfigs(self, request: Any) -> Any:
        result = DescribeConfigsResponse.DescribeConfigsResult
        entry = result.DescribeConfigsResourceResult
        return DescribeConfigsResponse(
            throttle_time_ms=0,
            results=[
                result(
                    error_code=self.topics[one.resource_name].config_error,
                    error_message="no reason",
                    resource_type=one.resource_type,
                    resource_name=one.resource_name,
                    configs=[
                        entry(
                            name=name,
                            value=value,
                            read_only=False,
                            config_source=5,
                            is_sensitive=value is None,
                            synonyms=[],
                        )
                        for name, value in self.topics[one.resource_name].configs.items()
                    ],
                )
                for one in request.resources
            ],
        )

    def _describequorum(self, request: Any) -> Any:
        topic = DescribeQuorumResponse.TopicData
        part = topic.PartitionData
        replica = part.ReplicaState
        voters = [
            replica(
                replica_id=node,
                replica_directory_id=uuid.UUID(int=node + 1),
                log_end_offset=7,
                last_fetch_timestamp=self.time_ms - late,
                last_caught_up_timestamp=self.time_ms - late,
            )
            for node, late in ((3000, 500), (3001, 0))
        ]
        described = part(
            partition_index=0,
            error_code=0,
            error_message=None,
            leader_id=3001,
            leader_epoch=2,
            high_watermark=7,
            current_voters=voters,
            observers=[],
        )
        topics = [topic(topic_name=one.topic_name, partitions=[described]) for one in request.topics]
        return DescribeQuorumResponse(error_code=0, error_message=None, topics=topics, nodes=[])

    def _listoffsets(self, request: Any) -> Any:
        topic_type = ListOffsetsResponse.ListOffsetsTopicResponse
        part_type = topic_type.ListOffsetsPartitionResponse

        def offset(part: Part, timestamp: int) -> int:
            if timestamp == -2:
                return part.log_start
            return part.last_stable if request.isolation_level else part.log_end

        def answer(topic: str, asked: Any) -> Any:
            part = self.topics[topic].parts[asked.partition_index]
            return part_type(
                partition_index=asked.partition_index,
                error_code=0,
                timestamp=-1,
                offset=offset(part, asked.timestamp),
                leader_epoch=part.epoch,
            )

        return ListOffsetsResponse(
            throttle_time_ms=0,
            topics=[
                topic_type(name=topic.name, partitions=[answer(topic.name, one) for one in topic.partitions])
                for topic in request.topics
            ],
        )

    def _offsetforleaderepoch(self, request: Any) -> Any:
        topic_type = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
        part_type = topic_type.EpochEndOffset

        def answer(topic: str, asked: Any) -> Any:
            part = self.topics[topic].parts[asked.partition]
            later = [start for epoch, start in sorted(part.epoch_starts.items()) if epoch > asked.leader_epoch]
            end = -1 if asked.leader_epoch > part.epoch else [*later, part.log_end][0]
            return part_type(error_code=0, partition=asked.partition, leader_epoch=asked.leader_epoch, end_offset=end)

        return OffsetForLeaderEpochResponse(
            throttle_time_ms=0,
            topics=[
                topic_type(topic=topic.topic, partitions=[answer(topic.topic, one) for one in topic.partitions])
                for topic in request.topics
            ],
        )

    def _fetch(self, request: Any) -> Any:
        (asked,) = request.topics
        (wanted,) = asked.partitions
        if request.API_VERSION >= 13:
            topic = next((one for one in self.topics.values() if one.topic_id == asked.topic_id), None)
        else:
            topic = self.topics.get(asked.topic)
        if topic is None:
            return fetch_response(request, error=100)
        part = topic.parts[wanted.partition]
        if not part.log_start <= wanted.fetch_offset <= part.log_end:
            return fetch_response(request, part, error=1)
        bound = part.last_stable if request.isolation_level else part.log_end
        records = b""
        for one in part.batches:
            first, last = _span(one)
            if last < wanted.fetch_offset or first >= bound:
                continue
            if records and len(records) + len(one) > wanted.partition_max_bytes:
                break
            records += one
        return fetch_response(request, part, records=records)

    def _findcoordinator(self, request: Any) -> Any:
        node = self.coordinator
        return FindCoordinatorResponse(
            throttle_time_ms=0, error_code=0, error_message=None, node_id=node, host="127.0.0.1", port=self.ports[node]
        )

    def _offsetfetch(self, request: Any) -> Any:
        return offset_fetch_response(request, self.committed, self.committed_elsewhere)

    def _describelogdirs(self, request: Any) -> Any:
        result = DescribeLogDirsResponse.DescribeLogDirsResult
        topic = result.DescribeLogDirsTopic
        part = topic.DescribeLogDirsPartition
        found = [
            topic(name=name, partitions=[part(partition_index=number, partition_size=size, offset_lag=0)])
            for name, number, size in self.sizes
        ]
        one = result(error_code=0, log_dir="/data", topics=found, total_bytes=-1, usable_bytes=-1)
        return DescribeLogDirsResponse(throttle_time_ms=0, error_code=0, results=[one])


def part(batches: Sequence[bytes] = (), **values: Any) -> Part:
    """A partition with these batches."""
    return Part(batches, **values)


def fetch_response(
    request: Any,
    part: Part | None = None,
    *,
    error: int = 0,
    records: bytes = b"",
    throttle: float = 0.0,
    high_watermark: int | None = None,
    diverges: int | None = None,
) -> Any:
    """The response to a Fetch of one partition."""
    (asked,) = request.topics
    (wanted,) = asked.partitions
    part = part or Part()
    topic = FetchResponse.FetchableTopicResponse
    one = topic.PartitionData
    values: dict[str, Any] = {}
    if diverges is not None:
        values["diverging_epoch"] = one.EpochEndOffset(epoch=1, end_offset=diverges)
    data = one(
        partition_index=wanted.partition,
        error_code=error,
        high_watermark=part.log_end if high_watermark is None else high_watermark,
        last_stable_offset=part.last_stable,
        log_start_offset=part.log_start,
        aborted_transactions=[one.AbortedTransaction(producer_id=who, first_offset=at) for who, at in part.aborted],
        preferred_read_replica=-1,
        records=records,
        **values,
    )
    return FetchResponse(
        throttle_time_ms=int(throttle * 1000),
        error_code=0,
        session_id=0,
        responses=[topic(topic=asked.topic, topic_id=asked.topic_id, partitions=[data])],
    )


def fetch_error(code: int) -> Callable[[Any], Any]:
    """An answer to a Fetch that has an error instead of records."""
    return lambda request: fetch_response(request, error=code)


def offset_fetch_response(
    request: Any,
    committed: Mapping[tuple[str, int], int],
    elsewhere: Mapping[tuple[str, int], int] = {},
    *,
    error: int = 0,
    part_error: int = 0,
) -> Any:
    """The response to an OffsetFetch; what was not committed is -1, as brokers say it."""
    topic = OffsetFetchResponse.OffsetFetchResponseTopic
    part = topic.OffsetFetchResponsePartition

    def answer(name: str, number: int) -> Any:
        return part(
            partition_index=number,
            committed_offset=committed.get((name, number), -1),
            committed_leader_epoch=-1,
            metadata="",
            error_code=part_error,
        )

    if request.topics is None:
        committed = {**committed, **elsewhere}
        topics = [topic(name=name, partitions=[answer(name, number)]) for name, number in sorted(committed)]
        return OffsetFetchResponse(throttle_time_ms=0, topics=topics, error_code=error)
    topics = [
        topic(name=one.name, partitions=[answer(one.name, number) for number in one.partition_indexes])
        for one in request.topics
    ]
    return OffsetFetchResponse(throttle_time_ms=0, topics=topics, error_code=error)


def _span(batch: bytes) -> tuple[int, int]:
    """First and last offset of a record batch."""
    (first,) = struct.unpack_from(">q", batch)
    (delta,) = struct.unpack_from(">i", batch, 23)
    return first, first + delta


class Clock:
    """The time as the code under test sees it: it stands still but for its pauses, and a pause takes none.

    Nothing times out while this time is in place, however busy the machine is: it lies ahead of the real one, and
    kafka-python waits for what it has asked. A broker that never answers needs the real time.
    """

    def __init__(self) -> None:
        self.now = float(int(time.monotonic()) + 1000)  # whole seconds, so that sums of them are exact
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        """In place of ``time.monotonic``."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """In place of ``time.sleep``."""
        self.pauses.append(seconds)
        self.now += seconds

    def put_in_place(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let the modules that wait see this time, and kafka-python wait and pause by it."""
        for module in ("client", "cluster", "fetch", "groups", "wire"):
            monkeypatch.setattr(f"statecore.changelog.{module}.time", self)
        pause, wait_for = NetworkSelector.sleep, KafkaConnectionManager.wait_for
        send = KafkaConnection.send_request

        def skip(net: NetworkSelector, seconds: float) -> Any:
            self.sleep(seconds)
            return pause(net, 0)

        def patient(manager: KafkaConnectionManager, future: Any, timeout_ms: float) -> Any:
            return wait_for(manager, future, 1000 * PATIENCE)

        def send_patiently(connection: KafkaConnection, request: Any, request_timeout_ms: float) -> Any:
            return send(connection, request, 1000 * PATIENCE)

        monkeypatch.setattr(NetworkSelector, "sleep", skip)
        monkeypatch.setattr(KafkaConnectionManager, "wait_for", patient)
        monkeypatch.setattr(KafkaConnection, "send_request", send_patiently)
