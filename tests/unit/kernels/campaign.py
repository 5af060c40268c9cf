"""Every kernel between guard pages, on random and on damaged input: ``python -m tests.unit.kernels.campaign 1 20``.

A process of its own, because a kernel that goes too far kills it. Each case is worked twice with the same input, on
ordinary memory and between guard pages, and what comes out must be the same.
"""

from __future__ import annotations

import faulthandler
import json
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from statecore.changelog import batch_scan
from statecore.changelog import decoder as decoder_module
from statecore.changelog.decoder import RangeDecoder
from statecore.changelog.model import OffsetRange
from statecore.errors import Corrupted, Invalid
from statecore.formats.row_format import Records
from statecore.formats.segments import Segmentation
from statecore.images import digest, key_table, reconcile, runs_digest, spill, sst
from statecore.images import key_range_merge as slices
from statecore.images import mapped_runs as tables
from statecore.images import merge_reader as merging
from statecore.images import merge_writer as merge
from statecore.images import row_batches as packed_records
from statecore.images.kernels import addresses, kernel, merged_kernel, reconcile_kernel
from statecore.images.key_table import Columns, KeyTable
from statecore.images.model import RunFile, SliceContent
from statecore.images.row_batches import last_writes, unpacked, whole_records
from statecore.images.runs_digest import merged_digest
from statecore.images.spill import Spill
from statecore.images.versions import build as versions_build
from statecore.images.versions import kernel as versions_kernel
from statecore.images.versions import replay as replay_module
from statecore.images.versions.build import RecordTable, RowFiles
from statecore.images.versions.replay import replay
from statecore.images.versions.sorted_records import MappedRecords, SortedRecords, map_records
from statecore.isolation import IsolationLevel
from tests.unit.changelog.build import CODECS, Record, batch, marker
from tests.unit.images.sst_files import contents_of, entry, files_of, forged, sealed, written
from tests.unit.kernels.guard import arrow_column, between_guards, guarded_copy

MODULES = (
    *(addresses, batch_scan, decoder_module, digest, kernel, key_table, merge, merged_kernel, merging),
    *(packed_records, reconcile, reconcile_kernel, runs_digest, slices, spill, sst, tables),
    *(versions_build, versions_kernel, replay_module),
)


def words(chance: random.Random, count: int, longest: int) -> list[bytes]:
    """Random bytes that have much in common."""
    sizes = [0, 1, 7, 8, 15, 16, 17, 40, *(size for size in (235, 250, 700, 1020) if size < longest)]
    stems = [chance.randbytes(chance.choice(sizes)) for _ in range(4)]
    return [
        (
            chance.choice(stems)
            + chance.choice([b"", b"\0" * 9, *(chance.randbytes(chance.randrange(12)) for _ in range(4))])
        )[:longest]
        for _ in range(count)
    ]


def keys(chance: random.Random, path: Path, guard: bool) -> Any:
    """The table of distinct keys: fill, shrink, order, gather."""
    table = KeyTable(timestamps=chance.random() < 0.5)
    distinct = words(chance, chance.choice([1, 5, 60, 2000]), 300)
    for _ in range(chance.randrange(1, 5)):
        count = chance.choice([1, 9, 80, 1500])
        large = chance.random() < 0.5
        given = arrow_column(
            [chance.choice(distinct) if chance.random() < 0.95 else None for _ in range(count)],
            chance,
            large=large,
            guard=guard,
        )
        values = arrow_column(
            [chance.randbytes(chance.randrange(30)) if chance.random() < 0.8 else None for _ in range(count)],
            chance,
            large=large,
            guard=guard,
        )
        stamps = np.array([chance.randrange(1 << 40) for _ in range(count)], np.int64)
        table.add(given, values, pa.array(guarded_copy(stamps) if guard else stamps))
        if chance.random() < 0.5:
            table.shrink()
    found = []
    for tombstones in (False, True):
        ids = table.in_key_order(table.survivors(tombstones=tombstones))
        for chunk in table.gather(ids, rows_at_once=chance.choice([1, 7, 500]), bytes_at_once=chance.choice([1, 400])):
            found += [part.tobytes() for part in chunk]
    long = np.ascontiguousarray(ids[table._lengths(ids) >= 8])
    found += [table.times(long, at).tobytes() for at in (0, -8)]
    return found, table.keys, table.null_keys


