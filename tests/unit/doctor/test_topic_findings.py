"""What the offsets of stores say beside the logs that the brokers have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.changelog.model import LogOffsets, TopicDescription
from statecore.doctor.finding_catalog import CATALOG, Repair, Severity
from statecore.doctor.findings import Finding
from statecore.doctor.logged_store_offsets import LoggedStoreOffsets
from statecore.doctor.topic_findings import (
    BrokerAnswers,
    blame_checkpoint_file,
    existing_partitions,
    findings_beyond_stores,
    findings_of_offsets,
    findings_of_positions,
    grown_inputs,
    source_partitions,
)
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import ProcessingGuarantee

CHANGELOG, SOURCE = TopicPartition("app-s-changelog", 0), TopicPartition("source", 0)
EXACTLY_ONCE, AT_LEAST_ONCE = ProcessingGuarantee.EXACTLY_ONCE_V2, ProcessingGuarantee.AT_LEAST_ONCE


def store(offset: int | None = 9, partition: TopicPartition = CHANGELOG, **more: Any) -> LoggedStoreOffsets:
    offsets = {} if offset is None else {partition: offset}
    made = LoggedStoreOffsets("0_0", "s", StoreKind.KEY_VALUE, "app-s-changelog", offsets)
    return replace(made, **more)


def global_store(offset: int, partition: TopicPartition = SOURCE) -> LoggedStoreOffsets:
    return LoggedStoreOffsets("global", "g", StoreKind.KEY_VALUE, "", {partition: offset})


def told(
    start: int = 0, end: int = 10, partition: TopicPartition = CHANGELOG, partitions: int = 1, **configs: str
) -> BrokerAnswers:
    named = {name.replace("_", "."): value for name, value in {"cleanup_policy": "compact", **configs}.items()}
    topic = TopicDescription(partition.topic, "7" * 32, partitions, named)
    return BrokerAnswers({topic.name: topic}, {partition: LogOffsets(start, end, end)})


def found(
    one: LoggedStoreOffsets, answers: BrokerAnswers, guarantee: ProcessingGuarantee | None = None
) -> list[Finding]:
    return findings_of_offsets([one], answers, guarantee)


def only(one: LoggedStoreOffsets, answers: BrokerAnswers, guarantee: ProcessingGuarantee | None = None) -> Finding:
    (finding,) = found(one, answers, guarantee)
    assert finding.severity.rank <= CATALOG[finding.code].severity.rank
    assert (finding.task, finding.store) == (one.task, one.store)
    return finding


@pytest.mark.parametrize(
    ("offset", "code"), [(3, "offset-before-start"), (4, None), (5, None), (9, None), (10, "offset-past-end")]
)
def test_the_offset_of_a_store_is_the_last_one_applied(offset: int, code: str | None) -> None:
    codes = [finding.code for finding in found(store(offset), told(5, 10))]
    assert codes == ([code] if code else [])


def test_a_store_is_not_ahead_of_those_who_read_its_changelog() -> None:
    view = store(declared=CHANGELOG.topic, store="view", default_changelog="app-view-changelog")
    answers = replace(told(), committed={CHANGELOG: 5})
    findings = findings_of_offsets([store(), view], answers)
    assert [(one.code, one.store) for one in findings] == [("source-ahead", "view")]


@pytest.mark.parametrize(
    ("offset", "code"), [(4, "offset-before-start"), (5, None), (10, None), (11, "offset-past-end")]
)
def test_the_offset_of_a_global_store_is_the_next_one(offset: int, code: str | None) -> None:
    codes = [finding.code for finding in found(global_store(offset), told(5, 10, SOURCE))]
    assert codes == ([code] if code else [])


def test_a_global_store_without_an_offset_of_the_last_partitions_of_its_topic() -> None:
    one, last = global_store(9), TopicPartition(SOURCE.topic, 2)
    answers = told(0, 10, SOURCE, partitions=3)
    assert existing_partitions([one], answers.topics) == [SOURCE, TopicPartition(SOURCE.topic, 1), last]
    empty = {TopicPartition(SOURCE.topic, 1): LogOffsets(5, 5, 5)}
    answers = replace(answers, logs={**answers.logs, **empty, last: LogOffsets(3, 8, 8)})
    finding = only(one, answers)
    assert (finding.code, finding.severity, finding.partition) == ("offset-missing", Severity.WARNING, last)
    assert (finding.repair, finding.evidence) == (Repair.REBUILD, {"log_start": 3, "log_end": 8})
    assert found(replace(one, offsets={**one.offsets, last: 8}), answers) == []
    assert existing_partitions([store(9)], told(partitions=3).topics) == [CHANGELOG]


@settings(deadline=None)
@given(st.integers(0, 20), st.integers(0, 20), st.integers(-4, 25), st.booleans())
def test_an_offset_is_found_fault_with_exactly_where_reading_cannot_go_on(
    start: int, length: int, offset: int, is_global: bool
) -> None:
    end = start + length
    offset = -4 if offset < 0 else offset
    one = global_store(offset) if is_global else store(offset)
    codes = {finding.code for finding in found(one, told(start, end, SOURCE if is_global else CHANGELOG))}
    position = offset + (not is_global)
    readable = offset == -4 or start <= position <= end
    assert bool(codes) is not readable


def test_the_offsets_between_and_the_severity_are_reported() -> None:
    finding = only(store(2), told(5, 10), EXACTLY_ONCE)
    assert all(said in finding.what for said in ("offset 2 of app-s-changelog-0", "begins at 5", "2 offsets between"))
    assert finding.evidence == {"offset": 2, "log_start": 5, "log_end": 10}
    assert (finding.severity, finding.repair) == (Severity.ERROR, Repair.REBUILD)
    assert finding.partition == CHANGELOG
    for guarantee in (AT_LEAST_ONCE, None):
        assert only(store(2), told(5, 10), guarantee).severity is Severity.LOSS


def test_an_empty_log_is_called_so() -> None:
    finding = only(store(9), told(0, 0))
    assert "is empty" in finding.what
    assert (finding.severity, finding.repair) == (Severity.LOSS, None), "the store may be the only copy"
    assert only(store(9), told(0, 5)).repair is Repair.REBUILD
    assert only(global_store(9), told(0, 0, SOURCE)).severity is Severity.ERROR


@pytest.mark.parametrize("offset", [None, -4])
def test_what_has_no_offset_is_compared_with_nothing(offset: int | None) -> None:
    assert found(store(offset), told(5, 10)) == []
    assert existing_partitions([store(offset)], told().topics) == []


def test_a_topic_that_is_not_there_is_missed() -> None:
    finding = only(store(9), BrokerAnswers({}))
    assert "offset 9 of app-s-changelog-0" in finding.what
    assert (finding.code, finding.severity, finding.partition) == ("topic-missing", Severity.LOSS, CHANGELOG)
    assert finding.evidence == {"topic": "app-s-changelog", "offsets": {"app-s-changelog-0": 9}}
    assert only(store(9, SOURCE), BrokerAnswers({})).severity is Severity.ERROR, "the application does not start"
    assert only(global_store(9), BrokerAnswers({})).severity is Severity.ERROR
    assert only(store(-4), BrokerAnswers({})).severity is Severity.WARNING, "nothing is lost of what holds nothing"


def test_a_declared_topic_is_missed_though_the_store_says_no_offset() -> None:
    finding = only(store(None, declared="other"), BrokerAnswers({}))
    assert (finding.code, finding.partition) == ("topic-missing", TopicPartition("other", 0))
    assert found(store(None), BrokerAnswers({})) == [], "without a declaration it is unknown whether it is logged"


def test_a_partition_that_the_topic_does_not_have_is_unknown() -> None:
    here = TopicPartition("app-s-changelog", 3)
    one = store(9, here, task="0_3")
    answers = told(partitions=3)
    finding = only(one, answers)
    assert "partition 3 of app-s-changelog" in finding.what
    assert (finding.code, finding.severity, finding.partition) == ("partition-unknown", Severity.ERROR, here)
    assert existing_partitions([one], answers.topics) == []
    declared = store(None, task="0_3", declared="app-s-changelog")
    assert only(declared, answers).code == "partition-unknown"
    ignored = only(global_store(9, TopicPartition(SOURCE.topic, 3)), told(0, 10, SOURCE, partitions=1))
    assert (ignored.code, ignored.severity) == ("partition-unknown", Severity.WARNING)


@pytest.mark.parametrize(("committed", "ahead"), [(10, False), (11, False), (9, True), (0, True), (None, True)])
def test_a_source_topics_store_ends_where_the_group_has_committed(committed: int | None, ahead: bool) -> None:
    answers = replace(told(0, 20, SOURCE), committed={SOURCE: committed})
    one = store(9, SOURCE)
    assert source_partitions([one, store(9)], [SOURCE, CHANGELOG]) == [SOURCE]
    if not ahead:
        assert found(one, answers) == []
        return
    finding = only(one, answers)
    assert (finding.code, finding.evidence["committed"], finding.evidence["offset"]) == ("source-ahead", committed, 9)
    assert f"has committed {'nothing' if committed is None else committed}:" in finding.what


def test_global_topics_are_no_source_topics_though_the_application_reads_them() -> None:
    assert source_partitions([global_store(9)], [SOURCE]) == []


@pytest.mark.parametrize(
    ("policy", "time", "size", "deletes"),
    [
        ("compact", "604800000", "-1", False),
        ("delete", "604800000", "-1", True),
        ("delete", "-1", "1000", True),
        ("delete", "-1", "-1", False),
        ("compact,delete", "604800000", "-1", True),
    ],
)
def test_a_global_topic_is_to_keep_the_last_record_of_each_key(
    policy: str, time: str, size: str, deletes: bool
) -> None:
    answers = told(0, 10, SOURCE, cleanup_policy=policy, retention_ms=time, retention_bytes=size)
    if not deletes:
        assert found(global_store(9), answers) == []
        return
    finding = only(global_store(9), answers)
    assert (finding.code, finding.severity) == ("global-topic-not-compacted", Severity.WARNING)
    assert f"source has cleanup.policy={policy}, retention.ms={time} and retention.bytes={size}" in finding.what
    of_task = only(store(9, SOURCE), answers)
    assert (of_task.code, of_task.severity, of_task.repair) == ("changelog-incomplete", Severity.WARNING, None)
    for kind in (StoreKind.WINDOW, StoreKind.JOIN_WINDOW, StoreKind.UNKNOWN):
        assert found(store(9, SOURCE, kind=kind), answers) == [], "its rows expire, or may"


def beside_a_file(own: int, says: int, **more: Any) -> LoggedStoreOffsets:
    """A store whose database says another offset than ``.checkpoint``."""
    return store(says, own_offsets={CHANGELOG: own}, **more)


@pytest.mark.parametrize(
    ("own", "says", "how"),
    [
        (9, 99, Repair.MOVE_ASIDE),
        (12, 99, Repair.REBUILD),
        (3, 99, Repair.REBUILD),
        (-4, 99, Repair.REBUILD),
        (9, 3, Repair.MOVE_ASIDE),
        (2, 3, Repair.REBUILD),
    ],
)
def test_a_wrong_checkpoint_file_is_repaired_by_quarantine(own: int, says: int, how: Repair) -> None:
    one = beside_a_file(own, says)
    alone = one.without_file
    assert alone is not None
    (finding,) = blame_checkpoint_file(found(one, told(5, 10)), [alone], found(alone, told(5, 10)))
    assert (finding.code, finding.repair) == ("offset-past-end" if says > 5 else "offset-before-start", how)
    assert (finding.evidence.get("file") == ".checkpoint") is (how is Repair.MOVE_ASIDE)
    assert (f"the store itself says {own}" in finding.what) is (how is Repair.MOVE_ASIDE)


def test_what_no_file_overrules_stays_as_it_is() -> None:
    one = store(99)
    assert one.without_file is None
    findings = found(one, told(5, 10))
    assert blame_checkpoint_file(findings, [], []) == findings


def stores_of(*names: str) -> list[LoggedStoreOffsets]:
    return [
        LoggedStoreOffsets(
            task,
            name,
            StoreKind.KEY_VALUE,
            f"app-{name}-changelog",
            {TopicPartition(f"app-{name}-changelog", number): 9},
        )
        for name in names
        for number, task in enumerate(("0_0", "0_1"))
    ]


@pytest.mark.parametrize(
    ("partitions", "strange"),
    [
        ({"a": 2, "b": 2, "c": 2}, []),
        ({"a": 2, "b": 4, "c": 2}, ["b"]),
        ({"a": 2, "b": 1, "c": 2}, ["b"]),
        ({"a": 2, "b": 4}, ["b"]),
        ({"a": 4}, []),
    ],
)
def test_changelogs_of_one_subtopology_have_equally_many_partitions(
    partitions: dict[str, int], strange: list[str]
) -> None:
    topics = {
        f"app-{name}-changelog": TopicDescription(f"app-{name}-changelog", "7" * 32, number, {})
        for name, number in partitions.items()
    }
    findings = findings_beyond_stores(stores_of(*partitions), BrokerAnswers(topics))
    assert [(one.code, one.store, one.severity, one.repair) for one in findings] == [
        ("partitions-differ", store, Severity.ERROR, None) for store in strange
    ]
    elsewhere = [replace(one, task=f"{number}_0") for number, one in enumerate(stores_of(*partitions))]
    assert findings_beyond_stores(elsewhere, BrokerAnswers(topics)) == []


@pytest.mark.parametrize(("partitions", "count"), [(1, 0), (2, 0), (3, 1)])
def test_a_source_topic_that_grew_ends_every_start(partitions: int, count: int) -> None:
    table = store(partition=SOURCE, store="table", default_changelog="app-table-changelog", declared=SOURCE.topic)
    described = {"app-a-changelog": 2, SOURCE.topic: partitions}
    topics = {name: TopicDescription(name, "7" * 32, number, {}) for name, number in described.items()}
    findings = findings_beyond_stores([*stores_of("a"), table], BrokerAnswers(topics))
    assert [(one.code, one.store, one.evidence["usual"]) for one in findings] == [
        ("partitions-differ", "table", 2)
    ] * count


@pytest.mark.parametrize(
    ("partitions", "committed", "grown"), [(3, 2, True), (2, 2, False), (3, 3, False), (3, 1, False)]
)
def test_an_input_that_may_have_grown_is_told(partitions: int, committed: int, grown: bool) -> None:
    described = {"app-a-changelog": 2, "input": partitions}
    topics = {name: TopicDescription(name, "7" * 32, number, {}) for name, number in described.items()}
    group = {TopicPartition("input", number): 1 for number in range(committed)}
    told_of = grown_inputs(stores_of("a"), BrokerAnswers(topics, group=group))
    assert [one.split()[0] for one in told_of] == ["input"] * grown


INPUT = TopicPartition("input", 0)


@pytest.mark.parametrize(
    ("group", "count", "unknown"),
    [
        ({INPUT: 8}, 0, []),
        ({INPUT: 10}, 0, []),  # to the end
        ({INPUT: 7}, 1, []),  # the last record is processed again
        ({INPUT: 0}, 1, []),
        ({TopicPartition("input", 1): 8}, 1, []),  # only of another partition
        ({INPUT: 11}, 1, []),  # beyond the end
        ({CHANGELOG: 1}, 0, ["input"]),  # it may be an input no more
        ({}, 0, []),  # group-offsets-missing
        (None, 0, []),
    ],
)
def test_the_group_continues_where_the_state_ends(
    group: dict[TopicPartition, int] | None, count: int, unknown: list[str]
) -> None:
    answers = BrokerAnswers({}, {INPUT: LogOffsets(0, 10, 10)}, group=group)
    findings, undecided = findings_of_positions({("0_0", INPUT): 7}, answers)
    assert [(one.code, one.severity, one.partition, one.repair) for one in findings] == [
        ("group-offsets-differ", Severity.LOSS, INPUT, None)
    ] * count
    assert [one.split()[5].rstrip(",") for one in undecided] == unknown
