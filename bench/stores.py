"""What staging, atomic commits and query views cost, and how much of it is the disk.

    python -m bench.stores [--records N] [--directory D] [--ratios [--durability sync]]

Rows of 16 + 100 bytes. ``direct`` is a ``WriteBatch`` filled and written through rocksdict with no store around it; the
store does the same after staging the rows in memory, where the writer reads them back and scans see them in key order.
Every figure is the median of three runs, in one process on one thread. Times are the CPU's, which other work on the
machine hardly changes; records per second are by the clock, because there the disk counts.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.isolation import IsolationLevel
from statecore.stores.base import StateStore
from statecore.stores.in_memory import InMemoryStore
from statecore.stores.rocksdb.options import data_options, offsets_options
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.settings import Durability, StoreSettings

T = TypeVar("T")
Row = tuple[bytes, bytes]

CHANGELOG = TopicPartition("bench-store-changelog", 0)
VALUE = bytes(range(100))
BATCHES = (1, 10, 100, 1000, 10_000, 100_000)
RUNS = 3
ROUNDS = 15


def keys(count: int) -> list[bytes]:
    return [b"%016d" % number for number in random.Random(1).sample(range(10 * count), count)]


def direct(directory: Path, rows: list[bytes], batch_size: int, sync: bool) -> tuple[float, float]:
    """Records a second, and microseconds of CPU for each, into a bare database."""
    from rocksdict import Rdict, WriteBatch, WriteOptions

    options = data_options()
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    families = {"default": data_options(), "offsets": offsets_options()}
    database = Rdict(str(directory), options, column_families=families)
    data, offsets = (database.get_column_family_handle(name) for name in families)
    write = WriteOptions()
    write.sync = sync
    began = time.perf_counter(), time.process_time()
    for at in range(0, len(rows), batch_size):
        batch = WriteBatch(raw_mode=True)
        for key in rows[at : at + batch_size]:
            batch.put(key, VALUE, data)
        batch.put(b"bench-store-changelog-0", at.to_bytes(8, "big"), offsets)
        database.write(batch, write)
    took = _rates(len(rows), *began)
    del data, offsets
    database.close()
    return took


def stored(store: StateStore, rows: list[bytes], batch_size: int) -> tuple[float, float]:
    """Records a second, and microseconds of CPU for each, through a store."""
    with store:
        began = time.perf_counter(), time.process_time()
        for at in range(0, len(rows), batch_size):
            for key in rows[at : at + batch_size]:
                store.put(key, VALUE)
            store.commit({CHANGELOG: at})
        return _rates(len(rows), *began)


def _rates(count: int, clock: float, cpu: float) -> tuple[float, float]:
    return count / (time.perf_counter() - clock), (time.process_time() - cpu) / count * 1e6


def writes(root: Path, count: int) -> None:
    print(f"{'records/s, rows a commit':<28}" + "".join(f"{batch:>11,}" for batch in BATCHES))
    numbers = iter(range(1_000_000))

    def fresh() -> Path:
        return root / f"{next(numbers)}"

    def rocksdb(durability: Durability) -> StateStore:
        return RocksDBStore(fresh(), StoreKind.KEY_VALUE, create=True, settings=StoreSettings(durability))

    ways: dict[str, tuple[float, Callable[[list[bytes], int], tuple[float, float]]]] = {
        "direct, process": (1, lambda rows, size: direct(fresh(), rows, size, sync=False)),
        "store, process": (1, lambda rows, size: stored(rocksdb(Durability.PROCESS), rows, size)),
        "direct, sync": (0.002, lambda rows, size: direct(fresh(), rows, size, sync=True)),
        "store, sync": (0.002, lambda rows, size: stored(rocksdb(Durability.SYNC), rows, size)),
        "in memory": (1, lambda rows, size: stored(InMemoryStore(), rows, size)),
    }
    rows = keys(count)
    for name, (commits_share, run) in ways.items():
        figures = []
        for batch in BATCHES:
            # Where each commit waits for the disk, so many commits and no more.
            some = rows[: min(count, max(int(count * commits_share) * batch, batch))]
            rates, costs = zip(*(run(some, batch) for _ in range(RUNS)), strict=True)
            figures.append((statistics.median(rates), statistics.median(costs)))
        print(f"{name:<28}" + "".join(f"{rate:>11,.0f}" for rate, _ in figures), flush=True)
        print(f"{'  CPU, microseconds each':<28}" + "".join(f"{cost:>11.2f}" for _, cost in figures), flush=True)


def ratios(root: Path, count: int, durability: Durability) -> None:
    """The store beside plain rocksdict, in turns: medians of the thread's CPU time, and of each round's ratio."""
    from rocksdict import WriteBatch, WriteOptions

    changelog = str(CHANGELOG).encode()
    rows = [(key, VALUE) for key in keys(count)]
    settings = StoreSettings(durability)
    with (
        RocksDBStore(root / "plain", StoreKind.KEY_VALUE, create=True, settings=settings) as plain,
        RocksDBStore(root / "store", StoreKind.KEY_VALUE, create=True, settings=settings) as store,
    ):
        write = WriteOptions()
        write.sync = durability is Durability.SYNC

        def plainly(size: int) -> Callable[[list[Row]], None]:
            data, offsets = plain._handles["default"], plain._handles["offsets"]

            def write_all(part: list[Row]) -> None:
                for at in range(0, len(part), size):
                    batch = WriteBatch(raw_mode=True)
                    put = batch.put
                    for key, value in part[at : at + size]:
                        put(key, value, data)
                    put(changelog, at.to_bytes(8, "big"), offsets)
                    plain._db.write(batch, write)

            return write_all

        def one_by_one(size: int) -> Callable[[list[Row]], None]:
            def put_each(part: list[Row]) -> None:
                for at in range(0, len(part), size):
                    for key, value in part[at : at + size]:
                        store.put(key, value)
                    store.commit({CHANGELOG: at})

            return put_each

        def at_once(size: int) -> Callable[[list[Row]], None]:
            def put_lists(part: list[Row]) -> None:
                for at in range(0, len(part), size):
                    store.put_all(part[at : at + size])
                    store.commit({CHANGELOG: at})

            return put_lists

        print(f"\n{'CPU of the thread, microseconds a row':<40}{'rocksdict':>10}{'store':>10}{'ratio':>8}{'goal':>6}")
        some = rows[: min(count, 20_000)]
        beside("commit of 1,000, put", 1.3, some, 1000, plainly(1000), one_by_one(1000))
        beside("commit of 1,000, put_all", 1.3, some, 1000, plainly(1000), at_once(1000))
        beside("commit of 1", 2, some, 100, plainly(1), one_by_one(1))
        store.put_all(rows)
        store.commit({CHANGELOG: count})
        store.compact()
        family = store._data
        wanted = random.Random(2).sample([key for key, _ in rows], len(some))
        prefixes = [key[:14] for key in wanted[:5000]]
        beside(
            "get",
            1.1,
            wanted,
            200,
            lambda part: [family.get(key) for key in part],
            lambda part: [store.get(key) for key in part],
        )
        every = [key for key, _ in rows]
        beside("all", 1.1, every, count, lambda _: walk(family), lambda _: exhaust(store.all()))
        beside("all, items()", 1.1, every, count, lambda _: exhaust(family.items()), lambda _: exhaust(store.all()))
        beside(
            "prefix scan",
            1.1,
            prefixes,
            100,
            lambda part: [list(checked(family, prefix)) for prefix in part],
            lambda part: [list(store.prefix_scan(prefix)) for prefix in part],
        )


def walk(family: Any) -> None:
    """All rows, kept nowhere."""
    iterator = family.iter()
    iterator.seek_to_first()
    valid, read_key, read_value, advance = iterator.valid, iterator.key, iterator.value, iterator.next
    while valid():
        _, _ = read_key(), read_value()
        advance()
    iterator.status()


def checked(family: Any, prefix: bytes) -> list[tuple[bytes, bytes]]:
    """Rows by rocksdict's iterator, which alone says whether it ended for want of rows."""
    iterator = family.iter()
    iterator.seek(prefix)
    valid, read_key, read_value, advance = iterator.valid, iterator.key, iterator.value, iterator.next
    found = []
    while valid():
        key = read_key()
        if not key.startswith(prefix):
            break
        found.append((key, read_value()))
        advance()
    iterator.status()
    return found