def ranges(chance: random.Random, path: Path, guard: bool) -> Any:
    """Records divided by key range, packed, read, and their last writes."""
    distinct = sorted(set(words(chance, chance.choice([1, 5, 60]), 300)))
    made = Spill(path, chance.choice([64, 512, 4096]))
    firsts = sorted({key for key in chance.sample(distinct, min(9, len(distinct))) if key})
    found: list[Any] = []
    for _ in range(chance.randrange(1, 5)):
        count, large = chance.choice([1, 9, 80, 1500]), chance.random() < 0.5
        of_keys = [chance.choice(distinct) if chance.random() < 0.95 else None for _ in range(count)]
        of_values = [chance.randbytes(chance.randrange(30)) if chance.random() < 0.8 else None for _ in range(count)]
        columns = (arrow_column(one, chance, large=large, guard=guard) for one in (of_keys, of_values))
        stamps = np.array([chance.randrange(1 << 40) for _ in range(count)], np.int64)
        made.add(Columns(*columns, pa.array(guarded_copy(stamps) if guard else stamps)))
        if firsts and chance.random() < 0.5:
            made.divide(len(made.ranges) - 1, firsts[:2])
            firsts = firsts[2:]
        if chance.random() < 0.3:
            made.squeeze(0, chance.choice([1, 5000]))
    for number in range(len(made.ranges)):
        data = made.take(number)
        data = guarded_copy(data) if guard else data.copy()
        last = last_writes(guarded_copy(data) if guard else data.copy())
        cut = data[: len(data) - chance.randrange(40)]
        found.append(whole_records(guarded_copy(cut) if guard else cut))
        table = KeyTable(timestamps=chance.random() < 0.5)
        for columns in unpacked(guarded_copy(last) if guard else last):
            table.append(*columns)
            found += [column.to_pylist() for column in columns]
        for chunk in table.gather(table.survivors(tombstones=True), rows_at_once=100, bytes_at_once=400):
            found += [part.tobytes() for part in chunk]
    made.close()
    return found


def files(chance: random.Random, path: Path, guard: bool) -> Any:
    """An SST file, its digest and its filter; then several, merged, and the first compared with the others."""
    runs, longest = [], chance.choice([240, 1100])
    for number in range(chance.randrange(1, 5)):
        count = chance.choice([1, 17, 300])
        rows = {
            key: chance.randbytes(chance.choice([0, 3, 60, 5000 if count < 20 else 9]))
            if chance.random() < 0.8
            else None
            for key in words(chance, count, longest)
        }
        runs.append(written(path / f"{guard}{number}.sst", rows, at_once=chance.choice([1, 40, 1000])))
    hashed = guarded_copy(np.frombuffer(chance.randbytes(2049), np.uint8))
    hashes = [
        kernel.run("key_hash", address=hashed[2049 - length :], length=length, secret=kernel.SECRET)
        for length in (0, 1, 3, 4, 8, 9, 16, 17, 128, 129, 240, 241, 255, 256, 257, 1023, 1024, 1025, 1088, 2048, 2049)
    ]
    kept = chance.random() < 0.5
    one = merge.merge_runs(path / f"{guard}merged.sst", runs, keep_tombstones=kept)
    written_again = None if one is None else (one.sha256, one.digest)
    together = merged_digest(runs, files_of(runs)), in_slices(path / f"slices{guard}", runs, 3)
    told = apart(path / f"{guard}apart.sst", runs, chance.randrange(len(runs) + 1))
    return [(run.sha256, run.digest) for run in runs], together, written_again, hashes, told


def apart(path: Path, runs: list[RunFile], parents: int) -> str | None:
    """The hash of what must be put above the first runs, so that all show what the others do."""
    made = reconcile.reconciled_run(path, runs[:parents], runs[parents:], start=1, end=2)
    return None if made is None else made.sha256


def in_slices(directory: Path, runs: list[RunFile], parts: int) -> list[SliceContent]:
    """What each slice of the keys of some runs holds."""
    directory.mkdir(exist_ok=True)
    return [slices.merge_slice(directory, runs, part, parts)[0] for part in range(parts)]


def damaged_files(chance: random.Random, path: Path, guard: bool) -> Any:
    """A file with damage below good checksums, merged with one that is whole."""
    stem = b"key-" * chance.choice([1, 1, 70, 250])
    good = written(path / f"good{guard}.sst", {b"a": b"1", b"key-03": b"2", stem + b"05": b"3", b"y": b"2"})
    numbers = range(12)
    if chance.random() < 0.5:
        entries = [entry(stem + b"%02d" % number, b"v" * number) for number in numbers]
    else:
        entries = [entry(stem + b"00"), *(entry(b"%02d" % number, common=len(stem)) for number in numbers[1:])]
    contents = bytearray(contents_of(*entries))
    for _ in range(chance.randrange(1, 4)):
        contents[chance.randrange(len(contents))] = chance.randrange(256)
    kept = bytes(contents[: chance.choice([len(contents), chance.randrange(9, len(contents))])])
    index = None
    if chance.random() < 0.5:
        handle = bytearray(contents_of(b"\0\1z" + bytes([0, len(kept) & 127 | 128, len(kept) >> 7])))
        handle[chance.randrange(len(handle))] = chance.randrange(256)
        index = bytes(handle[: chance.choice([len(handle), chance.randrange(len(handle))])])
    run = forged(path / f"forged{guard}.sst", sealed(kept), index=index)
    found = []
    for read in (
        lambda: merged_digest([good, run], files_of([good, run])),
        lambda: merge.merge_runs(path / f"merged{guard}.sst", [good, run], keep_tombstones=True),
        lambda: in_slices(path / f"slices{guard}", [good, run], 2),
        lambda: apart(path / f"apart{guard}.sst", [good, run], 1),
        lambda: apart(path / f"apart{guard}.sst", [run, good], 1),
    ):
        try:
            result = read()
            found.append(getattr(result, "digest", result))
        except Corrupted as error:
            found.append(error.what.replace(str(path), "").replace(f"{guard}.sst", ""))
    return found


