"""What discover can tell, what it guesses and says so, and what it leaves to a person."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from statecore.changelog.decoder import CHANGELOG_SCHEMA
from statecore.changelog.model import LogOffsets, TopicDescription
from statecore.discover.answers import Answers
from statecore.discover.discover import discover
from statecore.discover.topology import parse_topology
from statecore.errors import Invalid, NotFound
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import ProcessingGuarantee
from statecore.spec.reader import parse_spec, read_spec
from statecore.spec.writer import spec_to_mapping, spec_to_yaml
from tests.harness.raising import raises
from tests.unit.doctor.stored import CASES, golden, offsets, write_database, write_golden

TOPOLOGY = """\
Topologies:
   Sub-topology: 0
    Source: KSTREAM-SOURCE-0000000000 (topics: [flights])
      --> KSTREAM-AGGREGATE-0000000002
    Processor: KSTREAM-AGGREGATE-0000000002 (stores: [latest, counts])
      --> none
      <-- KSTREAM-SOURCE-0000000000

   Sub-topology: 1 for global store (will not generate tasks)
    Source: KSTREAM-SOURCE-0000000003 (topics: [products])
      --> KTABLE-SOURCE-0000000004
    Processor: KTABLE-SOURCE-0000000004 (stores: [products-store])
      --> none
      <-- KSTREAM-SOURCE-0000000003

   Sub-topology: 2
    Source: KTABLE-SOURCE-0000000005 (topics: [profiles])
      --> KTABLE-SOURCE-0000000006, KSTREAM-X-0000000007
    Processor: KTABLE-SOURCE-0000000006 (stores: [profile])
      --> none
      <-- KTABLE-SOURCE-0000000005
    Processor: KSTREAM-X-0000000007 (stores: [])
      --> KTABLE-SUPPRESS-0000000008
      <-- KTABLE-SOURCE-0000000005
    Processor: KTABLE-SUPPRESS-0000000008 (stores: [KTABLE-SUPPRESS-STATE-STORE-0000000009])
      --> KSTREAM-SINK-0000000010
      <-- KSTREAM-X-0000000007
    Sink: KSTREAM-SINK-0000000010 (topic: out)
      <-- KTABLE-SUPPRESS-0000000008

"""
COMPACT = {"cleanup.policy": "compact", "min.compaction.lag.ms": "0"}


class FakeCluster:
    """The parts of a cluster that discover asks."""

    bootstrap_servers = "localhost:9092"

    def __init__(self, topics: dict[str, dict[str, str]], ends: dict[str, LogOffsets] | None = None):
        self.topics, self.ends = topics, ends or {}

    def list_topics(self):
        return sorted(self.topics)

    def describe_topics(self, names):
        return {name: TopicDescription(name, "0" * 32, 2, self.topics[name]) for name in names}

    def log_offsets(self, partitions):
        return {part: self.ends.get(part.topic, LogOffsets(0, 0, 0)) for part in partitions}


TOPICS = {
    "flights": COMPACT,
    "products": COMPACT,
    "profiles": COMPACT,
    "app-latest-changelog": COMPACT,
    "app-counts-changelog": COMPACT,
    "app-KTABLE-SUPPRESS-STATE-STORE-0000000009-changelog": COMPACT,
}


def found(spec, name):
    store = spec.store(name)
    assert store is not None, name
    return store


def make_store(directory: Path, kind: StoreKind, partition: TopicPartition | None = None) -> None:
    families = {"default": [], "offsets": offsets(partition.topic, partition.partition, 5) if partition else []}
    write_database(directory, {**families, kind.data_column_family: []})


def make_families(directory: Path, *families: str) -> None:
    write_database(directory, {"default": [], **{family: [] for family in families}})


def test_the_description_of_a_topology_is_parsed():
    parsed = {part.number: part for part in parse_topology(TOPOLOGY)}
    assert parsed[0].stores == {"latest": {"flights"}, "counts": {"flights"}}
    assert (parsed[1].is_global, parsed[1].stores) == (True, {"products-store": {"products"}})
    assert parsed[2].stores == {"profile": {"profiles"}, "KTABLE-SUPPRESS-STATE-STORE-0000000009": set()}
    with raises(Invalid, "topology-invalid"):
        parse_topology("something else", "describe.txt")


def test_a_store_can_be_called_like_the_end_of_a_topology():
    parsed = parse_topology(TOPOLOGY.replace("counts", "none"))
    assert parsed[0].stores == {"latest": {"flights"}, "none": {"flights"}}


BY_NAME = """\
Topologies:
   Sub-topology: 0
    Processor: KSTREAM-JOIN-0000000006 (stores: [customers-store])
      --> KSTREAM-SINK-0000000007
      <-- KSTREAM-SOURCE-0000000000
    Sink: KSTREAM-SINK-0000000007 (topic: enriched)
      <-- KSTREAM-JOIN-0000000006, KSTREAM-SOURCE-0000000003
    Source: KSTREAM-SOURCE-0000000000 (topics: [orders])
      --> KSTREAM-JOIN-0000000006
    Source: KSTREAM-SOURCE-0000000003 (topics: [customers])
      --> KTABLE-SOURCE-0000000004, KSTREAM-SINK-0000000007
    Processor: KTABLE-SOURCE-0000000004 (stores: [customers-store])
      --> none
      <-- KSTREAM-SOURCE-0000000003

   Sub-topology: 2
    Processor: KSTREAM-AGGREGATE-0000000009 (stores: [counts])
      --> none
      <-- by-product-repartition-source
    Source: by-product-repartition-source (topics: [shop-by-product-repartition])
      --> KSTREAM-AGGREGATE-0000000009

   Sub-topology: 2 for global store (will not generate tasks)
    Source: KSTREAM-SOURCE-0000000001 (topics: [products])
      --> KTABLE-SOURCE-0000000002
    Processor: KTABLE-SOURCE-0000000002 (stores: [products-store])
      --> none
      <-- KSTREAM-SOURCE-0000000001