def beside(
    name: str,
    goal: float,
    items: list[T],
    slice_of: int,
    plain: Callable[[list[T]], Any],
    store: Callable[[list[T]], Any],
) -> None:
    """Both ways over the same items, in turns of a slice, so that what else the machine does falls on both."""
    ratios, costs = [], []
    for _ in range(ROUNDS):
        took = [0, 0]
        for at in range(0, len(items), slice_of):
            part = items[at : at + slice_of]
            for way, action in enumerate((plain, store)):
                began = time.thread_time_ns()
                action(part)
                took[way] += time.thread_time_ns() - began
        costs.append([nanoseconds / len(items) / 1000 for nanoseconds in took])
        ratios.append(took[1] / took[0])
    first, second = map(statistics.median, zip(*costs, strict=True))
    print(f"{name:<40}{first:>10.2f}{second:>10.2f}{statistics.median(ratios):>8.2f}{goal:>6}", flush=True)


def timed(count: int, action: Callable[[], Any]) -> float:
    """Microseconds of CPU for each of ``count``."""
    took = []
    for _ in range(RUNS):
        began = time.process_time()
        action()
        took.append((time.process_time() - began) / count * 1e6)
    return statistics.median(took)


def exhaust(rows: Iterable[object]) -> None:
    for _ in rows:
        pass


