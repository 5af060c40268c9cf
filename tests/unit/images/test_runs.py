import errno
import os
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.errors import Capacity, Invalid
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.images.image import build_image
from statecore.images.model import BaseDatabases, RunOrigin
from statecore.images.runs import RunBuilder
from tests.harness.reference_digest import digest_of
from tests.unit.images.changelog import CuttingRunBuilder, Record, batch, batches, expected_rows, stored_rows

BUILDERS = [RunBuilder, CuttingRunBuilder]
KINDS = [StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE]
CHANGELOG = TopicPartition("app-store-changelog", 0)

FEW_KEYS = st.integers(0, 12).map(lambda number: b"key-%d" % number)
LONG_KEYS = st.builds(lambda head, rest: head * 30 + rest, st.sampled_from([b"a", b"ab"]), st.binary(max_size=3))
KEYS = st.one_of(st.none(), st.just(b""), FEW_KEYS, LONG_KEYS, st.binary(max_size=20))
VALUES = st.one_of(st.none(), st.just(b""), st.binary(max_size=60))
RECORDS = st.lists(st.tuples(KEYS, VALUES), max_size=120)


def build(path: Path, kind: StoreKind, records: list[Record], rows: int, budget: int, **options: Any) -> RunBuilder:
    return measured(path, kind, records, rows, budget, **options)[0]


def measured(
    path: Path,
    kind: StoreKind,
    records: list[Record],
    rows: int,
    budget: int,
    maker: type[RunBuilder] = RunBuilder,
    **options: Any,
) -> tuple[RunBuilder, int]:
    """A builder with all records, and the most bytes of Arrow buffers that it held between two batches."""
    path.mkdir(parents=True)
    builder = maker(kind, path, memory_budget=budget, **{"base": BaseDatabases.NONE, **options})
    before, peak = pa.total_allocated_bytes(), 0
    for start in range(0, len(records), rows):
        builder.add(batch(records[start : start + rows], start))
        peak = max(peak, pa.total_allocated_bytes() - before)
    return builder, peak


@settings(max_examples=60, deadline=None)
@given(
    records=RECORDS,
    rows=st.integers(1, 50),
    budget=st.sampled_from([1, 30_000, 40_000, 1 << 20]),
    kind=st.sampled_from(KINDS),
    keep=st.booleans(),
    maker=st.sampled_from(BUILDERS),
)
def test_any_records_in_any_batches_under_any_budget_give_the_rows_of_a_dict(
    tmp_path_factory: pytest.TempPathFactory,
    records: list[Record],
    rows: int,
    budget: int,
    kind: StoreKind,
    keep: bool,
    maker: type[RunBuilder],
) -> None:
    path = tmp_path_factory.mktemp("runs")
    builder = build(path / "runs", kind, records, rows, budget, base=BaseDatabases(all_databases=keep), maker=maker)
    runs = builder.finish()
    image = build_image(path / "image", kind, runs, {CHANGELOG: len(records)})
    assert len(runs) <= 1 or maker is CuttingRunBuilder
    expected = expected_rows(kind, records)
    assert stored_rows(path / "image", kind) == sorted(expected.items())
    assert image.rows == len(expected)
    assert image.digest == digest_of(expected.items())
    assert image.bytes == sum(len(key) + len(value) for key, value in expected.items())
    assert builder.statistics.records == len(records)
    assert builder.statistics.null_keys == sum(key is None for key, _ in records)


def test_what_a_small_budget_does_not_hold_becomes_one_run_all_the_same_or_many_where_that_is_asked_for(
    tmp_path: Path,
) -> None:
    records: list[Record] = [(b"key-%d" % (number % 500), b"x" * 50) for number in range(5000)]
    (one,) = build(tmp_path / "one", KINDS[0], records, 100, 1 << 20).finish()
    (spilled,) = build(tmp_path / "spilled", KINDS[0], records, 100, 1).finish()
    assert spilled.sha256 == one.sha256
    assert [file.name for file in (tmp_path / "spilled").iterdir()] == ["run-00000.sst"]
    assert len(build(tmp_path / "many", KINDS[0], records, 100, 1, maker=CuttingRunBuilder).finish()) == 50


@pytest.mark.parametrize("maker", BUILDERS)
def test_records_without_a_key_are_counted_before_the_runs_are_finished(
    tmp_path: Path, maker: type[RunBuilder]
) -> None:
    records: list[Record] = [(None if number % 10 == 9 else b"%d" % number, b"x" * 50) for number in range(1000)]
    builder = build(tmp_path / "runs", KINDS[0], records, 100, 1, maker=maker)
    assert builder.statistics.null_keys == 100
    builder.finish()
    assert builder.statistics.null_keys == 100


