"""What the leaders of partitions are asked of many of them at once: where logs begin and end, and where epochs end.

A question knows which partitions are still to be asked, makes the requests for those that one broker leads, and takes
the answers. Who asks, and asks again where a leader has moved, is `statecore.changelog.cluster.Cluster`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from statecore.changelog.model import LogOffsets
from statecore.formats.topic_partition import TopicPartition

_EARLIEST, _LATEST = -2, -1  # timestamps with a meaning of their own in ListOffsets
_CONSUMER = -1  # in place of the id of a replica
_EPOCHS_FOR_CONSUMERS = 3  # version of OffsetForLeaderEpoch in which a client says that it is no replica


Errors = Iterator[tuple[TopicPartition, int]]
"""Partitions that got an error instead of an answer, and Kafka's code of it."""


@dataclass(frozen=True)
class Exchange:
    """One request to one leader.

    Attributes:
        request: makes the message.
        take: keeps the answers that came back, and yields the errors among them.
        not_spoken: keeps what it means that the leader does not speak the request; ``None`` where it means no answer.
    """

    request: Callable[[], Any]
    take: Callable[[Any], Errors]
    not_spoken: Callable[[], None] | None = None


class LeaderQuestion(ABC):
    """A question to the leaders of partitions."""

    @abstractmethod
    def missing(self) -> list[TopicPartition]:
        """The partitions whose answers are not whole yet."""

    @abstractmethod
    def exchanges(self, epochs: Mapping[TopicPartition, int]) -> list[Exchange]:
        """What one leader is asked.

        Args:
            epochs: the partitions that it leads and that are missing, with the epochs of their leader.
        """


class OffsetsQuestion(LeaderQuestion):
    """Log start, last stable offset and log end: ListOffsets asks one time of each partition, at one isolation level.

    Args:
        wanted: the partitions.
        timeout: seconds that a broker may take.
    """

    _KINDS = (("log_start", _EARLIEST, 0), ("last_stable", _LATEST, 1), ("log_end", _LATEST, 0))

    def __init__(self, wanted: Collection[TopicPartition], timeout: float) -> None:
        self._timeout_ms = int(timeout * 1000)
        self._found: dict[TopicPartition, dict[str, int]] = {tp: {} for tp in wanted}
        self._epochs: dict[TopicPartition, dict[str, int]] = {tp: {} for tp in wanted}

    def answers(self) -> dict[TopicPartition, LogOffsets]:
        """What was found, once nothing is missing."""
        return {tp: LogOffsets(**found, leader_epoch=self._epoch(tp)) for tp, found in self._found.items()}

    def missing(self) -> list[TopicPartition]:
        """See `LeaderQuestion`."""
        return [tp for tp, found in self._found.items() if len(found) < len(self._KINDS)]

    def exchanges(self, epochs: Mapping[TopicPartition, int]) -> list[Exchange]:
        """See `LeaderQuestion`."""
        return [
            Exchange(partial(self._request, epochs, timestamp, isolation), partial(self._take, field))
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
        # With the log's start comes the epoch of the first record.
        return min(epoch for field, epoch in self._epochs[tp].items() if field != "log_start")


class EpochEndsQuestion(LeaderQuestion):
    """Where epochs end in the logs as they are: OffsetForLeaderEpoch.

    Args:
        wanted: the epochs, by partition.
    """

    def __init__(self, wanted: Mapping[TopicPartition, int]) -> None:
        self._wanted = dict(wanted)
        # An epoch that nobody knows has no end that a broker could tell.
        self._found: dict[TopicPartition, int | None] = {tp: None for tp, epoch in wanted.items() if epoch < 0}

    def answers(self) -> dict[TopicPartition, int | None]:
        """What was found, once nothing is missing."""
        return self._found

    def missing(self) -> list[TopicPartition]:
        """See `LeaderQuestion`."""
        return [tp for tp in self._wanted if tp not in self._found]

    def exchanges(self, epochs: Mapping[TopicPartition, int]) -> list[Exchange]:
        """See `LeaderQuestion`."""
        untold = partial(self._found.update, dict.fromkeys(epochs))
        return [Exchange(partial(self._request, epochs), self._take, untold)]

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
