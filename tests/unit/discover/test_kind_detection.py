"""Of which kind a store on disk is: golden directories of Kafka Streams, and rows made to be mistaken."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from statecore.discover.kind_detection import KindDetection, detect_kind, kinds_opening_families
from statecore.discover.kind_evidence import Evidence, conclude, evidence_of_name, is_created_by_dsl
from statecore.errors import Corrupted
from statecore.formats.kinds import StoreKind
from statecore.formats.rows.buffered import BufferedRecord, BufferKey, correct_key
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.store_places import StorePlace, store_places
from statecore.statedir.task_layout import segment_start
from tests.harness.encode_buffered import encode_buffered
from tests.unit.doctor.stored import CASES, offsets, write_database, write_golden

HOUR = 3_600_000
BASE = 1_357_034_400_000  # a multiple of five minutes


def look(state_dir: Path) -> tuple[StorePlace, KindDetection]:
    places = store_places(StateDirectory(state_dir, "app"))
    return places[0], detect_kind(places)


def kind_of(state_dir: Path) -> StoreKind:
    place, seen = look(state_dir)
    assert not seen.unopenable
    return conclude([*seen.evidence, *evidence_of_name(place.store, ())]).kind


@pytest.mark.parametrize("case", CASES)
def test_every_store_of_kafka_streams_is_recognised_without_a_guess(tmp_path, case):
    made = write_golden(tmp_path / "app", case)
    place, seen = look(tmp_path)
    found = conclude([*seen.evidence, *evidence_of_name(place.store, ())])
    assert (str(found.kind), found.remarks) == (made["kind"].replace("final-sliding", _alike(made["kind"])), ())


def _alike(kind: str) -> str:
    return "final" if kind.startswith("headers") else "final-sliding"


def windows(keys, seq=0):
    rows = [(key + struct.pack(">qi", BASE + i, seq), b"v") for i, key in enumerate(keys)]
    return {"default": rows, "offsets": offsets("t", 0, 9)}


def sessions(keys):
    rows = [(key + struct.pack(">qq", BASE + i, BASE), b"v") for i, key in enumerate(keys)]
    return {"default": rows, "offsets": offsets("t", 0, 9)}


NUMBERS = [struct.pack(">q", number) for number in [*range(300), 417, 418, 835, 836, 1 << 40, -1]]
"""Keys of a LongSerializer: full of zeros, ones that look like halves of times among them."""

PREFIXED = [b"\x00", b"\x01", b"\x00" * 8, b"\x01" + b"\x00" * 12, b"\x00" + struct.pack(">q", BASE + 7) + b"k"]


@pytest.mark.parametrize("keys", [NUMBERS, PREFIXED, [b""], [struct.pack(">q", BASE)] * 3])
@pytest.mark.parametrize(
    ("make", "kind"), [(windows, StoreKind.WINDOW), (sessions, StoreKind.SESSION)], ids=["window", "session"]
)
def test_awkward_keys_do_not_pass_for_times(tmp_path, keys, make, kind):
    write_database(tmp_path / f"app/0_0/s/s.{BASE}", make(keys))
    assert kind_of(tmp_path) is kind


def test_random_keys_are_never_taken_for_another_kind(tmp_path):
    chance = random.Random(7)
    keys = [chance.randbytes(chance.randrange(0, 40)) for _ in range(500)]
    write_database(tmp_path / f"app/0_0/s/s.{BASE}", windows(keys))
    write_database(tmp_path / f"app/0_0/s/s.{BASE + 300_000}", windows([]))
    assert kind_of(tmp_path) is StoreKind.WINDOW
    rows = [(key, chance.randbytes(chance.randrange(0, 60))) for key in keys]
    write_database(tmp_path / "plain/app/0_0/rocksdb/s", {"default": rows, "offsets": offsets("t", 0, 9)})
    assert kind_of(tmp_path / "plain") is StoreKind.KEY_VALUE


def test_duplicates_make_a_window_that_of_a_join(tmp_path):
    write_database(tmp_path / f"app/0_0/s/s.{BASE}", windows([b"a", b"b"], seq=3))
    assert kind_of(tmp_path) is StoreKind.JOIN_WINDOW


def test_a_key_value_store_with_one_key_like_a_versioned_one_stays_key_value(tmp_path):
    rows = [(b"\xff" * 8, struct.pack(">q", BASE)), (b"plain", b"value")]
    write_database(tmp_path / "app/0_0/rocksdb/s", {"default": rows, "offsets": offsets("t", 0, 1)})
    assert kind_of(tmp_path) is StoreKind.KEY_VALUE


def test_a_late_record_after_a_restart_does_not_make_a_versioned_store_another(tmp_path):
    head = (0x1A2297BB1C0).to_bytes(8) + (0x1A2297B5727).to_bytes(8)
    entries = (0x1A2297A379A).to_bytes(8) + (4).to_bytes(4) + (0x1A2297B5727).to_bytes(8) + (5).to_bytes(4)
    rows = [
        ((29933205).to_bytes(8) + b"0-12", head + entries + b"newerlate"),
        (b"\xff" * 8 + b"0-12", (0x1A2297BB1C0).to_bytes(8) + b"latest value"),
    ]
    write_database(tmp_path / "app/0_0/rocksdb/s", {"default": rows, "offsets": offsets("t", 0, 1)})
    assert kind_of(tmp_path) is StoreKind.VERSIONED_KEY_VALUE


def test_a_record_that_was_processed_again_does_not_make_a_versioned_store_another(tmp_path):
    """As Kafka Streams 4.4 wrote it when its group was set back by 12 records, at-least-once."""
    version = BASE.to_bytes(8) + (3).to_bytes(4)
    rows = [
        ((BASE // HOUR).to_bytes(8) + b"0-12", (BASE + 9).to_bytes(8) + BASE.to_bytes(8) + 2 * version + b"oldold"),
        (b"\xff" * 8 + b"0-12", (BASE + 9).to_bytes(8) + b"latest"),
    ]
    write_database(tmp_path / "app/0_0/rocksdb/s", {"default": rows, "offsets": offsets("t", 0, 1)})
    assert kind_of(tmp_path) is StoreKind.VERSIONED_KEY_VALUE


def test_the_segment_interval_of_a_versioned_store_is_in_its_rows(tmp_path):
    write_golden(tmp_path / "app", "versioned-key-value")
    assert look(tmp_path)[1].intervals == (60_000, 60_000)


def test_a_store_without_rows_stays_open_among_those_of_its_families(tmp_path):
    write_database(tmp_path / f"app/0_0/s/s.{BASE}", {"default": [], "offsets": offsets("t", 0, 1)})
    place, seen = look(tmp_path)
    found = conclude([*seen.evidence, *evidence_of_name(place.store, ())])
    assert found.kind is StoreKind.UNKNOWN
    assert {StoreKind.WINDOW, StoreKind.JOIN_WINDOW, StoreKind.SESSION} < found.possible_kinds
    assert StoreKind.TIMESTAMPED_WINDOW not in found.possible_kinds
    assert seen.is_empty


def test_rows_of_an_older_format_below_the_newer_are_seen(tmp_path):
    families = {"default": [(b"k", b"v")], "keyValueWithTimestamp": [], "offsets": offsets("t", 0, 1)}
    write_database(tmp_path / "app/0_0/rocksdb/s", families)
    assert look(tmp_path)[1].older_rows
    assert kind_of(tmp_path) is StoreKind.TIMESTAMPED_KEY_VALUE


def test_a_broken_database_is_an_error_and_not_an_empty_store(tmp_path):
    write_database(tmp_path / "app/0_0/rocksdb/s", {"default": [(b"k", b"v" * 100)], "offsets": offsets("t", 0, 1)})
    for file in (tmp_path / "app/0_0/rocksdb/s").glob("MANIFEST*"):
        file.write_bytes(b"nothing of the kind")
    with pytest.raises(Corrupted, match="rocksdb/s"):
        look(tmp_path)


@pytest.mark.parametrize(
    ("families", "segmented", "left"),
    [
        ({"default"}, False, {"key-value", "versioned-key-value", "list"}),
        ({"default", "keyValueWithTimestamp"}, False, {"timestamped-key-value"}),
        ({"default", "keyValueWithTimestampAndHeaders"}, False, {"headers-key-value"}),
        ({"default", "keyValueWithTimestamp", "keyValueWithTimestampAndHeaders"}, False, {"headers-key-value"}),
        ({"default", "keyValueWithTimestamp"}, True, {"timestamped-window"}),
        ({"default", "keyValueWithTimestampAndHeaders"}, True, {"headers-window"}),
        ({"default", "sessionKeyValueWithHeaders"}, True, {"headers-session", "headers-emit-final-session"}),
        (
            {"default", "windowKeyValueWithHeaders"},
            True,
            {"headers-emit-final-window", "headers-emit-final-sliding-window"},
        ),
        ({"default", "somethingNew"}, False, set()),
        ({"default", "sessionKeyValueWithHeaders"}, False, set()),
        (set(), False, set()),
    ],
)
def test_column_families_leave_the_kinds_whose_class_opens_them(families, segmented, left):
    found = kinds_opening_families(frozenset(families | {"offsets"} if families else families), segmented=segmented)
    assert {str(kind) for kind in found} == left


def test_evidence_that_contradicts_earlier_evidence_is_reported_and_ignored():
    surer = Evidence(frozenset({StoreKind.KEY_VALUE}), "its rows")
    other = Evidence(frozenset({StoreKind.VERSIONED_KEY_VALUE}), "its topic's min.compaction.lag.ms", guess=True)
    found = conclude([surer, other])
    assert found.kind is StoreKind.KEY_VALUE
    assert "contradicts" in found.remarks[0]
    found = conclude([other])
    (remark,) = found.remarks
    assert (found.kind, "min.compaction.lag.ms" in remark) == (StoreKind.VERSIONED_KEY_VALUE, True)


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("s.60000", 60_000),
        ("s:60000", 60_000),
        ("s-197001010001", 60_000),
        ("s-not-a-time", None),
        ("other.60000", None),
        ("s.", None),
    ],
)
def test_the_start_of_a_segment_is_in_its_name_in_every_form(name, start):
    assert segment_start(name, "s") == start


@pytest.mark.parametrize(
    ("store", "processors", "kind"),
    [
        ("KSTREAM-OUTERSHARED-0000000005-store", {"KSTREAM-JOINTHIS-0000000005"}, "list"),
        ("clicks-left-shared-join-store", {"KSTREAM-JOINTHIS-0000000005"}, "list"),
        ("KSTREAM-JOINTHIS-0000000004-store", {"KSTREAM-WINDOWED-0000000002"}, "join-window"),
        ("clicks-this-join-store", {"KSTREAM-WINDOWED-0000000002"}, "join-window"),
        ("enriched-Buffer", {"enriched"}, "grace-buffer"),
        ("orders", {"KSTREAM-TOTABLE-0000000003"}, "?"),
    ],
)
def test_names_that_kafka_streams_gives_tell_kinds(store, processors, kind):
    assert str(conclude(evidence_of_name(store, processors)).kind) == kind


@pytest.mark.parametrize(
    ("store", "processors", "kind"),
    [
        ("KTABLE-FK-JOIN-SUBSCRIPTION-STATE-STORE-0000000012", {"KTABLE-FK-JOIN-SUBSCRIPTION-PROCESSOR-0000000013"}, 1),
        ("fk-subscription-store", {"fk-subscription-receive", "fk-foreign-join-subscription"}, 1),
        ("fk-subscription-store", {"fk"}, 0),
        ("KTABLE-AGGREGATE-STATE-STORE-0000000003", {"KTABLE-AGGREGATE-0000000004"}, 1),
        ("KSTREAM-TOTABLE-STATE-STORE-0000000003", {"KSTREAM-TOTABLE-0000000002"}, 1),
        # Of a stream it may be windowed; its topic tells.
        ("KSTREAM-AGGREGATE-STATE-STORE-0000000003", {"KSTREAM-AGGREGATE-0000000004"}, 0),
        ("orders", {"KSTREAM-AGGREGATE-0000000004"}, 0),
    ],
)
def test_generated_names_are_of_stores_that_the_dsl_chose(store, processors, kind):
    found = conclude(evidence_of_name(store, processors), by_dsl=is_created_by_dsl(store, processors))
    assert str(found.kind) == ("timestamped-key-value" if kind else "?")
    assert found.default_format is (kind == 1 or store.startswith("KSTREAM-"))
    assert ("key-value" in map(str, found.possible_kinds)) is not is_created_by_dsl(store, processors)


def test_a_generated_name_with_the_families_of_headers_keeps_them():
    store = "KTABLE-AGGREGATE-STATE-STORE-0000000003"
    seen = Evidence(frozenset({StoreKind.HEADERS_KEY_VALUE}), "its column families")
    found = conclude([seen, *evidence_of_name(store, ())], by_dsl=True)
    assert (str(found.kind), found.default_format, found.remarks) == ("headers-key-value", False, ())


def test_a_generated_buffer_is_no_guess():
    found = conclude(evidence_of_name("KSTREAM-JOIN-0000000004-Buffer", {"KSTREAM-JOIN-0000000004"}))
    assert (str(found.kind), found.remarks) == ("grace-buffer", ())


def buffered(keys: list[bytes], *, restored: bool) -> list[tuple[bytes, bytes]]:
    """Rows of a grace buffer as it writes them, or as Kafka Streams restores them."""
    rows = []
    for number, key in enumerate(keys):
        right = BufferKey(key, BASE + number, number).to_bytes()
        value = encode_buffered(BufferedRecord(b"v" * number + bytes(8), BASE, number, "left", 0))
        moved = right[:1] + right[-12:-4] + right[:-12] + right[-4:]
        rows.append((moved, value + bytes(8)) if restored else (right, value))
    return rows


AWKWARD_KEYS = [b"", b"k", b"k4", b"key-4", b"12345678", b"a key of some length", *NUMBERS[:200], *PREFIXED]


@pytest.mark.parametrize("name", ["late-Buffer", "KSTREAM-JOIN-0000000004-Buffer"])
def test_a_grace_buffer_that_kafka_streams_has_restored_is_one_and_its_rows_are_counted(tmp_path, name):
    right, moved = (buffered(AWKWARD_KEYS, restored=restored) for restored in (False, True))
    assert all(correct_key(after) == before for (before, _), (after, _) in zip(right, moved, strict=True))
    for task, rows in (("0_0", right), ("0_1", moved), ("0_2", sorted([*right, *moved[:5]]))):
        write_database(tmp_path / f"app/{task}/{name}/{name}.0", {"default": rows})
    assert kind_of(tmp_path) is StoreKind.GRACE_BUFFER
    places = store_places(StateDirectory(tmp_path, "app"))
    seen = [detect_kind([place]).miskeyed for place in places]
    assert (seen[0], seen[2]) == (0, 5)
    assert seen[1] > 100


def test_rows_of_other_stores_with_such_a_name_are_not_taken_for_them(tmp_path):
    write_database(tmp_path / f"app/0_0/s-Buffer/s-Buffer.{BASE}", windows(AWKWARD_KEYS))
    place, seen = look(tmp_path)
    assert (seen.miskeyed, kind_of(tmp_path)) == (0, StoreKind.WINDOW)
    assert place.store == "s-Buffer"
