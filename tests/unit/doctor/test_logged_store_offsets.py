"""Which offsets Kafka Streams goes by, of which topics, and where the rows lie."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from statecore.doctor.diagnosis import inspect
from statecore.doctor.logged_store_offsets import DatabasePath, LoggedStoreOffsets, logged_store_offsets
from statecore.doctor.topic_findings import source_partitions
from statecore.formats.checkpoint import encode_checkpoint
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.reader import parse_spec
from statecore.statedir.state_directory import StateDirectory
from tests.unit.doctor.stored import offsets, write_database, write_golden

TOPIC = "app-s-changelog"
CHANGELOG = TopicPartition(TOPIC, 1)
SPEC = {
    "application_id": "app",
    "bootstrap_servers": "localhost:1",
    "processing_guarantee": "at_least_once",
    "subtopologies": {"0": {"stores": {"s": {"kind": "key-value", "changelog": "profiles"}}}},
    "global_stores": {"g": {"kind": "key-value", "topic": "prices"}},
}


def said(tmp_path: Path, spec: dict[str, object] | None = None) -> dict[tuple[str, str], LoggedStoreOffsets]:
    declared = None if spec is None else parse_spec(spec)
    found = logged_store_offsets(inspect(StateDirectory(tmp_path, "app"), spec=declared), declared)
    return {(one.task, one.store): one for one in found}


def written(tmp_path: Path, task: str = "0_1", store: str = "s", **of_offsets: int | None) -> Path:
    path = tmp_path / "app" / task / "rocksdb" / store
    topic = f"app-{store}-changelog" if task != "global" else "prices"
    families = {"default": [(b"k", b"v")]}
    if of_offsets:
        families["offsets"] = list(offsets(topic, 1, of_offsets["offset"] or 0, of_offsets.get("status", 0)))
    write_database(path, families)
    return path


def test_of_a_store_its_database_says_what_it_has_not(tmp_path: Path) -> None:
    path = written(tmp_path, offset=7)
    one = said(tmp_path)["0_1", "s"]
    assert (one.known, one.partitions, one.default_changelog) == ({CHANGELOG: 8}, [CHANGELOG], "app-s-changelog")
    assert one.databases == (DatabasePath(path),)
    assert (one.closed, one.in_use, one.readable, one.is_global) == (True, False, True, False)


@pytest.mark.parametrize("spec", [None, SPEC])
@pytest.mark.parametrize("has_original", [True, False])
def test_the_changelog_of_a_copied_store_is_no_source(
    tmp_path: Path, spec: dict[str, object] | None, has_original: bool
) -> None:
    original, copy = written(tmp_path, offset=7), tmp_path / "app" / "0_1" / "rocksdb" / "copy"
    shutil.copytree(original, copy)
    if not has_original:
        shutil.rmtree(original)
    stores = said(tmp_path, spec)
    one = stores["0_1", "copy"]
    assert one.known == {CHANGELOG: 8}
    assert one.is_source("profiles")
    assert one.is_source(TOPIC) is (spec is None and not has_original)
    assert source_partitions([*stores.values()], [CHANGELOG]) == ([CHANGELOG] if one.is_source(TOPIC) else [])


def test_a_declared_source_topic_is_one_though_it_is_the_changelog_of_another_store(tmp_path: Path) -> None:
    """A table may be read from a changelog of the application itself."""
    written(tmp_path, offset=7)
    write_database(tmp_path / "app/0_1/rocksdb/view", {"default": [(b"k", b"v")], "offsets": offsets(TOPIC, 1, 7)})
    stores = {"s": {"kind": "key-value"}, "view": {"kind": "key-value", "changelog": TOPIC}}
    for declared, is_source in (({"s": stores["s"]}, False), (stores, True)):
        found = said(tmp_path, {**SPEC, "subtopologies": {"0": {"stores": declared}}})
        assert found["0_1", "view"].is_source(TOPIC) is is_source
        assert not found["0_1", "s"].is_source(TOPIC)


def test_of_a_global_store_the_offset_is_what_it_has_not(tmp_path: Path) -> None:
    written(tmp_path, "global", "g", offset=7)
    one = said(tmp_path)["global", "g"]
    assert (one.known, one.is_global, one.default_changelog) == ({TopicPartition("prices", 1): 7}, True, "")


@pytest.mark.parametrize("file", [False, True])
def test_of_a_global_store_only_offsets_of_its_declared_topic_count(tmp_path: Path, file: bool) -> None:
    both = [*offsets("prices", 1, 7), *offsets("other", 0, 9, None)]
    path = tmp_path / "app" / "global" / "rocksdb" / "g"
    write_database(path, {"default": [(b"k", b"v")], "offsets": both})
    prices, other = TopicPartition("prices", 1), TopicPartition("other", 0)
    if file:
        (tmp_path / "app" / "global" / ".checkpoint").write_bytes(encode_checkpoint({prices: 8, other: 3}))
    read = 8 if file else 7
    one = said(tmp_path, SPEC)["global", "g"]
    assert (one.offsets, one.partitions, one.segments_agree) == ({prices: read}, [prices], not file)
    assert (one.own_offsets, one.own_segments_agree) == ({prices: 7} if file else {}, True)
    assert said(tmp_path)["global", "g"].offsets == {prices: read, other: 3 if file else 9}
    assert not one.is_source("prices")


def test_a_store_that_was_not_closed_or_has_no_offset_says_so(tmp_path: Path) -> None:
    written(tmp_path, "0_0", offset=-4)
    written(tmp_path, "0_1", offset=5, status=1)
    found = said(tmp_path)
    assert (found["0_0", "s"].known, found["0_0", "s"].partitions) == ({}, [CHANGELOG])
    assert found["0_1", "s"].closed is False


@pytest.mark.parametrize(("in_file", "then"), [(3, 3), (9, 9), (-4, 7)])
def test_a_checkpoint_file_wins_unless_it_knows_nothing(tmp_path: Path, in_file: int, then: int) -> None:
    written(tmp_path, offset=7)
    other = TopicPartition("app-another-changelog", 1)
    (tmp_path / "app/0_1/.checkpoint").write_bytes(encode_checkpoint({CHANGELOG: in_file, other: 99}))
    one = said(tmp_path)["0_1", "s"]
    assert one.offsets == {CHANGELOG: then}
    alone = one.without_file
    assert (None if alone is None else (alone.offsets, alone.segments_agree)) == (
        None if then == 7 else ({CHANGELOG: 7}, True)
    )


def test_releases_before_4_3_have_their_offsets_in_the_file_alone(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "app/0_1/.checkpoint").write_bytes(encode_checkpoint({CHANGELOG: 12}))
    one = said(tmp_path)["0_1", "s"]
    assert (one.known, one.closed, one.without_file) == ({CHANGELOG: 13}, None, None)


def test_a_checkpoint_file_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    written(tmp_path, offset=7)
    (tmp_path / "app/0_1/.checkpoint").write_bytes(b"torn")
    assert said(tmp_path)["0_1", "s"].known == {CHANGELOG: 8}


def test_what_is_declared_is_asked_for_where_the_store_says_nothing(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "app/0_1/.checkpoint").write_bytes(encode_checkpoint({TopicPartition("prices", 0): 12}))
    one = said(tmp_path, SPEC)["0_1", "s"]
    assert (one.declared, one.partitions) == ("profiles", [TopicPartition("profiles", 1)])
    assert one.is_source("profiles")
    assert not one.is_source("app-s-changelog")


def test_segments_lie_where_they_are_and_the_newest_ones_offset_counts(tmp_path: Path) -> None:
    made = write_golden(tmp_path / "app", "timestamped-window")
    (one,) = said(tmp_path).values()
    root = tmp_path / "app" / made["task"] / made["store"]
    assert {place.path for place in one.databases} == {root / name for name in made["segments"]}
    assert all(place.start is not None for place in one.databases)
    assert len(one.known) == 1


def test_where_a_segment_ends_is_known_only_where_it_is_declared(tmp_path: Path) -> None:
    """Of two segments that are two intervals apart the distance tells nothing."""
    for start in (0, 600_000):
        families = {"default": [(b"k" + start.to_bytes(8) + bytes(4), b"v")], "offsets": offsets(TOPIC, 1, 5)}
        write_database(tmp_path / f"app/0_1/s/s.{start}", families)
    (undeclared,) = said(tmp_path).values()
    assert [(place.start, place.end) for place in undeclared.databases] == [(0, None), (600_000, None)]
    window = {"kind": "window", "retention": "10m"}
    (declared,) = said(tmp_path, {**SPEC, "subtopologies": {"0": {"stores": {"s": window}}}}).values()
    assert [(place.start, place.end) for place in declared.databases] == [(0, 300_000), (600_000, 900_000)]


def test_a_store_that_is_not_logged_is_left_out(tmp_path: Path) -> None:
    write_database(tmp_path / "app/0_1/rocksdb/s", {"offsets": [(b"status", bytes(8))], "default": [(b"k", b"v")]})
    assert said(tmp_path) == {}
