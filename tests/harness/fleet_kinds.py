"""Applications whose stores every version of Kafka Streams from 3.9 on knows.

``EVERY`` has a store of every kind, and a long feed. ``SMALL`` has one store of every shape, and a feed of a few dozen
records within two segments: for golden directories and tests that start often.
"""

from __future__ import annotations

from dataclasses import replace

from tests.harness import feeds
from tests.harness.feeds import EVENTS, LEFT, MINUTE, PUTS, REFERENCE, SOURCE, SPARSE, TABLE, Portion
from tests.harness.kinds import GLOBALS, PLAIN, SOURCES, KindCase, KindsApplication
from tests.harness.sources import Sources
from tests.harness.topics import Record


def _suppressed(at: Sources) -> None:
    """Windows that are held back in memory until they close."""
    unbounded = at.kstream.Suppressed.BufferConfig.unbounded()
    windowed = at.grouped(EVENTS).windowedBy(at.tumbling())
    counts = windowed.reduce(at.reducer(), at.materialized("suppressed-counts", retention=True))
    counts.suppress(at.kstream.Suppressed.untilWindowCloses(unbounded).withName("suppressed"))


def _cases(of: KindsApplication, *stores: str) -> tuple[KindCase, ...]:
    by_name = {case.store: case for case in of.cases}
    return tuple(by_name[store] for store in stores)


_COUNTS = replace(_cases(PLAIN, "timestamped-window")[0], store="suppressed-counts", add=_suppressed)

_TABLES = (*_cases(SOURCES, "source-table"), *_cases(GLOBALS, "global-table"))


def _own(partition: int, records: list[Record]) -> list[Record]:
    """Those of one partition that have a key, each with the partition before the key: global tables mix partitions."""
    return [
        replace(one, key=b"%d" % partition + one.key)
        for one in records
        if one.partition == partition and one.key is not None
    ]


def _with_tables(portions: list[Portion], partitions: int) -> list[Portion]:
    """The same, and in the place of puts what the source table and the global table are made of."""
    made: list[Portion] = []
    for role, records in portions:
        if role == PUTS:
            made.append((SOURCE, records))
            made.append((REFERENCE, [one for p in range(partitions) for one in _own(p, records)]))
        else:
            made.append((role, records))
    return made


EVERY = KindsApplication(
    "every",
    (
        *PLAIN.cases,
        *_TABLES,
        _COUNTS,
        KindCase("in-memory", "suppressed-store", _suppressed),
    ),
    lambda base, partitions: _with_tables(feeds.feed(base, partitions), partitions),
    {**PLAIN.properties, **SOURCES.properties},
)
"""A store of every kind that 3.9, 4.2, 4.3 and 4.4 have, in the default format."""

_SMALL_STORES = (
    "key-value",
    "versioned-key-value",
    "timestamped-key-value",
    "timestamped-window",
    "session",
    "grace-table",
    "grace-Buffer",
    "in-memory",
)

_SMALL_KEYS = tuple(b"%d-%c" % (partition, letter) for partition in range(8) for letter in b"abcde")
_SMALL_SPAN = 8 * MINUTE
_SMALL_COUNT = 12
_LATE = {3: 2 * MINUTE, 7: 2 * MINUTE, 8: 3 * MINUTE}  # the last is of the first segment, in the third part


def _small_feed(base: int, partitions: int) -> list[Portion]:
    """Records over 8 minutes from the second minute of a segment on, in three parts; some keys again, some deleted."""
    start = base - base % (5 * MINUTE) + MINUTE
    portions: list[Portion] = []
    for third in range(3):
        for role in (EVENTS, TABLE, LEFT, SPARSE, SOURCE, REFERENCE):
            of_role = [
                one
                for partition in range(partitions)
                if role != SPARSE or partition < max(partitions - 1, 1)
                for one in _small(start, partition, third, role)
            ]
            portions.append((role, of_role))
    return portions


def _small(start: int, partition: int, third: int, role: str) -> list[Record]:
    made = []
    for i in range(third * _SMALL_COUNT // 3, (third + 1) * _SMALL_COUNT // 3):
        key = _SMALL_KEYS[5 * partition + i % 5]
        at = start + _SMALL_SPAN * i // (_SMALL_COUNT - 1) - _LATE.get(i, 0)
        value = None if i % 9 == 8 and role in (SOURCE, REFERENCE) else b"%s %d of %d" % (role.encode(), i, partition)
        made.append(Record(key, value, partition, at))
    return made


def _with_small_keys(case: KindCase) -> KindCase:
    return (
        case
        if case.query is None or not case.query.keys
        else replace(case, query=replace(case.query, keys=_SMALL_KEYS))
    )


SMALL = KindsApplication(
    "small",
    tuple(_with_small_keys(case) for case in (*_cases(PLAIN, *_SMALL_STORES), *_TABLES)),
    _small_feed,
    {**PLAIN.properties, **SOURCES.properties},
)
"""One store of every shape; every segmented one has two segments in each partition (the grace buffer its one)."""

SPARSE_WINDOWS = KindsApplication(
    "sparse-windows",
    tuple(map(_with_small_keys, _cases(PLAIN, "grace-table", "grace-Buffer", "sparse-window"))),
    lambda base, partitions: [one for one in _small_feed(base, partitions) if one[0] in (TABLE, LEFT, SPARSE)],
)
"""A versioned table and a buffer, and in the same tasks windows of a topic that has no record in its last partition."""
