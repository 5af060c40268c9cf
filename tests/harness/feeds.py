"""What goes into the topologies of ``tests.harness.kinds``: records out of order, too late, deleted, with headers.

A feed lasts longer than what the stores keep, so that rows of most of it have expired at its end. It is recent or old
as its first record is; the same arguments give the same records.
"""

from __future__ import annotations

from dataclasses import replace

from tests.harness.topics import Record

MINUTE = 60_000
SPAN = 60 * MINUTE
"""From the first to the last record of a feed: rows of most of this time have expired at its end."""

MORE = 6 * MINUTE
"""What ``more`` goes on for, beyond the span."""


EVENTS, PUTS, LEFT, RIGHT, TABLE, SPARSE = "events", "puts", "left", "right", "table", "sparse"
REFERENCE, PRICES, SOURCE = "reference", "prices", "source"
"""Roles of input topics."""

KEYS = (b"a", b"ab", b"", b"\x00", b"\xff\xff", b"k" * 40, "schlüssel".encode(), b"\x00\x00\x01\xa1\xfd\x56\x64\xe0")
"""Of the events: the empty key, keys of which one begins another, one that looks like a timestamp."""

Portion = tuple[str, list[Record]]
"""A role, and records of its topic that are processed before the next portion is produced."""


def feed(base: int, partitions: int, count: int = 60) -> list[Portion]:
    """Every role's records, in three portions each; ``count`` events in a partition, and a few more."""
    portions: list[Portion] = []
    for third in range(3):
        for role, make in _MAKERS.items():
            every = make(base, partitions, count)
            size = -(-len(every) // 3)
            portions.append((role, every[third * size : (third + 1) * size]))
    return portions


def events(base: int, partitions: int, count: int) -> list[Record]:
    """Events over the span: out of order, too late, null values, deletes, with and without headers, null keys.

    Each partition has its own times and values; its newest record is the last of the span.
    """
    made = []
    for i in range(count):
        for partition in range(partitions):
            at = base + (SPAN * i) // (count - 1) - (partition * 1_000 if i < count - 1 else 0)
            if i % 5 == 2:
                at -= 2 * MINUTE  # out of order, within the grace period
            elif i % 17 == 16:
                at -= 20 * MINUTE  # too late for everybody
            value: bytes | None = b"%d of %d" % (i, partition)
            if i % 7 == 5:
                value = b"delete"
            elif i % 11 == 10:
                value = None
            elif i % 13 == 0:
                value = b""
            key = None if i == 20 else KEYS[i % 3 if i % 2 else i % len(KEYS)]
            made.append(Record(key, value, partition, max(at, 1), _headers(i)))
            if i % 4 == 1:  # the same key again within its window, its session merged
                made.append(Record(key, b"again %d" % i, partition, max(at + 20_000 - 40_000 * (i % 8 > 3), 1)))
    made.extend(Record(b"last", b"end", partition, base + SPAN, _headers(1)) for partition in range(partitions))
    return made


def _headers(i: int) -> tuple[tuple[str, bytes | None], ...]:
    return ((), (("trace", b"%d" % i),), (("trace", b""), ("nothing", None), ("trace", b"x" * 100)), (("", b"\x00"),))[
        i % 4
    ]


CHANGED = (b"a", b"new")
"""The keys of ``more``."""


def more(base: int, partitions: int) -> list[Record]:
    """Records after the feed, the newest time first: a restarted application has no stream time of its own."""
    times = [base + SPAN + MORE - minutes * MINUTE for minutes in (0, 2, 1, 0)]
    return [
        Record(key, b"more %d" % number, partition, at)
        for number, at in enumerate(times)
        for key in CHANGED
        for partition in range(partitions)
    ]


def keyed(base: int, partitions: int, count: int) -> list[Record]:
    """The events that have a key."""
    return [one for one in events(base, partitions, count) if one.key is not None]


def left(base: int, partitions: int, count: int) -> list[Record]:
    """Records to be joined: the same key and time twice, out of order, some beyond the grace period."""
    return [one for one in keyed(base, partitions, count) if one.value is not None for _ in range(2)]


def right(base: int, partitions: int, count: int) -> list[Record]:
    """The other side of ``left``: other times, and on either side keys that the other has not."""
    found = [one for one in left(base, partitions, count) if one.key != KEYS[1]]
    return [
        replace(one, timestamp=(one.timestamp or 0) + 7_000, key=b"right only" if one.key == KEYS[2] else one.key)
        for one in found
    ]


def tables(base: int, partitions: int, count: int) -> list[Record]:
    """Versions of the table that the grace period's join looks up."""
    return events(base, partitions, count // 2)


def sparse(base: int, partitions: int, count: int) -> list[Record]:
    """Events of all partitions but the last."""
    found = events(base, partitions, count // 3)
    return [one for one in found if partitions == 1 or one.partition < partitions - 1]


_MAKERS = {EVENTS: events, PUTS: keyed, TABLE: tables, LEFT: left, RIGHT: right, SPARSE: sparse}
