"""An application that writes what it finds: results that come late, when a window closes or a partner does not come.

What it emits after a start depends on all its stores, on what the committed offsets of its group carry, and on nothing
else: no result waits for the clock (``_AT_ONCE``), and ``feed`` gives one topic's records after the other's.
"""

from __future__ import annotations

from dataclasses import replace

from tests.harness.feeds import EVENTS, LEFT, MINUTE, PUTS, RIGHT, SPAN, SPARSE, TABLE, Portion, feed
from tests.harness.kinds import Add, KindCase, KindsApplication
from tests.harness.sources import RETENTION, Sources
from tests.harness.topics import Record

_RETAINED = {"retention": "10m"}

# Kafka Streams looks for results that have become final at most once a second of the wall clock.
_AT_ONCE = {
    "__emit.interval.ms.kstreams.windowed.aggregation__": "0",
    "__emit.interval.ms.kstreams.outer.join.spurious.results.fix__": "0",
}

_FOREIGN_KEYS = 5
_COUNT = 30


def _final(name: str, windows: str, keys: str) -> Add:
    def add(at: Sources) -> None:
        on_close = at.kstream.EmitStrategy.onWindowClose()
        windowed = at.grouped(EVENTS).windowedBy(getattr(at, windows)()).emitStrategy(on_close)
        table = windowed.reduce(at.reducer(), at.materialized(name, retention=True))
        at.send(table.toStream(), f"{name}-results", keys)

    return add


def _suppressed(at: Sources) -> None:
    windowed = at.grouped(EVENTS).windowedBy(at.tumbling())
    table = windowed.reduce(at.reducer(), at.materialized("suppressed-windows", retention=True))
    until_closed = at.kstream.Suppressed.untilWindowCloses(at.kstream.Suppressed.BufferConfig.unbounded())
    at.send(table.suppress(until_closed.withName("suppressed")).toStream(), "suppressed-results", "time")


def _stream_joins(at: Sources) -> None:
    left, right = at.stream(LEFT), at.stream(RIGHT)
    at.send(left.outerJoin(right, at.both(), at.join_windows(), at.joined("outer")), "outer-results")
    at.send(left.leftJoin(right, at.both(), at.join_windows(), at.joined("left")), "left-results")


def _grace(at: Sources) -> None:
    supplier = at.stores.persistentVersionedKeyValueStore("grace-table", at.duration(RETENTION))
    table = at.stream(TABLE).toTable(at.materialized(supplier))
    joined = at.table_joined("grace").withGracePeriod(at.duration(RETENTION // 2))
    at.send(at.stream(LEFT).join(table, at.both(), joined), "grace-results")


def _foreign_key(at: Sources) -> None:
    """A table whose values are keys of another."""
    f = at.jvm.functions
    foreign = f.cast(f.method("java.lang.String", "getBytes", "byte[]"), *["java.lang.Object"] * 2)
    left = at.stream(PUTS).toTable(at.materialized("foreign-left"))
    right = at.stream(SPARSE).toTable(at.materialized("foreign-right"))
    named = getattr(at.kstream.TableJoined, "as")("foreign")
    result = left.leftJoin(
        right, f.instance("java.util.function.Function", foreign), at.both(), named, at.materialized("foreign-result")
    )
    at.send(result.toStream(), "foreign-results")


def _fitting(role: str, number: int, record: Record) -> Record:
    """The record, as the foreign-key join needs it: values of the one table are keys of the other, some of nothing."""
    if role == PUTS and record.value is not None:
        return replace(record, value=b"nobody" if number % 9 == 0 else b"foreign %d" % (number % _FOREIGN_KEYS))
    if role == SPARSE:
        return replace(record, key=b"foreign %d" % (number % _FOREIGN_KEYS))
    return record


def _feed(base: int, partitions: int) -> list[Portion]:
    """Two portions of each role, the second of a role after the first of all: what a restart may lie between."""
    if partitions != 1:
        raise ValueError("what tasks of two partitions write is in no order")
    records: dict[str, list[Record]] = {}
    for role, portion in feed(base, partitions, _COUNT):
        records.setdefault(role, []).extend(portion)
    fitting = {role: [_fitting(role, i, one) for i, one in enumerate(every)] for role, every in records.items()}
    cuts = {role: len(every) * 2 // 3 for role, every in fitting.items()}
    first = [(role, every[: cuts[role]]) for role, every in fitting.items()]
    return first + [(role, every[cuts[role] :]) for role, every in fitting.items()]


def late(base: int) -> list[Portion]:
    """Records for between the two halves of the feed, all older than what came, the newest of them first.

    An application that was not restarted knows that their windows have closed.
    """
    times = [base + SPAN * 2 // 3 - minutes * MINUTE for minutes in (1, 4, 6, 12, 25)]
    records = [Record(key, b"late %d" % i, 0, at) for i, at in enumerate(times) for key in (b"a", b"new")]
    return [(role, records) for role in (EVENTS, LEFT, RIGHT)]


EMITTING = KindsApplication(
    "emitting",
    (
        KindCase("emit-final-window", "time", _final("time", "tumbling", "time"), None, _RETAINED),
        KindCase("emit-final-sliding-window", "sliding", _final("sliding", "sliding", "time"), None, _RETAINED),
        KindCase("emit-final-session", "session", _final("session", "sessions", "session"), None, _RETAINED),
        KindCase("timestamped-window", "suppressed-windows", _suppressed, None, _RETAINED),
        KindCase("in-memory", "suppressed-store", _suppressed),
        KindCase("join-window", "outer-outer-this-join-store", _stream_joins, None, _RETAINED),
        KindCase("join-window", "outer-outer-other-join-store", _stream_joins, None, _RETAINED),
        KindCase("list", "outer-outer-shared-join-store", _stream_joins),
        KindCase("join-window", "left-this-join-store", _stream_joins, None, _RETAINED),
        KindCase("join-window", "left-outer-other-join-store", _stream_joins, None, _RETAINED),
        KindCase("list", "left-left-shared-join-store", _stream_joins),
        KindCase("versioned-key-value", "grace-table", _grace, None, _RETAINED),
        KindCase("grace-buffer", "grace-Buffer", _grace),
        KindCase("timestamped-key-value", "foreign-left", _foreign_key),
        KindCase("timestamped-key-value", "foreign-right", _foreign_key),
        KindCase("timestamped-key-value", "foreign-result", _foreign_key),
        KindCase("timestamped-key-value", "foreign-subscription-store", _foreign_key),
    ),
    _feed,
    _AT_ONCE,
    tuple(
        f"{name}-results" for name in ("time", "sliding", "session", "suppressed", "outer", "left", "grace", "foreign")
    ),
)
"""Windows that are emitted when they close, suppression, joins of streams, of a stream with a table, by foreign key."""