"""
"""As ``kafka-streams-groups.sh --describe --topology`` prints it: by name, so that sources stand below others."""


def test_the_order_of_nodes_does_not_matter():
    parsed = parse_topology(BY_NAME)
    assert [(part.number, part.is_global, part.store_inputs) for part in parsed] == [
        (
            0,
            False,
            {"customers-store": {"KSTREAM-JOIN-0000000006": {"orders"}, "KTABLE-SOURCE-0000000004": {"customers"}}},
        ),
        (2, False, {"counts": {"KSTREAM-AGGREGATE-0000000009": {"shop-by-product-repartition"}}}),
        (2, True, {"products-store": {"KTABLE-SOURCE-0000000002": {"products"}}}),
    ]


def test_the_topology_gives_subtopologies_and_changelogs_but_no_kinds():
    spec, notes = discover(FakeCluster(TOPICS), "app", topology_text=TOPOLOGY)
    assert {(store.name, store.subtopology, store.changelog, str(store.kind)) for store in spec.stores} == {
        ("latest", 0, "app-latest-changelog", "?"),
        ("counts", 0, "app-counts-changelog", "?"),
        ("profile", 2, "profiles", "?"),
        (
            "KTABLE-SUPPRESS-STATE-STORE-0000000009",
            2,
            "app-KTABLE-SUPPRESS-STATE-STORE-0000000009-changelog",
            "in-memory",
        ),
    }
    assert [(store.name, store.changelog, store.is_global) for store in spec.global_stores] == [
        ("products-store", "products", True)
    ]
    assert "restored from profiles" in notes.by_name["profile"]
    assert any("Replace every '?'" in line for line in notes.general)
    text = spec_to_yaml(spec, header=tuple(notes.general), notes=notes.by_name)
    assert read_spec(text) == spec
    assert "# restored from profiles" in text


@pytest.mark.parametrize("topology", [None, TOPOLOGY])
def test_a_changelog_of_another_application_is_not_adopted_where_the_own_exists(tmp_path, topology):
    theirs = TopicPartition("app-v2-latest-changelog", 0)
    make_store(tmp_path / "app/0_0/rocksdb/latest", StoreKind.KEY_VALUE, theirs)
    topics = {**TOPICS, theirs.topic: COMPACT}
    spec, notes = discover(FakeCluster(topics), "app", state_dir=tmp_path, topology_text=topology)
    assert found(spec, "latest").changelog == "?"
    assert [one.changelogs for one in notes.open if one.store == "latest"] == [("app-latest-changelog", theirs.topic)]
    assert "the application app-v2 (its store latest)" in notes.by_name["latest"]
    assert not any("the topic app-latest-changelog" in line for line in notes.general)
    declared = Answers(changelogs={"latest": theirs.topic})
    spec, _ = discover(FakeCluster(topics), "app", state_dir=tmp_path, topology_text=topology, answers=declared)
    assert found(spec, "latest").changelog == theirs.topic
    # Without a changelog of its own it may be a table of that topic, and the name is reported.
    del topics["app-latest-changelog"]
    spec, notes = discover(FakeCluster(topics), "app", state_dir=tmp_path, topology_text=topology)
    assert found(spec, "latest").changelog == theirs.topic
    assert "the application app-v2 (its store latest)" in notes.by_name["latest"]


def test_a_longer_name_of_an_own_store_is_no_other_application(tmp_path):
    own = TopicPartition("app-v2-latest-changelog", 0)
    make_store(tmp_path / "app/0_0/rocksdb/latest", StoreKind.KEY_VALUE, TopicPartition("app-latest-changelog", 0))
    make_store(tmp_path / "app/0_0/rocksdb/v2-latest", StoreKind.KEY_VALUE, own)
    spec, notes = discover(FakeCluster({**TOPICS, own.topic: COMPACT}), "app", state_dir=tmp_path)
    assert found(spec, "v2-latest").changelog == own.topic
    assert found(spec, "latest").changelog == "app-latest-changelog"
    assert not notes.by_name.keys() & {"latest", "v2-latest"}


@pytest.mark.parametrize("name", ["a\nb: 1s", "a\x85b", "a\u2028b", "a\tb", "\udcff", "x" * 250])
@pytest.mark.parametrize("topology", [None, TOPOLOGY])
def test_a_store_whose_name_no_spec_allows_is_left_out_and_reported_in_one_line(tmp_path, name, topology):
    make_store(tmp_path / "app/0_0/rocksdb/latest", StoreKind.KEY_VALUE, TopicPartition("app-latest-changelog", 0))
    (tmp_path / "app/0_0/rocksdb" / name).mkdir()
    spec, notes = discover(FakeCluster(TOPICS), "app", state_dir=tmp_path, topology_text=topology)
    assert spec.store(name) is None
    assert len([line for line in notes.general if line.startswith(f"The store {name!r} was left out")]) == 1
    assert read_spec(spec_to_yaml(spec, header=tuple(notes.general), notes=notes.by_name)) == spec


@pytest.mark.parametrize("name", ["größe", "a b", "a: b", "#a", "\N{DRAGON}", '"', "\\", "*"])
@pytest.mark.parametrize("in_topology", [True, False])
def test_a_store_whose_name_no_topic_can_have_is_not_logged(tmp_path, name, in_topology):
    make_store(tmp_path / "app/0_0/rocksdb" / name, StoreKind.KEY_VALUE)
    topology = TOPOLOGY.replace("counts", name) if in_topology else None
    spec, notes = discover(FakeCluster(TOPICS), "app", state_dir=tmp_path, topology_text=topology)
    assert found(spec, name).changelog == "none"
    assert not any("left out" in line for line in notes.general)
    assert read_spec(spec_to_yaml(spec, header=tuple(notes.general), notes=notes.by_name)) == spec
    assert parse_spec(spec_to_mapping(spec)) == spec


def test_a_store_in_memory_and_a_global_one_whose_names_no_topic_can_have(tmp_path):
    make_store(tmp_path / "app/0_0/rocksdb/latest", StoreKind.KEY_VALUE, TopicPartition("app-latest-changelog", 0))
    topology = TOPOLOGY.replace("counts", "größe").replace("products-store", "a b")
    spec, notes = discover(FakeCluster(TOPICS), "app", state_dir=tmp_path, topology_text=topology)
    assert (found(spec, "größe").kind, found(spec, "größe").changelog) == (StoreKind.IN_MEMORY, "none")
    assert spec.global_stores == ()
    assert any(line.startswith("The store 'a b' was left out") for line in notes.general)
    assert read_spec(spec_to_yaml(spec, notes=notes.by_name)) == spec


def test_a_state_directory_shows_kinds_tasks_and_changelogs(tmp_path):
    tasks = tmp_path / "app"
    make_store(tasks / "0_1/rocksdb/latest", StoreKind.KEY_VALUE, TopicPartition("app-latest-changelog", 1))
    make_store(tasks / "0_1/rocksdb/counts", StoreKind.TIMESTAMPED_KEY_VALUE, TopicPartition("app-counts-changelog", 1))
    make_store(tasks / "2_0/rocksdb/profile", StoreKind.TIMESTAMPED_KEY_VALUE, TopicPartition("profiles", 0))
    make_store(tasks / "global/rocksdb/products-store", StoreKind.TIMESTAMPED_KEY_VALUE, TopicPartition("products", 0))
    before = sorted(path.relative_to(tasks) for path in tasks.rglob("*"))
    spec, notes = discover(FakeCluster(TOPICS), "app", state_dir=tmp_path)
    assert [(store.name, store.subtopology, str(store.kind), store.changelog) for store in spec.stores] == [
        ("counts", 0, "timestamped-key-value", "app-counts-changelog"),
        ("latest", 0, "key-value", "app-latest-changelog"),
        ("profile", 2, "timestamped-key-value", "profiles"),
    ]
    assert [(store.name, str(store.kind)) for store in spec.global_stores] == [
        ("products-store", "timestamped-key-value")
    ]
    assert any("only in memory" in line for line in notes.general)
    assert any("KTABLE-SUPPRESS" in line for line in notes.general)
    assert sorted(path.relative_to(tasks) for path in tasks.rglob("*")) == before


@pytest.mark.parametrize(("status", "shown"), [(None, True), (0, False), (1, False)])
@pytest.mark.parametrize("told", [False, True])
def test_a_state_directory_shows_transactional_stores(tmp_path, status, shown, told):
    written = offsets("app-latest-changelog", 1, 5, status=status)
    write_database(tmp_path / "app/0_1/rocksdb/latest", {"default": [], "offsets": written})
    spec, notes = discover(FakeCluster(TOPICS), "app", state_dir=tmp_path, transactional_state_stores=told)
    assert spec.transactional_state_stores is (shown or told)
    assert ("transactional_state_stores" in notes.by_name) is (shown and not told)
    assert read_spec(spec_to_yaml(spec, notes=notes.by_name)) == spec


@pytest.mark.parametrize(
    ("place", "families", "kind"),
    [
        ("rocksdb/s", ("offsets",), "key-value"),
        ("rocksdb/s", ("offsets", "keyValueWithTimestamp"), "timestamped-key-value"),
        ("rocksdb/s", ("offsets", "keyValueWithTimestampAndHeaders"), "headers-key-value"),
        ("rocksdb/s", ("offsets", "keyValueWithTimestamp", "keyValueWithTimestampAndHeaders"), "headers-key-value"),
        ("rocksdb/s", ("offsets", "somethingNew"), "?"),
        ("rocksdb/s", (), "key-value"),
        ("s/s.60000", ("offsets", "keyValueWithTimestamp"), "timestamped-window"),
        ("s/s.60000", ("offsets", "keyValueWithTimestampAndHeaders"), "headers-window"),
        ("s/s.60000", ("offsets",), "?"),
        ("s/s.60000", ("offsets", "sessionKeyValueWithHeaders"), "?"),
    ],
)
def test_column_families_decide_a_kind_only_if_it_is_certain(tmp_path, place, families, kind):
    make_families(tmp_path / "app/0_0" / place, *families)
    spec, _ = discover(FakeCluster({"app-s-changelog": COMPACT}), "app", state_dir=tmp_path)
    assert str(found(spec, "s").kind) == kind


@pytest.mark.parametrize(
    ("configs", "kind", "retention"),
    [
        (COMPACT, "?", None),
        ({"cleanup.policy": "compact", "min.compaction.lag.ms": "87000000"}, "versioned-key-value", 600_000),
        ({"cleanup.policy": "compact,delete", "retention.ms": "90000000"}, "?", 3_600_000),
        ({"cleanup.policy": "delete", "retention.ms": "90000000"}, "join-window", 3_600_000),
        ({"cleanup.policy": "delete", "retention.ms": "86400000"}, "join-window", 0),
        ({"cleanup.policy": "compact", "min.compaction.lag.ms": "86400000"}, "versioned-key-value", 0),
        ({"cleanup.policy": "something else"}, "?", None),
    ],
)
def test_the_configuration_of_a_changelog_gives_retentions(configs, kind, retention):
    topology = "   Sub-topology: 0\n    Processor: P (stores: [s])\n      --> none\n"
    spec, notes = discover(FakeCluster({"app-s-changelog": configs}), "app", topology_text=topology)
    store = found(spec, "s")
    assert (str(store.kind), store.retention_ms) == (kind, retention)
    assert ("one of" in notes.by_name.get("s", "")) is (kind == "?" and configs["cleanup.policy"] == "compact")
    assert ("derived from" in notes.by_name.get("s", "")) is (retention is not None)
    assert read_spec(spec_to_yaml(spec, notes=notes.by_name)) == spec


def test_topology_and_directory_together_and_where_they_disagree(tmp_path):
    make_store(tmp_path / "app/0_0/rocksdb/latest", StoreKind.KEY_VALUE, TopicPartition("app-latest-changelog", 0))
    make_store(tmp_path / "app/3_0/rocksdb/counts", StoreKind.KEY_VALUE)
    make_store(tmp_path / "app/3_0/rocksdb/gone", StoreKind.KEY_VALUE)
    spec, notes = discover(FakeCluster(TOPICS), "app", state_dir=tmp_path, topology_text=TOPOLOGY)
    assert (str(found(spec, "latest").kind), found(spec, "latest").subtopology) == ("key-value", 0)
    assert found(spec, "counts").subtopology == 0
    assert "in subtopology 3" in notes.by_name["counts"]
    assert any(line.startswith("gone ") for line in notes.general)


def test_a_store_without_a_topic_is_written_undecided_and_reported():
    topics = {name: TOPICS[name] for name in TOPICS if name != "app-latest-changelog" and name != "flights"}
    spec, notes = discover(FakeCluster(topics), "app", topology_text=TOPOLOGY)
    assert found(spec, "latest").changelog == "?"
    assert "'changelog: none'" in notes.by_name["latest"]
    assert read_spec(spec_to_yaml(spec, notes=notes.by_name)) == spec


FED = """\
Topologies:
   Sub-topology: 0
    Source: {source} (topics: [profiles])
      --> {processor}, KSTREAM-JOIN-0000000009
    Source: KSTREAM-SOURCE-0000000001 (topics: [clicks])
      --> KSTREAM-JOIN-0000000009
    Processor: {processor} (stores: [s])
      --> none
      <-- {source}
    Processor: KSTREAM-JOIN-0000000009 (stores: [s])
      --> none
      <-- KSTREAM-SOURCE-0000000001
