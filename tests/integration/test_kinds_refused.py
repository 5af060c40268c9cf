"""Changelogs that cannot be those of the declared kind: the job says which record, and leaves nothing behind."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import Invalid
from statecore.formats.kinds import RETAINED_KINDS, StoreKind
from statecore.jobs.restore.request import RestoreRequest
from tests.harness import topics
from tests.harness.broker import Broker
from tests.harness.on_spark import SPARK_LEFTOVERS, run_restore
from tests.harness.raising import raises
from tests.harness.rebuilding import left_behind
from tests.harness.topics import Record

pytestmark = [pytest.mark.integration, *SPARK_LEFTOVERS, pytest.mark.usefixtures("local_spark")]

NOW = int(time.time() * 1000)
STAMP = NOW.to_bytes(8, "big")
WINDOW = b"key" + STAMP + bytes(4)
SESSION = b"key" + STAMP + STAMP
# Timestamp, offset, topic, partition, no headers, an empty prior, old and new value, and the buffer's time.
BUFFERED = bytes(8 + 8 + 4 + 4 + 4 + 4 + 4 + 4 + 8)
ONE_VALUE = b"\0\0\0\x01\0\0\0\x03\x01v0"

BAD = [
    ("window", (WINDOW, b"v"), (b"elevenbytes", b"v")),
    ("timestamped-window", (WINDOW, b"v"), (b"a plain key", b"v")),
    ("join-window", (WINDOW, b"v"), (b"", b"v")),
    ("headers-window", (WINDOW, b"v"), (b"elevenbytes", b"v")),
    ("emit-final-window", (WINDOW, b"v"), (b"elevenbytes", b"v")),
    ("emit-final-sliding-window", (WINDOW, b"v"), (b"elevenbytes", None)),
    ("headers-emit-final-window", (WINDOW, b"v"), (b"elevenbytes", b"v")),
    ("session", (SESSION, b"v"), (WINDOW[:15], b"v")),
    ("headers-session", (SESSION, b"v"), (WINDOW[:15], b"v")),
    ("emit-final-session", (SESSION, b"v"), (WINDOW[:15], None)),
    ("list", (STAMP + b"\x01key", b"\x01" + ONE_VALUE), (STAMP + b"\x01key", b"\x01\0\0\0\x02" + ONE_VALUE[4:])),
    ("list", (STAMP + b"\x01key", b"\x01" + ONE_VALUE), (b"short", b"\x01" + ONE_VALUE)),
    ("grace-buffer", (b"\0" + STAMP + b"key" + bytes(4), BUFFERED), (b"\0" + STAMP + b"key" + bytes(4), b"short")),
]

SHAPES = ("window", "session", "list", "grace-buffer")
"""A kind for each way in which a record can be none of its kind."""


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        pytest.param(*case, id=f"{case[0]}-{number}", marks=() if case[0] in SHAPES else pytest.mark.full)
        for number, case in enumerate(BAD)
    ],
)
def test_the_record_that_fits_no_store_of_the_kind_is_named(
    broker: Broker,
    application_id: str,
    state_dir: Path,
    kind: str,
    good: tuple[bytes, bytes],
    bad: tuple[bytes, bytes | None],
) -> None:
    servers = broker.bootstrap_servers
    changelog = f"{application_id}-store-changelog"
    topics.create(servers, changelog, 2, topics.UNCLEANED)
    fine = [Record(*good, partition=p, timestamp=NOW) for p in (0, 1) for _ in range(3)]
    topics.produce(servers, changelog, [*fine, Record(*bad, partition=1, timestamp=NOW), *fine])
    with raises(Invalid, "record-kind-mismatch", topic=changelog, partition=1, offset=3, kind=kind) as refused:
        restore(servers, application_id, state_dir, kind)
    assert refused.value.action
    assert left_behind(state_dir / application_id) == []


@pytest.mark.parametrize("kind", sorted({kind for kind, *_ in BAD}))
def test_the_same_changelog_without_that_record_is_restored(
    broker: Broker, application_id: str, state_dir: Path, kind: str
) -> None:
    servers = broker.bootstrap_servers
    changelog = f"{application_id}-store-changelog"
    topics.create(servers, changelog, 2, topics.UNCLEANED)
    good = next(good for name, good, _ in BAD if name == kind)
    topics.produce(servers, changelog, [Record(*good, partition=p, timestamp=NOW) for p in (0, 1) for _ in range(3)])
    report = restore(servers, application_id, state_dir, kind)
    assert {one.rows for one in report.stores} <= {1, 2}  # the index counts as a row


def restore(servers: str, application_id: str, state_dir: Path, kind: str) -> Any:
    retained = {"retention": "10m"} if StoreKind(kind) in RETAINED_KINDS else {}
    spec = {
        "application_id": application_id,
        "bootstrap_servers": servers,
        "processing_guarantee": "at_least_once",
        "subtopologies": {"0": {"stores": {"store": {"kind": kind, **retained}}}},
    }
    return run_restore(RestoreRequest(state_dir=str(state_dir), spec=spec, transaction_wait=5.0))
