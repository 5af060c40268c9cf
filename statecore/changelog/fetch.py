"""Fetches one partition: one request is always in flight, and transient errors are retried up to a deadline.

Transient errors (a broken connection, a moved leader, a busy broker) are retried with a growing pause; metadata is
fetched again where the leader may have changed. The deadline counts from the last progress, not from the start, so a
read of hours survives any number of short failures. Other errors are raised at once.
"""

from __future__ import annotations

import time
import uuid
from typing import NoReturn

from statecore.changelog.cluster import Cluster, Leader
from statecore.changelog.wire import Fetched, Wire, WireError
from statecore.errors import Corrupted, Invalid, NotFound, Reason, Retryable
from statecore.formats.topic_partition import TopicPartition, is_same_topic

OFFSET_OUT_OF_RANGE = 1

_UNKNOWN_TOPIC_OR_PARTITION, _UNKNOWN_TOPIC_ID, _INCONSISTENT_TOPIC_ID = 3, 100, 103
_LEADER_ERRORS = {
    _UNKNOWN_TOPIC_OR_PARTITION: "UNKNOWN_TOPIC_OR_PARTITION",
    5: "LEADER_NOT_AVAILABLE",
    6: "NOT_LEADER_OR_FOLLOWER",
    9: "REPLICA_NOT_AVAILABLE",
    56: "KAFKA_STORAGE_ERROR",
    74: "FENCED_LEADER_EPOCH",
    75: "UNKNOWN_LEADER_EPOCH",
    _UNKNOWN_TOPIC_ID: "UNKNOWN_TOPIC_ID",
    _INCONSISTENT_TOPIC_ID: "INCONSISTENT_TOPIC_ID",
}
_PASSING_ERRORS = {
    -1: "UNKNOWN_SERVER_ERROR",
    7: "REQUEST_TIMED_OUT",
    8: "BROKER_NOT_AVAILABLE",
    13: "NETWORK_EXCEPTION",
    70: "FETCH_SESSION_ID_NOT_FOUND",
    71: "INVALID_FETCH_SESSION_EPOCH",
    78: "OFFSET_NOT_AVAILABLE",
    89: "THROTTLING_QUOTA_EXCEEDED",
}
_TOPIC_AUTHORIZATION_FAILED, _CORRUPT_MESSAGE, _UNSUPPORTED_COMPRESSION = 29, 2, 76
_UNSUPPORTED_VERSION = 35

_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0
_LARGEST_FETCH = 1 << 30
_SILENCE = 30.0  # seconds; a hanging leader is given up early enough to find the next one


