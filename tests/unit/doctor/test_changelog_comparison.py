"""What rows show of the log that they were made of, key by key, and what that comes to."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from statecore.changelog.cluster import Cluster
from statecore.changelog.model import OffsetRange
from statecore.changelog.reader import ChangelogReader
from statecore.doctor.changelog_comparison import (
    COMPARABLE_KINDS,
    KEYS,
    MIN_KEYS,
    Comparison,
    LastRecord,
    LaterRecords,
    NewestRecords,
    ReadLimits,
    compare_rows,
    differing,
    has_rows,
    later_records,
    newest_of_segments,
    newest_records,
    proof,
)
from statecore.doctor.logged_store_offsets import DatabasePath
from statecore.formats.kinds import StoreKind
from statecore.formats.segments import Segmentation
from statecore.formats.topic_partition import TopicPartition
from tests.unit.changelog.build import Record, batch, marker
from tests.unit.changelog.scripted import ScriptedBrokers, part
from tests.unit.doctor.stored import CASES, golden, write_database, write_golden

HERE = TopicPartition("changelog", 0)
NONE = LaterRecords(frozenset(), has_gaps=False)
STAMP = (1_700_000_000_000).to_bytes(8)


def written(key: bytes, value: bytes | None, offset: int = 0) -> LastRecord:
    return LastRecord(key, value, 1_700_000_000_000, offset)


def newest(*records: tuple[bytes, bytes | None], whole: bool = False, **earlier: set[bytes]) -> NewestRecords:
    every = tuple(written(key, value, 10 - at) for at, (key, value) in enumerate(records))
    return NewestRecords(every, {key.encode(): frozenset(values) for key, values in earlier.items()}, whole)


def stamped(tmp_path: Path, rows: Mapping[bytes, bytes], older: Mapping[bytes, bytes] = {}) -> tuple[DatabasePath]:
    path = tmp_path / "store"
    families = {
        "default": sorted(older.items()),
        "keyValueWithTimestamp": [(key, STAMP + value) for key, value in sorted(rows.items())],
        "offsets": [],
    }
    write_database(path, families)
    return (DatabasePath(path),)


def test_a_row_is_the_records_an_explained_one_another_or_none(tmp_path: Path) -> None:
    places = stamped(tmp_path, {b"same": b"1", b"older": b"0", b"other": b"x", b"lives": b"1"}, {b"plain": b"1"})
    seen = newest(
        (b"same", b"1"),
        (b"older", b"1"),
        (b"other", b"1"),
        (b"absent", b"1"),
        (b"deleted", None),
        (b"lives", None),
        (b"plain", b"1"),
        older={b"0"},
    )
    assert compare_rows(StoreKind.TIMESTAMPED_KEY_VALUE, places, seen) == {
        b"same": Comparison.EQUAL,
        b"older": Comparison.EXPLAINED,
        b"other": Comparison.FOREIGN,
        b"absent": Comparison.MISSING,
        b"deleted": Comparison.UNDECIDED,
        b"lives": Comparison.FOREIGN,
        b"plain": Comparison.UNDECIDED,  # it lies there in the older format
    }
    assert has_rows(StoreKind.TIMESTAMPED_KEY_VALUE, places)


def test_a_store_without_rows_differs_from_one_of_another_log(tmp_path: Path) -> None:
    places = stamped(tmp_path, {})
    assert compare_rows(StoreKind.TIMESTAMPED_KEY_VALUE, places, newest((b"k", b"v"))) == {b"k": Comparison.MISSING}
    assert not has_rows(StoreKind.TIMESTAMPED_KEY_VALUE, places)


def test_rows_of_an_older_format_are_rows(tmp_path: Path) -> None:
    assert has_rows(StoreKind.TIMESTAMPED_KEY_VALUE, stamped(tmp_path, {}, {b"plain": b"1"}))


def test_a_row_that_is_too_short_for_its_kind_shows_nothing(tmp_path: Path) -> None:
    write_database(tmp_path / "store", {"keyValueWithTimestamp": [(b"k", b"short")]})
    places = (DatabasePath(tmp_path / "store"),)
    assert compare_rows(StoreKind.TIMESTAMPED_KEY_VALUE, places, newest((b"k", b"v"))) == {b"k": Comparison.UNDECIDED}


def window(key: bytes, start: int) -> bytes:
    return key + start.to_bytes(8) + bytes(4)


def test_rows_of_windows_are_looked_up_in_their_segment_and_may_have_expired(tmp_path: Path) -> None:
    for start in (600_000, 660_000):
        write_database(tmp_path / f"w.{start}", {"default": [(window(b"k", start), b"v")], "offsets": []})
    places = tuple(DatabasePath(tmp_path / f"w.{start}", start, start + 60_000) for start in (600_000, 660_000))
    seen = newest(
        (window(b"k", 600_000), b"v"),
        (window(b"k", 660_000), b"other"),
        (window(b"k", 660_001), b"v"),
        (window(b"k", 540_000), b"v"),
        (window(b"k", 720_000), b"v"),
    )
    assert list(compare_rows(StoreKind.WINDOW, places, seen).values()) == [
        Comparison.EQUAL,
        Comparison.FOREIGN,
        Comparison.MISSING,
        Comparison.UNDECIDED,
        Comparison.UNDECIDED,
    ]
    endless = tuple(DatabasePath(place.path, place.start) for place in places)
    assert list(compare_rows(StoreKind.WINDOW, endless, seen).values()) == [
        Comparison.EQUAL,
        Comparison.FOREIGN,
        Comparison.UNDECIDED,  # nobody knows where the segment ends
        Comparison.UNDECIDED,
        Comparison.UNDECIDED,
    ]


def test_duplicates_of_a_join_are_compared_whatever_their_numbers(tmp_path: Path) -> None:
    def row(start: int, sequence: int) -> bytes:
        return b"k" + start.to_bytes(8) + sequence.to_bytes(4)

    rows = [(row(1, 1), b"a"), (row(1, 2), b"b"), (row(2, 1), b"c")]
    write_database(tmp_path / "w.0", {"default": rows, "offsets": []})
    records = newest((row(1, 3), b"a"), (row(1, 2), b"gone"), (row(2, 9), None), (row(3, 1), b"c"), (row(4, 1), None))
    assert [*compare_rows(StoreKind.JOIN_WINDOW, [DatabasePath(tmp_path / "w.0", 0, 60_000)], records).values()] == [
        Comparison.EQUAL,
        Comparison.UNDECIDED,  # another record may have had its number
        Comparison.UNDECIDED,
        Comparison.MISSING,
        Comparison.UNDECIDED,
    ]


def test_records_that_are_none_of_the_kind_show_nothing(tmp_path: Path) -> None:
    write_database(tmp_path / "w.0", {"default": [(window(b"k", 0), b"v")]})
    places = (DatabasePath(tmp_path / "w.0", 0, 60_000),)
    assert compare_rows(StoreKind.WINDOW, places, newest((b"k", b"v"))) == {b"k": Comparison.UNDECIDED}
    assert compare_rows(StoreKind.WINDOW, places, newest()) == {}


@pytest.mark.parametrize("case", [case for case in CASES if golden(case)["kind"] in set(COMPARABLE_KINDS)])
def test_what_kafka_streams_wrote_is_of_its_own_log(tmp_path: Path, case: str) -> None:
    made = write_golden(tmp_path / "app", case)
    kind = StoreKind(made["kind"])
    task = tmp_path / "app" / made["task"]
    if "segments" in made:
        starts = sorted(int(name.rpartition(".")[2]) for name in made["segments"])
        ends: list[int | None] = [*starts[1:], None]
        root = task / made["store"]
        places = [
            DatabasePath(root / f"{made['store']}.{start}", start, end) for start, end in zip(starts, ends, strict=True)
        ]
    else:
        places = [DatabasePath(task / "rocksdb" / made["store"])]
    last: dict[bytes, LastRecord] = {}
    for at, record in enumerate(made["records"]):
        key, value = (None if record[name] is None else bytes.fromhex(record[name]) for name in ("key", "value"))
        if key is not None:
            last[key] = LastRecord(key, value, record["timestamp"], at)
    shown = set(compare_rows(kind, places, NewestRecords(tuple(last.values()))).values())
    assert Comparison.EQUAL in shown
    assert shown <= {Comparison.EQUAL, Comparison.UNDECIDED}


MANY = [b"key-%d" % n for n in range(MIN_KEYS)]


def proven(shown: Sequence[Comparison], later: LaterRecords = NONE, **of_newest: Any) -> list[bytes]:
    keys = [b"key-%d" % n for n in range(len(shown))]
    seen = newest(*((key, b"v") for key in keys), **of_newest)
    return [one.key for one in proof(seen, dict(zip(keys, shown, strict=True)), later)]


def test_rows_of_no_record_prove_another_log() -> None:
    assert proven([Comparison.FOREIGN] * MIN_KEYS) == MANY
    assert proven([Comparison.MISSING] * MIN_KEYS) == MANY
    assert proven([Comparison.FOREIGN, Comparison.MISSING, Comparison.UNDECIDED, Comparison.FOREIGN]) == [
        b"key-0",
        b"key-1",
        b"key-3",
    ]


@pytest.mark.parametrize("one", [Comparison.EQUAL, Comparison.EXPLAINED])
def test_one_row_of_the_log_proves_the_contrary(one: Comparison) -> None:
    assert proven([Comparison.FOREIGN] * 10 + [one]) == []


def test_few_keys_prove_nothing_unless_there_are_no_more() -> None:
    few = [Comparison.FOREIGN] * (MIN_KEYS - 1)
    assert proven(few) == []
    assert len(proven(few, whole=True)) == MIN_KEYS - 1
    assert proven([Comparison.FOREIGN, *[Comparison.UNDECIDED] * 5], whole=True) == []
    assert proven([], whole=True) == []
    assert proven([Comparison.UNDECIDED], whole=True) == []


def test_a_row_of_a_later_record_proves_nothing() -> None:
    assert proven([Comparison.FOREIGN] * MIN_KEYS, LaterRecords(frozenset(MANY[:1]), has_gaps=False)) == []
    shown = [Comparison.FOREIGN] * (MIN_KEYS + 1)
    assert proven(shown, LaterRecords(frozenset(MANY[:1]), has_gaps=False)) == [b"key-1", b"key-2", b"key-3"]


def test_a_row_that_is_missing_proves_nothing_where_its_delete_may_be() -> None:
    later = LaterRecords(frozenset(), has_gaps=True)
    assert proven([Comparison.MISSING] * MIN_KEYS, later) == []
    assert proven([Comparison.FOREIGN] * MIN_KEYS, later) == MANY


def test_what_differs_is_all_but_what_is_the_same_or_says_nothing() -> None:
    assert differing({b"%d" % at: one for at, one in enumerate(Comparison)}) == [b"1", b"2", b"3"]


# Reading them.


def limits(seconds: float = 300.0, most_bytes: int = 1 << 20) -> ReadLimits:
    return ReadLimits(time.monotonic() + seconds, most_bytes)


def records(*values: tuple[int, bytes | None, bytes | None]) -> list[Record]:
    return [Record(offset, 1_000 + offset, key, value) for offset, key, value in values]


@pytest.fixture
def brokers() -> Iterator[ScriptedBrokers]:
    with ScriptedBrokers() as made:
        yield made


@pytest.fixture
def reader(brokers: ScriptedBrokers) -> Iterator[ChangelogReader]:
    with Cluster(brokers.address, timeout=60) as cluster:
        yield ChangelogReader(cluster)


def test_the_last_record_of_each_key_counts_and_what_it_was_before_is_kept(
    brokers: ScriptedBrokers, reader: ChangelogReader
) -> None:
    data = [
        batch(records((0, b"a", b"0"), (1, b"b", b"0"), (2, None, b"x"))),
        batch(records((3, b"a", b"1"), (4, b"c", None), (5, b"a", b"2"))),
        batch(records((6, b"a", b"later"))),
    ]
    brokers.add("changelog", [part(data)])
    found = newest_records(reader, HERE, 0, 6, limits())
    assert found is not None
    assert [one[:2] + one[3:] for one in found.records] == [(b"a", b"2", 5), (b"c", None, 4), (b"b", b"0", 1)]
    assert (found.earlier_values, found.is_complete) == ({b"a": {b"0", b"1"}}, True)


def test_records_of_aborted_transactions_were_never_written(brokers: ScriptedBrokers, reader: ChangelogReader) -> None:
    aborted = batch(records((1, b"a", b"aborted")), producer=5, transactional=True)
    data = [batch(records((0, b"a", b"0"))), aborted, marker(2, 5, commit=False)]
    brokers.add("changelog", [part(data, aborted=[(5, 1)])])
    found = newest_records(reader, HERE, 0, 3, limits())
    assert found is not None
    assert [one.value for one in found.records] == [b"0"]


def test_no_more_is_read_than_it_takes_to_see_enough_keys(brokers: ScriptedBrokers, reader: ChangelogReader) -> None:
    data = [batch(records((n, b"key-%d" % (n % 100), b"%d" % n))) for n in range(0, 3_000)]
    brokers.add("changelog", [part(data)])
    found = newest_records(reader, HERE, 0, 3_000, limits())
    assert found is not None
    assert [one.offset for one in found.records] == [2999 - n for n in range(KEYS)]
    assert (found.is_complete, reader.statistics.records) == (False, 64)


def test_a_few_keys_are_looked_up_farther_back(brokers: ScriptedBrokers, reader: ChangelogReader) -> None:
    data = [batch(records((n, b"key-%d" % n if n < 20 else b"hot", b"v"))) for n in range(300)]
    brokers.add("changelog", [part(data)])
    found = newest_records(reader, HERE, 0, 300, limits())
    assert found is not None
    assert [one.key for one in found.records[:2]] == [b"hot", b"key-19"]
    assert len(found.records) == KEYS
    assert not found.is_complete


def test_the_newest_records_are_of_each_unexpired_segment(brokers: ScriptedBrokers, reader: ChangelogReader) -> None:
    keys = [b"k" + (time).to_bytes(8) + bytes(4) for time in (0, 200, 260, 299)]
    brokers.add("changelog", [part([batch(records(*((n, key, b"v") for n, key in enumerate(keys))))])])
    found = newest_of_segments(
        reader, OffsetRange("changelog", 0, 0, 4), StoreKind.WINDOW, Segmentation(100, 50), 299, limits()
    )
    assert found is not None
    assert {one.key for one in found.records} == set(keys[1:])


@pytest.mark.parametrize("kind", [StoreKind.WINDOW, StoreKind.SESSION])
@pytest.mark.parametrize("key", [b"", b"short", b"eleven byte"])
def test_a_key_without_a_time_leaves_the_segments_undecided(
    brokers: ScriptedBrokers, reader: ChangelogReader, kind: StoreKind, key: bytes
) -> None:
    brokers.add("changelog", [part([batch(records((0, b"k" + bytes(16), b"v"), (1, key, b"v")))])])
    span = OffsetRange("changelog", 0, 0, 2)
    assert newest_of_segments(reader, span, kind, Segmentation(100, 50), 299, limits()) == NewestRecords(())


def test_reading_ends_where_it_would_take_too_much(brokers: ScriptedBrokers, reader: ChangelogReader) -> None:
    brokers.add("changelog", [part([batch(records((0, b"a", b"0" * 1000)))])])
    assert newest_records(reader, HERE, 0, 1, limits(most_bytes=100)) is None
    assert newest_records(reader, HERE, 0, 1, limits(seconds=-1)) is None
    assert limits(seconds=-1).is_expired
    assert later_records(reader, OffsetRange("changelog", 0, 0, 1), [b"a"], limits(most_bytes=100)) is None


def test_the_tail_shows_changed_keys_and_missing_records(brokers: ScriptedBrokers, reader: ChangelogReader) -> None:
    data = [batch(records((0, b"a", b"0"))), batch(records((1, b"b", None), (2, None, b"x")))]
    brokers.add("changelog", [part([*data, batch(records((4, b"c", b"1")))])])
    span = OffsetRange("changelog", 0, 0, 3)
    assert later_records(reader, span, [b"b", b"c"], limits()) == (frozenset([b"b"]), False)
    span = OffsetRange("changelog", 0, 0, 5)
    assert later_records(reader, span, [b"b", b"c"], limits()) == (frozenset([b"b", b"c"]), True)
