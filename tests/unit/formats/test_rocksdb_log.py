"""Records of MANIFESTs and logs, and when the rows of an SST file were flushed, as a MANIFEST tells it."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import crc32c
import pytest

from statecore.formats.rocksdb_log import (
    BLOCK,
    DamagedRecord,
    LiveFile,
    endless_record,
    families_of_log,
    read_manifest,
)
from tests.unit.images.sst_files import varint


def sized(data: bytes) -> bytes:
    return varint(len(data)) + data


def added(number: int, created: int | None, *, level: int = 0, size: int = 1000, identity: bytes = b"") -> bytes:
    """A ``kNewFile4``: level, number, size, keys, sequence numbers, then fields up to the one that ends them."""
    begin = varint(103) + varint(level) + varint(number) + varint(size) + sized(b"a") + sized(b"b")
    created_at = b"" if created is None else varint(6) + sized(varint(created))
    return begin + varint(number) + varint(number) + created_at + varint(12) + sized(identity or b"%d" % number) + b"\1"


def deleted(number: int, level: int = 0) -> bytes:
    return varint(6) + varint(level) + varint(number)


def record(edit: bytes, kind: int = 1) -> bytes:
    crc = crc32c.crc32c(bytes([kind]) + edit)
    masked = (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
    return struct.pack("<IHB", masked, len(edit), kind) + edit


def files(edits: Sequence[bytes]) -> dict[int, LiveFile]:
    return dict(read_manifest(b"".join(map(record, edits))).files)


def of_group(edit: bytes, left: int) -> bytes:
    """``kInAtomicGroup``: how many edits of the group are still to come."""
    return edit + varint(300) + varint(left)


def times(*edits: bytes) -> dict[int, tuple[int, bool]]:
    return {number: (file.flushed_at, file.is_flushed) for number, file in files(edits).items()}


def test_a_flushed_file_has_the_time_at_which_it_was_begun() -> None:
    assert times(added(7, 100), added(8, 200)) == {7: (100, True), 8: (200, True)}
    assert times(added(7, None)) == {7: (0, True)}


def test_a_compaction_adds_no_row_so_its_files_are_as_of_the_newest_that_they_were_made_of() -> None:
    made = deleted(7) + deleted(8) + added(9, 900, level=6) + added(10, 901, level=6)
    assert times(added(7, 100), added(8, 200), made) == {9: (200, False), 10: (200, False)}
    again = deleted(9, 6) + deleted(11) + added(12, 950, level=6)
    assert times(added(7, 100), added(8, 200), made, added(11, 300), again) == {10: (200, False), 12: (300, False)}


def test_a_file_that_only_changes_its_level_stays_what_it_is() -> None:
    assert times(added(7, 100), deleted(7) + added(7, 100, level=6)) == {7: (100, True)}


def test_records_of_unknown_files_count_as_written() -> None:
    assert times(deleted(5) + added(9, 900)) == {9: (900, True)}


def test_records_of_blob_files_are_skipped() -> None:
    blob = varint(400) + varint(9) + varint(70) + varint(4711) + sized(b"") + sized(b"") + b"\0"
    garbage = varint(401) + varint(9) + varint(3) + varint(200) + b"\0"
    assert times(added(7, 100) + blob, garbage + added(8, 200)) == {7: (100, True), 8: (200, True)}


def test_a_group_of_edits_counts_when_it_is_whole() -> None:
    """``AtomicGroupReadBuffer`` (``db/version_edit_handler.cc``) holds its edits back until the last one."""
    edits = [added(7, 100), of_group(added(8, 200), 2), of_group(added(9, 200), 1), of_group(added(10, 200), 0)]
    records = [record(edit) for edit in edits]
    read = [read_manifest(b"".join(records[:count])) for count in range(1, 5)]
    assert [sorted(one.files) for one in read] == [[7], [7], [7], [7, 8, 9, 10]]
    assert [one.missing_edits for one in read] == [0, 2, 1, 0]
    assert [one.last_sequence for one in read] == [7, 7, 7, 10]
    assert read[2].valid_bytes == len(b"".join(records[:3]))


def test_an_edit_within_the_group_of_others_is_unknown_content() -> None:
    with pytest.raises(ValueError, match="atomic group"):
        files([of_group(added(8, 200), 1), added(9, 200)])


def test_a_log_says_of_which_families_its_rows_are() -> None:
    batch = struct.pack("<QI", 5, 4) + b"\1" + sized(b"k") + sized(b"v") + b"\5\7" + sized(b"k") + sized(b"v")
    batch += b"\3" + sized(b"data of no row") + b"\0" + sized(b"k")
    assert families_of_log(record(batch)) == {0, 7}
    assert families_of_log(record(batch)[:-1]) == frozenset(), "half a record is none"
    assert families_of_log(record(batch + b"\x63" + sized(b"unknown") + b"\5\11")) == {0, 7}
    assert families_of_log(b"") == frozenset()


def test_a_record_with_a_wrong_checksum_says_nothing() -> None:
    data = record(added(7, 100))
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1
        if at in (4, 5) or changed[6] == 0:  # shorter, longer, or no record
            continue
        with pytest.raises(DamagedRecord):
            read_manifest(bytes(changed))


def test_a_record_of_a_recycled_log_after_another_one_is_read_for_ever() -> None:
    first, length = record(b"whole"), len(record(b"whole"))
    for kind in (5, 6, 7, 8, 11):
        assert endless_record([first + record(b"numbered", kind)]) == length
    for kind in (1, 2, 3, 4, 9, 130, 200):
        assert endless_record([first + record(b"other", kind)]) is None
    recycled = record(b"numbered", 5)[:7] + bytes(4) + b"numbered"
    assert endless_record([recycled + recycled + first + recycled]) is None, "a log that was recycled"
    assert endless_record([record(b"cut", 2) + recycled]) is None, "there is no whole record before it"
    assert endless_record([]) is None


def test_after_damage_the_next_block_is_looked_at() -> None:
    begun = record(b"whole")
    zeros = begun + bytes(BLOCK - len(begun))
    too_long = begun + struct.pack("<IHB", 0, 0xFFFF, 1) + bytes(BLOCK - len(begun) - 7)
    for block in (zeros, too_long):
        assert len(block) == BLOCK
        assert endless_record([block, record(b"numbered", 5)]) == BLOCK