"""


@pytest.mark.parametrize(
    ("source", "processor", "changelog", "said"),
    [
        # A table, though a stream of another source joins it; then stores that only look like one.
        ("KSTREAM-SOURCE-0000000004", "KTABLE-SOURCE-0000000005", "profiles", "whose table it is"),
        ("KSTREAM-SOURCE-0000000004", "KSTREAM-TOTABLE-0000000005", "?", "'changelog: none' if"),
        ("KSTREAM-SOURCE-0000000004", "KSTREAM-AGGREGATE-0000000005", "?", "'changelog: none' if"),
        ("KSTREAM-SOURCE-0000000004", "KSTREAM-PROCESSOR-0000000005", "?", "'changelog: none' if"),
        ("people-source", "people", "?", "profiles if it is restored from that topic"),
        ("reads-profiles", "KeepProfiles", "?", "profiles if it is restored from that topic"),
    ],
)
def test_a_source_topic_is_a_changelog_only_of_its_own_table(source, processor, changelog, said):
    topics = {"profiles": COMPACT, "clicks": COMPACT, "app-other-changelog": COMPACT}
    spec, notes = discover(FakeCluster(topics), "app", topology_text=FED.format(source=source, processor=processor))
    assert found(spec, "s").changelog == changelog
    assert said in notes.by_name["s"]
    assert ("profiles" in notes.by_name["s"]) is (said != "'changelog: none' if")


@pytest.mark.parametrize(
    ("status", "topics", "changelog"),
    [
        (0, ["profiles"], "none"),
        # Not closed: the offset may have been lost with the process. Then, both are possible.
        (1, ["profiles"], "profiles"),
        (0, ["profiles", "app-profile-changelog"], "?"),
        (1, ["profiles", "app-profile-changelog"], "app-profile-changelog"),
    ],
)
def test_a_directory_that_was_closed_without_an_offset_is_of_a_store_that_is_not_logged(
    tmp_path, status, topics, changelog
):
    families = {"default": [], "keyValueWithTimestamp": [], "offsets": [(b"status", status.to_bytes(8))]}
    write_database(tmp_path / "app/2_0/rocksdb/profile", families)
    cluster = FakeCluster(dict.fromkeys([*topics, "app-other-changelog"], COMPACT))
    spec, notes = discover(cluster, "app", state_dir=tmp_path, topology_text=TOPOLOGY)
    assert found(spec, "profile").changelog == changelog
    assert "profile" in notes.by_name or changelog.startswith("app-")
    assert read_spec(spec_to_yaml(spec, notes=notes.by_name)) == spec


def test_without_a_source_or_without_a_store_it_is_an_error(tmp_path):
    with raises(Invalid, "option-missing"):
        discover(FakeCluster(TOPICS), "app")
    with raises(NotFound, "application-without-stores", application_id="app"):
        discover(FakeCluster(TOPICS), "app", state_dir=tmp_path)


@pytest.mark.parametrize(
    ("offsets", "last_is_marker", "expected", "guessed"),
    [
        (LogOffsets(0, 0, 0), False, ProcessingGuarantee.AT_LEAST_ONCE, True),
        (LogOffsets(0, 9, 9), False, ProcessingGuarantee.AT_LEAST_ONCE, True),
        (LogOffsets(0, 9, 9), True, ProcessingGuarantee.EXACTLY_ONCE_V2, False),
        (LogOffsets(0, 7, 9), False, ProcessingGuarantee.EXACTLY_ONCE_V2, False),
    ],
)
def test_transaction_markers_show_the_guarantee(offsets, last_is_marker, expected, guessed):
    class FakeReader:
        def read(self, range, isolation, *, headers=False):
            if headers:  # a sample for the kind
                return []
            assert (range.start, range.end) == (8, 9)
            row = {"key": [b"k"], "value": [b"v"], "offset": [8], "timestamp": [1]}
            return [] if last_is_marker else [pa.RecordBatch.from_pydict(row, CHANGELOG_SCHEMA)]

    cluster, reader = FakeCluster(TOPICS, {"app-latest-changelog": offsets}), FakeReader()
    spec, notes = discover(cluster, "app", topology_text=TOPOLOGY, reader=reader)
    assert spec.processing_guarantee is expected
    assert ("processing_guarantee" in notes.by_name) is guessed
    guarantee = ProcessingGuarantee.EXACTLY_ONCE_V2
    told = discover(cluster, "app", topology_text=TOPOLOGY, processing_guarantee=guarantee, reader=reader)
    assert told.spec.processing_guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2
    assert "processing_guarantee" not in told.notes.by_name


def topic_of(case: dict) -> dict[str, str]:
    """The configuration that Kafka Streams gives to the changelog of a golden store."""
    kind, retention = StoreKind(case["kind"]), case.get("retention_ms", 0)
    if kind.is_versioned:
        return {"cleanup.policy": "compact", "min.compaction.lag.ms": str(retention + 86_400_000)}
    if case["case"].startswith(("join-window", "headers-window-of-join")):
        return {"cleanup.policy": "delete", "retention.ms": str(retention + 86_400_000)}
    if kind.is_segmented and retention:
        return {"cleanup.policy": "compact,delete", "retention.ms": str(retention + 86_400_000)}
    return COMPACT


@pytest.mark.parametrize("case", CASES)
def test_what_kafka_streams_left_is_written_into_the_spec_with_its_times(tmp_path, case):
    made = write_golden(tmp_path / made_id(case), case)
    spec, notes = discover(FakeCluster({made["changelog"]: topic_of(made)}), made_id(case), state_dir=tmp_path)
    store = found(spec, made["store"])
    alike = {"headers-emit-final-sliding-window": "headers-emit-final-window"}
    assert str(store.kind) == alike.get(made["kind"], made["kind"])
    assert (store.retention_ms, store.segment_interval_ms) == (made.get("retention_ms"), None)
    assert store.changelog == made["changelog"]
    remarks = notes.by_name.get(store.name, "")
    assert not any(word in remarks for word in ("guess", "one of", "contradicts", "by its"))
    assert read_spec(spec_to_yaml(spec, notes=notes.by_name)) == spec


def made_id(case: str) -> str:
    """The application id of a golden file, which its changelog begins with."""
    made = golden(case)
    return made["changelog"].removesuffix(f"-{made['store']}-changelog")


@pytest.mark.parametrize(
    ("starts", "retention", "interval", "said"),
    [
        ((600_000, 900_000), 600_000, None, "is derived from its topic's retention.ms; check it"),
        # Stores.persistentWindowStore with another retention than the windows the topic is made for.
        ((1_400_000, 2_100_000), 1_400_000, None, "derived from its segments of 700s, which contradict its topic's"),
        ((660_000, 780_000), 600_000, 60_000, "segment_interval 1m from its segments, which do not fit it"),
    ],
)
def test_segments_override_a_contradicting_topic_retention(tmp_path, starts, retention, interval, said):
    for start in starts:
        rows = [(b"k" + (start + 1).to_bytes(8) + bytes(4), bytes(8) + b"v")]
        write_database(tmp_path / f"app/0_0/s/s.{start}", {"default": [], "keyValueWithTimestamp": rows, "offsets": []})
    topics = {"app-s-changelog": {"cleanup.policy": "compact,delete", "retention.ms": str(600_000 + 86_400_000)}}
    spec, notes = discover(FakeCluster(topics), "app", state_dir=tmp_path)
    store = found(spec, "s")
    assert (store.retention_ms, store.segment_interval_ms) == (retention, interval)
    assert said in notes.by_name["s"]


def test_a_windowed_store_without_a_known_retention_says_that_one_is_to_be_added(tmp_path):
    make_families(tmp_path / "app/0_0/s/s.60000", "keyValueWithTimestamp", "offsets")
    topics = {"app-s-changelog": {"cleanup.policy": "compact,delete", "retention.ms": "-1"}}
    spec, notes = discover(FakeCluster(topics), "app", state_dir=tmp_path)
    assert found(spec, "s").retention_ms is None
    assert "add 'retention'" in notes.by_name["s"]


def test_a_topic_that_contradicts_the_rows_is_ignored_and_reported(tmp_path):
    made = write_golden(tmp_path / made_id("key-value"), "key-value")
    topics = {made["changelog"]: {"cleanup.policy": "compact", "min.compaction.lag.ms": "90000000"}}
    spec, notes = discover(FakeCluster(topics), made_id("key-value"), state_dir=tmp_path)
    assert str(found(spec, made["store"]).kind) == "key-value"
    assert "contradicts" in notes.by_name[made["store"]]


def test_a_store_whose_tasks_have_directories_and_it_has_none_is_in_memory(tmp_path):
    make_store(tmp_path / "app/0_0/rocksdb/latest", StoreKind.KEY_VALUE, TopicPartition("app-latest-changelog", 0))
    spec, notes = discover(FakeCluster(TOPICS), "app", state_dir=tmp_path, topology_text=TOPOLOGY)
    assert str(found(spec, "counts").kind) == "in-memory"
    assert "added since" in notes.by_name["counts"]


GLOBALS = """\
Topologies:
   Sub-topology: 0 for global store (will not generate tasks)
    Source: {source} (topics: [products])
      --> {processor}
    Processor: {processor} (stores: [{store}])
      --> none
      <-- {source}