def test_writing_a_run_from_disk_reports_progress_and_can_be_cancelled(tmp_path: Path) -> None:
    records: list[Record] = [(b"key-%06d" % number, b"x" * 50) for number in range(20_000)]
    shares: list[float] = []
    build(tmp_path / "spilled", KINDS[0], records, 100, 200_000).finish(written=shares.append)
    assert shares == sorted(shares)
    assert len(shares) > 10
    assert 0 <= shares[0] < 0.2
    assert shares[-1] == 1

    def stop(share: float) -> None:
        raise KeyError(share)

    builder = build(tmp_path / "stopped", KINDS[0], records, 100, 200_000)
    with pytest.raises(KeyError):
        builder.finish(written=stop)
    with pytest.raises(RuntimeError, match="create a new one"):
        builder.finish()


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_run_is_the_same_bytes_whatever_the_budget(tmp_path: Path, kind: StoreKind) -> None:
    """Few records of many keys, many of few, values that grow, and one larger than what is kept for a while."""
    values = Random(7)
    records: list[Record] = [
        (b"key-%06d" % values.choice([number, number % 97]), values.randbytes(number % 300) if number % 13 else None)
        for number in range(12_000)
    ]
    records[5000:5000] = [(b"key-000050", b"v" * 300_000), (b"key-" + b"k" * 100_000, b""), (None, b"")]
    found = {}
    for budget in (1, 300_000, 1_000_000, 1 << 30):
        builder = build(tmp_path / str(budget), kind, records, 500, budget)
        (run,) = builder.finish()
        found[budget] = run.sha256
        assert builder.statistics.null_keys == 1
    assert len(set(found.values())) == 1
    assert run.digest == digest_of(expected_rows(kind, records).items())


def test_overwritten_values_are_dropped_before_a_run_is_cut(tmp_path: Path) -> None:
    # A few hot keys with large values: what survives is small, so nothing has to be cut whatever comes in.
    records: list[Record] = [(b"key-%d" % (number % 10), bytes([number % 256]) * 1000) for number in range(5000)]
    builder, peak = measured(tmp_path / "runs", KINDS[1], records, 50, 400_000, maker=CuttingRunBuilder)
    (run,) = builder.finish()
    assert peak < 500_000
    assert run.rows == 10
    assert run.digest == digest_of(expected_rows(KINDS[1], records).items())


def test_a_batch_is_let_go_even_if_one_of_its_rows_still_counts(tmp_path: Path) -> None:
    records: list[Record] = []
    for number in range(100):
        records += [(b"once-%d" % number, b"x")] + [(b"hot-%d" % hot, bytes([number]) * 1000) for hot in range(20)]
    builder, peak = measured(tmp_path / "runs", KINDS[0], records, 21, 200_000, maker=CuttingRunBuilder)
    (run,) = builder.finish()
    assert peak < 300_000
    assert run.digest == digest_of(expected_rows(KINDS[0], records).items())


def test_a_delete_reaches_the_rows_of_an_earlier_run(tmp_path: Path) -> None:
    records: list[Record] = [(b"a", b"1"), (b"b", b"2"), (b"a", None), (b"c", None)]
    runs = build(tmp_path / "runs", KINDS[0], records, 2, 1, maker=CuttingRunBuilder).finish()
    assert [(run.rows, run.deletes) for run in runs] == [(2, 0), (0, 2)]
    image = build_image(tmp_path / "image", KINDS[0], runs, {CHANGELOG: 3})
    assert stored_rows(tmp_path / "image", KINDS[0]) == [(b"b", b"2")]
    assert image.digest == digest_of([(b"b", b"2")])


def test_a_first_run_has_no_deletes_unless_they_are_asked_for(tmp_path: Path) -> None:
    records: list[Record] = [(b"a", b"1"), (b"b", None)]
    (run,) = build(tmp_path / "without", KINDS[0], records, 10, 1 << 20).finish()
    assert (run.rows, run.deletes, run.max_key) == (1, 0, b"a".hex())
    (run,) = build(tmp_path / "with", KINDS[0], records, 10, 1 << 20, base=BaseDatabases.ALL).finish()
    assert (run.rows, run.deletes, run.max_key) == (1, 1, b"b".hex())


@pytest.mark.parametrize("records", [[], [(None, b"x")], [(b"a", b"1"), (b"a", None)]])
def test_nothing_that_survives_makes_no_run(tmp_path: Path, records: list[Record]) -> None:
    assert build(tmp_path / "runs", KINDS[0], records, 10, 1 << 20).finish() == []


