"""Directories of real Kafka Streams whose topics are not what they were: what it does with them, what the doctor finds.

In each test the doctor looks first, because Kafka Streams changes what it opens; then Kafka Streams 4.3.1 shows what
the finding means.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from statecore.changelog.cluster import Cluster
from statecore.changelog.reader import ChangelogReader
from statecore.doctor.changelog_comparison import COMPARABLE_KINDS, Comparison, ReadLimits, compare_rows, newest_records
from statecore.doctor.diagnosis import inspect
from statecore.doctor.finding_catalog import Severity
from statecore.doctor.logged_store_offsets import logged_store_offsets
from statecore.doctor.topic_inspection import TopicsInspection, inspect_topics
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import ApplicationSpec
from statecore.spec.reader import parse_spec
from statecore.statedir.state_directory import StateDirectory
from tests.harness import directory, topics
from tests.harness.broker import Broker
from tests.harness.damage_functions import OFFSETS, database_of, edited, segments_of
from tests.harness.fed_application import FedApplication
from tests.harness.feeds import EVENTS, LEFT, PRICES, REFERENCE, RIGHT, SOURCE, events, feed
from tests.harness.fleet import Fleet
from tests.harness.kinds import GLOBALS, PLAIN, SOURCES, KindsApplication
from tests.harness.rebuilding import KindsWorld, eventually, restored
from tests.harness.streams import StreamsFailed, StreamsJvm
from tests.harness.tables import KINDS, PARTITIONS, World
from tests.harness.topics import Record

pytestmark = pytest.mark.integration

GUARANTEES = pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
EXACTLY_ONCE = "exactly_once_v2"
DELETABLE = {**topics.UNCLEANED, "cleanup.policy": "compact,delete", "retention.ms": "-1"}
FORGETFUL = {**topics.COMPACTED, "min.cleanable.dirty.ratio": "1.0", "delete.retention.ms": "100"}
"""Compacted only when the test says so; deletes go with the second compaction."""

Tables = dict[tuple[str, str], dict[bytes, bytes]]


def look(world: World | FedApplication, spec: ApplicationSpec | None = None) -> TopicsInspection:
    """What the doctor finds, after which nothing in the directory has changed."""
    inspection = inspect(StateDirectory(world.state_dir, world.application_id), spec=spec)
    before = files_of(world.state_dir)
    found = inspect_topics(inspection, world.servers, spec=spec, timeout=300)
    assert inspection.holder is not None or files_of(world.state_dir) == before
    return found


def files_of(path: Path) -> dict[str, tuple[int, int]]:
    """Every file with its size and time."""
    return {str(one): (one.stat().st_size, one.stat().st_mtime_ns) for one in path.rglob("*")}


def codes(found: TopicsInspection) -> dict[tuple[str, str], tuple[str, Severity]]:
    """Code and severity by task and store; one each."""
    assert len({(one.task, one.store) for one in found.findings}) == len(found.findings)
    return {(one.task, one.store): (one.code, one.severity) for one in found.findings}


def changelog(world: World, store: str) -> str:
    return f"{world.application_id}-{store}-changelog"


def rows(world: World) -> Tables:
    """The rows of each store, by task and store; values without what stamped ones begin with."""
    found = directory.read_application(world.state_dir / world.application_id)
    return {
        (task, store): {
            key: value[8:] if store == "stamped" else value
            for name, rows in families.items()
            if name != "offsets"
            for key, value in rows
        }
        for (task, store), families in found.items()
    }


def recreate(world: World, records: Mapping[int, int], partitions: int = PARTITIONS) -> None:
    """Delete both changelogs and create them again, with so many other records by partition."""
    for topic in (changelog(world, store) for store in KINDS):
        if topics.partitions(world.servers, topic):
            topics.delete(world.servers, topic)
        topics.create(world.servers, topic, partitions, topics.UNCLEANED)
        for p, count in records.items():
            topics.produce(world.servers, topic, [Record(b"other-%d" % n, b"other", p) for n in range(count)])


def compact(broker: Broker, topic: str, partition: int, gone: bytes) -> None:
    """Compact a partition until no record of a key is left."""
    servers = broker.bootstrap_servers
    topics.configure(servers, topic, {"min.cleanable.dirty.ratio": "0.01"})
    deadline = time.monotonic() + 300
    while True:
        filler = Record(b"filler", b"%d" % time.time_ns(), partition)
        topics.compact(servers, topic, partition, broker.data_directory, filler)
        if gone not in {record.key for record in topics.read(servers, topic, partition)}:
            break
        assert time.monotonic() < deadline, "the broker kept the deletes"
    topics.configure(servers, topic, {"min.cleanable.dirty.ratio": "1.0"})


OF_EVENTS = KindsApplication(
    "events",
    tuple(
        case
        for case in PLAIN.cases
        if case.kind not in ("join-window", "list", "grace-buffer")
        and case.store not in ("grace-table", "sparse-window")
    ),
    lambda base, partitions: [(EVENTS, events(base, partitions, 60))],
    PLAIN.properties,
)
"""The stores of one topic, in the default format."""

OF_JOINS = KindsApplication(
    "joins",
    tuple(case for case in PLAIN.cases if "join-store" in case.store),
    lambda base, partitions: [one for one in feed(base, partitions) if one[0] in (LEFT, RIGHT)],
    PLAIN.properties,
)
"""The stores of an inner and of an outer join."""


def test_a_healthy_directory_gives_no_finding_running_or_closed_whatever_the_kind(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path
) -> None:
    world = KindsWorld(broker, streams_jvm, application_id, state_dir, EXACTLY_ONCE, OF_EVENTS, partitions=1)
    with world.application():
        world.feed(OF_EVENTS.feed(world.base, 1))
        assert look(world).findings == ()
    closed = look(world)
    assert closed.findings == ()
    assert not any("rows differ from its changelog" in one for one in closed.undecided)
    assert look(world, parse_spec(world.spec())) == closed
    shown: dict[str, set[Comparison]] = {}
    inspection = inspect(StateDirectory(world.state_dir, application_id))
    with Cluster(world.servers) as cluster:
        for store in logged_store_offsets(inspection):
            if store.kind in COMPARABLE_KINDS:
                ((partition, following),) = store.known.items()
                limits = ReadLimits(time.monotonic() + 300)
                newest = newest_records(ChangelogReader(cluster), partition, 0, following, limits)
                assert newest is not None
                shown[store.kind.value] = set(compare_rows(store.kind, store.databases, newest).values())
    assert len(shown) >= 8
    assert {
        kind
        for kind, seen in shown.items()
        if Comparison.EQUAL not in seen or seen - {Comparison.EQUAL, Comparison.UNDECIDED}
    } == set()


@pytest.mark.full
def test_windows_of_joins_are_right_after_late_records_and_restarts_and_a_lost_segment_is_found(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path
) -> None:
    world = KindsWorld(broker, streams_jvm, application_id, state_dir, EXACTLY_ONCE, OF_JOINS, partitions=1)
    portions = OF_JOINS.feed(world.base, 1)
    for life in (portions[:2], portions[2:]):
        with world.application():
            world.feed(life)
    spec = parse_spec(world.spec())
    found = look(world, spec)
    assert (found.findings, [one for one in found.undecided if "join" in str(one)]) == ((), [])

    store = "inner-other-join-store"
    (task,) = (path.parent.name for path in (state_dir / application_id).glob(f"*/{store}"))
    segments = segments_of(state_dir / application_id, store, task)
    with edited(segments[len(segments) // 2]) as database:
        for key in [*database.get_column_family("default").keys()]:
            database.get_column_family("default").delete(key)
    assert codes(look(world, spec)) == {(task, store): ("rows-differ", Severity.LOSS)}


def test_rows_that_kafka_streams_does_not_restore_are_not_missed(
    fleet: Fleet, application_id: str, state_dir: Path, tmp_path: Path
) -> None:
    """At-least-once 4.4 restores a store without an offset from the last record minus the retention on."""
    world = fleet.application(application_id, state_dir, "at_least_once", OF_EVENTS, 1)
    with world.on("4.4"):
        world.feed(OF_EVENTS.feed(world.base, 1))
    before = directory.read_application(state_dir / application_id)
    spec = parse_spec(world.spec())
    assert look(world, spec).findings == ()
    world.state_dir = tmp_path / "another"
    world.state_dir.mkdir()
    with world.on("4.4"):
        pass
    after = directory.read_application(world.state_dir / application_id)
    assert any(sum(map(len, after[of].values())) < sum(map(len, rows.values())) for of, rows in before.items())
    assert look(world, spec).findings == ()


@GUARANTEES
def test_a_changelog_that_was_deleted_and_created_again(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path, guarantee: str
) -> None:
    """With more records than the stores had, with fewer, not at all, and with fewer partitions."""
    world = World(broker, streams_jvm, application_id, state_dir, guarantee)
    for store in KINDS:
        topics.create(world.servers, changelog(world, store), PARTITIONS, topics.UNCLEANED)
    world.feed(keys=20)
    before = world.live()
    had = rows(world)
    assert look(world) == ((), ())
    ends = [topics.end_offset(world.servers, changelog(world, "plain"), p) for p in range(PARTITIONS)]

    recreate(world, {0: ends[0] + 5, 1: 3})
    other = world.copied("other")
    found = look(other)
    stores = [(task, store) for task in ("0_0", "0_1") for store in KINDS]
    assert codes(found) == {
        (task, store): ("topic-recreated" if task == "0_0" else "offset-past-end", Severity.LOSS)
        for task, store in stores
    }
    recreated = next(one for one in found.findings if one.code == "topic-recreated")
    assert recreated.evidence["looked_up"] == recreated.evidence["differing"] == recreated.evidence["offset"] + 1
    other.reopen()
    now = rows(other)
    for store in KINDS:
        mixed = now["0_0", store]
        assert had["0_0", store].items() <= mixed.items(), "rows that no log has"
        assert b"other-0" not in mixed, "and those that the log has before the offset are missing"
        assert mixed[b"other-%d" % (ends[0] + 4)] == b"other"
        old = {} if guarantee == EXACTLY_ONCE else had["0_1", store]
        restored_then = old | {b"other-%d" % n: b"other" for n in range(3)}
        assert now["0_1", store] in (restored_then, had["0_1", store]), "a race: sometimes the offset is believed"
    after = look(other)
    seen = {code for (task, _), (code, _) in codes(after).items() if task == "0_0"}
    assert seen == {"rows-differ"}, "rows of both logs: one key of the log is enough not to call it recreated"

    recreate(world, {}, partitions=1)
    few = world.copied("few")
    assert codes(look(few)) == {
        (task, store): ("offset-past-end" if task == "0_0" else "partition-unknown", severity)
        for (task, store), severity in zip(stores, [Severity.LOSS] * 2 + [Severity.ERROR] * 2, strict=True)
    }
    with pytest.raises(StreamsFailed, match="invalid partitions"):
        few.reopen()

    for store in KINDS:
        topics.delete(world.servers, changelog(world, store))
    gone = world.copied("gone")
    found = look(gone)
    assert codes(found) == dict.fromkeys(stores, ("topic-missing", Severity.LOSS))
    assert found.findings[0].partition == TopicPartition(changelog(world, "plain"), 0)
    answers, records = gone.reopen()
    assert records == 0
    assert topics.partitions(world.servers, changelog(world, "plain")) == PARTITIONS, "an empty one"
    now = rows(gone)
    if guarantee == EXACTLY_ONCE:
        assert all(now[key] in ({}, had[key]) for key in had), "deleted, or by the same race believed"
    else:
        assert (now, answers) == (had, before)


@pytest.mark.full
def test_a_changelog_without_records_is_restored_by_nobody(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path, tmp_path: Path
) -> None:
    world = World(broker, streams_jvm, application_id, state_dir, "at_least_once")
    log = changelog(world, "plain")
    topics.create(world.servers, log, PARTITIONS, {**topics.UNCLEANED, "cleanup.policy": "compact,delete"})
    world.feed()
    answers = world.live()
    assert look(world).findings == ()
    topics.delete_records(world.servers, log, 0, topics.end_offset(world.servers, log, 0))
    topics.configure(world.servers, log, {"retention.ms": "3600000000"})
    found = {(one.task, one.store, one.code, one.severity, one.partition) for one in look(world).findings}
    assert found == {
        *((task, "plain", "changelog-incomplete", Severity.WARNING, None) for task in ("0_0", "0_1")),
        ("0_0", "plain", "changelog-incomplete", Severity.LOSS, TopicPartition(log, 0)),
    }
    assert world.copied("whole").reopen() == (answers, 0)
    empty = tmp_path / "empty"
    empty.mkdir()
    another = world.at(empty)
    another.reopen()
    assert (rows(another)["0_0", "plain"], rows(world)["0_0", "plain"] != {}) == ({}, True)


@GUARANTEES
def test_records_and_deletes_behind_the_offset_that_are_gone(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path, guarantee: str
) -> None:
    """DeleteRecords of the log of one store, compaction of the deletes of the other."""
    world = World(broker, streams_jvm, application_id, state_dir, guarantee)
    topics.create(world.servers, changelog(world, "plain"), PARTITIONS, DELETABLE)
    topics.create(world.servers, changelog(world, "stamped"), PARTITIONS, FORGETFUL)
    world.feed(keys=20)
    world.live()
    older = world.copied("older")
    topics.produce(world.servers, world.input, [Record(b"key-%d" % n, None, n % 2) for n in (1, 2, 3, 4)])
    topics.produce(world.servers, world.input, [Record(b"key-%d" % n, b"later", n % 2) for n in range(6, 16)])
    with world.application() as running:
        topics.wait_until_consumed(world.servers, application_id, [world.input])
        right = world.answers(running)
        topics.produce(world.servers, world.input, [Record(b"key-%d" % n, b"last", n % 2) for n in range(6, 16)])
        assert look(world).findings == (), "while it restores and works"
    assert look(world) == ((), ())
    assert look(older) == ((), ()), "all of its tail is there"

    end = topics.end_offset(world.servers, changelog(world, "plain"), 0)
    topics.delete_records(world.servers, changelog(world, "plain"), 0, end - 2)
    compact(broker, changelog(world, "stamped"), 1, b"key-1")
    found = {(one.task, one.store): one for one in look(older).findings}
    assert {found["0_0", "plain"].code, found["0_1", "stamped"].code} == {"offset-before-start", "stale"}
    assert {one.code for key, one in found.items() if key[1] == "stamped"} == {"stale"}
    assert found["0_1", "stamped"].evidence["missing"] > 1
    assert found["0_1", "stamped"].severity is Severity.LOSS
    by_spec = inspect_topics(
        inspect(StateDirectory(older.state_dir, application_id)),
        world.servers,
        spec=parse_spec(dict(older.request().spec or {})),
    )
    before_start = next(one for one in by_spec.findings if one.code == "offset-before-start")
    assert before_start.severity is (Severity.ERROR if guarantee == EXACTLY_ONCE else Severity.LOSS)

    answers, _ = older.reopen()
    now = rows(older)
    assert answers["plain", 1] != right["plain", 1], "key-1 has been written again meanwhile"
    assert {b"key-1", b"key-3"} <= now["0_1", "stamped"].keys(), "deleted keys live on"
    assert not {b"key-1", b"key-3"} & now["0_1", "plain"].keys()
    assert ({b"key-2", b"key-4"} <= now["0_0", "plain"].keys()) == (guarantee != EXACTLY_ONCE)
    assert len(now["0_0", "plain"]) <= 2 or guarantee != EXACTLY_ONCE, "what is left of the log, and no more"


def test_topics_that_others_write(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path
) -> None:
    """A source topic of which the group forgot what it had consumed, global topics that retention deletes from."""
    both = KindsApplication(
        "both",
        (*SOURCES.cases, *GLOBALS.cases),
        lambda base, partitions: [*SOURCES.feed(base, partitions), *GLOBALS.feed(base, partitions)],
        SOURCES.properties,
    )
    world = KindsWorld(broker, streams_jvm, application_id, state_dir, "at_least_once", both)
    with world.application() as running:
        world.feed(both.feed(world.base, PARTITIONS))
        assert look(world).findings == ()
        expected = running.query_rows("global-plain", None)
    assert look(world) == ((), ()), "and the rows that were compared are equal"

    reference = f"{world.inputs[REFERENCE]}-1"
    with edited(database_of(world.directory, "global-table", "global")) as opened:
        family = opened.get_column_family(OFFSETS)
        del family[reference.encode()]
        family.close()
    (lacking,) = look(world).findings
    assert (lacking.code, lacking.severity, str(lacking.partition)) == ("offset-missing", Severity.LOSS, reference)
    with world.application() as running:
        assert restored(running) == {"global-table": lacking.evidence["log_end"]}, "over the rows that are there"
    assert look(world) == ((), ())

    source, prices = world.inputs[SOURCE], world.inputs[PRICES]
    end = topics.end_offset(world.servers, source, 0)
    topics.commit(world.servers, application_id, {(source, 0): 3})
    topics.configure(world.servers, prices, {"cleanup.policy": "delete", "retention.ms": "3600000000"})
    found = look(world)
    assert codes(found) == {
        ("0_0", "source-table"): ("source-ahead", Severity.LOSS),
        ("global", "global-plain"): ("global-topic-not-compacted", Severity.WARNING),
    }
    assert (found.findings[0].evidence["committed"], found.findings[0].evidence["offset"]) == (3, end - 1)

    topics.delete_records(world.servers, prices, 0, topics.end_offset(world.servers, prices, 0))
    with world.application() as running:
        assert restored(running) == {}
        world.wait({SOURCE})  # the group consumes again what the table has
        assert eventually(lambda: running.query_rows("global-plain", None), expected) == expected
    shutil.rmtree(world.directory / "global")
    with world.application() as running:
        assert len(running.query_rows("global-plain", None)) < len(expected), "an instance that begins has fewer rows"

    topics.produce(world.servers, prices, [Record(b"gone", b"before anybody reads it", 0)])
    topics.delete_records(world.servers, prices, 0, topics.end_offset(world.servers, prices, 0))
    before_start = [one for one in look(world).findings if one.code == "offset-before-start"]
    assert [(one.task, one.store, one.severity) for one in before_start] == [("global", "global-plain", Severity.ERROR)]
    application = world.application()
    application.launch()
    wiped = world.directory / "global" / "rocksdb" / "global-plain"
    assert eventually(lambda: files_of(wiped), {}) == {}, "deleted; the next start reads the topic anew"
    assert application.state != "RUNNING"
    application.close(10)
    with world.application():
        pass

    topics.forget_group(world.servers, application_id)
    ahead = [one for one in look(world).findings if one.code == "source-ahead"]
    assert {(one.task, one.evidence["committed"]) for one in ahead} == {("0_0", None), ("0_1", None)}
    topics.delete(world.servers, source)
    topics.delete(world.servers, world.inputs[REFERENCE])
    missing = [one for one in look(world).findings if one.code == "topic-missing"]
    assert {(one.store, one.severity) for one in missing} == {
        ("source-table", Severity.ERROR),
        ("global-table", Severity.ERROR),
    }
    kept = files_of(world.directory / "global")
    application = world.application()
    with pytest.raises(StreamsFailed, match="no partitions available"):
        application.launch()
    application.close(10)
    assert kept.keys() <= files_of(world.directory / "global").keys(), "it does not start, and deletes nothing"


@pytest.mark.full
def test_a_group_without_offsets_and_a_changelog_with_more_partitions(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path
) -> None:
    world = World(broker, streams_jvm, application_id, state_dir, EXACTLY_ONCE)
    world.feed(keys=20)
    world.live()
    assert look(world) == ((), ())
    plain = changelog(world, "plain")
    ends = [topics.end_offset(world.servers, plain, p) for p in range(PARTITIONS)]
    inputs = [topics.end_offset(world.servers, world.input, p) for p in range(PARTITIONS)]
    for committed in (inputs[0] - 1, inputs[0] + 1):  # behind what the stores have applied, and past the end
        topics.commit(world.servers, application_id, {(world.input, 0): committed})
        (reset,) = look(world).findings
        assert (reset.code, reset.severity) == ("group-offsets-differ", Severity.LOSS)
        assert (reset.partition, reset.evidence["committed"]) == (TopicPartition(world.input, 0), committed)
    topics.commit(world.servers, application_id, {(world.input, 0): inputs[0]})
    assert look(world) == ((), ())
    topics.forget_group(world.servers, application_id)
    (gone,) = look(world).findings
    assert (gone.code, gone.severity, len(gone.evidence["stores"])) == ("group-offsets-missing", Severity.LOSS, 4)
    again = world.copied("again")
    with again.application() as running:
        topics.wait_until_consumed(world.servers, application_id, [world.input])
        assert sum(running.restored_records().values()) == 0
    now = [topics.end_offset(world.servers, plain, p) for p in range(PARTITIONS)]
    assert all(after > before + 20 for before, after in zip(ends, now, strict=True)), "all input a second time"
    assert look(again) == ((), ())

    topics.grow(world.servers, [plain], 4)
    (grown,) = look(again).findings
    assert (grown.code, grown.severity, grown.evidence["partitions"]) == ("partitions-differ", Severity.ERROR, 4)
    with pytest.raises(StreamsFailed, match="invalid partitions"):
        again.reopen()