"""


@pytest.mark.parametrize(
    ("source", "processor", "store", "reprocess", "noted"),
    [
        ("KSTREAM-SOURCE-0000000001", "KTABLE-SOURCE-0000000002", "products", False, "add 'reprocess: true' if"),
        ("KSTREAM-SOURCE-0000000001", "KTABLE-SOURCE-0000000002", "products-STATE-STORE-0000000000", False, ""),
        ("named-source", "named", "products", False, "add 'reprocess: true' if"),
        ("global-source", "FillProducts", "products", True, "restore refuses it"),
    ],
)
def test_a_global_store_that_user_code_fills_is_marked(source, processor, store, reprocess, noted):
    text = GLOBALS.format(source=source, processor=processor, store=store)
    spec, notes = discover(FakeCluster(TOPICS), "app", topology_text=text)
    (global_store,) = spec.global_stores
    assert (global_store.name, global_store.reprocess) == (store, reprocess)
    assert noted in notes.by_name.get(store, "")
    assert ("reprocess" in notes.by_name.get(store, "")) is ("reprocess" in noted)
    assert read_spec(spec_to_yaml(spec, notes=notes.by_name)) == spec


def test_a_store_of_no_known_class_stays_undecided_and_says_why(tmp_path):
    make_families(tmp_path / "app/0_0/rocksdb/s", "offsets", "somethingNew")
    spec, notes = discover(FakeCluster({"app-s-changelog": COMPACT}), "app", state_dir=tmp_path)
    assert str(found(spec, "s").kind) == "?"
    assert "somethingNew" in notes.by_name["s"]


def test_an_application_of_which_the_cluster_has_nothing_is_not_found():
    asked = []

    class Committed(FakeCluster):
        """One in which the group of one application has committed."""

        def leader(self, partition):
            pass

        def deadline(self):
            return 0.0

        def run(self, question, cluster, group, partitions, deadline):
            asked.append((group, sorted(map(str, partitions))))
            return dict.fromkeys(partitions, 5 if group == "app" else None)

    cluster = Committed(dict.fromkeys(("flights", "products", "profiles"), COMPACT))
    with raises(NotFound, "application-not-found", application_id="apq") as refused:
        discover(cluster, "apq", topology_text=TOPOLOGY)
    assert "Check the application id" in refused.value.action
    # One whose stores have no changelog of their own has committed at least.
    spec, _ = discover(cluster, "app", topology_text=TOPOLOGY)
    assert found(spec, "profile").changelog == "profiles"
    every = [f"{topic}-{part}" for topic in ("flights", "products", "profiles") for part in (0, 1)]
    assert asked == [("apq", every), ("app", every)]


def test_declared_stores_are_used_if_nothing_contradicts_them():
    topics = {name: TOPICS[name] for name in TOPICS if name != "app-counts-changelog"}
    told = Answers({"latest": StoreKind.TIMESTAMPED_KEY_VALUE, "counts": StoreKind.KEY_VALUE}, {"counts": "none"})
    spec, notes = discover(FakeCluster(topics), "app", topology_text=TOPOLOGY, answers=told)
    assert str(found(spec, "latest").kind) == "timestamped-key-value"
    assert (str(found(spec, "counts").kind), found(spec, "counts").changelog) == ("key-value", "none")
    assert [one.store for one in notes.open] == ["products-store", "profile"]
    for wrong, code, context in (
        (Answers({"latset": StoreKind.KEY_VALUE}), "store-unknown", {"stores": ["latset"]}),
        (
            Answers({"latest": StoreKind.TIMESTAMPED_WINDOW}),
            "kind-mismatch",
            {"store": "latest", "kind": "timestamped-window"},
        ),
        (Answers({}, {"latest": "nowhere"}), "topic-unknown", {"topics": ["nowhere"]}),
    ):
        with raises(Invalid, code, **context):
            discover(FakeCluster(topics), "app", topology_text=TOPOLOGY, answers=wrong)
    spec, _ = discover(
        FakeCluster(topics), "app", topology_text=TOPOLOGY, answers=Answers({"latest": StoreKind.IN_MEMORY})
    )
    assert str(found(spec, "latest").kind) == "in-memory"


def test_an_option_declares_that_a_dsl_store_keeps_headers():
    store = "KSTREAM-JOINTHIS-0000000004-store"
    topology = f"   Sub-topology: 0\n    Processor: KSTREAM-WINDOWED-0000000003 (stores: [{store}])\n      --> none\n"
    cluster = FakeCluster({f"app-{store}-changelog": {"cleanup.policy": "delete", "retention.ms": "90000000"}})
    for told, kind in (({}, "join-window"), ({store: StoreKind.HEADERS_WINDOW}, "headers-window")):
        spec, _ = discover(cluster, "app", topology_text=topology, answers=Answers(told))
        assert (str(found(spec, store).kind), found(spec, store).retention_ms) == (kind, 3_600_000)


def test_whatever_is_open_is_asked_once_and_answers_bring_retentions():
    config = {"cleanup.policy": "compact,delete", "retention.ms": "90000000"}
    asked = []

    def ask(stores):
        asked.append([one.store for one in stores])
        return Answers({"counts": StoreKind.SESSION})

    spec, notes = discover(
        FakeCluster({**TOPICS, "app-counts-changelog": config}), "app", topology_text=TOPOLOGY, ask=ask
    )
    assert asked == [["counts", "latest", "products-store", "profile"]]
    assert (str(found(spec, "counts").kind), found(spec, "counts").retention_ms) == ("session", 3_600_000)
    assert [one.store for one in notes.open] == ["latest", "products-store", "profile"]
    assert sum("Replace every '?'" in line for line in notes.general) == 1
    assert any("latest (subtopology 0): " in line for line in notes.general)
    assert max(map(len, notes.general)) < 200  # the prompt lists all kinds, the spec does not


@pytest.mark.parametrize(
    ("store_format", "kind", "noted"),
    [
        (None, "timestamped-key-value", True),
        ("DEFAULT", "timestamped-key-value", False),
        ("HEADERS", "headers-key-value", False),
    ],
)
def test_the_format_of_the_dsl_decides_the_stores_it_made(store_format, kind, noted):
    name = "KTABLE-FK-JOIN-SUBSCRIPTION-STATE-STORE-0000000004"
    topology = f"   Sub-topology: 0\n    Processor: P (stores: [{name}])\n      --> none\n"
    cluster = FakeCluster({f"app-{name}-changelog": COMPACT})
    spec, notes = discover(cluster, "app", topology_text=topology, dsl_store_format=store_format)
    assert str(found(spec, name).kind) == kind
    assert any("dsl.store.format" in line for line in notes.general) is noted
