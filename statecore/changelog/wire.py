"""One connection to one broker for Fetch; its socket is taken from kafka-python after the handshake.

kafka-python resolves the name, connects, does TLS, SASL and version negotiation, and encodes the requests. But it
copies received data four times in pieces of 4 KiB, half of all work of a reader that only receives. So once the
connection is ready its socket is used directly, with ``recv_into`` one reused buffer, and the few bytes around the
record data are parsed here. Fetch response, versions 4 to 18 (KIP-74, -98, -320, -482, -516)::

    header      i32 correlation id, tags (12+)
    i32 throttle ms | i16 error (7+) | i32 session (7+) | array of topics
    topic       string name (to 12) or uuid id (13+) | array of partitions | tags (12+)
    partition   i32 index | i16 error | i64 high watermark | i64 last stable offset | i64 log start (5+)
                array of aborted (i64 producer id, i64 first offset, tags (12+)) | i32 preferred replica (11+)
                bytes records | tags (12+), of which 0 is where the log diverges: i32 epoch, i64 end offset, tags
    From 12 on lengths of arrays, strings and bytes are unsigned varints of length + 1, before that i32 or i16.
"""

from __future__ import annotations

import statecore.extras.pipeline

import contextlib
import socket
import struct
import time
import uuid
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from statecore.changelog.client import BrokerClient, reason
from statecore.changelog.decoder import NO_ABORTED
from statecore.errors import StatecoreError
from statecore.formats.topic_partition import TopicPartition

_NEWEST_VERSION = 18
_LARGEST_RESPONSE = (1 << 31) - 1
_DIVERGING_EPOCH = 0  # number of the tagged field
_CONNECT_SECONDS = 10.0


class WireError(Exception):
    """The connection is unusable: closed, silent, or its data is no Fetch response."""


@dataclass(frozen=True)
class Fetched:
    """One partition of a Fetch response."""

    error: int  # Kafka's error code, 0 for none
    throttle: float  # seconds to wait before the next request, set by the broker
    high_watermark: int  # end of the records that consumers may read; -1 with most errors
    last_stable: int  # last stable offset; -1 with most errors
    aborted: npt.NDArray[np.int64]  # aborted transactions, rows (producer id, first offset)
    # the record data, a view into the connection's buffer that the next response overwrites
    records: npt.NDArray[np.uint8]
    # offset at which the log read so far and the leader's log diverge (KIP-595), None where they do not. The log was
    # truncated there, and records that were read are no longer in it.
    diverges: int | None = None


