"""Batched requests to partition leaders: log offsets (ListOffsets) and ends of leader epochs (OffsetForLeaderEpoch).

A request knows which partitions are unanswered, makes the requests for those that one broker leads, and collects the
responses. `statecore.changelog.cluster.Cluster` sends them, and repeats them where a leader has moved.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from statecore.changelog.model import LogOffsets
from statecore.formats.topic_partition import TopicPartition

_EARLIEST, _LATEST = -2, -1  # special timestamps of ListOffsets
_CONSUMER = -1  # in place of the id of a replica
_EPOCHS_FOR_CONSUMERS = 3  # first version of OffsetForLeaderEpoch for clients that are no replicas


Errors = Iterator[tuple[TopicPartition, int]]  # Partitions with an error in the response, and Kafka's error code


@dataclass(frozen=True)
class RequestAttempt:
    """One request to one leader."""

    request: Callable[[], Any]  # makes the message
    take: Callable[[Any], Errors]  # stores the answers of a response, and yields its errors
    # stores the answer for a leader that does not support the request; None makes that an error
    unsupported: Callable[[], None] | None = None


class LeaderRequest(ABC):
    """A request to partition leaders, sent in batches."""

    @abstractmethod
    def missing(self) -> list[TopicPartition]:
        """Partitions that are not fully answered yet."""

    @abstractmethod
    def exchanges(self, epochs: Mapping[TopicPartition, int]) -> list[RequestAttempt]:
        """Requests to one leader; ``epochs`` has the leader epochs of the unanswered partitions it leads."""


class OffsetsRequest(LeaderRequest):
    """Log start, last stable offset and log end: one ListOffsets request per offset and isolation level."""

    _KINDS = (("log_start", _EARLIEST, 0), ("last_stable", _LATEST, 1), ("log_end", _LATEST, 0))

    def __init__(self, wanted: Collection[TopicPartition], timeout: float) -> None:
        self._timeout_ms = int(timeout * 1000)
        self._found: dict[TopicPartition, dict[str, int]] = {tp: {} for tp in wanted}
        self._epochs: dict[TopicPartition, dict[str, int]] = {tp: {} for tp in wanted}

    def answers(self) -> dict[TopicPartition, LogOffsets]:
        """The offsets, once no partition is missing."""
        return {tp: LogOffsets(**found, leader_epoch=self._epoch(tp)) for tp, found in self._found.items()}

    def missing(self) -> list[TopicPartition]:
        """See `LeaderRequest`."""
        return [tp for tp, found in self._found.items() if len(found) < len(self._KINDS)]

    def exchanges(self, epochs: Mapping[TopicPartition, int]) -> list[RequestAttempt]:
        """See `LeaderRequest`."""
        return [
            RequestAttempt(partial(self._request, epochs, timestamp, isolation), partial(self._take, field))
            for field, timestamp, isolation in self._KINDS
        ]

    def _request(self, epochs: Mapping[TopicPartition, int], timestamp: int, isolation: int) -> Any:
        from kafka.protocol.consumer.offsets import ListOffsetsRequest

        topic = ListOffsetsRequest.ListOffsetsTopic
        topics = [
            topic(
                name=name,
                partitions=[
                    topic.ListOffsetsPartition(partition_index=number, current_leader_epoch=epoch, timestamp=timestamp)
                    for number, epoch in parts.items()
                ],
            )
            for name, parts in _by_topic(epochs).items()
        ]
        return ListOffsetsRequest(
            replica_id=_CONSUMER, isolation_level=isolation, topics=topics, timeout_ms=self._timeout_ms
        )

    def _take(self, field: str, response: Any) -> Errors:
        for topic in response.topics:
            for part in topic.partitions:
                tp = TopicPartition(topic.name, part.partition_index)
                if part.error_code:
                    yield tp, part.error_code
                else:
                    self._found[tp][field] = part.offset
                    self._epochs[tp][field] = part.leader_epoch

    def _epoch(self, tp: TopicPartition) -> int:
        # The answer for the log start carries the epoch of the first record.
        return min(epoch for field, epoch in self._epochs[tp].items() if field != "log_start")


class EpochEndsRequest(LeaderRequest):
    """End offsets of leader epochs: OffsetForLeaderEpoch."""

    def __init__(self, wanted: Mapping[TopicPartition, int]) -> None:
        self._wanted = dict(wanted)
        # An unknown epoch has no end that a broker could report.
        self._found: dict[TopicPartition, int | None] = {tp: None for tp, epoch in wanted.items() if epoch < 0}

    def answers(self) -> dict[TopicPartition, int | None]:
        """The end offsets, once no partition is missing."""
        return self._found

    def missing(self) -> list[TopicPartition]:
        """See `LeaderRequest`."""
        return [tp for tp in self._wanted if tp not in self._found]

    def exchanges(self, epochs: Mapping[TopicPartition, int]) -> list[RequestAttempt]:
        """See `LeaderRequest`."""
        unsupported = partial(self._found.update, dict.fromkeys(epochs))
        return [RequestAttempt(partial(self._request, epochs), self._take, unsupported)]

    def _request(self, epochs: Mapping[TopicPartition, int]) -> Any:
        from kafka.protocol.consumer.offsets import OffsetForLeaderEpochRequest

        topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        topics = [
            topic(
                topic=name,
                partitions=[
                    topic.OffsetForLeaderPartition(
                        partition=number,
                        current_leader_epoch=epoch,
                        leader_epoch=self._wanted[TopicPartition(name, number)],
                    )
                    for number, epoch in parts.items()
                ],
            )
            for name, parts in _by_topic(epochs).items()
        ]
        return OffsetForLeaderEpochRequest(replica_id=_CONSUMER, topics=topics, min_version=_EPOCHS_FOR_CONSUMERS)

    def _take(self, response: Any) -> Errors:
        for topic in response.topics:
            for part in topic.partitions:
                tp = TopicPartition(topic.topic, part.partition)
                if part.error_code:
                    yield tp, part.error_code
                else:
                    self._found[tp] = part.end_offset if part.end_offset >= 0 else None


def _by_topic(epochs: Mapping[TopicPartition, int]) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for tp, epoch in epochs.items():
        found.setdefault(tp.topic, {})[tp.partition] = epoch
    return found
