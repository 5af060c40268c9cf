"""Micro benchmark of run building: CPU seconds per record of each stage.

    python -m bench.runs [--records 5000000] [--keys 1250000] [--value 100] [--kind timestamped-key-value] [--ranges 4]

Records have 16-byte keys in random order and come in batches of 70,000, as the changelog reader delivers them. CPU
seconds are the figure to compare; wall seconds depend on what else runs.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from statecore.changelog.schema import CHANGELOG_SCHEMA
from statecore.formats.kinds import StoreKind
from statecore.formats.registry import row_format
from statecore.formats.topic_partition import TopicPartition
from statecore.images import runs, runs_digest
from statecore.images.chunks import chunks_of, stamped
from statecore.images.image import build_image
from statecore.images.model import Below, Run

BATCH_ROWS = 70_000


def batches(records: int, keys: int, value: int, tombstones: float) -> Iterator[pa.RecordBatch]:
    """Records with keys drawn at random and random values; a share of them tombstones."""
    random = np.random.default_rng(7)
    for start in range(0, records, BATCH_ROWS):
        rows = min(BATCH_ROWS, records - start)
        rest = random.integers(0, keys, rows, np.uint32)
        digits = np.full((rows, 16), ord("0"), np.uint8)
        for column in range(15, 15 - len(str(keys)), -1):
            rest, digit = np.divmod(rest, 10)
            digits[:, column] += digit.astype(np.uint8)
        digits[:, :4] = np.frombuffer(b"key-", np.uint8)
        dead = random.random(rows) < tombstones
        lengths = np.where(dead, 0, value)
        offsets = np.zeros(rows + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        data = random.bytes(int(offsets[-1]))
        validity = pa.py_buffer(np.packbits(~dead, bitorder="little"))
        buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
        key_buffers = [None, pa.py_buffer(np.arange(0, 16 * rows + 1, 16, np.int32)), pa.py_buffer(digits)]
        columns = [
            pa.Array.from_buffers(pa.binary(), rows, key_buffers),
            pa.Array.from_buffers(pa.binary(), rows, buffers, int(dead.sum())),
            pa.array(np.arange(start, start + rows)),
            pa.array(np.arange(start, start + rows) + 1_700_000_000_000),
        ]
        yield pa.record_batch(columns, schema=CHANGELOG_SCHEMA)


def timed(name: str, per: int, action: Callable[[], Any]) -> Any:
    """Run, print CPU and wall microseconds per unit, return the result."""
    cpu, wall = time.process_time(), time.perf_counter()
    result = action()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    print(f"{name:38s} {cpu / per * 1e6:8.3f} us CPU {wall / per * 1e6:8.3f} us wall   ({cpu:.2f} s CPU)")
    return result


def rows_of(kind: StoreKind, chunks: list[Any]) -> None:
    """Convert chunks to rows of the kind."""
    if row_format(kind).stamped:
        for chunk in chunks:
            stamped(chunk)


def main() -> None:
    """Measure adding, ordering, gathering and writing, then the image."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--keys", type=int, default=1_250_000)
    parser.add_argument("--value", type=int, default=100)
    parser.add_argument("--tombstones", type=float, default=0.0)
    parser.add_argument("--memory", type=int, default=2048, help="budget in MiB")
    parser.add_argument("--ranges", type=int, default=1, help="also an image of the records as so many ranges")
    parser.add_argument("--kind", default="timestamped-key-value")
    arguments = parser.parse_args()
    kind = StoreKind(arguments.kind)
    made = list(batches(arguments.records, arguments.keys, arguments.value, arguments.tombstones))
    runs.warm()
    runs_digest.warm()
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        builder = runs.RunBuilder(kind, directory, memory_budget=arguments.memory << 20, below=Below.NOTHING)

        def add() -> None:
            for batch in made:
                builder.add(batch)

        timed("add, per record", arguments.records, add)
        table = builder._table
        ids = table.survivors(tombstones=False)
        count = len(ids)
        print(f"{count} survivors, {builder.statistics}")
        order = timed("order, per key", count, lambda: table.in_key_order(ids.copy()))
        chunks = timed("gather, per key", count, lambda: list(chunks_of(table, order)))
        timed("rows, per key", count, partial(rows_of, kind, chunks))
        chunks.clear()
        built = timed("finish with all of it, per key", count, builder.finish)
        print(built)
        offsets = {TopicPartition("t", 0): arguments.records - 1}
        image = timed("image, per key", count, lambda: build_image(directory / "image", kind, built, offsets))
        print(image)
        if arguments.ranges > 1:
            several = runs_of_ranges(kind, directory, made, arguments.ranges)
            rows = sum(run.rows for run in several)
            image = timed(
                f"image of {len(several)} runs, per row of them",
                rows,
                lambda: build_image(directory / "merged", kind, several, offsets),
            )
            print(image)


def runs_of_ranges(kind: StoreKind, directory: Path, made: list[pa.RecordBatch], ranges: int) -> list[Run]:
    """The same records as that many ranges, each with runs of its own."""
    found: list[Run] = []
    for number in range(ranges):
        (directory / str(number)).mkdir()
        first, last = (at * len(made) // ranges for at in (number, number + 1))
        below = Below(anything=number > 0)
        builder = runs.RunBuilder(kind, directory / str(number), below=below, start=first * BATCH_ROWS)
        for batch in made[first:last]:
            builder.add(batch)
        found += builder.finish()
    return found


if __name__ == "__main__":
    main()
