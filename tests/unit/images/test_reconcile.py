"""Bases reconciled with whole logs, compared with dicts, and with images of the whole log."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.changelog.decoder import CHANGELOG_SCHEMA, HEADERS_FIELD
from statecore.errors import Corrupted, Invalid
from statecore.filesystem import file_sha256
from statecore.formats.kinds import StoreKind
from statecore.formats.segments import Segmentation
from statecore.formats.topic_partition import TopicPartition
from statecore.images.image import build_image
from statecore.images.merge_reader import LIMITS, MergeLimits
from statecore.images.merge_reader import Rows as Buffers
from statecore.images.model import BaseDatabases, RunFile, RunFormat, RunOrigin
from statecore.images.reconcile import DifferingRuns, reconciled_run
from statecore.images.runs import RunBuilder
from tests.harness.raising import raises
from tests.harness.reference_digest import digest_of
from tests.unit.images import test_segments_campaign as segments
from tests.unit.images.sst_files import Rows, written
from tests.unit.images.test_merge_writer import entries, last_writes, runs_of
from tests.unit.images.test_runs_digest import KEYS, VALUES

START, END = 1000, 2000
CHANGELOG = TopicPartition("app-store-changelog", 0)
HISTORIES = st.lists(st.dictionaries(KEYS, VALUES, min_size=1, max_size=40), max_size=4)


def shown(contents: Sequence[Rows]) -> dict[bytes, bytes]:
    return {key: value for key, value in last_writes(contents).items() if value is not None}


def difference(base: Sequence[Rows], log: Sequence[Rows]) -> Rows:
    """Rows needed above the base, and no others."""
    old, new = shown(base), shown(log)
    made: Rows = {key: value for key, value in new.items() if old.get(key) != value}
    return made | dict.fromkeys(old.keys() - new.keys())


def both(path: Path, base: Sequence[Rows], log: Sequence[Rows]) -> tuple[list[RunFile], list[RunFile]]:
    for name in ("base", "log"):
        (path / name).mkdir()
    return runs_of(path / "base", base), runs_of(path / "log", log)


def reconciled(path: Path, base: Sequence[Rows], log: Sequence[Rows], limits: MergeLimits = LIMITS) -> RunFile | None:
    runs = both(path, base, log)
    return reconciled_run(path / "made.sst", *runs, start=START, end=END, limits=limits)


@st.composite
def bases_and_logs(draw: Callable[..., Any]) -> tuple[list[Rows], list[Rows]]:
    """Runs of a base, and those of a log that has most of its rows, in other runs."""
    base, changes = draw(HISTORIES), draw(HISTORIES)
    left: list[Rows] = [{} for _ in range(draw(st.integers(1, 3)))]
    for key, value in shown(base).items():
        number = draw(st.integers(-1, 2 * len(left) - 1))
        if number >= 0:
            left[number % len(left)][key] = value
    return base, [rows for rows in left if rows] + changes


@settings(deadline=None, max_examples=60)
@given(
    runs=bases_and_logs(),
    rows=st.sampled_from([1, 3, 4096]),
    size=st.sampled_from([1, 300, 1 << 20]),
    read=st.sampled_from([1, 2, 7, 1 << 20]),
    room=st.sampled_from([8, 16, 100, 256]),
)
def test_the_run_above_the_base_has_only_the_differences(
    tmp_path_factory: pytest.TempPathFactory,
    runs: tuple[list[Rows], list[Rows]],
    rows: int,
    size: int,
    read: int,
    room: int,
) -> None:
    path = tmp_path_factory.mktemp("runs")
    base, log = runs
    made = reconciled(path, base, log, MergeLimits(rows, size, room, read))
    expected = difference(base, log)
    assert shown([*base, expected]) == shown(log)
    if not expected:
        assert made is None
        assert not (path / "made.sst").exists()
        return
    assert made is not None
    live = {key: value for key, value in expected.items() if value is not None}
    assert (made.rows, made.deletes) == (len(live), len(expected) - len(live))
    assert (made.digest, made.sha256) == (digest_of(live.items()), file_sha256(made.path))
    assert (bytes.fromhex(made.min_key), bytes.fromhex(made.max_key)) == (min(expected), max(expected))
    assert (made.start, made.end, made.stream_time) == (START, END, max(len(base), len(log)) - 1)
    assert entries(made, last_writes([*base, *log])) == expected


def test_a_value_that_only_got_another_length_or_became_empty_is_different(tmp_path: Path) -> None:
    base: Rows = {b"a": b"", b"b": b"1", b"c": b"12", b"d": b"", b"e": b"12345678", b"f": b"12345678"}
    log: Rows = {b"a": b"", b"b": b"", b"c": b"123", b"d": b"\0", b"e": b"1234567", b"f": b"12345678"}
    made = reconciled(tmp_path, [base], [log])
    assert made is not None
    assert entries(made, base) == {key: log[key] for key in (b"b", b"c", b"d", b"e")}


@pytest.mark.parametrize("log", [[], [{b"a": None}], [{b"a": b"1", b"b": b"2"}, {b"a": None, b"b": None}]])
def test_an_empty_log_deletes_all_rows_of_the_base(tmp_path: Path, log: list[Rows]) -> None:
    base: list[Rows] = [{b"a": b"1", b"b": b"2", b"x": b"3"}, {b"b": None, b"c": b""}]
    made = reconciled(tmp_path, base, log)
    assert made is not None
    assert entries(made, last_writes(base)) == {b"a": None, b"c": None, b"x": None}


@pytest.mark.parametrize("base", [[], [{b"a": None}], [{b"a": b"1"}, {b"a": None}]])
def test_an_empty_base_gets_all_rows_of_the_log(tmp_path: Path, base: list[Rows]) -> None:
    log: list[Rows] = [{b"a": b"1", b"b": b"2"}, {b"b": None, b"c": b""}]
    made = reconciled(tmp_path, base, log)
    assert made is not None
    assert entries(made, last_writes(log)) == {b"a": b"1", b"c": b""}


def test_what_shows_the_same_needs_no_run_however_it_is_divided(tmp_path: Path) -> None:
    source = random.Random(2)
    rows: Rows = {b"key-%05d" % number: source.randbytes(source.randrange(40)) for number in range(9000)}
    some = dict(list(rows.items())[::3])
    older: Rows = dict.fromkeys(list(rows)[::2], b"older")
    log: list[Rows] = [{key: rows[key] for key in rows.keys() - some.keys()}, some]
    assert reconciled(tmp_path, [older, {b"gone": b"1"}, rows, {b"gone": None}], log) is None
    assert reconciled_run(tmp_path / "made.sst", [], [], start=START, end=END) is None
    assert not (tmp_path / "made.sst").exists()


def test_the_same_runs_give_the_same_bytes(tmp_path: Path) -> None:
    source = random.Random(1)
    contents: list[Rows] = []
    for _ in range(5):
        keys = {b"key-%07d" % source.randrange(20_000) for _ in range(9000)}
        contents.append({key: source.choice([None, source.randbytes(source.randrange(300))]) for key in keys})
    base, log = both(tmp_path, contents[:3], contents[1:])
    made = [reconciled_run(tmp_path / name, base, log, start=START, end=END) for name in ("once", "again")]
    assert made[0] is not None
    assert made[0] == replace(made[1], path=made[0].path)
    assert made[0].rows + made[0].deletes == len(difference(contents[:3], contents[1:]))


def test_keys_and_values_larger_than_a_buffer_are_copied_alone(tmp_path: Path) -> None:
    source = random.Random(7)
    stem, large = source.randbytes(3 << 20), source.randbytes(5 << 20)
    lengths = [0, 1, 249, 250, 1023, 1024, 5000, 1 << 20, (1 << 20) + 1, 3 << 20]
    keys = [stem[:length] + more for length in lengths for more in (b"", b"x")]
    base: list[Rows] = [dict.fromkeys(keys[::2], large), dict.fromkeys(keys[1::3], b"1")]
    log: list[Rows] = [dict.fromkeys(keys[::3], large), dict.fromkeys(keys[2::3], large[:-1])]
    made = reconciled(tmp_path, base, log)
    assert made is not None
    assert entries(made, keys) == difference(base, log)


def test_a_kernel_comes_back_for_an_interrupt_when_it_has_read_for_a_while(tmp_path: Path) -> None:
    rows: Rows = {b"key-%06d" % number: b"v" for number in range(2000)}
    differing = DifferingRuns(*both(tmp_path, [rows], [rows]), MergeLimits(entries=100))
    buffers, calls = Buffers.room(differing.limits), 1
    while differing.differ(buffers):
        calls += 1
    assert differing.entries == [2000, 2000]
    assert 40 <= calls <= 41


def test_memory_does_not_grow_with_what_is_compared(tmp_path: Path) -> None:
    rows: Rows = {b"key-%06d" % number: bytes(1000) for number in range(30_000)}
    base, log = both(tmp_path, [rows], [rows | {b"key-000007": b"", b"key-029000": b"1"}])
    tracemalloc.start()
    try:
        made = reconciled_run(tmp_path / "made.sst", base, log, start=START, end=END)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert made is not None
    assert made.rows == 2
    assert peak < 5 << 20 < base[0].file_bytes // 4


# ---- kinds

KEY_VALUE = (*(StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE), *(StoreKind.HEADERS_KEY_VALUE, StoreKind.LIST))
SEGMENTATION = Segmentation(retention_ms=1 << 40, interval_ms=60_000)


def record_batch(kind: StoreKind, records: Sequence[tuple[int, int, int, bool]]) -> pa.RecordBatch:
    """Records, by offset, number of the key, number of the value, and whether it is one."""
    offsets = pa.array([offset for offset, *_ in records], pa.int64())
    if kind.is_segmented:
        base = 1_795_251_660_000
        made = [
            segments.Entry(
                b"k%d" % (key % 40),
                base + 50_000 * (key % 7),
                0,
                0,
                b"v%d" % value if is_value else None,
                (),
                base + value,
            )
            for _, key, value, is_value in records
        ]
        return segments.batch(kind, made, 0).set_column(2, "offset", offsets)
    keys, values = [b"k%d" % key for _, key, _, _ in records], [b"v%d" % value for _, _, value, _ in records]
    if kind is StoreKind.LIST:
        keys = [struct.pack(">qb", key % 3, key % 2) + b"k%d" % key for _, key, _, _ in records]
        values = [b"\1" + struct.pack(">ii", 1, 1 + len(value)) + b"\0" + value for value in values]
    return pa.record_batch(
        [
            pa.array(keys, pa.binary()),
            pa.array([value if row[3] else None for value, row in zip(values, records, strict=True)], pa.binary()),
            offsets,
            pa.array([1_795_251_660_000 + value for _, _, value, _ in records], pa.int64()),
            pa.array([segments.header_bytes(((b"h", b"%d" % value),)) for _, _, value, _ in records], pa.binary()),
        ],
        schema=CHANGELOG_SCHEMA.append(HEADERS_FIELD),
    )


def runs_read(
    path: Path, kind: StoreKind, records: Sequence[tuple[int, int, int, bool]], ends: Sequence[int]
) -> list[RunFile]:
    """The runs of offset ranges, with nothing below the first."""
    runs, start = [], 0
    for end in ends:
        directory = path / f"{start}-{end}"
        directory.mkdir(parents=True)
        builder = RunBuilder(
            kind,
            directory,
            base=BaseDatabases(all_databases=start > 0),
            segmentation=SEGMENTATION if kind.is_segmented else None,
            changelog=CHANGELOG,
            store="s",
            start=start,
        )
        part = [record for record in records if start <= record[0] < end]
        if part:
            builder.add(record_batch(kind, part))
        runs += builder.finish(end)
        start = end
    return runs


@pytest.mark.parametrize("kind", [*KEY_VALUE, *segments.KINDS])
def test_a_base_that_missed_deletes_becomes_equal_to_the_compacted_log(tmp_path: Path, kind: StoreKind) -> None:
    source = random.Random(kind.value)
    history = [(offset, source.randrange(150), offset, source.random() < 0.6) for offset in range(END)]
    last = {key: offset for offset, key, _, _ in history}
    # Compaction has been everywhere but at the end: no replaced record is left there, and no delete.
    compacted = [record for record in history if record[0] >= 1900 or (last[record[1]] == record[0] and record[3])]
    base = runs_read(tmp_path / "base", kind, history, [400, START])
    log = runs_read(tmp_path / "log", kind, compacted, [1500, END])
    whole = runs_read(tmp_path / "whole", kind, history, [END])
    made, deletes = list(base), 0
    for segment in sorted({run.segment for run in (*base, *log)}, key=str):
        of = [[run for run in runs if run.segment == segment] for runs in (base, log)]
        run = reconciled_run(tmp_path / f"made-{segment}", *of, start=START, end=END)
        if run is not None:
            deletes += run.deletes
            assert (run.origin, run.segment) == (RunOrigin("s", kind, CHANGELOG), segment)
            made.append(run)
    assert deletes > 10
    segmented = None
    if kind.is_segmented:
        segmented = segments.SegmentedRuns("s", SEGMENTATION, max(run.stream_time for run in whole))
    images = [
        build_image(tmp_path / f"image-{number}", kind, runs, {CHANGELOG: END - 1}, segmented=segmented)
        for number, runs in enumerate((made, log, whole))
    ]
    assert {image.content for image in images} == {images[0].content}
    assert images[0].rows


# ---- what is refused


def test_a_flipped_bit_anywhere_is_refused_or_changes_nothing(tmp_path: Path) -> None:
    rows: Rows = {b"key-%02d" % number: b"v" * (number % 9) for number in range(12)}
    base, log = both(tmp_path, [rows], [{**dict(list(rows.items())[::2]), b"key-04": b"new"}])
    expected = reconciled_run(tmp_path / "expected", base, log, start=START, end=END)
    assert expected is not None
    made, refusals = tmp_path / "made", []
    for run in (*base, *log):
        data = run.path.read_bytes()
        for at in (*range(250), *range(250, len(data), 9)):
            # Another file: a mapped one is not changed under who reads it.
            target = run.path.with_name("flipped")
            target.unlink(missing_ok=True)
            target.write_bytes(data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :])
            given = [[replace(one, path=target) if one is run else one for one in runs] for runs in (base, log)]
            try:
                found = reconciled_run(made, *given, start=START, end=END)
            except Corrupted as error:
                refusals.append((error.context["path"], str(target), made.exists()))
            else:
                assert found == replace(expected, path=made)  # bits of the filter and the properties change no row
                made.unlink()
    assert len(refusals) > base[0].bytes + log[0].bytes
    assert all(said == damaged and not is_left for said, damaged, is_left in refusals)


@pytest.mark.parametrize("of_base", [True, False])
def test_a_damaged_block_late_in_a_file_leaves_nothing_of_what_was_written(tmp_path: Path, of_base: bool) -> None:
    rows: Rows = {b"key-%05d" % number: bytes(50) for number in range(30_000)}
    base, log = both(tmp_path, [rows], [{key: bytes(51) for key in rows}])
    path = (base if of_base else log)[0].path
    data = bytearray(path.read_bytes())
    data[1_500_000] ^= 1
    path.write_bytes(data)
    with pytest.raises(Corrupted, match="checksum"):
        reconciled_run(tmp_path / "made", base, log, start=START, end=END)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("of_base", [True, False])
def test_a_truncated_run_or_one_with_a_wrong_entry_count_is_corrupted(tmp_path: Path, of_base: bool) -> None:
    base, log = both(tmp_path, [{b"a": b"1"}], [{b"a": b"1"}])
    more = ([replace(base[0], rows=2)], log) if of_base else (base, [replace(log[0], rows=2)])
    with pytest.raises(Corrupted, match="1 entries instead of 2"):
        reconciled_run(tmp_path / "made", *more, start=START, end=END)
    path = (base if of_base else log)[0].path
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(Corrupted, match="does not end"):
        reconciled_run(tmp_path / "made", base, log, start=START, end=END)


def test_what_is_not_one_database_is_refused(tmp_path: Path) -> None:
    [one, two], [log] = both(tmp_path, [{b"a": b"1"}, {b"b": b"2"}], [{b"c": b"3"}])
    path = tmp_path / "made"
    for base in ([two, one], [one, replace(two, segment=7)], [one, replace(two, start=one.end - 1)]):
        with pytest.raises(Invalid):
            reconciled_run(path, base, [log], start=START, end=END)
    with raises(Invalid, "run-mismatch", segments=[None, 7], stores=[one.store]):
        reconciled_run(path, [one, replace(two, segment=7)], [log], start=START, end=END)
    with raises(Invalid, "runs-out-of-order", end=two.end, next_start=one.start):
        reconciled_run(path, [two, one], [log], start=START, end=END)
    for other in (replace(log, segment=7), replace(log, store="x"), replace(log, kind=StoreKind.LIST)):
        with raises(Invalid, "run-mismatch"):
            reconciled_run(path, [one, two], [other], start=START, end=END)
    with pytest.raises(Invalid, match="row versions"):
        reconciled_run(path, [one, two], [replace(log, row_version=2)], start=START, end=END)
    for partition in (0, 1):
        of_global = RunOrigin("s", StoreKind.KEY_VALUE, TopicPartition("t", partition)).of(log)
        with raises(Invalid, "run-mismatch"):
            reconciled_run(
                path,
                [RunOrigin("s", StoreKind.KEY_VALUE, TopicPartition("t", 2)).of(one)],
                [of_global],
                start=START,
                end=END,
            )
    assert not path.exists()


@pytest.mark.parametrize(("start", "end"), [(199, 2000), (200, 200), (2000, 200), (1000, 99)])
def test_offsets_not_between_the_base_and_the_log_end_are_refused(tmp_path: Path, start: int, end: int) -> None:
    base, log = both(tmp_path, [{b"a": b"1"}, {b"b": b"2"}], [{b"c": b"3"}])
    with pytest.raises(Invalid, match="offsets"):
        reconciled_run(tmp_path / "made", base, log, start=start, end=end)


def test_versioned_stores_are_refused(tmp_path: Path) -> None:
    [base], [log] = both(tmp_path, [{b"a": b"1"}], [{b"c": b"3"}])
    with pytest.raises(Invalid, match="are not rows"):
        reconciled_run(tmp_path / "made", [base], [replace(log, format=RunFormat.RECORDS)], start=START, end=END)
    of = [replace(run, kind=StoreKind.VERSIONED_KEY_VALUE) for run in (base, log)]
    with pytest.raises(Invalid, match="versioned"):
        reconciled_run(tmp_path / "made", of[:1], of[1:], start=START, end=END)


def test_a_run_without_an_origin_is_not_mixed_with_runs_of_a_database(tmp_path: Path) -> None:
    """A run without an origin does not count as one of a database."""
    run = written(tmp_path / "run", {b"a": b"1"})
    other = RunOrigin("s", StoreKind.KEY_VALUE, CHANGELOG).of(run)
    with raises(Invalid, "run-mismatch"):
        reconciled_run(tmp_path / "made", [run], [other], start=START, end=END)