def versions(chance: random.Random, path: Path, guard: bool) -> Any:
    """Records of versioned stores: sorted, written, mapped, replayed, written as rows."""
    runs, time = [], 0
    distinct = words(chance, chance.choice([1, 5, 40]), 200)
    retention, interval = chance.choice([(50, 10), (1000, 300), (5, 1)])
    for number in range(chance.randrange(1, 4)):
        table, before = RecordTable(), time
        for _ in range(chance.randrange(1, 3)):
            count, streams, times = chance.choice([1, 9, 400]), [], []
            for _ in range(count):
                times.append(max(0, time + chance.randrange(-60, 20)))
                time = max(time, times[-1])
                streams.append(time)
            given = [chance.choice(distinct) for _ in range(count)]
            values = [chance.randbytes(chance.randrange(20)) if chance.random() < 0.8 else None for _ in range(count)]
            numbers = [np.array(one, np.int64) for one in (times, streams)]
            if guard:
                numbers = [guarded_copy(one) for one in numbers]
            columns = (arrow_column(one, chance, large=False, guard=guard) for one in (given, values))
            table.add_records(Records(*columns, pa.array(numbers[0])), numbers[1])
        mapped = map_records(table.write(path / f"{number}{guard}.records"))
        if guard:
            parts = SortedRecords(*(guarded_copy(part) for part in mapped.records))
            mapped = MappedRecords(parts, guarded_copy(mapped.values))
        runs.append((before, mapped))
    first = max(0, time - retention) // interval
    budget = chance.choice([1, 20_000, 1 << 20])
    rows = replay(runs, Segmentation(retention, interval), first_live=first, arena_bytes=budget // 2)
    directory = path / f"rows{guard}"
    directory.mkdir()
    with RowFiles(directory, first_live=first, last=time // interval) as out:
        for part in rows:
            out.add(part)
        return [(run.sha256, run.digest) for run in out.finish()]


def responses(chance: random.Random, path: Path, guard: bool) -> Any:
    """Responses of a broker, most of them damaged or cut, their checksums right as often as not."""
    parts, offset = [], chance.randrange(5)
    for _ in range(chance.randrange(1, 5)):
        count = chance.choice([1, 3, 30])
        records = []
        for _ in range(count):
            offset += chance.choice([1, 1, 1, 7])
            key, value = (None if chance.random() < 0.2 else chance.randbytes(chance.randrange(20)) for _ in range(2))
            records.append(Record(offset, chance.randrange(1 << 40), key, value, [(b"h", None)] * chance.randrange(3)))
        producer = chance.choice([-1, 7, 8])
        made = bytearray(batch(records, chance.choice(list(CODECS)), producer=producer, transactional=producer >= 0))
        if chance.random() < 0.5:
            at = chance.choice([chance.randrange(len(made)), chance.randrange(61, len(made))])
            made[at] = chance.randrange(256)
            if chance.random() < 0.8:
                made[17:21] = int(decoder_module.crc32c(bytes(made[21:]))).to_bytes(4, "big")
        parts.append(bytes(made))
        if producer >= 0 and chance.random() < 0.5:
            offset += 1
            parts.append(marker(offset, producer, commit=chance.random() < 0.5))
    whole = b"".join(parts)
    data = np.frombuffer(whole[: chance.choice([len(whole), chance.randrange(len(whole) + 1)])], np.uint8)
    if guard:
        data = guarded_copy(data)
    start, end = sorted((chance.randrange(0, 5), chance.randrange(5, offset + 10)))
    decoder = RangeDecoder(
        OffsetRange("topic", 0, start, end),
        chance.choice(list(IsolationLevel)),
        headers=chance.random() < 0.5,
        decoded_bytes=chance.choice([1, 64 << 20]),
    )
    found: list[Any] = []
    try:
        found.append(decoder.scan(data, start, np.array([[7, 0], [8, 3]], np.int64)))
        found += [one.to_pylist() for one in decoder.batches()]
    except (Corrupted, Invalid) as error:
        found.append(error.what)
    return found


SCENARIOS: tuple[Callable[[random.Random, Path, bool], Any], ...] = (
    *(keys, ranges, files),
    *(damaged_files, versions, responses),
)


def main(seed: int, cases: int) -> None:
    """So many cases of each scenario; prints which kernels were called."""
    faulthandler.enable()
    called: set[str] = set()
    for number in range(seed, seed + cases):
        for scenario in SCENARIOS:
            sys.stderr.write(f"{scenario.__name__} {number}\n")  # the last line before a crash says which case it is
            with tempfile.TemporaryDirectory() as directory:
                plain = scenario(random.Random(number), Path(directory), False)
                with between_guards(random.Random(~number), *MODULES) as names:
                    between = scenario(random.Random(number), Path(directory), True)
                called |= names
            assert between == plain, (scenario.__name__, number)
    print(json.dumps(sorted(called)))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
