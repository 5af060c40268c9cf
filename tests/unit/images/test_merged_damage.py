"""Files that are no runs, or no longer: refused by name, or of no effect, whatever their bytes are."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.errors import Corrupted
from statecore.images.digest import StoreDigest
from statecore.images.model import Run
from statecore.images.runs_digest import merged_digest
from tests.harness.raising import raises
from tests.harness.reference_digest import digest_of
from tests.unit.images.sst_files import GOOD, contents_of, entry, files_of, forged, sealed, varint, written


@pytest.mark.full
def test_a_flipped_bit_anywhere_is_refused_or_changes_nothing(tmp_path: Path) -> None:
    below = written(tmp_path / "0.sst", {b"key-%02d" % number: b"below" for number in range(60)})
    run = written(tmp_path / "1.sst", {b"key-%02d" % number: b"v" * number for number in range(0, 60, 2)}, at_once=10)
    runs, data = [below, run], Path(run.path).read_bytes()
    expected = merged_digest(runs, files_of(runs))
    target, refusals = tmp_path / "flipped.sst", []
    for at in range(len(data)):
        target.write_bytes(data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :])
        try:
            found = merged_digest(runs, [Path(below.path), target])
        except Corrupted as error:
            refusals.append(error)
        else:
            assert found == expected  # bits of the filter and the properties change no row
    assert len(refusals) > run.bytes
    assert {error.context["path"] for error in refusals} == {str(run.path)}


@pytest.mark.parametrize("size", [0, 1, 52, 53, 60, 400])
def test_a_truncated_file_is_refused(tmp_path: Path, size: int) -> None:
    runs = [written(tmp_path / f"{number}.sst", {b"a": b"1", b"b": b"2"}) for number in range(2)]
    Path(runs[1].path).write_bytes(Path(runs[1].path).read_bytes()[:size])
    with raises(Corrupted, "run-damaged", path=str(runs[1].path)):
        merged_digest(runs, files_of(runs))


def merged_with_a_good_run(tmp_path: Path, run: Run) -> StoreDigest:
    good = written(tmp_path / "good.sst", {b"a": b"1", b"y": b"2"})
    return merged_digest([good, run], files_of([good, run]))


def test_the_forger_can_write_good_files(tmp_path: Path) -> None:
    run = forged(tmp_path / "forged.sst", sealed(contents_of(entry(b"a"))), sealed(contents_of(entry(b"b", kind=0))))
    found = merged_with_a_good_run(tmp_path, run)
    assert found == (2, 4, digest_of({b"a": b"v", b"y": b"2"}.items()))


UNENDING = b"\xff" * 12
FAR = varint(1 << 62)


@pytest.mark.parametrize(
    ("blocks", "said"),
    [
        ([contents_of(entry(b"a"), entry(b"a"))], "do not ascend"),
        ([contents_of(entry(b"b"), entry(b"a"))], "do not ascend"),
        ([contents_of(entry(b"ab"), entry(b"", common=1))], "do not ascend"),
        ([contents_of(entry(b"b")), contents_of(entry(b"a"))], "do not ascend"),
        ([contents_of(entry(b"a", kind=2))], "neither a value nor a delete"),
        ([contents_of(entry(b"a", kind=0x101))], "neither a value nor a delete"),
        ([contents_of(entry(b"a"), entry(b"b", common=2))], "does not fit"),
        ([contents_of(entry(b"a")), contents_of(entry(b"b", common=1))], "does not fit"),
        ([contents_of(varint(0, 7, 4) + bytes(11))], "does not fit"),
        ([contents_of(varint(0, 9, 100) + bytes(20))], "does not fit"),
        ([contents_of(varint(0, 100, 0) + bytes(20))], "does not fit"),
        ([contents_of(FAR + varint(9, 0) + bytes(20))], "does not fit"),
        ([contents_of(varint(0) + FAR + varint(0) + bytes(20))], "does not fit"),
        ([contents_of(varint(0, 9) + FAR + bytes(20))], "does not fit"),
        ([contents_of(UNENDING)], "does not fit"),
        ([contents_of(varint(0) + UNENDING)], "does not fit"),
        ([contents_of(varint(0, 9) + UNENDING)], "does not fit"),
        ([contents_of(varint(0))], "does not fit"),
        ([contents_of(entry(b"k" * 999), entry(b"k", common=1000))], "does not fit"),
        ([contents_of(entry(b"k" * 999), entry(b"a" * 999))], "do not ascend"),
        ([contents_of(entry(b"k" * 999)), contents_of(entry(b"k", common=999))], "does not fit"),
        ([contents_of(entry(b"a")), contents_of(entry(b"k" * 999, common=1))], "does not fit"),
        ([contents_of(entry(b"k" * 999), entry(b"l" * 2000, kind=2))], "neither a value nor a delete"),
        ([contents_of(entry(b"k" * 999), entry(b"l" * 2000)[:-8])], "does not fit"),
        ([contents_of(entry(b"a"), restarts=0)], "too many restarts"),
        ([contents_of(entry(b"a"), restarts=1000)], "too many restarts"),
        ([contents_of(entry(b"a"), restarts=0x80000001)], "too many restarts"),
        ([contents_of()], "without entries"),
        ([b""], "does not match its blocks"),
        ([GOOD, GOOD[:7]], "does not match its blocks"),
        ([contents_of(entry(b"a"))], "has 1 entries instead of 2"),
    ],
)
def test_a_block_that_is_not_one_is_refused(tmp_path: Path, blocks: list[bytes], said: str) -> None:
    run = forged(tmp_path / "forged.sst", *map(sealed, blocks))
    with pytest.raises(Corrupted, match=said) as raised:
        merged_with_a_good_run(tmp_path, run)
    assert raised.value.context["path"] == str(run.path)


@pytest.mark.parametrize(
    ("index", "said"),
    [
        (contents_of(b"\1" + varint(1) + b"z" + varint(0, len(GOOD))), "does not match"),
        (contents_of(b"\0" + varint(1) + b"z" + varint(1, len(GOOD))), "does not match"),
        (contents_of(b"\0" + varint(1) + b"z" + varint(0, len(GOOD) + 1)), "does not match"),
        (contents_of(b"\0" + varint(1) + b"z" + varint(0, len(GOOD) - 1)), "checksum"),
        (contents_of(b"\0" + varint(1) + b"z" + varint(0, 1 << 40)), "does not match"),
        (contents_of(b"\0" + varint(1) + b"z" + FAR + FAR), "does not match"),
        (contents_of(b"\0" + varint(100) + b"z" + varint(0, len(GOOD))), "does not match"),
        (contents_of(b"\0" + FAR + b"z" + varint(0, len(GOOD))), "does not match"),
        (contents_of(b"\0" + varint(1) + b"z" + varint(0)), "does not match"),
        (contents_of(b"\0" + varint(1) + b"z"), "does not match"),
        (contents_of(b"\0"), "does not match"),
        (contents_of(b"\0" + UNENDING), "does not match"),
        (contents_of(b"\0" + varint(1) + b"z" + varint(0, len(GOOD)), restarts=0), "index without entries"),
        (contents_of(b"\0" + varint(1) + b"z" + varint(0, len(GOOD)), restarts=99), "index without entries"),
        (contents_of(), "has 0 entries instead of 2"),
        (b"", "outside of the file"),
    ],
)
def test_an_index_that_is_not_one_is_refused(tmp_path: Path, index: bytes, said: str) -> None:
    run = forged(tmp_path / "forged.sst", sealed(GOOD), index=index)
    with pytest.raises(Corrupted, match=said) as raised:
        merged_with_a_good_run(tmp_path, run)
    assert raised.value.context["path"] == str(run.path)


def test_compressed_blocks_and_wrong_checksums_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Corrupted, match="compressed"):
        merged_with_a_good_run(tmp_path, forged(tmp_path / "0.sst", sealed(GOOD, compression=1)))
    with pytest.raises(Corrupted, match="checksum"):
        merged_with_a_good_run(tmp_path, forged(tmp_path / "1.sst", sealed(GOOD)[:-1] + b"\0"))


@pytest.mark.parametrize(
    "handles", [b"\xff" * 40, varint(0, 0, 0, 0), varint(0, 0) + FAR + varint(9), varint(0, 0, 0) + FAR]
)
def test_a_footer_that_leads_nowhere_is_refused(tmp_path: Path, handles: bytes) -> None:
    run = forged(tmp_path / "forged.sst", sealed(GOOD))
    data = Path(run.path).read_bytes()
    Path(run.path).write_bytes(data[:-52] + handles.ljust(40, b"\0") + data[-12:])
    with raises(Corrupted, "run-damaged", path=str(run.path)):
        merged_with_a_good_run(tmp_path, run)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=80), st.integers(0, 6))
def test_any_bytes_in_a_block_with_a_good_checksum_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes, restarts: int
) -> None:
    path = tmp_path_factory.mktemp("junk")
    run = forged(path / "forged.sst", sealed(contents_of(junk, restarts=restarts)))
    with pytest.raises(Corrupted):  # a block of two good entries is beyond chance
        merged_with_a_good_run(path, run)


def test_good_blocks_with_one_byte_changed_are_read_or_refused(tmp_path: Path) -> None:
    contents = contents_of(*(entry(b"key-%02d" % number, b"v" * number) for number in range(40)))
    source = random.Random(5)
    good = written(tmp_path / "good.sst", {b"key-00": b"1", b"key-50": b"2"})
    refused = 0
    for _ in range(1500):
        at, byte = source.randrange(len(contents)), source.randrange(256)
        run = replace(
            forged(tmp_path / "forged.sst", sealed(contents[:at] + bytes([byte]) + contents[at + 1 :])),
            rows=40,
            min_key=b"key-00".hex(),
        )
        try:
            found = merged_digest([good, run], files_of([good, run]))
        except Corrupted:
            refused += 1
        else:
            assert found.rows <= 42
    assert 0 < refused < 1500
