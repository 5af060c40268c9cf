"""Record batches become columns: exactly the records that were written, or an error that names the place."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.changelog.decoder import CHANGELOG_SCHEMA, RangeDecoder
from statecore.changelog.model import IsolationLevel, OffsetRange, ReadStatistics
from statecore.errors import Corrupted, Invalid
from tests.harness.raising import raises
from tests.unit.changelog.build import (
    CODECS,
    Record,
    as_array,
    batch,
    guarded,
    header_bytes,
    marker,
    record_bytes,
    varint,
)

COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
EVERYTHING = OffsetRange("orders", 3, 0, 1 << 50)
TEN = [Record(offset, 1000 + offset, b"k%d" % offset, b"v%d" % offset) for offset in range(10)]


def decode(
    data: bytes,
    whole: OffsetRange = EVERYTHING,
    isolation: IsolationLevel = COMMITTED,
    *,
    headers: bool = False,
    aborted: Sequence[tuple[int, int]] = (),
    decoded_bytes: int = 64 << 20,
) -> tuple[list[pa.RecordBatch], int, ReadStatistics]:
    decoder = RangeDecoder(whole, isolation, headers=headers, decoded_bytes=decoded_bytes)
    position = decoder.scan(as_array(data), whole.start, np.array(aborted, np.int64).reshape(-1, 2))
    batches = list(decoder.batches())
    for one in batches:
        one.validate(full=True)
        assert one.num_rows
    decoder.reached(position)
    return batches, position, decoder.statistics


def rows(batches: Sequence[pa.RecordBatch]) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for one in batches for row in one.to_pylist()]


def expected(records: Sequence[Record], *, headers: bool = False) -> list[tuple[object, ...]]:
    return [(r.key, r.value, r.offset, r.timestamp, *([header_bytes(r.headers)] if headers else [])) for r in records]


def offsets(batches: Sequence[pa.RecordBatch]) -> list[int]:
    return [offset for one in batches for offset in one["offset"].to_pylist()]


@pytest.mark.parametrize("codec", CODECS)
def test_each_codec_gives_back_what_was_written(codec: str) -> None:
    records = [Record(n, 5 * n, b"key%d" % (n % 7), b"value " * n, [(b"h", b"%d" % n)]) for n in range(300)]
    batches, position, seen = decode(batch(records[:200], codec) + batch(records[200:], codec))
    assert rows(batches) == expected(records)
    assert batches[0].schema == CHANGELOG_SCHEMA
    assert position == 300
    assert (seen.records, seen.batches, seen.max_timestamp, seen.fetches) == (300, 2, 1495, 1)


def test_codecs_may_alternate_within_a_response() -> None:
    records = [Record(n, n, b"k", b"%d" % n * 50) for n in range(60)]
    data = b"".join(batch(records[10 * i : 10 * i + 10], codec) for i, codec in enumerate(CODECS))
    assert rows(decode(data)[0]) == expected(records)


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("checksums", [False, True])
def test_lz4_frames_of_every_make_are_read(linked: bool, checksums: bool) -> None:
    frame = pytest.importorskip("lz4.frame")
    records = [Record(n, n, b"key-%d" % n, random.Random(n).randbytes(300) + b"0" * 300) for n in range(500)]
    plain = b"".join(record_bytes(r, 0, 0) for r in records)
    packed = frame.compress(
        plain, block_size=4, block_linked=linked, content_checksum=checksums, block_checksum=checksums, store_size=False
    )
    whole = bytearray(batch(records, payload=packed, base_timestamp=0))
    whole[22] |= CODECS["lz4"]
    _seal(whole)
    assert rows(decode(bytes(whole))[0]) == expected(records)


def _seal(data: bytearray) -> None:
    from crc32c import crc32c

    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))


def test_stored_lz4_blocks_are_copied() -> None:
    noise = random.Random(1).randbytes(70_000)  # does not compress, so the frame stores it
    frame = pytest.importorskip("lz4.frame")
    record = Record(0, 0, b"k", noise)
    packed = frame.compress(record_bytes(record, 0, 0), block_size=4, block_linked=False, store_size=False)
    data = bytearray(batch([record], payload=packed))
    data[22] |= CODECS["lz4"]
    _seal(data)
    assert rows(decode(bytes(data))[0]) == expected([record])


@pytest.mark.parametrize("stored", [1 << 31, 0], ids=["stored", "compressed"])
def test_an_lz4_block_that_is_cut_off_is_corrupt(stored: int) -> None:
    frame = b"\x04\x22\x4d\x18\x60\x40\x82" + struct.pack("<I", 1_000 | stored) + b"only these"
    data = bytearray(batch([Record(0, 0, b"k", b"v")], payload=frame))
    data[22] |= CODECS["lz4"]
    _seal(data)
    with raises(Corrupted, "record-batch-corrupted"):
        decode(bytes(data))


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_that_decompresses_beyond_the_buffer_grows_it(codec: str) -> None:
    records = [Record(n, n, b"k%d" % n, b"\0" * (1 << 20)) for n in range(40)]
    batches, _, _ = decode(batch(records, codec))
    assert sum(one.num_rows for one in batches) == 40
    assert all(value == b"\0" * (1 << 20) for one in batches for value in one["value"].to_pylist())


def test_what_kafka_python_builds_is_read() -> None:
    records_module = pytest.importorskip("kafka.record.default_records")
    builder = records_module.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    records = [Record(n, 9000 - n, b"k", None if n % 3 else b"v" * n, [(b"h", None)] * (n % 2)) for n in range(50)]
    for r in records:
        builder.append(r.offset, r.timestamp, r.key, r.value, [(name.decode(), value) for name, value in r.headers])
    batches, _, seen = decode(bytes(builder.build()), headers=True)
    assert rows(batches) == expected(records, headers=True)
    assert seen.max_timestamp == 9000


nullable_bytes = st.one_of(st.none(), st.binary(max_size=200))
record_fields = st.tuples(
    st.integers(1, 1 << 20),  # step to the next offset
    st.integers(-(1 << 40), 1 << 45),
    nullable_bytes,
    nullable_bytes,
    st.lists(st.tuples(st.binary(max_size=20), nullable_bytes), max_size=3),
)


@settings(max_examples=150, deadline=None)
@given(
    fields=st.lists(record_fields, min_size=1, max_size=30),
    base=st.integers(0, 1 << 48),
    codec=st.sampled_from(sorted(CODECS)),
    cut=st.integers(0, 30),
    headers=st.booleans(),
    drop=st.tuples(st.integers(0, 5), st.integers(0, 5)),
)
def test_any_records_come_back(
    fields: list[tuple[int, int, bytes | None, bytes | None, list[tuple[bytes, bytes | None]]]],
    base: int,
    codec: str,
    cut: int,
    headers: bool,
    drop: tuple[int, int],
) -> None:
    records, offset = [], base
    for step, timestamp, key, value, head in fields:
        records.append(Record(offset, timestamp, key, value, head))
        offset += step
    parts = [part for part in (records[:cut], records[cut:]) if part]
    data = b"".join(batch(part, codec) for part in parts)
    wanted = records[drop[0] : len(records) - drop[1]]
    start = wanted[0].offset if wanted else base
    end = wanted[-1].offset + 1 if wanted else base
    batches, position, seen = decode(data, OffsetRange("t", 0, start, end), headers=headers)
    assert rows(batches) == expected(wanted, headers=headers)
    assert position == end
    assert seen.records == len(wanted)
    assert seen.null_keys == sum(r.key is None for r in wanted)
    assert seen.tombstones == sum(r.value is None for r in wanted)
    if wanted:
        assert seen.max_timestamp == max(-1, *(r.timestamp for r in wanted))


def test_both_ends_are_trimmed_inside_a_batch() -> None:
    for start in range(11):
        for end in range(start, 12):
            batches, position, _ = decode(batch(TEN, "lz4"), OffsetRange("t", 0, start, end))
            assert offsets(batches) == [n for n in range(10) if start <= n < end]
            assert position == min(max(10, start), end)


def test_a_gap_at_the_end_of_the_range_counts_as_reached() -> None:
    late = [Record(50, 1, b"k", b"v")]
    batches, position, _ = decode(batch(TEN) + batch(late), OffsetRange("t", 0, 5, 30))
    assert offsets(batches) == [5, 6, 7, 8, 9]
    assert position == 30


def test_compacted_batches_keep_their_last_offset() -> None:
    kept = [TEN[2], TEN[5]]
    batches, position, _ = decode(batch(kept, base_offset=0, last_offset=9, base_timestamp=1000))
    assert rows(batches) == expected(kept)
    assert position == 10


def test_an_empty_batch_only_moves_the_position() -> None:
    batches, position, seen = decode(batch([], base_offset=0, last_offset=99, producer=7))
    assert (batches, position, seen.batches) == ([], 100, 1)


def test_a_truncated_batch_is_read_by_the_next_fetch() -> None:
    data = batch(TEN[:4]) + batch(TEN[4:])
    for size in range(len(batch(TEN[:4])), len(data)):
        batches, position, _ = decode(data[:size])
        assert offsets(batches) == [0, 1, 2, 3]
        assert position == 4
    assert decode(data[:60])[:2] == ([], 0)


def test_log_append_time_gives_every_record_the_batch_time() -> None:
    batches, _, seen = decode(batch(TEN, append_time=777_777))
    assert set(batches[0]["timestamp"].to_pylist()) == {777_777}
    assert seen.max_timestamp == 777_777


def test_control_batches_are_never_delivered() -> None:
    data = batch(TEN[:5], producer=9, transactional=True) + marker(5, 9, commit=True) + batch(TEN[6:])
    for isolation in IsolationLevel:
        assert offsets(decode(data, isolation=isolation)[0]) == [0, 1, 2, 3, 4, 6, 7, 8, 9]


def _interleaved() -> bytes:
    """Producers 1 (aborted, then committed), 2 (committed), 3 (not transactional), interleaved."""
    one = [Record(n, n, b"1", b"%d" % n) for n in range(30)]
    return b"".join(
        [
            batch(one[0:3], producer=1, transactional=True),
            batch(one[3:6], producer=2, transactional=True),
            batch(one[6:8], producer=3),
            batch(one[8:10], producer=1, transactional=True),
            marker(10, 1, commit=False),
            batch(one[11:14], producer=1, transactional=True),
            marker(14, 2, commit=True),
            marker(15, 1, commit=True),
            batch(one[16:20]),
        ]
    )


def test_aborted_transactions_are_dropped_only_when_reading_committed() -> None:
    batches, position, seen = decode(_interleaved(), aborted=[(1, 0)])
    assert offsets(batches) == [3, 4, 5, 6, 7, 11, 12, 13, 16, 17, 18, 19]
    assert (seen.aborted, position) == (5, 20)
    batches, _, seen = decode(_interleaved(), isolation=UNCOMMITTED)
    assert offsets(batches) == [n for n in range(20) if n not in (10, 14, 15)]
    assert seen.aborted == 0


def test_aborted_transactions_need_no_order_and_may_begin_before_the_response() -> None:
    data = b"".join(
        [
            batch([Record(100, 0, b"a", b"x")], producer=5, transactional=True),
            marker(101, 5, commit=False),
            batch([Record(102, 0, b"b", b"x")], producer=6, transactional=True),
            marker(103, 6, commit=False),
            batch([Record(104, 0, b"c", b"x")], producer=5, transactional=True),
            marker(105, 5, commit=False),
            batch([Record(106, 0, b"d", b"x")], producer=5, transactional=True),
            marker(107, 5, commit=True),
        ]
    )
    batches, _, seen = decode(data, aborted=[(5, 104), (6, 102), (5, 17)])
    assert offsets(batches) == [106]
    assert seen.aborted == 3


def test_ranges_that_split_an_aborted_batch_count_each_record_once() -> None:
    for cut in range(21):
        halves = [
            decode(_interleaved(), OffsetRange("t", 0, start, end), aborted=[(1, 0)])
            for start, end in ((0, cut), (cut, 20))
        ]
        assert sum(seen.aborted for _, _, seen in halves) == 5
        assert sum(seen.records for _, _, seen in halves) == 12


def test_many_aborted_transactions_do_not_take_quadratic_time() -> None:
    data, aborted = [], []
    for n in range(20_000):
        data += [
            batch([Record(2 * n, 0, b"k", b"v")], producer=n, transactional=True),
            marker(2 * n + 1, n, commit=False),
        ]
        aborted.append((n, 2 * n))
    batches, position, seen = decode(b"".join(data), aborted=aborted)
    assert (batches, position, seen.aborted) == ([], 40_000, 20_000)


def test_an_empty_control_batch_ends_nothing() -> None:
    data = (
        batch([Record(0, 0, b"a", b"x")], producer=5, transactional=True)
        + batch([], base_offset=1, last_offset=1, producer=5, transactional=True, control=True)
        + batch([Record(2, 0, b"b", b"x")], producer=5, transactional=True)
    )
    assert decode(data, aborted=[(5, 0)])[2].aborted == 2


def test_record_batches_stay_bounded_when_a_response_decompresses_to_much() -> None:
    records = [Record(n, n, b"k%d" % n, b"z" * 1000) for n in range(400)]
    data = b"".join(batch(records[n : n + 10], "zstd") for n in range(0, 400, 10))
    batches, _, seen = decode(data, decoded_bytes=50_000)
    assert rows(batches) == expected(records)
    assert len(batches) > 5
    assert max(one.nbytes for one in batches) < 100_000
    assert seen.records == 400


def test_columns_outlive_the_response_and_the_decoder() -> None:
    data = bytearray(batch(TEN, "none") + batch([Record(10, 10, b"x", None)], "lz4"))
    batches, _, _ = decode(bytes(data))
    before = rows(batches)
    decode(batch([Record(n, 0, b"other", b"other" * 9) for n in range(50)], "lz4"))
    assert rows(batches) == before


def attempt(data: bytes, *, headers: bool) -> list[tuple[object, ...]] | None:
    """The rows, or None where the data are refused by an error that names the place."""
    try:
        return rows(decode(data, headers=headers)[0])
    except (Corrupted, Invalid) as error:
        names = error.context
    assert (names["topic"], names["partition"]) == ("orders", 3)
    assert names["offset"] >= -1
    return None


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("headers", [False, True])
def test_a_flipped_byte_is_found_or_harmless(codec: str, headers: bool) -> None:
    records = [Record(n, 70 + n, b"key%d" % n, b"val" * n, [(b"h", b"x")]) for n in range(6)]
    first, second = batch(records[:3], codec), batch(records[3:], codec)
    data = first + second
    honest = rows(decode(data, headers=headers)[0])
    outside_crc = {*range(17), *range(len(first), len(first) + 17)}
    for place in range(len(data)):
        for mask in (0x01, 0x80, 0xFF):
            broken = bytearray(data)
            broken[place] ^= mask
            found = attempt(bytes(broken), headers=headers)
            if found is None:
                continue
            # Base offset, length, epoch and magic are not covered by the checksum (KIP-98): they may cut the response
            # short or move offsets, but keys and values stay what they were.
            assert place in outside_crc, place
            assert [row[:2] for row in found] == [row[:2] for row in honest[: len(found)]]


@pytest.mark.parametrize("codec", ["none", "lz4"])
@pytest.mark.parametrize("headers", [False, True])
def test_a_malformed_record_behind_a_right_checksum_is_found_or_harmless(codec: str, headers: bool) -> None:
    records = [Record(n, 70 + n, b"key%d" % n, b"val" * n, [(b"h", b"x"), (b"i", None)]) for n in range(4)]
    payload = b"".join(record_bytes(r, 0, 70) for r in records)
    caught = 0
    for place in range(len(payload)):
        for value in (0, 1, 2, 0x7F, 0x80, 0xFF):
            broken = bytearray(payload)
            broken[place] = value
            caught += attempt(batch(records, codec, payload=bytes(broken)), headers=headers) is None
    assert caught > len(payload) // 2


@settings(max_examples=300, deadline=None)
@given(payload=st.binary(max_size=80), count=st.integers(0, 12), headers=st.booleans())
def test_garbage_never_gets_through_the_bounds(payload: bytes, count: int, headers: bool) -> None:
    data = batch([], payload=payload, count=count, base_offset=0, last_offset=20)
    try:
        decode(data, headers=headers)
    except Corrupted:
        return


@pytest.mark.parametrize(
    "record",
    [
        b"",
        varint(-1),
        varint(1 << 62) + b"\0" * 20,
        b"\xff" * 11,
        varint(6) + b"\0" + varint(0) + varint(0) + varint(1 << 40) + b"\0\0",
        varint(6) + b"\0" + varint(0) + varint(99) + varint(-1) + varint(-1) + varint(0),
        varint(6) + b"\0" + varint(0) + varint(-1) + varint(-1) + varint(-1) + varint(0),
        varint(5) + b"\0" + varint(0) + varint(0) + varint(-1) + varint(-1),
    ],
)
def test_impossible_lengths_and_offsets_are_corrupt(record: bytes) -> None:
    data = batch([], payload=record + b"\0" * 7, count=1, base_offset=0, last_offset=20)
    with pytest.raises(Corrupted, match=r"orders.*partition 3"):
        decode(data)


@settings(max_examples=200, deadline=None)
@given(data=st.data(), headers=st.booleans())
def test_nothing_is_read_beyond_the_response(data: st.DataObject, headers: bool) -> None:
    records = [Record(n, n, b"k" * n, b"v" * n, [(b"h", b"x")]) for n in range(4)]
    payload = bytearray(b"".join(record_bytes(r, 0, 0) for r in records))
    for _ in range(data.draw(st.integers(0, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    whole = batch(records, payload=bytes(payload[: data.draw(st.integers(0, len(payload)))]))
    whole = whole[: data.draw(st.sampled_from([len(whole), len(whole) - 1, 61, 60, 17, 16, 1]))]
    decoder = RangeDecoder(EVERYTHING, COMMITTED, headers=headers)
    try:
        decoder.scan(guarded(whole), 0)
        list(decoder.batches())
    except Corrupted:
        return


def test_a_control_record_is_not_read_beyond_the_response() -> None:
    whole = marker(0, 5, commit=False)
    for size in range(62, len(whole)):
        cut = bytearray(whole[:size])
        struct.pack_into(">i", cut, 8, size - 12)
        decoder = RangeDecoder(EVERYTHING, COMMITTED)
        decoder_input = guarded(bytes(cut))
        with pytest.raises(Corrupted):
            _read(decoder, decoder_input)


def _read(decoder: RangeDecoder, data: npt.NDArray[np.uint8]) -> None:
    decoder.scan(data, 0, np.array([[5, 0]], np.int64))
    list(decoder.batches())


def test_a_record_count_beyond_the_bytes_allocates_nothing() -> None:
    data = batch([], payload=b"\0" * 70, count=(1 << 31) - 1, base_offset=0, last_offset=(1 << 31) - 2)
    with pytest.raises(Corrupted, match="2147483647 records in 70 bytes"):
        decode(data)


@pytest.mark.parametrize(
    ("place", "form", "value"),
    [(8, ">i", -1), (8, ">i", 0), (8, ">i", 48), (0, ">q", -1), (0, ">q", 1 << 62 | 1), (57, ">i", -1), (23, ">i", -1)],
)
def test_impossible_batch_headers_are_corrupt(place: int, form: str, value: int) -> None:
    data = bytearray(batch(TEN))
    struct.pack_into(form, data, place, value)
    with pytest.raises(Corrupted, match=r"orders.*partition 3.*offset 0"):
        decode(bytes(data))


def test_an_unknown_magic_byte_is_corrupt() -> None:
    data = bytearray(batch(TEN))
    data[16] = 3
    with pytest.raises(Corrupted, match="magic"):
        decode(bytes(data))


def test_batches_that_go_back_are_corrupt() -> None:
    with pytest.raises(Corrupted, match="do not ascend"):
        decode(batch(TEN[5:]) + batch(TEN[:5]))


@pytest.mark.parametrize("codec", [1, 2, 3, 4, 5, 7])
def test_undecodable_compression_is_corrupt(codec: int) -> None:
    data = bytearray(batch(TEN, payload=b"\x04\x22\x4d\x18\x60\x40\x82 not compressed at all"))
    data[22] |= codec
    _seal(data)
    with pytest.raises(Corrupted, match="offset 0 cannot be decompressed"):
        decode(bytes(data))


def test_a_range_of_which_all_is_there_has_nothing_removed() -> None:
    for isolation in IsolationLevel:
        _, _, seen = decode(_interleaved(), OffsetRange("t", 0, 0, 20), isolation, aborted=[(1, 0)])
        assert seen.removed == 0
    nobody = [Record(n, 0, None, b"v") for n in range(5)]
    assert decode(batch(nobody), OffsetRange("t", 0, 0, 5))[2].removed == 0


def test_what_compaction_left_out_is_removed_wherever_it_was() -> None:
    sparse = batch([TEN[2], TEN[5]], base_offset=0, last_offset=9, base_timestamp=1000)
    late = batch([Record(50, 1, b"k", b"v")])
    assert decode(sparse, OffsetRange("t", 0, 0, 10))[2].removed == 8
    assert decode(sparse, OffsetRange("t", 0, 2, 6))[2].removed == 2
    assert decode(sparse + late, OffsetRange("t", 0, 0, 51))[2].removed == 8 + 40
    assert decode(late, OffsetRange("t", 0, 40, 51))[2].removed == 10
    assert decode(late, OffsetRange("t", 0, 40, 45))[2].removed == 5


@pytest.mark.parametrize("control", [False, True])
def test_a_batch_that_compaction_emptied_has_nothing(control: bool) -> None:
    empty = batch([], base_offset=0, last_offset=9, producer=7, transactional=True, control=control)
    assert decode(empty, OffsetRange("t", 0, 0, 10))[2].removed == 10


def test_a_control_record_counts_as_there_only_inside_the_range() -> None:
    data = batch(TEN[:5], producer=9, transactional=True) + marker(5, 9, commit=True)
    for start in range(7):
        for end in range(start, 7):
            assert decode(data, OffsetRange("t", 0, start, end))[2].removed == 0


def test_what_a_log_start_has_passed_is_removed_even_where_its_batch_is_sent() -> None:
    decoder = RangeDecoder(OffsetRange("t", 0, 2, 10), COMMITTED)
    decoder.moved(7)
    decoder.reached(7)
    assert decoder.statistics.removed == 5
    position = decoder.scan(as_array(batch(TEN)), 7)
    assert offsets(list(decoder.batches())) == [7, 8, 9]
    decoder.reached(position)
    assert decoder.statistics.removed == 5


KEPT, ABORTED, COMMIT = "kept", "aborted", "commit"


@settings(max_examples=200, deadline=None)
@given(
    pieces=st.lists(
        st.tuples(st.sampled_from([KEPT, ABORTED, COMMIT]), st.lists(st.booleans(), max_size=6)), max_size=9
    ),
    start=st.integers(0, 40),
    size=st.integers(0, 40),
    codec=st.sampled_from(["none", "lz4"]),
    isolation=st.sampled_from(IsolationLevel),
    cuts=st.sets(st.integers(0, 9)),
)
def test_the_offsets_that_are_removed_are_those_that_no_batch_has(
    pieces: list[tuple[str, list[bool]]], start: int, size: int, codec: str, isolation: IsolationLevel, cuts: set[int]
) -> None:
    present: set[int] = set()
    batches: list[bytes] = []
    aborted: list[tuple[int, int]] = []
    offset = 0
    for number, (kind, there) in enumerate(pieces):
        base, offset = offset, offset + max(1, len(there))
        if kind == COMMIT:
            if not there or there[0]:
                batches.append(marker(base, 1000 + number, commit=True))
                present.add(base)
            offset = base + 1
            continue
        kept = [Record(base + n, 5, b"k", b"v") for n, one in enumerate(there) if one]
        present.update(record.offset for record in kept)
        producer = number if kind == ABORTED else -1
        if kind == ABORTED:
            aborted.append((number, base))
        if kept or kind == ABORTED:
            batches.append(
                batch(
                    kept,
                    codec,
                    base_offset=base,
                    last_offset=offset - 1,
                    producer=producer,
                    transactional=kind == ABORTED,
                )
            )
    whole = OffsetRange("t", 0, start, start + size)
    decoder = RangeDecoder(whole, isolation)
    position = start
    ends = sorted(cut for cut in cuts if cut < len(batches))
    for first, last in zip([0, *ends], [*ends, len(batches)], strict=True):
        if position < whole.end:
            data = as_array(b"".join(batches[first:last]))
            position = decoder.scan(data, position, np.array(aborted, np.int64).reshape(-1, 2))
            list(decoder.batches())
            decoder.reached(position)
    assert decoder.statistics.removed == sum(n not in present for n in range(start, position))
