"""A directory compared with brokers in this process: what they are asked, what is found, what is left undecided."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.admin import DescribeConfigsRequest
from kafka.protocol.consumer.fetch import FetchRequest
from kafka.protocol.consumer.group import OffsetFetchRequest
from kafka.protocol.consumer.offsets import ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest

from statecore.changelog.delete_retention import CLOCK_MARGIN_MS
from statecore.doctor.diagnosis import inspect
from statecore.doctor.finding_catalog import Repair, Severity
from statecore.doctor.findings import Finding
from statecore.doctor.inspection import Inspection
from statecore.doctor.topic_inspection import Brokers, TopicsInspection, inspect_topics
from statecore.errors import Invalid, Retryable
from statecore.formats.checkpoint import encode_checkpoint
from statecore.formats.kinds import StoreKind
from statecore.formats.position import encode_position
from statecore.formats.topic_partition import TopicPartition
from statecore.progress import TerminalProgress
from statecore.spec.model import ProcessingGuarantee
from statecore.spec.reader import read_spec
from statecore.statedir.state_directory import StateDirectory
from statecore.stores.lock_holder import Holder
from tests.harness.damage_functions import edited
from tests.harness.raising import raises
from tests.unit.changelog.build import Record, batch, marker
from tests.unit.changelog.scripted import CLOSE, ScriptedBrokers, offset_fetch_response, part
from tests.unit.doctor.stored import offsets, write_database, write_golden

LOSS = Severity.LOSS
EXACTLY_ONCE, AT_LEAST_ONCE = ProcessingGuarantee.EXACTLY_ONCE_V2, ProcessingGuarantee.AT_LEAST_ONCE
TOPIC = "app-s-changelog"
HOUR = 3_600_000
NOW = time.time()
SAME = [(b"k%d" % n, b"v") for n in range(5)]


@pytest.fixture
def brokers() -> Iterator[ScriptedBrokers]:
    with ScriptedBrokers() as made:
        yield made


def written(
    tmp_path: Path,
    offset: int = 4,
    *,
    partition: int = 0,
    status: int = 0,
    rows: Sequence[tuple[bytes, bytes]] = SAME,
    age_ms: int = 0,
    topic: str = TOPIC,
) -> None:
    path = tmp_path / f"app/0_{partition}/rocksdb/s"
    write_database(path, {"default": rows, "offsets": offsets(topic, partition, offset, status)})
    for file in path.iterdir():
        os.utime(file, (NOW - age_ms / 1000, NOW - age_ms / 1000))


def inspected(tmp_path: Path, **changes: Any) -> Inspection:
    return replace(inspect(StateDirectory(tmp_path, "app")), **changes)


def looked(tmp_path: Path, brokers: ScriptedBrokers, **how: Any) -> TopicsInspection:
    inspection = inspected(tmp_path, **how.pop("inspection", {}))
    return inspect_topics(inspection, brokers.address, **{"timeout": 60.0, "clock": lambda: NOW, **how})


def differing(found: TopicsInspection) -> list[int]:
    """Offsets of the records from which rows differ, of the only finding there may be."""
    assert found.undecided == ()
    assert [one.code for one in found.findings] in ([], ["rows-differ"])
    return [offset for one in found.findings for offset in one.evidence["differing_offsets"]]


def log(*values: tuple[int, bytes, bytes | None]) -> list[bytes]:
    """A batch for each record."""
    return [batch([Record(offset, 1_000, key, value)]) for offset, key, value in values]


WHOLE = log(*((n, key, value) for n, (key, value) in enumerate(SAME)))
OTHER = log(*((n, b"k%d" % n, b"other") for n in range(5)))


def compacted(retention_ms: int = HOUR) -> dict[str, str]:
    return {"cleanup.policy": "compact", "delete.retention.ms": str(retention_ms)}


def test_of_all_partitions_together_few_questions_are_asked(tmp_path: Path, brokers: ScriptedBrokers) -> None:
    for partition in range(8):
        written(tmp_path, partition=partition)
    brokers.add(TOPIC, [part(WHOLE) for _ in range(8)])
    brokers.committed_elsewhere = {(TOPIC, 0): 1}  # an input would be described, too
    assert looked(tmp_path, brokers) == ((), ())
    counts = {kind: len(brokers.asked(kind)) for kind in (DescribeConfigsRequest, ListOffsetsRequest, FetchRequest)}
    # The ends of inputs are asked for after the group's offsets.
    assert counts == {DescribeConfigsRequest: 1, ListOffsetsRequest: 6, FetchRequest: 8}
    assert len(brokers.asked(MetadataRequest)) <= 3
    (asked,) = brokers.asked(OffsetFetchRequest)
    assert asked.topics is None, "of changelogs the group has committed nothing"


def test_a_store_found_stale_by_offsets_is_not_compared_with_the_log(tmp_path: Path, brokers: ScriptedBrokers) -> None:
    written(tmp_path, 9)
    written(tmp_path, 1, partition=1)
    written(tmp_path, 1, partition=7)
    written(tmp_path, 1, partition=2, topic="elsewhere")
    brokers.add(TOPIC, [part(WHOLE), part(WHOLE[3:], log_start=3)])
    found = looked(tmp_path, brokers)
    assert [(one.code, one.task) for one in found.findings] == [
        ("offset-past-end", "0_0"),
        ("offset-before-start", "0_1"),
        ("topic-missing", "0_2"),
        ("partition-unknown", "0_7"),
    ]
    assert brokers.asked(FetchRequest) == []
    same = inspect_topics(inspected(tmp_path), brokers.address, timeout=60.0)
    assert same.findings == found.findings


@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, AT_LEAST_ONCE])
@pytest.mark.parametrize(
    ("data", "rows", "severity", "repair"),
    [
        ([], SAME, LOSS, None),  # nothing else has the rows
        ([], [], None, Repair.REBUILD),
        (WHOLE[3:], SAME, None, Repair.REBUILD),
    ],
)
def test_rows_of_an_emptied_log_are_the_only_copy(
    tmp_path: Path,
    brokers: ScriptedBrokers,
    guarantee: ProcessingGuarantee,
    data: list[bytes],
    rows: Sequence[tuple[bytes, bytes]],
    severity: Severity | None,
    repair: Repair | None,
) -> None:
    written(tmp_path, 1, rows=rows)
    brokers.add(TOPIC, [part(data, log_start=3)])
    (one,) = looked(tmp_path, brokers, guarantee=guarantee).findings
    by_guarantee = Severity.ERROR if guarantee is EXACTLY_ONCE else LOSS
    assert (one.code, one.severity, one.repair) == ("offset-before-start", severity or by_guarantee, repair)


@pytest.mark.parametrize(("rows", "codes"), [(SAME, [("changelog-incomplete", LOSS)]), ([], [])])
def test_a_store_at_the_end_of_an_emptied_log_is_the_only_copy(
    tmp_path: Path,
    brokers: ScriptedBrokers,
    rows: Sequence[tuple[bytes, bytes]],
    codes: Sequence[tuple[str, Severity]],
) -> None:
    written(tmp_path, 4, rows=rows)
    brokers.add(TOPIC, [part([], log_start=5)])
    found = looked(tmp_path, brokers).findings
    assert [(one.code, one.severity) for one in found] == codes


@pytest.mark.parametrize(
    ("log_start", "rows", "codes"),
    [(0, SAME, []), (3, SAME, [("changelog-incomplete", LOSS)]), (3, SAME[3:], [])],
)
def test_rows_whose_records_were_deleted_are_the_only_copy(
    tmp_path: Path,
    brokers: ScriptedBrokers,
    log_start: int,
    rows: Sequence[tuple[bytes, bytes]],
    codes: Sequence[tuple[str, Severity]],
) -> None:
    written(tmp_path, 4, rows=rows)
    brokers.add(TOPIC, [part(WHOLE[log_start:], log_start=log_start)])
    found = looked(tmp_path, brokers).findings
    assert [(one.code, one.severity) for one in found] == codes


@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, AT_LEAST_ONCE])
@pytest.mark.parametrize(("log_start", "codes"), [(5, []), (6, ["offset-before-start", "grace-buffer-miskeyed"])])
def test_a_grace_buffer_is_restored_with_a_store_of_its_task_whose_log_lost_its_beginning(
    tmp_path: Path,
    brokers: ScriptedBrokers,
    guarantee: ProcessingGuarantee,
    log_start: int,
    codes: Sequence[str],
) -> None:
    spec = read_spec(
        f"application_id: app\nbootstrap_servers: localhost:1\nprocessing_guarantee: {guarantee}\nsubtopologies:\n"
        "  0: {stores: {s: {kind: join-window, retention: 2m}, b: {kind: grace-buffer}}}\n"
    )
    rows = [(b"k" + (60_000).to_bytes(8) + bytes(4), b"v")]
    write_database(tmp_path / "app/0_0/s/s.60000", {"default": rows, "offsets": offsets(TOPIC, 0, 4)})
    for task in ("0_0", "0_1"):
        buffered = [((60_000).to_bytes(8) + bytes(4) + b"k", b"v")]
        write_database(tmp_path / f"app/{task}/b/b.0", {"default": buffered})
        entry = {TopicPartition("app-b-changelog", int(task[-1])): 0}
        (tmp_path / f"app/{task}/.checkpoint_b").write_bytes(encode_checkpoint(entry))
    brokers.add(
        TOPIC, [part([], log_start=log_start), part([])]
    )  # the join was idle for longer than it retains records
    brokers.add("app-b-changelog", [part(log((0, b"k", b"v"))) for _ in range(2)])
    inspection = inspect(StateDirectory(tmp_path, "app"), spec=spec)
    found = inspect_topics(inspection, brokers.address, spec=spec, timeout=60.0).findings
    assert [(one.code, one.task) for one in found] == [(code, "0_0") for code in codes]


def test_a_source_topic_is_asked_for_what_the_group_has_committed(tmp_path: Path, brokers: ScriptedBrokers) -> None:
    written(tmp_path, topic="source")
    brokers.add("source", [part(WHOLE)])
    brokers.committed = {("source", 0): 2}
    (found,) = looked(tmp_path, brokers).findings
    assert (found.code, found.evidence["committed"]) == ("source-ahead", 2)
    assert brokers.asked(OffsetFetchRequest)[0].group_id == "app"


def test_a_group_that_has_committed_nothing_processes_its_input_again(tmp_path: Path, brokers: ScriptedBrokers) -> None:
    written(tmp_path)
    written(tmp_path, partition=1)
    brokers.add(TOPIC, [part(WHOLE), part(WHOLE)])
    brokers.committed_elsewhere = {}
    (found,) = looked(tmp_path, brokers).findings
    assert (found.code, found.severity, found.repair, found.task) == ("group-offsets-missing", LOSS, None, "")
    assert found.evidence == {"stores": ["0_0 s", "0_1 s"]}
    assert looked(tmp_path, brokers, inspection={"holder": Holder(7, "java")}).findings == ()
    brokers.always(OffsetFetchRequest, lambda request: offset_fetch_response(request, {}, error=30))
    found = looked(tmp_path, brokers)
    assert found.findings == ()
    assert "lacks the right Describe on the consumer group app" in found.undecided[0]


@pytest.mark.parametrize(
    ("status", "committed", "found"),
    [(0, 3, []), (0, 2, [2]), (1, 2, []), (0, 9, [9])],  # closed, behind, not closed, beyond the end
)
def test_the_position_of_a_store_shows_where_its_group_has_to_continue(
    tmp_path: Path, brokers: ScriptedBrokers, status: int, committed: int, found: Sequence[int]
) -> None:
    entries = [*offsets(TOPIC, 0, 4, status), (b"position", encode_position({"input": {0: 2}}))]
    write_database(tmp_path / "app/0_0/rocksdb/s", {"default": SAME, "offsets": entries})
    brokers.add(TOPIC, [part(WHOLE)])
    brokers.add("input", [part(log(*((n, b"k", b"v") for n in range(5))))])
    brokers.committed_elsewhere = {("input", 0): committed}
    seen = looked(tmp_path, brokers, guarantee=AT_LEAST_ONCE).findings
    assert [(one.code, one.evidence["committed"]) for one in seen] == [("group-offsets-differ", one) for one in found]


def test_an_input_that_may_have_grown_is_not_decided(tmp_path: Path, brokers: ScriptedBrokers) -> None:
    written(tmp_path)
    brokers.add(TOPIC, [part(WHOLE)])
    brokers.add("input", [part(WHOLE), part()])
    found, (undecided,) = looked(tmp_path, brokers)
    assert found == ()
    assert undecided.startswith("input has 2 partitions, and the group has committed offsets of 1")


def test_a_global_store_says_nothing_of_what_the_group_has_committed(tmp_path: Path, brokers: ScriptedBrokers) -> None:
    write_database(tmp_path / "app/global/rocksdb/g", {"default": SAME, "offsets": offsets("source", 0, 5)})
    brokers.add("source", [part(WHOLE)], configs=compacted())
    brokers.committed_elsewhere = {}
    assert looked(tmp_path, brokers).findings == ()


def test_brokers_that_cannot_be_asked_are_an_error_and_no_finding(tmp_path: Path, brokers: ScriptedBrokers) -> None:
    written(tmp_path)
    brokers.add(TOPIC, [part(WHOLE)])
    brokers.always(MetadataRequest, CLOSE)
    with raises(Retryable, "broker-unreachable"):
        looked(tmp_path, brokers, timeout=0.5)
    brokers.honest(MetadataRequest)
    brokers.topics[TOPIC].error = 29
    with raises(Invalid, "topic-authorization-failed"):
        looked(tmp_path, brokers)
    brokers.topics[TOPIC].error = 0
    brokers.always(FetchRequest, CLOSE)
    with pytest.raises(Retryable):
        looked(tmp_path, brokers, timeout=0.5)


def test_a_directory_without_offsets_asks_for_nothing(tmp_path: Path, brokers: ScriptedBrokers) -> None:
    written(tmp_path, -4)
    brokers.add(TOPIC)
    assert looked(tmp_path, brokers) == ((), ())


# Whether the log is the one that the store was made of.


def test_a_store_of_another_log_is_found_by_its_rows(tmp_path: Path, brokers: ScriptedBrokers) -> None:
    written(tmp_path)
    topic = brokers.add(TOPIC, [part([*OTHER, *log((5, b"new", b"v"))])])
    (found,) = looked(tmp_path, brokers).findings
    assert (found.code, found.severity) == ("topic-recreated", Severity.LOSS)
    assert found.evidence == {
        "offset": 4,
        "log_start": 0,
        "log_end": 6,
        "topic_id": topic.topic_id.hex,
        "looked_up": 5,
        "differing": 5,
        "differing_offsets": [0, 1, 2, 3, 4],
    }


def test_a_store_that_lost_its_last_updates_is_of_no_other_log(tmp_path: Path, brokers: ScriptedBrokers) -> None:
    """As a store of windows is after a crash: the newest keys are looked up first, and all of them differ."""
    older = [(n, b"old-%d" % n, b"v") for n in range(100)]
    lost = [(100 + n, b"new-%d" % n, b"v") for n in range(100)]
    written(tmp_path, 199, rows=sorted((key, value) for _, key, value in older))
    brokers.add(TOPIC, [part(log(*older, *lost))])
    assert differing(looked(tmp_path, brokers)) == list(range(184, 200))


def test_many_keys_are_looked_up_in_another_long_log(tmp_path: Path, brokers: ScriptedBrokers) -> None:
    written(tmp_path, 999)
    brokers.add(TOPIC, [part(log(*((n, b"other-%d" % n, b"v") for n in range(1_000))))])
    (found,) = looked(tmp_path, brokers).findings
    assert found.code == "topic-recreated"
    assert (found.evidence["looked_up"], found.evidence["differing"]) == (512, 512)
    assert found.evidence["differing_offsets"] == list(range(984, 1_000))


def test_an_offset_that_a_file_overrules_is_not_that_of_the_rows(tmp_path: Path, brokers: ScriptedBrokers) -> None:
    written(tmp_path, 1)
    (tmp_path / "app/0_0/.checkpoint").write_bytes(encode_checkpoint({TopicPartition(TOPIC, 0): 4}))
    brokers.add(TOPIC, [part(OTHER)])
    findings, (undecided,) = looked(tmp_path, brokers)
    assert findings == ()
    assert "a file" in undecided


def test_one_row_that_matches_the_log_prevents_a_finding(tmp_path: Path, brokers: ScriptedBrokers) -> None:
    written(tmp_path)
    brokers.add(TOPIC, [part([*OTHER[:4], *WHOLE[4:]])])
    assert differing(looked(tmp_path, brokers)) == [0, 1, 2, 3]


def test_a_changed_value_is_found_unless_a_later_record_may_explain_it(
    tmp_path: Path, brokers: ScriptedBrokers
) -> None:
    written(tmp_path, rows=[*SAME[:4], (b"k4", b"changed")])
    brokers.add(TOPIC, [part(WHOLE)])
    assert differing(looked(tmp_path, brokers)) == [4]
    brokers.add(TOPIC, [part([*WHOLE, *log((9, b"other", b"v"))])])  # a delete of k4 may have been compacted away
    findings, (undecided,) = looked(tmp_path, brokers)
    assert findings == ()
    assert "statecore diff" in undecided
    assert undecided.endswith("s of 0_0.")


@pytest.mark.parametrize(
    ("rows", "later", "found", "undecided"),
    [
        (SAME, [], [], 0),
        (SAME[:3], [], [3, 4], 0),  # behind: rows are missing
        ([*SAME[:4], (b"k4", b"old")], [], [4], 0),  # behind: an update is missing
        ([*SAME[:3], (b"k3", b"unsent")], [], [4], 0),
        ([*SAME[:4], (b"k4", b"ahead")], [(6, b"k4", b"ahead")], [], 0),
        (SAME[:4], [(6, b"k4", None)], [], 0),
        ([*SAME[:4], (b"k4", b"old")], [(6, b"k4", b"old")], [], 0),
        ([*SAME[:4], (b"k4", b"unsent")], [], [], 1),
        ([(key, b"unsent") for key, _ in SAME], [], [], 1),
        (SAME[:4], [(8, b"k0", b"v")], [], 1),  # a delete may have been compacted away
    ],
)
def test_rows_of_4_2_behind_their_offset_are_lost_and_rows_ahead_are_not(
    tmp_path: Path,
    brokers: ScriptedBrokers,
    rows: Sequence[tuple[bytes, bytes]],
    later: Sequence[tuple[int, bytes, bytes | None]],
    found: Sequence[int],
    undecided: int,
) -> None:
    """Whether the store was closed is not recorded. A process that dies leaves rows ahead of the offset only."""
    write_database(tmp_path / "app/0_0/rocksdb/s", {"default": rows})
    (tmp_path / "app/0_0/.checkpoint").write_bytes(encode_checkpoint({TopicPartition(TOPIC, 0): 5}))
    before = [(n, key, value) for n, (key, value) in enumerate(SAME[:4])]
    brokers.add(TOPIC, [part(log(*before, (4, b"k4", b"old"), (5, b"k4", b"v"), *later))])
    offsets = [5 if one == 4 else one for one in found]
    inspection = inspected(tmp_path)
    seen = looked(tmp_path, brokers)
    assert [(one.code, one.severity, one.evidence["differing_offsets"]) for one in seen.findings] == (
        [("rows-differ", LOSS, offsets)] if offsets else []
    )
    assert len(seen.undecided) == undecided
    assert all("some of its rows differ" in one for one in seen.undecided)
    late = Finding("rows-after-checkpoint", "", LOSS, "0_0", "s", evidence={"files": {"7.sst": "now"}})
    for flushed_later in ({"findings": (late,)}, {"whole_tasks": frozenset[str]()}):
        seen = inspect_topics(replace(inspection, **flushed_later), brokers.address, timeout=60.0, clock=lambda: NOW)
        assert (seen.findings, len(seen.undecided)) == ((), 1 if offsets or undecided else 0)


def test_rows_of_4_2_of_records_long_before_their_offset_are_lost(tmp_path: Path, brokers: ScriptedBrokers) -> None:
    keys = [b"k%02d" % n for n in range(16)]
    rows = [(keys[0], b"79"), *((key, b"old") for key in keys[1:])]
    write_database(tmp_path / "app/0_0/rocksdb/s", {"default": rows})
    (tmp_path / "app/0_0/.checkpoint").write_bytes(encode_checkpoint({TopicPartition(TOPIC, 0): 79}))
    values = [b"old" if n < 16 else b"79" if n == 64 else b"%d" % n for n in range(80)]
    brokers.add(TOPIC, [part(log(*((n, keys[n % 16], value) for n, value in enumerate(values))))])
    assert differing(looked(tmp_path, brokers)) == list(range(65, 80))


@pytest.mark.parametrize(
    ("starts", "stream_time", "found"),
    [
        ((0, 60_000, 120_000), 120_000, []),
        ((0, 120_000), 120_000, [1]),  # a segment is gone
        ((60_000, 120_000), 120_000, [0]),
        ((0, 60_000), 120_000, list(range(3, 19))),  # the newest
        ((120_000,), 120_000, [0, 1]),
        ((60_000, 120_000, 180_000), 180_000, []),  # the first has expired
        ((120_000, 180_000), 180_000, [1]),
    ],
)
def test_a_segment_that_is_gone_is_found_by_the_records_of_its_time(
    tmp_path: Path, brokers: ScriptedBrokers, starts: Sequence[int], stream_time: int, found: Sequence[int]
) -> None:
    spec = read_spec(
        "application_id: app\nbootstrap_servers: localhost:1\nprocessing_guarantee: at_least_once\n"
        "subtopologies: {0: {stores: {s: {kind: window, retention: 2m}}}}\n"
    )
    times = [*range(30_000, stream_time, 60_000), stream_time]  # those of the first segment are within the retention
    keys = [b"k" + time.to_bytes(8) + bytes(4) for time in times]
    last = len(keys) - 1
    for start in starts:
        rows = [(keys[start // 60_000], b"v")]
        write_database(tmp_path / f"app/0_0/s/s.{start}", {"default": rows, "offsets": offsets(TOPIC, 0, last + 16)})
    newest = [b"n%02d" % n + stream_time.to_bytes(8) + bytes(4) for n in range(16)]  # all that is looked up of the log
    if stream_time in starts:
        with edited(tmp_path / f"app/0_0/s/s.{stream_time}") as opened:
            for key in newest:
                opened[key] = b"v"
    records = [(n, key, b"v") for n, key in enumerate([*keys, *newest])]
    brokers.add(TOPIC, [part(log(*records))])
    inspection = inspect(StateDirectory(tmp_path, "app"), spec=spec)
    seen = differing(inspect_topics(inspection, brokers.address, spec=spec, timeout=60.0, clock=lambda: NOW))
    assert seen == found


@pytest.mark.parametrize(
    ("row_time", "record_time", "found"),
    [(70_000, 70_000, [0]), (60_000, 70_000, []), (70_000, 59_999, [])],  # of the row, and of its record, at 3 minutes
)
@pytest.mark.parametrize("newest", [1, 20])
def test_a_row_that_is_older_than_the_retention_is_not_missed(
    tmp_path: Path, brokers: ScriptedBrokers, newest: int, row_time: int, record_time: int, found: Sequence[int]
) -> None:
    """Kafka Streams 4.4 restores the records from that of the last one minus the retention on, whatever the segment."""
    spec = read_spec(
        "application_id: app\nbootstrap_servers: localhost:1\nprocessing_guarantee: at_least_once\n"
        "subtopologies: {0: {stores: {s: {kind: window, retention: 2m}}}}\n"
    )
    said = offsets(TOPIC, 0, newest)
    write_database(
        tmp_path / "app/0_0/s/s.60000", {"default": [(b"k" + (71_000).to_bytes(8) + bytes(4), b"v")], "offsets": said}
    )
    keys = [b"n%02d" % n + (180_000).to_bytes(8) + bytes(4) for n in range(newest)]
    write_database(tmp_path / "app/0_0/s/s.180000", {"default": [(key, b"v") for key in keys], "offsets": said})
    old = Record(0, record_time, b"k" + row_time.to_bytes(8) + bytes(4), b"v")
    records = [old, *(Record(n, 180_000, key, b"v") for n, key in enumerate(keys, start=1))]
    brokers.add(TOPIC, [part([batch([one]) for one in records])])
    inspection = inspect(StateDirectory(tmp_path, "app"), spec=spec)
    assert differing(inspect_topics(inspection, brokers.address, spec=spec, timeout=60.0, clock=lambda: NOW)) == found


def test_only_inspected_tasks_are_said_to_be_of_no_partition(tmp_path: Path, brokers: ScriptedBrokers) -> None:
    spec = read_spec(
        "application_id: app\nbootstrap_servers: localhost:1\nprocessing_guarantee: at_least_once\n"
        "subtopologies: {0: {stores: {s: {kind: key-value}}}}\n"
    )
    written(tmp_path)
    (tmp_path / "app/0_7").mkdir()
    (tmp_path / "app/0_8").mkdir()
    brokers.add(TOPIC, [part(WHOLE)])
    for tasks, absent in (([], ["0_7", "0_8"]), (["0_0"], []), (["0_8"], ["0_8"])):
        inspection = inspect(StateDirectory(tmp_path, "app"), spec=spec, tasks=tasks)
        found = inspect_topics(inspection, brokers.address, spec=spec, timeout=60.0, clock=lambda: NOW).findings
        assert [(one.code, one.task) for one in found] == [("partition-unknown", task) for task in absent]


@pytest.mark.parametrize(
    ("kind", "partitions", "codes"),
    [
        ("in-memory", 1, []),
        ("in-memory", 2, [("partitions-differ", "", Severity.ERROR)]),
        ("in-memory", 0, [("topic-missing", "0_0", Severity.WARNING)]),
        ("key-value", 0, []),  # the directory shows that it is absent
        ("key-value", 2, [("partitions-differ", "", Severity.ERROR)]),
    ],
)
def test_the_changelog_of_a_store_without_a_directory_is_asked_for(
    tmp_path: Path, brokers: ScriptedBrokers, kind: str, partitions: int, codes: Sequence[tuple[str, str, Severity]]
) -> None:
    spec = read_spec(
        "application_id: app\nbootstrap_servers: localhost:1\nprocessing_guarantee: at_least_once\n"
        f"subtopologies: {{0: {{stores: {{s: {{kind: key-value}}, m: {{kind: {kind}}}}}}}}}\n"
    )
    written(tmp_path)
    brokers.add(TOPIC, [part(WHOLE)])
    if partitions:
        brokers.add("app-m-changelog", [part([]) for _ in range(partitions)])
    inspection = inspect(StateDirectory(tmp_path, "app"), spec=spec)
    found = inspect_topics(inspection, brokers.address, spec=spec, timeout=60.0, clock=lambda: NOW).findings
    assert [(one.code, one.task, one.severity) for one in found] == codes
    assert {one.store for one in found} <= {"m"}


def test_rows_ahead_of_the_offset_are_of_the_same_log(tmp_path: Path, brokers: ScriptedBrokers) -> None:
    """As they are where offsets were lowered."""
    written(tmp_path)
    ahead = log(*((5 + n, key, value) for n, (key, value) in enumerate(SAME)))
    brokers.add(TOPIC, [part([*OTHER, *ahead])])
    assert looked(tmp_path, brokers) == ((), ())


def test_a_store_without_rows_lost_them_and_is_of_no_other_log(tmp_path: Path, brokers: ScriptedBrokers) -> None:
    written(tmp_path, rows=[])
    brokers.add(TOPIC, [part(WHOLE)])
    findings, (undecided,) = looked(tmp_path, brokers)
    assert findings == ()
    assert "its kind" in undecided
    (store,) = inspected(tmp_path).stores
    known = {"stores": (replace(store, kind=StoreKind.KEY_VALUE),)}
    assert differing(looked(tmp_path, brokers, inspection=known)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"inspection": {"holder": Holder(1, "java")}}, "in use"),
        ({"status": 1}, "closed"),
        ({"last_stable": 3}, "transaction"),
        ({"compare_time": 0.0}, "the time to compare was over"),
    ],
)
def test_where_rows_prove_nothing_it_is_left_undecided(
    tmp_path: Path, brokers: ScriptedBrokers, how: dict[str, Any], why: str
) -> None:
    written(tmp_path, status=how.pop("status", 0))
    brokers.add(TOPIC, [part(OTHER, **({"last_stable": how.pop("last_stable")} if "last_stable" in how else {}))])
    findings, (undecided,) = looked(tmp_path, brokers, **how)
    assert findings == ()
    assert why in undecided
    assert brokers.asked(FetchRequest) == []


def test_an_undecided_check_of_many_stores_is_reported_once(tmp_path: Path, brokers: ScriptedBrokers) -> None:
    for partition in range(7):
        written(tmp_path, partition=partition, status=1)
    brokers.add(TOPIC, [part(OTHER) for _ in range(7)])
    findings, (undecided,) = looked(tmp_path, brokers)
    assert findings == ()
    assert [f"s of 0_{number}" in undecided for number in range(7)] == [True] * 5 + [False] * 2
    assert undecided.endswith("and 2 more.")
    assert len(undecided.stores) == 7


def test_what_is_not_compared_because_the_time_is_over_is_told_of_a_topic_of_others_too(
    tmp_path: Path, brokers: ScriptedBrokers
) -> None:
    written(tmp_path, topic="source")
    brokers.add("source", [part(WHOLE)])
    brokers.committed = {("source", 0): 5}
    findings, (undecided,) = looked(tmp_path, brokers, compare_time=0.0)
    assert (findings, "--compare-time" in undecided) == ((), True)


def test_rows_of_a_topic_that_others_write_are_not_compared(tmp_path: Path, brokers: ScriptedBrokers) -> None:
    written(tmp_path, topic="source")
    brokers.add("source", [part(OTHER)])
    brokers.committed = {("source", 0): 5}
    assert looked(tmp_path, brokers) == ((), ())


def test_a_topic_of_others_none_of_whose_keys_has_a_row_is_left_undecided(
    tmp_path: Path, brokers: ScriptedBrokers
) -> None:
    written(tmp_path, topic="source")
    brokers.add("source", [part(log(*((n, b"other %d" % n, b"v") for n in range(5))))])
    brokers.committed = {("source", 0): 5}
    found, (undecided,) = looked(tmp_path, brokers)
    assert found == ()
    assert "it may be of another topic" in undecided
    assert "s of 0_0" in undecided


# Whether deletes may be gone.

GAPS = [*WHOLE, *log((6, b"k1", b"v"), (9, b"k2", b"v"))]


@pytest.mark.parametrize(
    ("age_ms", "configs", "found"),
    [
        (HOUR, compacted(), True),
        (HOUR - CLOCK_MARGIN_MS, compacted(), True),
        (HOUR - CLOCK_MARGIN_MS - 1000, compacted(), False),
        (HOUR, compacted(2 * HOUR), False),
        (HOUR, {**compacted(), "cleanup.policy": "compact,delete"}, True),
        (HOUR, {**compacted(), "cleanup.policy": "delete"}, False),
    ],
)
def test_an_old_store_is_stale_where_offsets_behind_its_own_are_gone(
    tmp_path: Path, brokers: ScriptedBrokers, age_ms: int, configs: dict[str, str], found: bool
) -> None:
    written(tmp_path, age_ms=age_ms)
    brokers.add(TOPIC, [part(GAPS)], configs=configs)
    findings = looked(tmp_path, brokers).findings
    if not found:
        assert findings == ()
        return
    (one,) = findings
    assert (one.code, one.severity) == ("stale", Severity.LOSS)
    assert one.evidence == {
        "offset": 4,
        "log_end": 10,
        "missing": 3,
        "age_ms": pytest.approx(age_ms, abs=2),
        "delete_retention_ms": HOUR,
    }
    assert "which are kept for 1h" in one.what


def test_an_old_store_with_a_complete_or_empty_tail_is_not_stale(tmp_path: Path, brokers: ScriptedBrokers) -> None:
    written(tmp_path, age_ms=HOUR)
    written(tmp_path, age_ms=HOUR, partition=1)
    whole = [*WHOLE, *log((5, b"k1", None)), marker(6, 9, commit=True)]
    brokers.add(TOPIC, [part(whole), part(WHOLE)], configs=compacted())
    assert looked(tmp_path, brokers) == ((), ())


def test_the_marker_of_the_last_transaction_may_be_gone_and_is_no_delete(
    tmp_path: Path, brokers: ScriptedBrokers
) -> None:
    written(tmp_path, age_ms=HOUR)
    brokers.add(TOPIC, [part([*WHOLE, *log((6, b"k1", b"v"))])], configs=compacted())
    for guarantee in (EXACTLY_ONCE, None):
        findings, undecided = looked(tmp_path, brokers, guarantee=guarantee)
        assert findings == ()
        assert "marker of a transaction" in undecided[0]
    assert [one.code for one in looked(tmp_path, brokers, guarantee=AT_LEAST_ONCE).findings] == ["stale"]
    brokers.topics[TOPIC].parts[0] = part([*WHOLE, *log((5, b"k1", b"v"), (7, b"k1", b"v"))])
    assert [one.code for one in looked(tmp_path, brokers, guarantee=EXACTLY_ONCE).findings] == ["stale"]


def test_what_the_next_start_deletes_anyway_is_not_called_stale(tmp_path: Path, brokers: ScriptedBrokers) -> None:
    written(tmp_path, age_ms=HOUR, status=1)
    brokers.add(TOPIC, [part(GAPS)], configs=compacted())
    assert looked(tmp_path, brokers, guarantee=EXACTLY_ONCE).findings == ()
    (found,) = looked(tmp_path, brokers, guarantee=AT_LEAST_ONCE).findings
    assert found.severity is Severity.LOSS
    in_use = {"holder": Holder(1, "java")}
    (found,) = looked(tmp_path, brokers, guarantee=AT_LEAST_ONCE, inspection=in_use).findings
    assert (found.severity, "It is in use" in found.what) == (Severity.NOTE, True)


def test_a_long_log_is_compared_within_the_time_limit(tmp_path: Path, brokers: ScriptedBrokers) -> None:
    written(tmp_path, age_ms=HOUR)
    brokers.add(TOPIC, [part([*WHOLE, *log((5, b"k1", b"v"))])], configs=compacted())
    findings, undecided = looked(tmp_path, brokers, compare_time=0.0)
    assert findings == ()
    assert [one.stores for one in undecided] == [{("0_0", "s")}] * 2
    assert all("the time to compare was over: --compare-time" in one for one in undecided)


def test_waiting_for_brokers_names_them_and_the_offline_option(tmp_path: Path, brokers: ScriptedBrokers) -> None:
    written(tmp_path)
    brokers.add(TOPIC, [part(WHOLE)]).error = 29
    shown = io.StringIO()
    shown.isatty = lambda: True  # type: ignore[method-assign]
    asked = Brokers(brokers.address, None, progress=TerminalProgress(shown))
    with raises(Invalid, "topic-authorization-failed") as error:
        asked(inspected(tmp_path))
    assert error.value.action.endswith(" --offline.")
    assert brokers.address in shown.getvalue()
    patient = Brokers(brokers.address, None, patient=True)
    (undecided,) = patient(inspected(tmp_path))[1]
    assert patient.failed is not None
    assert patient.failed.code == "topic-authorization-failed"
    assert str(patient.failed) in undecided


@pytest.mark.parametrize(
    ("tail", "lost"),
    [
        ([], False),
        ([batch([Record(132, 1_000, b"k", b"v")])], True),
        ([batch([Record(132, 1_000, b"k", None)])], True),
        ([batch([Record(132, 1, b"k", b"v")], producer=7, transactional=True), marker(133, 7, commit=False)], False),
        ([marker(132, 7, commit=True)], False),
    ],
    ids=["none", "a record", "a delete", "an aborted record", "a marker"],
)
def test_a_grace_buffer_with_records_behind_its_offset_is_restored_under_wrong_keys(
    tmp_path: Path, brokers: ScriptedBrokers, tail: list[bytes], lost: bool
) -> None:
    write_golden(tmp_path / "app", "grace-buffer", renamed=True)
    brokers.add(
        "app-grace-Buffer-changelog", [part([batch([Record(131, 1_000, b"k", b"v")]), *tail], aborted=[(7, 132)])]
    )
    found = looked(tmp_path, brokers, guarantee=AT_LEAST_ONCE).findings
    assert [(one.code, one.severity) for one in found] == ([("grace-buffer-miskeyed", LOSS)] if lost else [])
    assert [one.evidence["offset"] for one in found] == ([131] if lost else [])
    assert not looked(tmp_path, brokers, inspection={"holder": Holder(1, "java")}).findings, "it goes on by itself"