class Wire:
    """A connected, authenticated socket to one broker that speaks Fetch."""

    def __init__(self, sock: socket.socket, version: int, node: int, where: str, client_id: str) -> None:
        self.node = node
        self.where = where
        self.version = version
        self.not_before = 0.0
        """Earliest ``time.monotonic()`` of the next request, set by a broker that throttles this client."""
        self._socket = sock
        self._client_id = client_id
        self._correlation = 0
        self._buffer = np.empty(1 << 20, np.uint8)
        self._size = bytearray(4)

    @classmethod
    def connect(cls, client: BrokerClient, node: int, where: str, deadline: float) -> Wire:
        """Connect to a broker of the cluster's metadata."""
        return client.run(_connect, client, node, where, deadline)

    def close(self) -> None:
        """Close the socket and drop a request in flight."""
        with contextlib.suppress(OSError):
            self._socket.close()

    def send(
        self,
        tp: TopicPartition,
        topic_id: uuid.UUID,
        offset: int,
        *,
        epoch: int,
        last_epoch: int,
        committed: bool,
        max_bytes: int,
        max_wait: float,
    ) -> None:
        """Send a Fetch request for one partition."""
        from kafka.protocol.consumer.fetch import FetchRequest

        partition = FetchRequest.FetchTopic.FetchPartition(
            partition=tp.partition,
            current_leader_epoch=epoch,
            fetch_offset=offset,
            last_fetched_epoch=last_epoch,
            log_start_offset=-1,
            partition_max_bytes=max_bytes,
        )
        request = FetchRequest(
            version=self.version,
            replica_id=-1,
            max_wait_ms=int(max_wait * 1000),
            min_bytes=1,
            max_bytes=max_bytes,
            isolation_level=int(committed),
            session_id=0,
            session_epoch=-1,
            topics=[FetchRequest.FetchTopic(topic=tp.topic, topic_id=topic_id, partitions=[partition])],
            forgotten_topics_data=[],
            rack_id="",
        )
        self._correlation += 1
        request.with_header(correlation_id=self._correlation, client_id=self._client_id)
        try:
            self._socket.sendall(request.encode(framed=True, header=True))
        except OSError as error:
            raise WireError(str(error) or type(error).__name__) from error

    def receive(self, timeout: float) -> Fetched:
        """Receive the response to the last request."""
        try:
            self._socket.settimeout(timeout)
            self._fill(memoryview(self._size))
            (size,) = struct.unpack(">i", self._size)
            if not 12 <= size <= _LARGEST_RESPONSE:
                raise WireError(f"announces a response of {size} bytes")
            if len(self._buffer) < size:
                self._buffer = np.empty(size + size // 4, np.uint8)
            self._fill(self._buffer.data[:size])
        except TimeoutError:
            raise WireError(f"sent nothing for {timeout:.0f} s") from None
        except OSError as error:
            raise WireError(str(error) or type(error).__name__) from error
        try:
            return parse_response(self._buffer[:size], self.version, self._correlation)
        except (struct.error, IndexError, ValueError) as error:
            raise WireError(f"sent a malformed response ({error})") from error

    def _fill(self, view: memoryview) -> None:
        got = 0
        while got < len(view):
            size = self._socket.recv_into(view[got:])
            if not size:
                raise WireError("closed the connection")
            got += size


async def _connect(client: BrokerClient, node: int, where: str, deadline: float) -> Wire:
    import kafka.errors as errors
    from kafka.protocol.consumer.fetch import FetchRequest

    from statecore.changelog.sockets import connect_apart, take_socket

    broker = client.manager.cluster.broker_metadata(node)
    if broker is None:
        raise WireError(f"broker {node} is not known")
    connection = await connect_apart(client.manager, broker, min(deadline, time.monotonic() + _CONNECT_SECONDS))
    if not connection.connected:
        error = connection.init_future.exception
        if isinstance(error, StatecoreError):  # of a token provider
            raise error
        if isinstance(error, errors.KafkaError):
            client.refuse_if_final(error, node)
        raise WireError(f"cannot be connected to ({reason(error) if error else 'no answer in time'})") from error
    version = connection.broker_version_data.api_version(FetchRequest, max_version=_NEWEST_VERSION)
    return Wire(take_socket(connection), version, node, where, connection.config["client_id"])


def parse_response(data: npt.NDArray[np.uint8], version: int, correlation: int) -> Fetched:
    """Parse a Fetch response for one partition."""
    at = _Cursor(data, flexible=version >= 12)
    if at.number(">i") != correlation:
        raise ValueError("the response to another request")
    at.tags()
    throttle = at.number(">i") / 1000
    if version >= 7:
        error = at.number(">h")
        at.number(">i")
        if error:
            return Fetched(error, throttle, -1, -1, NO_ABORTED, data[:0])
    topics = at.length()
    if topics == 0 and throttle:  # a throttled client gets no topic
        return Fetched(0, throttle, -1, -1, NO_ABORTED, data[:0])
    if topics != 1:
        raise ValueError("not one topic")
    if version >= 13:
        at.skip(16)
    else:
        at.skip(at.length(">h"))
    if at.length() != 1:
        raise ValueError("not one partition")
    at.number(">i")
    error, high_watermark, last_stable = at.number(">h"), at.number(">q"), at.number(">q")
    if version >= 5:
        at.number(">q")
    aborted = at.aborted()
    if version >= 11:
        at.number(">i")
    size = max(0, at.length())
    start = at.position
    at.skip(size)
    records = data[start : start + size]
    diverging = at.tags().get(_DIVERGING_EPOCH)
    diverges = None if diverging is None else struct.unpack_from(">iq", diverging)[1]
    return Fetched(error, throttle, high_watermark, last_stable, aborted, records, diverges)


class _Cursor:
    """Reads the fields of a response in order, never beyond its end."""

    def __init__(self, data: npt.NDArray[np.uint8], *, flexible: bool) -> None:
        self.position = 0
        self._data = data
        self._flexible = flexible

    def number(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self._data.data, self.position)
        self.position += struct.calcsize(form)
        return int(value)

    def skip(self, size: int) -> None:
        if size < 0 or size > len(self._data) - self.position:
            raise ValueError("a length beyond the end")
        self.position += size

    def length(self, form: str = ">i") -> int:
        """Read the length of an array, string or bytes; -1 for null."""
        return self._varint() - 1 if self._flexible else self.number(form)

    def tags(self) -> dict[int, bytes]:
        """Read the tagged fields that flexible versions have after each structure."""
        found: dict[int, bytes] = {}
        for _ in range(self._varint() if self._flexible else 0):
            tag, size = self._varint(), self._varint()
            start = self.position
            self.skip(size)
            found[tag] = self._data[start : self.position].tobytes()
        return found

    def aborted(self) -> npt.NDArray[np.int64]:
        count = self.length()
        if count <= 0:
            return NO_ABORTED
        size = 17 if self._flexible else 16
        start = self.position
        self.skip(count * size)
        rows = self._data[start : self.position].reshape(count, size)
        if self._flexible and rows[:, 16].any():  # a tagged field, which no version has yet
            raise ValueError("unknown fields of aborted transactions")
        return np.ascontiguousarray(rows[:, :16]).view(">i8").astype(np.int64)

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = int(self._data[self.position])
            self.position += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 28:
                raise ValueError("a length that never ends")
