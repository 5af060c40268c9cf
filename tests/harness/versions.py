"""Applications of versioned stores alone, and random histories for them: late, at the same time, deleted, alive again.

A history is one key's: when it is deleted, how late its records come and how coarse their times are is its own. Many of
them lie in one partition, mixed, and drive its stream time together; every record goes into every store, and into a
table beside them in the same task.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from statecore.formats.kinds import StoreKind
from statecore.formats.segments import default_segment_interval
from statecore.spec.units import format_duration
from tests.harness.feeds import EVENTS, MINUTE
from tests.harness.kinds import KindCase, KindsApplication
from tests.harness.queries import StoreQuery
from tests.harness.sources import Sources
from tests.harness.topics import Record

BESIDE = "beside"
"""The table in the same task."""

PROCESSED = "processed"
"""A store of this name is filled by a processor, the others are tables of the DSL."""


@dataclass(frozen=True)
class Versioned:
    """A versioned store: its history retention and, where it is not the default, its segment interval; ms both."""

    retention: int
    interval: int | None = None

    @property
    def segment_interval(self) -> int:
        """The interval that its segments have."""
        return self.interval or default_segment_interval(StoreKind.VERSIONED_KEY_VALUE, self.retention)

    @property
    def declared(self) -> dict[str, str]:
        """What the spec says of it besides the kind."""
        interval = {"segment_interval": format_duration(self.interval)} if self.interval else {}
        return {"retention": format_duration(self.retention), **interval}


@dataclass(frozen=True)
class VersionedApplication(KindsApplication):
    """Versioned stores that are filled from one topic, with a table of it in their task.

    Attributes:
        stores: the versioned stores by name.
        keys: the keys they are asked for.
    """

    stores: Mapping[str, Versioned] = field(default_factory=dict)
    keys: tuple[bytes, ...] = ()

    def queries(self, base: int, until: int = 0) -> dict[str, StoreQuery]:
        """See :meth:`KindsApplication.queries`; ``until`` is the stream time, counted from the base."""
        found = {BESIDE: StoreQuery(timestamped=True, value="String")}
        for name, store in self.stores.items():
            since = base + until - store.retention
            moments = tuple(since + store.retention * part // 6 for part in range(7))
            query = StoreQuery(timestamped=True, value="String", shape="versioned", keys=self.keys)
            found[name] = replace(query, since=since, moments=moments)
        return found


def versioned_application(stores: Mapping[str, Versioned], keys: tuple[bytes, ...]) -> VersionedApplication:
    """The application of these stores."""
    cases = [
        KindCase("versioned-key-value", name, partial(_add, name, store), declared=store.declared)
        for name, store in stores.items()
    ]
    return VersionedApplication(
        "versioned",
        (*cases, KindCase("timestamped-key-value", BESIDE, _beside)),
        lambda base, partitions: [(EVENTS, [])],
        stores=dict(stores),
        keys=keys,
    )


def _add(name: str, store: Versioned, at: Sources) -> None:
    times = [at.duration(store.retention), *([at.duration(store.interval)] if store.interval else [])]
    of = at.stores.persistentVersionedKeyValueStore(name, *times)
    if name == PROCESSED:
        at.put_all(EVENTS, at.stores.versionedKeyValueStoreBuilder, of, at.puts.versioned(at.puts.plain()))
    else:
        at.stream(EVENTS).toTable(at.materialized(of))


def _beside(at: Sources) -> None:
    at.stream(EVENTS).toTable(at.materialized(BESIDE))


def keys_of(count: int) -> tuple[bytes, ...]:
    """The keys of as many histories."""
    return tuple(b"history %03d" % number for number in range(count))


def histories(
    seed: int, partition: int, keys: tuple[bytes, ...], start: int, span: int, count: int, *, late: bool = True
) -> Iterator[Record]:
    """Records of all keys, mixed; stream time goes from ``start`` over ``span`` (ms both), and ends there.

    Args:
        seed: of the histories; each partition has its own.
        partition: the partition.
        keys: one for each history.
        start: time of the first record.
        span: time until the last.
        count: records.
        late: whether some come out of order.
    """
    chance = random.Random(f"{seed} {partition} {start}")
    traits = {
        key: (
            chance.choice([0.05, 0.2, 0.4]),
            chance.choice([0, 0, 0.3, 0.6]) if late else 0,
            chance.choice([1, 1000, 30_000]),
        )
        for key in keys
    }
    clock = 0.0
    for number in range(count):
        clock = min(clock + chance.random() * 2 * span / count, span)
        key = chance.choice(keys)
        deleted, out_of_order, grain = traits[key]
        moment = int(clock)
        if chance.random() < out_of_order:
            moment -= chance.choice([chance.randrange(5_000), chance.randrange(MINUTE), chance.randrange(12 * MINUTE)])
        moment -= moment % grain if late else 0
        value = None if chance.random() < deleted else b"%d" % number
        yield Record(key, value, partition, start + moment)
    yield Record(b"last", b"end", partition, start + span)


def versions_in(rows: Any) -> set[tuple[bytes, int, int | None, bytes]]:
    """Key, valid from, valid to and value of the versions (not the moments, not the latest twice) in answers."""
    found = set()
    for label, value, valid_from in rows:
        key, at, times = label.partition(b"@")
        if at and len(times) in (8, 16):
            found.add((key, valid_from, int.from_bytes(times[8:], "big") if len(times) == 16 else None, value))
    return found