def test_keys_and_values_of_a_megabyte_are_rows_like_others(tmp_path: Path) -> None:
    head = b"k" * (1 << 20)
    records: list[Record] = [(head + bytes([number % 5]), bytes([number]) * (20 << 20)) for number in (3, 1, 2, 6)]
    runs = build(tmp_path / "runs", KINDS[1], records, 1, 1 << 30).finish()
    image = build_image(tmp_path / "image", KINDS[1], runs, {CHANGELOG: 3})
    expected = expected_rows(KINDS[1], records)
    assert image.rows == 3
    assert stored_rows(tmp_path / "image", KINDS[1]) == sorted(expected.items())


def test_many_keys_grow_every_buffer_of_the_table(tmp_path: Path) -> None:
    records: list[Record] = [
        (b"%d-%s" % (number * 7919 % 30_000, b"p" * (number % 40)), b"v%d" % number) for number in range(60_000)
    ]
    (run,) = build(tmp_path / "runs", KINDS[0], records, 7000, 1 << 30).finish()
    expected = expected_rows(KINDS[0], records)
    assert run.rows == len(expected)
    assert run.digest == digest_of(expected.items())
    assert (run.min_key, run.max_key) == (min(expected).hex(), max(expected).hex())


def test_a_slice_of_a_batch_is_read_from_its_start(tmp_path: Path) -> None:
    records: list[Record] = [(b"a", b"0"), (None, b"1"), (b"b", None), (b"c", b"3"), (b"d", b"4")]
    whole = batch(records)
    builder = RunBuilder(KINDS[1], tmp_path, base=BaseDatabases.ALL)
    builder.add(whole.slice(1, 3))
    (run,) = builder.finish()
    assert (run.rows, run.deletes, builder.statistics.null_keys) == (1, 1, 1)
    assert run.digest == digest_of([(b"c", (1_795_251_660_021).to_bytes(8, "big") + b"3")])


def test_batches_may_have_further_columns(tmp_path: Path) -> None:
    plain = batch([(b"a", b"1")])
    wide = pa.record_batch([*plain.columns, pa.array([b"\0"])], names=[*plain.schema.names, "headers"])
    builder = RunBuilder(KINDS[0], tmp_path, base=BaseDatabases.NONE)
    builder.add(wide)
    assert builder.finish()[0].rows == 1


def test_a_run_says_which_store_and_partition_its_rows_are_of(tmp_path: Path) -> None:
    builder = CuttingRunBuilder(
        KINDS[1],
        tmp_path,
        base=BaseDatabases.NONE,
        changelog=CHANGELOG,
        store="counts",
        memory_budget=1,
    )
    for part in batches([(b"a", b"1"), (b"b", b"2")], 1):
        builder.add(part)
    assert {run.origin for run in builder.finish()} == {RunOrigin("counts", KINDS[1], CHANGELOG)}


def test_a_kind_without_a_row_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid):
        RunBuilder(StoreKind.IN_MEMORY, tmp_path, base=BaseDatabases.NONE)


def test_a_directory_that_is_not_there_is_refused(tmp_path: Path) -> None:
    builder = RunBuilder(KINDS[0], tmp_path / "absent", base=BaseDatabases.NONE)
    builder.add(batch([(b"a", b"1")]))
    with pytest.raises(Invalid, match="cannot be written"):
        builder.finish()


def test_a_builder_whose_disk_became_full_makes_no_run_of_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = RunBuilder(KINDS[0], tmp_path, memory_budget=1 << 16, base=BaseDatabases.NONE)

    def full(number: int, buffers: list[bytes], at: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    parts = list(batches([(b"%08d" % number, b"v" * 100) for number in range(20_000)], 1000))

    def add_all() -> None:
        for part in parts:
            builder.add(part)

    with monkeypatch.context() as disk:
        disk.setattr(os, "pwritev", full)
        with pytest.raises(Capacity, match="No space left"):
            add_all()
    for more in (lambda: builder.add(parts[-1]), builder.finish):
        with pytest.raises(RuntimeError, match="failed before"):
            more()


def test_a_retry_does_not_write_into_a_file_that_an_image_shares(tmp_path: Path) -> None:
    records: list[Record] = [(b"a", b"1")]
    runs = build(tmp_path / "runs", KINDS[0], records, 1, 1 << 20).finish()
    build_image(tmp_path / "image", KINDS[0], runs, {CHANGELOG: 0})
    again = RunBuilder(KINDS[0], tmp_path / "runs", base=BaseDatabases.NONE)
    again.add(batch([(b"b", b"2")]))
    assert again.finish()[0].path == runs[0].path
    assert stored_rows(tmp_path / "image", KINDS[0]) == [(b"a", b"1")]
