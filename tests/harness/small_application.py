"""An application with one small changelog, for tests of where a restore runs."""

from __future__ import annotations

from typing import Any

from tests.harness import topics
from tests.harness.broker import Broker

ROWS = 500


def small_application(broker: Broker, application_id: str) -> dict[str, Any]:
    """Fill the changelog of its one store, ``by-id``: 500 rows in two partitions; returns its spec."""
    topic = f"{application_id}-by-id-changelog"
    topics.create(broker.bootstrap_servers, topic, 2, topics.UNCLEANED)
    records = [topics.Record(b"key-%d" % (n % ROWS), b"value-%d" % n, n % 2) for n in range(10 * ROWS)]
    topics.produce(broker.bootstrap_servers, topic, records)
    return {
        "application_id": application_id,
        "bootstrap_servers": broker.bootstrap_servers,
        "processing_guarantee": "at_least_once",
        "subtopologies": {"0": {"stores": {"by-id": {"kind": "key-value"}}}},
    }
