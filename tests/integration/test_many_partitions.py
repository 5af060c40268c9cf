"""Hundreds of small partitions: every row of every one of them, and none in another's place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statecore.jobs.read_report import ReadReport
from statecore.jobs.restore.request import RestoreRequest
from tests.harness import directory, topics
from tests.harness.broker import Broker
from tests.harness.on_spark import SPARK_LEFTOVERS, run_restore
from tests.harness.topics import Record

pytestmark = [pytest.mark.integration, *SPARK_LEFTOVERS, pytest.mark.usefixtures("local_spark")]

STORES = {"first": "key-value", "second": "timestamped-key-value", "third": "key-value"}
TIME = 1_700_000_000_000


def records_of(store: str, partition: int) -> list[Record]:
    """Unlike those of any other store and partition; some have none."""
    if partition % 7 == 3:
        return []
    updates = [
        Record(b"key-%d" % (n % 20), f"{n} of {store} {partition}".encode(), partition, TIME + n) for n in range(60)
    ]
    return [*updates, *(Record(b"key-%d" % n, None, partition, TIME + 60) for n in range(partition % 5))]


def rows_of(store: str, partition: int) -> list[tuple[bytes, bytes]]:
    rows: dict[bytes, bytes] = {}
    for one in records_of(store, partition):
        assert one.key is not None
        rows.pop(one.key, None)
        if one.value is not None:
            stamp = (one.timestamp or 0).to_bytes(8) if STORES[store].startswith("timestamped") else b""
            rows[one.key] = stamp + one.value
    return sorted(rows.items())


@pytest.mark.parametrize(
    "partitions", [pytest.param(30, marks=pytest.mark.full), pytest.param(200, marks=pytest.mark.long)]
)
def test_every_row_of_many_small_partitions_is_in_its_place(
    broker: Broker, application_id: str, state_dir: Path, partitions: int
) -> None:
    for store in STORES:
        topic = f"{application_id}-{store}-changelog"
        topics.create(broker.bootstrap_servers, topic, partitions, topics.UNCLEANED)
        topics.produce(
            broker.bootstrap_servers, topic, [one for p in range(partitions) for one in records_of(store, p)]
        )
    spec: dict[str, Any] = {
        "application_id": application_id,
        "bootstrap_servers": broker.bootstrap_servers,
        "processing_guarantee": "at_least_once",
        "subtopologies": {"0": {"stores": {store: {"kind": kind} for store, kind in STORES.items()}}},
    }
    report = run_restore(RestoreRequest(state_dir=str(state_dir), spec=spec))
    assert isinstance(report, ReadReport)
    found = directory.read_application(state_dir / application_id)
    assert found.keys() == {(f"0_{p}", store) for p in range(partitions) for store in STORES}
    for p in range(partitions):
        for store, kind in STORES.items():
            family = "keyValueWithTimestamp" if kind.startswith("timestamped") else "default"
            assert found[f"0_{p}", store][family] == rows_of(store, p), (store, p)
    assert {(one.store, one.partition): one.rows for one in report.stores} == {
        (store, p): len(rows_of(store, p)) for store in STORES for p in range(partitions)
    }
