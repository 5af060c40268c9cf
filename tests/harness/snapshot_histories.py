"""Random changelogs of every kind of store, as Kafka Streams 4.3.1 would have written them.

Keys and values have the formats of the Java sources (``WindowKeySchema``, ``SessionKeySchema``,
``TimestampedKeyAndJoinSideSerializer``, ``PrefixedWindowKeySchemas``, ``BufferValue``); which rows there are is chance:
overwrites, deletes, deletes of nothing, rows that come late or have expired when they come, times that leap beyond
everything that is kept, headers where a store keeps none, values of no byte and of many.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from tests.harness.feeds import KEYS, MINUTE
from tests.harness.sources import RETENTION
from tests.harness.topics import Record

MAX_AHEAD = 40 * MINUTE
"""How far from its begin the time of a history may come."""

_HEADERS: tuple[tuple[tuple[str, bytes | None], ...], ...] = (
    (),
    (),
    (("trace", b"1"),),
    (("trace", b""), ("nothing", None), ("long", b"x" * 100)),
)
_LATENESS = (0, 0, 0, 1, MINUTE // 2, 3 * MINUTE, RETENTION - 1, RETENTION, RETENTION + 1, 3 * RETENTION)
_ADVANCES = (0, 0, 1, 999, MINUTE // 3, MINUTE, 4 * MINUTE)


@dataclass
class History:
    """The changelog of one partition of one store, while it is written.

    Attributes:
        kind: of the store.
        chance: decides everything.
        time: of its newest record in ms.
        end: the time that it does not pass.
        keys: application keys.
        nulls: whether records without a key occur; a compacted topic refuses them.
        newest: the greatest time of a record so far.
    """

    kind: str
    chance: Random
    time: int
    end: int
    keys: tuple[bytes, ...]
    nulls: bool = False
    newest: int = field(default=0)
    _sequence: int = 0

    def records(self, count: int, partition: int, *, large: bool = False) -> list[Record]:
        """The next records.

        Args:
            count: how many.
            partition: of the topic.
            large: whether they have values of thousands of bytes, and keys of their own.
        """
        if self.chance.random() < 0.1:
            self._advance(2 * RETENTION)  # all that there is expires
        return [self._record(partition, large) for _ in range(count)]

    def _advance(self, by: int) -> None:
        self.time = min(self.time + by, self.end)

    def _record(self, partition: int, large: bool) -> Record:
        chance = self.chance
        self._advance(chance.choice(_ADVANCES))
        at = self.time - chance.choice(_LATENESS)
        self._sequence += 1
        key = b"large %d" % self._sequence if large else chance.choice(self.keys)
        if self.nulls and chance.random() < 0.05:
            return Record(None, b"of no key", partition, at)
        value: bytes | None = b"%d of %d" % (self._sequence, partition)
        if large:
            value = chance.randbytes(2000).hex().encode()
        elif chance.random() < 0.2:
            value = None
        elif chance.random() < 0.1:
            value = b"" if chance.random() < 0.5 else "schön ".encode() * 300
        self.newest = max(self.newest, at)
        made = _key_of(self.kind)(key, at, chance, self._sequence)
        return Record(made, _value_of(self.kind, value, at), partition, at, chance.choice(_HEADERS))


def history_of(kind: str, chance: Random, base: int, *, nulls: bool = False) -> History:
    """A history of a store of this kind, from ``base`` on (ms), without a record yet."""
    keys = (*KEYS, *(b"key-%d" % n for n in range(chance.choice((0, 3, 30)))))
    return History(kind, chance, base, base + MAX_AHEAD, keys, nulls)


_Key = Callable[[bytes, int, Random, int], bytes]


def _plain(key: bytes, at: int, chance: Random, sequence: int) -> bytes:
    return key


def _window(key: bytes, at: int, chance: Random, sequence: int) -> bytes:
    return key + struct.pack(">qi", at // MINUTE * MINUTE, 0)


def _sliding(key: bytes, at: int, chance: Random, sequence: int) -> bytes:
    return key + struct.pack(">qi", at - chance.choice((0, 1, 7_000)), 0)


def _joined(key: bytes, at: int, chance: Random, sequence: int) -> bytes:
    """Windows that retain duplicates: a sequence number, from 1 on, tells records of one key and time apart."""
    return key + struct.pack(">qi", at, chance.choice((sequence, max(1, sequence // 3))))


def _session(key: bytes, at: int, chance: Random, sequence: int) -> bytes:
    return key + struct.pack(">qq", at, at - chance.choice((0, 1, MINUTE // 2)))


def _list(key: bytes, at: int, chance: Random, sequence: int) -> bytes:
    return struct.pack(">qb", at // MINUTE * MINUTE, chance.choice((0, 1))) + key


def _buffer(key: bytes, at: int, chance: Random, sequence: int) -> bytes:
    return struct.pack(">bq", 0, at // MINUTE * MINUTE) + key + struct.pack(">i", sequence % 4)


def _key_of(kind: str) -> _Key:
    if kind == "grace-buffer":
        return _buffer
    if kind == "list":
        return _list
    if kind.startswith("join-"):
        return _joined
    if kind.endswith("session"):
        return _session
    if "sliding" in kind:
        return _sliding
    return _window if kind.endswith("window") else _plain


def _value_of(kind: str, value: bytes | None, at: int) -> bytes | None:
    if value is None or kind not in ("grace-buffer", "list"):
        return value
    if kind == "list":
        # ListSerializer: the strategy for elements of any size, how many, then each behind its size; and
        # LeftOrRightValueSerializer: the side before the value.
        sides = range(1 + at % 3)
        return struct.pack(">bi", 1, len(sides)) + b"".join(
            struct.pack(">ib", len(value) + 1, side % 2) + value for side in sides
        )
    # BufferValue: the record's context (time, offset, topic, partition, no headers), no prior or old value, the new
    # one, and behind that the time of the buffer's row.
    context = struct.pack(">qqi2sii", at, 7, 2, b"in", 1, -1)
    return context + struct.pack(">iii", -1, -1, len(value)) + value + struct.pack(">q", at)