def reads(root: Path, count: int) -> None:
    rows = keys(count)
    some = random.Random(2).sample(rows, min(count, 20_000))
    prefixes = [key[:14] for key in some]
    names = ("get", "of 100", "view+get", "view", "prefix", "row", "reverse")
    print(f"\n{'CPU, microseconds each':<28}" + "".join(f"{name:>9}" for name in names))
    with RocksDBStore(root / "reads", StoreKind.KEY_VALUE, create=True, settings=StoreSettings()) as store:
        store.put_all((key, VALUE) for key in rows)
        store.commit({CHANGELOG: 1})
        store.flush()
        for staged in (0, count // 100, count // 10, count):
            store.put_all((key, VALUE) for key in rows[:staged])
            exhaust(store.prefix_scan(b"x"))  # puts the staged keys in order once
            figures = [
                timed(len(some), lambda: [store.get(key) for key in some]),
                timed(len(some), lambda: [store.get_many(some[at : at + 100]) for at in range(0, len(some), 100)]),
                timed(len(some), lambda: [store.query_view().get(key) for key in some]),
                timed(len(some), lambda: [store.query_view(IsolationLevel.READ_UNCOMMITTED) for _ in some]),
                timed(len(some), lambda: [list(store.prefix_scan(prefix)) for prefix in prefixes]),
                timed(count, lambda: exhaust(store.all())),
                timed(count, lambda: exhaust(store.reverse_all())),
            ]
            print(f"{staged:>10,} staged rows      " + "".join(f"{figure:>9.2f}" for figure in figures), flush=True)
            store.abort()
        fresh = keys(count)

        def interleaved() -> None:
            for key in fresh[:10_000]:
                store.put(key, VALUE)
                next(store.prefix_scan(key), None)

        print(f"put, then the first of a prefix scan, CPU microseconds: {timed(10_000, interleaved):.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--directory", type=Path, help="where to write; the system's temporary directory by default")
    parser.add_argument("--ratios", action="store_true", help="only the store beside plain rocksdict")
    parser.add_argument("--durability", choices=[one.value for one in Durability], default="process")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as root:
        ratios(Path(root), arguments.records, Durability(arguments.durability))
        if arguments.ratios:
            return
        writes(Path(root), arguments.records)
        reads(Path(root), arguments.records)


if __name__ == "__main__":
    main()
