"""Rows of stores beside the logs of topics that others write: global stores, and tables of source topics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from statecore.doctor.diagnosis import inspect
from statecore.doctor.finding_catalog import Severity
from statecore.doctor.topic_inspection import TopicsInspection, inspect_topics
from statecore.statedir.state_directory import StateDirectory
from tests.unit.changelog.build import Record, batch
from tests.unit.changelog.scripted import ScriptedBrokers, part
from tests.unit.doctor.stored import Rows, offsets, write_database

TOPIC = "prices"
SAME = [(b"k%d" % n, b"v") for n in range(5)]
DIFFER = "some of its rows differ from its topic, which others write (statecore diff shows which)"


@pytest.fixture
def brokers() -> Iterator[ScriptedBrokers]:
    with ScriptedBrokers() as made:
        made.committed[TOPIC, 0] = 5
        yield made


def log(*values: bytes | None) -> list[bytes]:
    """A record of each of five keys, and again from the sixth on."""
    return [batch([Record(n, 1_000, b"k%d" % (n % 5), value)]) for n, value in enumerate(values)]


def written(tmp_path: Path, path: str, *said: Rows, rows: Rows = SAME) -> None:
    """A plain store that was closed."""
    status = [(b"status", bytes(8))]
    entries = [entry for of_partition in said for entry in of_partition if entry[0] != b"status"]
    write_database(tmp_path / "app" / path, {"default": rows, "offsets": [*entries, *status]})


def looked(tmp_path: Path, brokers: ScriptedBrokers) -> TopicsInspection:
    return inspect_topics(inspect(StateDirectory(tmp_path, "app")), brokers.address, timeout=60.0)


@pytest.mark.parametrize(
    ("values", "differ"),
    [
        ([b"v"] * 5, False),
        ([b"v", b"v", b"v", b"other", b"v"], True),
        ([b"v", b"v", b"v", None, b"v"], True),
        ([b"other"] * 5, False),  # the application writes its rows otherwise
        ([*[b"v"] * 5, *[b"later"] * 5], True),  # all rows are older, as those of a backup
    ],
)
@pytest.mark.parametrize(("path", "offset"), [("global/rocksdb/g", 5), ("0_0/rocksdb/t", 4)])
def test_rows_that_differ_from_a_topic_of_others_are_told_if_some_are_equal(
    tmp_path: Path, brokers: ScriptedBrokers, path: str, offset: int, values: list[bytes | None], differ: bool
) -> None:
    written(tmp_path, path, offsets(TOPIC, 0, offset + len(values) - 5))
    brokers.committed[TOPIC, 0] = len(values)
    brokers.add(TOPIC, [part(log(*values))])
    task, _, store = path.partition("/rocksdb/")
    assert looked(tmp_path, brokers) == ((), (f"{DIFFER}: {store} of {task}.",) if differ else ())


@pytest.mark.parametrize(
    ("values", "severity"), [([b"v"] * 5, Severity.LOSS), ([b"other"] * 5, Severity.WARNING), ([], None)]
)
def test_a_partition_without_an_offset_is_a_loss_if_the_global_store_has_rows_of_it(
    tmp_path: Path, brokers: ScriptedBrokers, values: list[bytes | None], severity: Severity | None
) -> None:
    written(tmp_path, "global/rocksdb/g", offsets(TOPIC, 0, 0))
    brokers.add(TOPIC, [part([]), part(log(*values))])
    found = looked(tmp_path, brokers).findings
    assert [(one.code, one.severity, str(one.partition)) for one in found] == (
        [] if severity is None else [("offset-missing", severity, f"{TOPIC}-1")]
    )
