"""Topic partitions, and conversion of other libraries' partition objects."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from statecore.errors import Invalid
from statecore.formats.integers import INT32_MAX, whole_number

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)


class TopicPartition(NamedTuple):
    """One partition of one topic.

    ``str()`` is Kafka's own form, ``<topic>-<partition>``, which is also the key in the ``offsets`` column family.
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def is_known_topic_id(topic_id: str) -> bool:
    """Whether a topic id is known: empty if no broker was asked, all zeros by brokers that are too old to have ids."""
    return bool(topic_id.strip("0"))


def is_same_topic(one: str, other: str) -> bool:
    """Whether two topic ids are of one topic; an unknown id is taken for the same.

    A topic that was deleted and created again has another id.
    """
    return one == other or not is_known_topic_id(one) or not is_known_topic_id(other)


def offsets_by_name(offsets: Mapping[TopicPartition, int]) -> dict[str, int]:
    """Offsets by ``<topic>-<partition>``, in order, for a document."""
    return {str(partition): offset for partition, offset in sorted(offsets.items())}


def offsets_in_words(offsets: Mapping[TopicPartition, int]) -> str:
    """Offsets and their partitions, in order, for a message; empty without any."""
    return ", ".join(f"offset {offset} of {partition}" for partition, offset in sorted(offsets.items()))


def as_topic_partition(given: Any) -> TopicPartition:
    """Convert the partition object of a client library: kafka-python's, confluent-kafka's, or this one's.

    It must have a ``topic`` that is text and a ``partition`` that is an integer (NumPy's too). A plain tuple is
    refused, although it equals a :class:`TopicPartition`, because the meaning of its values is unknown.
    """
    if type(given) is TopicPartition and type(given.partition) is int and type(given.topic) is str:
        named = given
    else:
        topic, partition = getattr(given, "topic", None), whole_number(getattr(given, "partition", None))
        if not isinstance(topic, str) or partition is None:
            raise Invalid(
                f"{given!r} ({type(given).__name__}) is not a topic partition; nothing was changed.",
                code="partition-invalid",
                action="Give a TopicPartition(topic, partition); those of kafka-python and confluent-kafka work too.",
            )
        named = TopicPartition(str(topic), partition)
    if not _is_allowed(*named):
        raise Invalid(
            f"Topic {named.topic[:250]!r}, partition {named.partition} is not allowed by Kafka; nothing was changed.",
            code="partition-invalid",
            action="A topic's name has 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-', and is not '.' or"
            " '..'; partitions are counted from 0.",
            topic=named.topic[:250],
            partition=named.partition,
        )
    return named


@lru_cache(4096)
def _is_allowed(topic: str, partition: int) -> bool:
    return is_topic_name(topic) and topic not in (".", "..") and 0 <= partition <= INT32_MAX


@lru_cache(1024)
def is_topic_name(topic: str) -> bool:
    """Whether a topic name has characters and length that Kafka allows (``Topic.validate``)."""
    return _TOPIC.fullmatch(topic) is not None
