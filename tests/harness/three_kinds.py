"""An application of three kinds of stores that the test feeds through its changelogs; no Kafka Streams runs it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.harness import topics
from tests.harness.topics import Record

NOW = int(time.time() * 1000)
AFTER_KEY = {"plain": b"", "clicks": NOW.to_bytes(8, "big") + bytes(4), "past": b""}
"""What a store's keys have after the record's key."""

Records = Callable[[bytes], list[Record]]


def deletes_and_overwrites(end: bytes = b"", count: int = 2000) -> list[Record]:
    """Records of 300 keys over three partitions; every seventh is a delete."""
    return [
        Record(b"key-%d" % (n % 300) + end, None if n % 7 == 0 else b"value %d" % n, n % 3, timestamp=NOW + n)
        for n in range(count)
    ]


def three_kinds(
    servers: str,
    application_id: str,
    records: Records = deletes_and_overwrites,
    partitions: int = 3,
    *,
    has_global: bool = True,
) -> dict[str, Any]:
    """Feed the changelogs of an application; its spec.

    Args:
        servers: the brokers.
        application_id: ``application.id``.
        records: those of a changelog, by the end of its keys.
        partitions: of each changelog.
        has_global: whether it has a global store, ``everywhere``.
    """
    for store, end in AFTER_KEY.items():
        topics.create(servers, f"{application_id}-{store}-changelog", partitions, topics.UNCLEANED)
        topics.produce(servers, f"{application_id}-{store}-changelog", records(end))
    spec: dict[str, Any] = {
        "application_id": application_id,
        "bootstrap_servers": servers,
        "processing_guarantee": "at_least_once",
        "subtopologies": {
            "0": {
                "stores": {
                    "plain": {"kind": "key-value"},
                    "clicks": {"kind": "timestamped-window", "retention": "10m"},
                    "past": {"kind": "versioned-key-value", "retention": "10m"},
                }
            }
        },
    }
    if not has_global:
        return spec
    topic = f"{application_id}-all"
    topics.create(servers, topic, 2, topics.UNCLEANED)
    topics.produce(servers, topic, [Record(b"%d" % n, b"g", partition=n % 2) for n in range(100)])
    return {**spec, "global_stores": {"everywhere": {"kind": "timestamped-key-value", "topic": topic}}}
