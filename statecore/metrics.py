"""Metrics of stores, checkpoints and restores: off by default, exported by OpenTelemetry on request.

An instrument is named after Kafka Streams' own metric where one exists. Kafka Streams computes rates, averages and
maxima itself; here the backend does: ``commit-total`` gives ``commit-rate``, the histogram ``commit-latency`` gives
``commit-latency-avg`` and ``commit-latency-max``. Tags are Kafka Streams' too (``task-id``, ``<type>-state-id``).

Counters are added to, histograms record one value per event, gauges are read at each collection.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import count
from threading import Lock
from typing import Any

from statecore.errors import Invalid
from statecore.progress import Clock, Progress

Tags = Mapping[str, str]


class InstrumentKind(StrEnum):
    """Kind of an instrument."""

    COUNTER = "counter"
    HISTOGRAM = "histogram"
    GAUGE = "gauge"


@dataclass(frozen=True)
class Instrument:
    """A metric.

    Attributes:
        unit: UCUM, as in OpenTelemetry: ``ms``, ``s``, ``By``, or the counted thing in braces.
        streams: the metrics of Kafka Streams that follow from it; empty if there is none.
    """

    name: str
    kind: InstrumentKind
    unit: str
    meaning: str
    streams: tuple[str, ...] = ()


_COUNTER, _HISTOGRAM, _GAUGE = InstrumentKind.COUNTER, InstrumentKind.HISTOGRAM, InstrumentKind.GAUGE

OPEN_STORES = Instrument("num-open-stores", _GAUGE, "{store}", "stores that are open")
COMMITS = Instrument("commit-total", _COUNTER, "{commit}", "commits of a store that succeeded", ("commit-rate",))
COMMIT_LATENCY = Instrument(
    "commit-latency",
    _HISTOGRAM,
    "ms",
    "how long a commit of a store took, until it was durable",
    ("commit-latency-avg", "commit-latency-max"),
)
COMMIT_AGE = Instrument("commit-age", _GAUGE, "s", "time since the last commit, or since the store was opened")
UNCOMMITTED_BYTES = Instrument("uncommitted-bytes", _GAUGE, "By", "memory that staged writes take now")
COMMITTED_BYTES = Instrument("committed-bytes", _HISTOGRAM, "By", "memory that the staged writes of a commit took")
PUTS = Instrument("put-total", _COUNTER, "{call}", "rows written, including deletes; reported at commit", ("put-rate",))
GETS = Instrument("get-total", _COUNTER, "{call}", "rows looked up by key; reported at commit", ("get-rate",))
FLUSH_LATENCY = Instrument(
    "flush-latency", _HISTOGRAM, "ms", "how long a flush took", ("flush-rate", "flush-latency-avg", "flush-latency-max")
)
RANGE_LATENCY = Instrument(
    "range-latency",
    _HISTOGRAM,
    "ms",
    "from a call of range, scan or their reverse to the end of its iterator",
    ("range-rate", "range-latency-avg", "range-latency-max"),
)
PREFIX_SCAN_LATENCY = Instrument(
    "prefix-scan-latency",
    _HISTOGRAM,
    "ms",
    "from a call of prefix_scan or its reverse to the end of its iterator",
    ("prefix-scan-rate", "prefix-scan-latency-avg", "prefix-scan-latency-max"),
)
ALL_LATENCY = Instrument(
    "all-latency",
    _HISTOGRAM,
    "ms",
    "from a call of all or its reverse to the end of its iterator",
    ("all-rate", "all-latency-avg", "all-latency-max"),
)
ITERATOR_DURATION = Instrument(
    "iterator-duration",
    _HISTOGRAM,
    "ms",
    "from the creation of an iterator to its end",
    ("iterator-duration-avg", "iterator-duration-max"),
)
OPEN_ITERATORS = Instrument(
    "num-open-iterators", _GAUGE, "{iterator}", "iterators that are open", ("num-open-iterators",)
)
CHECKPOINTS = Instrument("checkpoint-total", _COUNTER, "{checkpoint}", "checkpoints of a task that were written")
CHECKPOINT_LATENCY = Instrument("checkpoint-latency", _HISTOGRAM, "ms", "how long a checkpoint of a task took")
CHECKPOINT_AGE = Instrument(
    "checkpoint-age", _GAUGE, "s", "time since the last checkpoint of a task, or since its stores were opened"
)
RESTORED = Instrument("restore-total", _COUNTER, "{record}", "records restored", ("restore-total", "restore-rate"))
RESTORE_REMAINING = Instrument(
    "restore-remaining-records-total",
    _GAUGE,
    "{record}",
    "records (offsets) still to be restored",
    ("restore-remaining-records-total",),
)
UPDATED = Instrument(
    "update-total", _COUNTER, "{record}", "records applied by a standby task", ("update-total", "update-rate")
)
STANDBY_TASKS = Instrument(
    "standby-updating-tasks", _GAUGE, "{task}", "standby tasks, without failed ones", ("standby-updating-tasks",)
)
STANDBY_FAILED = Instrument(
    "standby-failed-tasks", _GAUGE, "{task}", "standby tasks that were not or not completely updated in the last round"
)
BLOCK_CACHE_USAGE = Instrument(
    "block-cache-usage",
    _GAUGE,
    "By",
    "memory in the block cache of all standby tasks of a process",
    ("block-cache-usage",),
)
BLOCK_CACHE_CAPACITY = Instrument(
    "block-cache-capacity", _GAUGE, "By", "memory up to which that block cache grows", ("block-cache-capacity",)
)
CHECKPOINT_SUCCESS = Instrument(
    "checkpoint-last-success-time",
    _GAUGE,
    "s",
    "time of the last successful checkpoint into a repository, with or without changes, in seconds since the epoch",
)
CHECKPOINT_INTERVAL = Instrument(
    "checkpoint-interval", _GAUGE, "s", "time between two checkpoints of an application, as declared"
)
CHECKPOINT_CHECKED = Instrument(
    "checkpoint-last-check-time",
    _GAUGE,
    "s",
    "time when Airflow last checked whether a checkpoint is due, in seconds since the epoch",
)
SNAPSHOT_READ_AT = Instrument(
    "snapshot-read-position-time",
    _GAUGE,
    "s",
    "time up to which the newest snapshot is known to be complete, in seconds since the epoch",
)
SNAPSHOTS_VERIFIED = Instrument(
    "snapshot-verified-time",
    _GAUGE,
    "s",
    "time since which all that a level of statecore repo verify reads was verified, in seconds since the epoch",
)
SNAPSHOTS_DAMAGED = Instrument(
    "snapshot-damage",
    _GAUGE,
    "{damage}",
    "damage of a repository that verifications at that level found, and no later one covers",
)
GLOBAL_STATE = Instrument(
    "global-state", _GAUGE, "{state}", "state of a global store: 0 CREATED, 1 RESTORING, 2 RUNNING, 3 ERROR, 4 CLOSED"
)
RECORDS_LAG = Instrument(
    "records-lag", _GAUGE, "{record}", "offsets that a store is behind the end of its topic", ("records-lag",)
)
RECOVERIES = Instrument("global-recovery-total", _COUNTER, "{recovery}", "times a global store was rebuilt")
RETRIES = Instrument(
    "global-retry-total",
    _COUNTER,
    "{attempt}",
    "times the brokers of a global store did not answer, or its topic was missing",
)


class Metrics(ABC):
    """Receiver of metrics; called from any thread."""

    @abstractmethod
    def add(self, instrument: Instrument, amount: int, tags: Tags) -> None:
        """Add to a counter."""

    @abstractmethod
    def record(self, instrument: Instrument, value: float, tags: Tags) -> None:
        """Record a value of a histogram."""

    @abstractmethod
    def observe(self, instrument: Instrument, read: Callable[[], float | None], tags: Tags) -> Callable[[], None]:
        """Register a gauge; values of several with the same tags are added up.

        Args:
            read: the current value, ``None`` if unknown, which is not exported; called from the collecting thread.

        Returns:
            A function that unregisters it.
        """


class NullMetrics(Metrics):
    """Discards all metrics."""

    def add(self, instrument: Instrument, amount: int, tags: Tags) -> None:
        """Ignored."""

    def record(self, instrument: Instrument, value: float, tags: Tags) -> None:
        """Ignored."""

    def observe(
        self,
        instrument: Instrument,  # noqa: ARG002 - the interface's arguments
        read: Callable[[], float | None],  # noqa: ARG002
        tags: Tags,  # noqa: ARG002
    ) -> Callable[[], None]:
        return _nothing


NO_METRICS = NullMetrics()
"""The default everywhere."""


class OpenTelemetryMetrics(Metrics):
    """Exports through the process's OpenTelemetry meter provider, which the application configures.

    Args:
        meter: an ``opentelemetry.metrics.Meter``; the default is the global provider's, named ``statecore``.

    Raises:
        Invalid: the package ``opentelemetry-api`` is not installed.
    """

    def __init__(self, meter: Any = None) -> None:
        try:
            from opentelemetry import metrics
        except ImportError as error:
            raise Invalid(
                "OpenTelemetry is not installed.",
                code="extra-missing",
                action="Install opentelemetry-api (pip install '.[metrics]' in a checkout), or use no metrics.",
                extra="metrics",
            ) from error
        self._observation = metrics.Observation
        self._meter = meter if meter is not None else metrics.get_meter("statecore")
        self._instruments: dict[str, Any] = {}
        self._observed: dict[str, dict[int, tuple[Callable[[], float | None], Tags]]] = {}
        self._keys = count()
        self._lock = Lock()

    def add(self, instrument: Instrument, amount: int, tags: Tags) -> None:
        self._instrument(instrument).add(amount, tags)

    def record(self, instrument: Instrument, value: float, tags: Tags) -> None:
        self._instrument(instrument).record(value, tags)

    def observe(self, instrument: Instrument, read: Callable[[], float | None], tags: Tags) -> Callable[[], None]:
        self._instrument(instrument)
        with self._lock:
            key = next(self._keys)
            self._observed[instrument.name][key] = (read, tags)

        def end() -> None:
            with self._lock:
                self._observed[instrument.name].pop(key, None)

        return end

    def _instrument(self, instrument: Instrument) -> Any:
        with self._lock:
            made = self._instruments.get(instrument.name)
            if made is None:
                made = self._instruments[instrument.name] = self._make(instrument)
        return made

    def _make(self, instrument: Instrument) -> Any:
        name, unit, meaning = instrument.name, instrument.unit, instrument.meaning
        if instrument.kind is InstrumentKind.COUNTER:
            return self._meter.create_counter(name, unit, meaning)
        if instrument.kind is InstrumentKind.HISTOGRAM:
            return self._meter.create_histogram(name, unit, meaning)
        self._observed[name] = {}
        return self._meter.create_observable_gauge(name, [lambda _: self._observations(name)], unit, meaning)

    def _observations(self, name: str) -> Iterable[Any]:
        with self._lock:
            observed = list(self._observed[name].values())
        sums: dict[tuple[tuple[str, str], ...], float] = {}
        for read, tags in observed:
            value = read()
            if value is not None:
                key = tuple(sorted(tags.items()))
                sums[key] = sums.get(key, 0) + value
        return [self._observation(value, dict(key)) for key, value in sums.items()]


class RestoreMetrics:
    """Metrics of one restore: its rate, and the remaining records; by ``task-id`` and store, or by application."""

    def __init__(self, metrics: Metrics, remaining: int, tags: Tags) -> None:
        self._metrics, self._tags = metrics, dict(tags)
        self._remaining = remaining
        self._end = metrics.observe(RESTORE_REMAINING, lambda: self._remaining, self._tags)

    def restored(self, records: int) -> None:
        """Count restored records."""
        self._remaining = max(0, self._remaining - records)
        self._metrics.add(RESTORED, records, self._tags)

    def close(self) -> None:
        """Unregister; the restore has ended, completely or not."""
        self._end()


class CheckpointMetrics:
    """Metrics of the checkpoints that one process makes in a repository: nothing before the first success."""

    def __init__(self, metrics: Metrics, tags: Tags, clock: Clock = time.time) -> None:
        self._metrics, self._tags, self._clock = metrics, dict(tags), clock
        self._ends: dict[Instrument, Callable[[], None]] = {}
        self._values: dict[Instrument, float] = {}

    @property
    def is_exported(self) -> bool:
        """Whether metrics are exported: else callers can skip collecting them."""
        return not isinstance(self._metrics, NullMetrics)

    def record_success(self, read_at: float | None, interval: float | None = None) -> None:
        self._set(CHECKPOINT_SUCCESS, self._clock())
        self._set(CHECKPOINT_INTERVAL, interval)
        self._set(SNAPSHOT_READ_AT, read_at)

    def record_check(
        self, checked: float, current: float | None, interval: float, read_at: float | None = None
    ) -> None:
        """Record a check whether a checkpoint is due; ``current`` is a time when the newest snapshot was complete.

        A time later than the check is of a machine whose clock is ahead: exported, it would mute alerts until then.
        """
        self._set(CHECKPOINT_CHECKED, checked)
        self._set(CHECKPOINT_SUCCESS, None if current is None else min(current, checked))
        self._set(CHECKPOINT_INTERVAL, interval)
        self._set(SNAPSHOT_READ_AT, read_at)

    def close(self) -> None:
        for instrument in list(self._ends):
            self._set(instrument, None)

    def _set(self, instrument: Instrument, value: float | None) -> None:
        if value is None:
            self._ends.pop(instrument, _nothing)()
            return
        self._values[instrument] = value
        if instrument not in self._ends:
            self._ends[instrument] = self._metrics.observe(instrument, lambda: self._values[instrument], self._tags)


class VerificationMetrics:
    """Metrics of the verifications of one application in a repository, by ``level``.

    Args:
        known: since when each level was verified as a whole, in ms since the epoch, and the damage that is known;
            ``None`` if a part of it was never verified.
    """

    def __init__(self, metrics: Metrics, application_id: str, known: Mapping[Any, tuple[int | None, int]]) -> None:
        self._ends = []
        for level, (since_ms, damaged) in known.items():
            tags = {"application-id": application_id, "level": str(level)}
            if since_ms is not None:
                self._ends.append(metrics.observe(SNAPSHOTS_VERIFIED, partial(float, since_ms / 1000), tags))
            self._ends.append(metrics.observe(SNAPSHOTS_DAMAGED, partial(float, damaged), tags))

    def close(self) -> None:
        for end in self._ends:
            end()


class MeteredProgress:
    """Progress listener that also exports restore metrics; steps that count no offsets are only forwarded.

    The remainder after a step, 0 or what a failure left, stays registered until the next step or ``close``: a short
    step may end before the first collection.
    """

    def __init__(self, progress: Progress, metrics: Metrics, tags: Tags) -> None:
        self._progress, self._metrics, self._tags = progress, metrics, tags
        self._restore: RestoreMetrics | None = None
        self._counting = False

    def phase(self, name: str, total: int | None = None, unit: str = "") -> None:
        """See :meth:`Progress.phase`."""
        self._counting = False
        if unit in ("offsets", "records") and total is not None:
            self.close()
            self._counting = True
            self._restore = RestoreMetrics(self._metrics, total, self._tags)
        self._progress.phase(name, total, unit)

    def advance(self, amount: int = 1) -> None:
        """See :meth:`Progress.advance`."""
        if self._restore is not None and self._counting:
            self._restore.restored(amount)
        self._progress.advance(amount)

    def done(self, message: str = "") -> None:
        """See :meth:`Progress.done`."""
        self._counting = False
        self._progress.done(message)

    def close(self) -> None:
        """Unregister the remaining records."""
        if self._restore is not None:
            self._restore.close()
            self._restore = None


class Timer:
    """Milliseconds since creation."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()

    @property
    def ms(self) -> float:
        return (self._clock() - self._began) * 1000


def store_tags(task: str, store: str) -> dict[str, str]:
    """Kafka Streams' tags of a store's metrics: ``task-id`` and ``<type>-state-id``."""
    return {"task-id": task, "rocksdb-state-id": store}


def _nothing() -> None:
    return None