class PartitionFetcher:
    """Fetches one partition from its leader."""

    def __init__(
        self,
        cluster: Cluster,
        tp: TopicPartition,
        *,
        committed: bool,
        fetch_bytes: int,
        max_wait: float,
        stall_timeout: float,
        topic_id: str | None = None,
    ) -> None:
        self._cluster = cluster
        self._tp = tp
        self._committed = committed
        self._fetch_bytes = fetch_bytes
        self._max_wait = max_wait
        self._stall_timeout = stall_timeout
        self._topic_id = uuid.UUID(topic_id).hex if topic_id else ""
        self._leader: Leader | None = None
        self._stale = False
        self._wire: Wire | None = None
        self._requested: int | None = None  # the offset of the request in flight
        self._last_epoch = -1
        self._pause = _FIRST_PAUSE
        self._deadline: float | None = None

    def fetch(self, offset: int) -> Fetched:
        """Response from `offset` on: records, or none yet, or ``OFFSET_OUT_OF_RANGE``."""
        if self._deadline is None:
            self._deadline = time.monotonic() + self._stall_timeout
        while True:
            try:
                wire = self._connected(offset)
                if self._requested != offset:
                    self._send(wire, offset)
                fetched = wire.receive(self._max_wait + min(_SILENCE, self._stall_timeout / 3))
                self._requested = None
            except WireError as error:
                where = self._leader.where if self._leader else self._cluster.bootstrap_servers
                self._drop()
                self._stale = True
                self.wait(offset, Reason(f"broker {where} {error}", "connection-failed"))
                continue
            wire.not_before = time.monotonic() + fetched.throttle
            self._deadline += fetched.throttle  # throttling is not a stall
            if fetched.diverges is not None:
                self._refuse_truncated(fetched.diverges, offset)
            if fetched.error in (0, OFFSET_OUT_OF_RANGE):
                return fetched
            self._handle_error(fetched.error, offset)

    def prefetch(self, offset: int) -> None:
        """Send the next request if that is possible without waiting; otherwise `fetch` sends it."""
        if self._wire is None or self._requested is not None or time.monotonic() < self._wire.not_before:
            return
        try:
            self._send(self._wire, offset)
        except WireError:
            self._drop()
            self._stale = True

    def progress(self, epoch: int = -1) -> None:
        """Restart the stall timeout: the position advanced."""
        self._deadline = None
        self._pause = _FIRST_PAUSE
        self._last_epoch = epoch

    def wait(self, offset: int, why: Reason) -> None:
        """Pause before another attempt."""
        if self.overdue(self._pause):
            self._give_up(offset, why)
        time.sleep(self._pause)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def overdue(self, ahead: float = 0.0) -> bool:
        """Whether the stall timeout is over, or will be in `ahead` seconds."""
        return self._deadline is not None and time.monotonic() + ahead >= self._deadline

    def enlarge(self, offset: int) -> None:
        """Double the request size, because a batch did not fit (brokers before KIP-74)."""
        if self._fetch_bytes >= _LARGEST_FETCH:
            raise Corrupted(
                f"Topic {self._tp.topic}, partition {self._tp.partition}: the record batch at offset {offset} does not "
                f"end within {self._fetch_bytes:,} bytes.",
                code="record-batch-corrupted",
                action="Check the broker's disk; move leadership to another replica, then run this again.",
                topic=self._tp.topic,
                partition=self._tp.partition,
                offset=offset,
                fetch_bytes=self._fetch_bytes,
            )
        self._fetch_bytes *= 2

    def close(self) -> None:
        """Return the connection for the next range, or close it if a response is still in flight."""
        wire, self._wire = self._wire, None
        if wire is None:
            return
        if self._requested is None:
            self._cluster.idle.setdefault(wire.node, []).append(wire)
        else:
            wire.close()
            self._requested = None

    def _connected(self, offset: int) -> Wire:
        if self._leader is None or self._stale:
            deadline = max(time.monotonic(), self._deadline or self._cluster.deadline())
            try:
                leader = self._cluster.leader(self._tp, refresh=self._stale, deadline=deadline)
            except Retryable as error:
                if not self.overdue(self._stall_timeout / 2):  # nothing was waited for, as after a rejected token
                    topic, partition = self._tp.topic, self._tp.partition
                    what = f"Topic {topic}, partition {partition}: {error.what}"
                    raise error.restated(what, topic=topic, partition=partition, offset=offset) from error
                self._give_up(offset, Reason(error.what.rstrip("."), error.code))
            self._check_identity(leader)
            if self._wire is not None and self._wire.node != leader.node:
                self._drop()
            self._leader = leader
            self._stale = False
        if self._wire is None:
            idle = self._cluster.idle.get(self._leader.node)
            if idle:
                self._wire = idle.pop()
            else:
                until = time.monotonic() + self._stall_timeout if self._deadline is None else self._deadline
                self._wire = Wire.connect(self._cluster, self._leader.node, self._leader.where, until)
        return self._wire

    def _check_identity(self, leader: Leader) -> None:
        found = leader.topic_id.hex
        if not is_same_topic(self._topic_id, found):
            raise Invalid(
                f"Topic {self._tp.topic} was deleted and created again: its id is {found}, not {self._topic_id}.",
                code="topic-recreated",
                action="Plan again; offsets and images of the old topic are invalid for the new one.",
                topic=self._tp.topic,
                partition=self._tp.partition,
                expected=self._topic_id,
                found=found,
            )
        if leader.topic_id.int:
            self._topic_id = found

    def _send(self, wire: Wire, offset: int) -> None:
        assert self._leader is not None
        if self._requested is not None:  # a response to another request is in flight
            raise WireError("was asked for another offset")
        pause = wire.not_before - time.monotonic()
        if pause > 0:
            time.sleep(pause)
        wire.send(
            self._tp,
            self._leader.topic_id,
            offset,
            epoch=self._leader.epoch,
            last_epoch=self._last_epoch,
            committed=self._committed,
            max_bytes=self._fetch_bytes,
            max_wait=self._max_wait,
        )
        self._requested = offset

    def _drop(self) -> None:
        if self._wire is not None:
            self._wire.close()
        self._wire = None
        self._requested = None

    def _give_up(self, offset: int, why: Reason) -> NoReturn:
        known = self._leader is not None
        where = self._leader.where if self._leader else self._cluster.bootstrap_servers
        raise Retryable(
            f"Topic {self._tp.topic}, partition {self._tp.partition}: no progress at offset {offset} for "
            f"{self._stall_timeout:.0f} s; {'last leader' if known else 'cluster'} {where}; {why}.",
            code="fetch-stalled",
            action="Check the broker, then run this again; nothing read from this range was used.",
            topic=self._tp.topic,
            partition=self._tp.partition,
            offset=offset,
            broker=where,
            reason=why.code,
            **why.context,
        )

    def _handle_error(self, code: int, offset: int) -> None:
        """Wait if the error is transient, raise if it is not."""
        assert self._leader is not None
        where = self._leader.where
        if code in _LEADER_ERRORS:
            self._stale = True
            if code == _UNKNOWN_TOPIC_OR_PARTITION and self.overdue(self._pause):
                raise NotFound(
                    f"Topic {self._tp.topic}, partition {self._tp.partition} does not exist on broker {where}.",
                    code="partition-not-found",
                    action="Check whether it was deleted, then plan again.",
                    topic=self._tp.topic,
                    partition=self._tp.partition,
                )
            self.wait(offset, _error_reason(where, code, _LEADER_ERRORS[code]))
        elif code in _PASSING_ERRORS:
            self.wait(offset, _error_reason(where, code, _PASSING_ERRORS[code]))
        else:
            self._refuse(code, offset)

    def _refuse_truncated(self, diverges: int, offset: int) -> NoReturn:
        where = self._leader.where if self._leader else self._cluster.bootstrap_servers
        raise Invalid(
            f"Topic {self._tp.topic}, partition {self._tp.partition}: the log was truncated to offset {diverges} while "
            f"it was read, and the read position was {offset}; its leader {where} has other records from there on "
            "(an unclean leader election).",
            code="log-truncated",
            action="Plan again from the topic's present offsets; nothing read from this range was used.",
            topic=self._tp.topic,
            partition=self._tp.partition,
            offset=diverges,
            position=offset,
        )

    def _refuse(self, code: int, offset: int) -> NoReturn:
        assert self._leader is not None
        place = f"Topic {self._tp.topic}, partition {self._tp.partition}"
        names = {"topic": self._tp.topic, "partition": self._tp.partition, "offset": offset}
        if code == _TOPIC_AUTHORIZATION_FAILED:
            raise Invalid(
                f"{place}: the user of this client lacks the right Read on it.",
                code="topic-authorization-failed",
                action="Grant Read on it. All rights that statecore needs on a topic: Describe, DescribeConfigs, Read.",
                right="Read",
                **names,
            )
        if code == _CORRUPT_MESSAGE:
            raise Corrupted(
                f"{place}: broker {self._leader.where} reports a damaged log at offset {offset}.",
                code="record-batch-corrupted",
                action="Check the broker's disk; move leadership to another replica, then run this again.",
                **names,
            )
        if code in (_UNSUPPORTED_COMPRESSION, _UNSUPPORTED_VERSION):
            raise Invalid(
                f"{place}: broker {self._leader.where} cannot send the batch at offset {offset} to this client "
                f"(error {code}).",
                code="record-batch-unsupported",
                action="Remove api_version from the kafka settings, or upgrade the broker.",
                error_code=code,
                **names,
            )
        raise Retryable(
            f"{place}: broker {self._leader.where} answers Kafka error {code} at offset {offset}.",
            code="broker-error",
            action="Check the broker's log for the error, then run this again.",
            error_code=code,
            **names,
        )


def _error_reason(where: str, code: int, name: str) -> Reason:
    return Reason(f"broker {where} answers {name}", "broker-error", error_code=code)
