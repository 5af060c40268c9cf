"""Merges and digests the runs of one database in parallel, by key range.

The worker of a slice, a range of keys, reads all runs of the database there, merges those that are to be merged
(:mod:`statecore.images.universal_compaction`) into a file of its own, and adds up the digest of the visible rows. The
files of one merge have no common keys, so RocksDB treats them as one sorted run::

    keys             a ───────────┬────────────┬──────────── z
    run 0            ├────────────┼────────────┼───────────┤ ┐  merged: three files,
    run 1             ├───────────┼────────────┼──────────┤  ┘  one sorted run
    run 2, 3, 4      ├────────────┼────────────┼───────────┤    unchanged
                       slice 0       slice 1      slice 2

The bounds are taken from the indexes of the runs, never from the workers: the same runs give the same files. Each slice
verifies the hashes of its share of the merged files. Slices are valid only all together (:func:`join_slices`).
"""

from __future__ import annotations

import statecore.extras.pipeline

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from pathlib import Path

from statecore.errors import Corrupted
from statecore.images.digest import combined
from statecore.images.mapped_runs import KeyRange, Table, check_unchanged, index_entry, open_table
from statecore.images.merge_reader import LIMITS, MergeLimits, MergingRuns, check_entries
from statecore.images.merge_writer import refuse_records, write_merged
from statecore.images.model import MergedDatabase, Run, RunFile, SliceContent
from statecore.images.runs_digest import digest_remaining
from statecore.images.universal_compaction import runs_to_merge

_PLACES_EACH = 16  # Index keys per slice from which the bounds are chosen; each run contributes its share


def merge_slice(
    directory: Path, runs: Sequence[RunFile], part: int, parts: int, *, limits: MergeLimits = LIMITS
) -> tuple[SliceContent, list[RunFile]]:
    """Merge and digest one slice of a database without a base; return its content and the files written for it."""
    refuse_records(runs)
    groups = runs_to_merge(runs)
    merged = [number for group in groups for number in range(len(runs))[group]]
    for number in merged[part::parts]:
        check_unchanged(runs[number])
    tables = [open_table(run, run.path) for run in runs]
    ranges = key_ranges(runs, tables, parts)
    if part >= len(ranges):
        return SliceContent((None,) * len(groups), combined(), (0,) * len(runs)), []
    keys, entries = ranges[part], [0] * len(runs)
    made: list[RunFile | None] = []
    for group in groups:
        merging = MergingRuns(runs[group], tables[group], keys, limits)
        path = directory / f"merged-{group.start:05d}"
        made.append(write_merged(path, runs[group], merging, keep_tombstones=group.start > 0))
        entries[group] = merging.entries
    files = [file for file in made if file is not None]
    left, numbers = _replaced(runs, groups, [[] if file is None else [file] for file in made])
    opened = [
        open_table(run, run.path) if number is None else tables[number]
        for run, number in zip(left, numbers, strict=True)
    ]
    adding = MergingRuns(left, opened, keys, limits)
    content = digest_remaining(adding)
    for place, count in zip(numbers, adding.entries, strict=True):
        if place is not None:
            entries[place] = count
    return SliceContent(tuple(file and file.run for file in made), content, tuple(entries)), files


def key_ranges(runs: Sequence[RunFile], tables: Sequence[Table], parts: int) -> list[KeyRange]:
    """Split all keys into at most ``parts`` ranges with about the same run bytes in each."""
    wanted = max(_PLACES_EACH, _PLACES_EACH * parts // len(runs))
    samples = sorted(sample for run, table in zip(runs, tables, strict=True) for sample in _samples(run, table, wanted))
    sums = list(accumulate(size for _, size in samples))
    cuts: list[bytes] = []
    for (key, _), size in zip(samples, sums, strict=True):
        if size * parts >= sums[-1] * (len(cuts) + 1) and key > (cuts[-1] if cuts else b""):
            cuts.append(key)
    cuts = cuts[: parts - 1]
    return [KeyRange(low, high) for low, high in zip([b"", *cuts], [*cuts, None], strict=True)]


def _samples(run: RunFile, table: Table, wanted: int) -> list[tuple[bytes, int]]:
    """Keys that divide a run evenly, each with the bytes between it and the one before."""
    stride = max(1, table.blocks // wanted)
    found, before = [], 0
    for block in range(stride - 1, table.blocks, stride):
        entry = index_entry(run, table, block)
        end = entry.offset + entry.size
        found.append((entry.key, end - before))
        before = end
    return found


def _replaced(
    runs: Sequence[RunFile], groups: Sequence[slice], made: Sequence[Sequence[RunFile]]
) -> tuple[list[RunFile], list[int | None]]:
    """The runs with each group replaced by its merged files; with each original index (``None`` for merged files)."""
    files: list[RunFile] = []
    numbers: list[int | None] = []
    done = 0
    for group, instead in zip((*groups, slice(len(runs), len(runs))), (*made, []), strict=True):
        files += [*runs[done : group.start], *instead]
        numbers += [*range(done, group.start), *([None] * len(instead))]
        done = group.stop
    return files, numbers


def join_slices(
    runs: Sequence[RunFile], slices: Sequence[SliceContent], local_file: Callable[[Run], RunFile]
) -> MergedDatabase:
    """Combine all slices of a database into the inputs of its image."""
    check_entries(runs, [sum(counts) for counts in zip(*(one.entries for one in slices), strict=True)])
    groups = runs_to_merge(runs)
    made = [
        [local_file(run) for run in parts if run is not None]
        for parts in zip(*(one.made for one in slices), strict=True)
    ]
    for parts in made:
        for one, following in pairwise(parts):
            if bytes.fromhex(one.max_key) >= bytes.fromhex(following.min_key):
                raise Corrupted(
                    f"{one.path} and {following.path} have common keys, but were merged from different key ranges.",
                    code="ingest-inconsistent",
                    action="Run the job again, and report this if it happens twice.",
                )
    content = combined(*(one.content for one in slices))
    return MergedDatabase(tuple(_replaced(runs, groups, made)[0]), content)
