"""Report of a restore or a checkpoint, one entry per store partition: the job's result for people, Airflow and tests.

A report is one JSON document. It is written to the path given to the job and, after a success, beside the plan in the
application's directory (``statecore/jobs/planning/frozen_plan.py``). Its envelope is that of every job
(``statecore/jobs/attempt.py``). Another version is refused; unknown fields are kept (:data:`REPORT`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from statecore.documents import DocumentType, Fields, plain
from statecore.jobs.attempt import REPORT_VERSION, utc_now
from statecore.jobs.engine.protocol import RanOn
from statecore.repository.publish.publication import Published, Unchanged


@dataclass(frozen=True)
class StoreReport:
    """One store of one task that was read; a global store is one entry over all partitions of its topic.

    Attributes:
        partition: of task and changelog; -1 for a global store.
        start: first offset that was read (global stores: the sum over partitions, as for the next two).
        end: reading stopped before this offset.
        committed_offset: the offset stored with the data; -4 for an empty changelog, and for a store that Kafka Streams
            restores. A global store's are in ``offsets``; their sum has no meaning.
        records: records read, without aborted ones and control records.
        tombstones: records with a null value.
        null_keys: records skipped because their key is null.
        aborted: records dropped because their transaction was aborted.
        rows: live rows of the image; -1 if none was built, or they were not counted.
        bytes: bytes of keys and values of the rows; -1 likewise.
        file_bytes: bytes of the image on disk; without an image, of its runs.
        digest: order-free digest of the rows; empty likewise.
        runs: number of runs the image was built from.
        seconds: time of the tasks that read and built it, summed.
        tail_left: offsets beyond ``end`` that the application will restore itself.
        max_timestamp: the greatest record timestamp seen, in ms; -1 without a record.
        offsets: content of the ``offsets`` family, by ``<topic>-<partition>``.
        stream_time: decides the expiry of rows, in ms: the greatest window start, session end or (versioned stores)
            record timestamp in the changelog, tombstones and dropped rows included. It is not on disk. -1 for stores
            whose rows do not expire, and without a record.
        segments: number of segment databases; 0 without segments.
        expired: rows and deletes left out because their segment has expired at the stream time (an index row counts,
            and so does a key met again in another range): a statistic, not a sum to reconcile.
        restored_by_kafka_streams: nothing was read (``start`` and ``end`` say what there was), and the image is empty.
        base: the id of a snapshot, or the state directory; empty if the whole changelog was read.
    """

    task: str
    store: str
    partition: int
    kind: str
    changelog: str
    start: int
    end: int
    committed_offset: int
    records: int
    tombstones: int
    null_keys: int
    aborted: int
    rows: int
    bytes: int
    file_bytes: int
    digest: str
    runs: int
    seconds: float
    tail_left: int
    max_timestamp: int
    offsets: Mapping[str, int] = field(default_factory=dict)
    stream_time: int = -1
    segments: int = 0
    expired: int = 0
    restored_by_kafka_streams: bool = False
    base: str = ""


@dataclass(frozen=True)
class ReadReport:
    """The result of one job that read changelogs of one application.

    Attributes:
        plan_id: digest of the plan; equal for a retry of the same request.
        state_dir: Kafka Streams' ``state.dir`` that now contains the stores.
        placed: false if an earlier attempt of the same request had placed the stores.
        placement: id of the placement, after which ``.statecore/replaced/placement-<id>`` is named.
        work: seconds of all tasks, summed by stage: ``fetch`` (network, brokers), ``decode`` (CRC, decompression,
            columns), ``collect`` (last write per key), ``write`` (sort, SST), ``image`` (merge, ingest, commit).
        cpu: CPU seconds of each of these, and of ``place``, which the job's own process does.
        finished: when its stores were in place; empty while they are being placed.
        ran_on: where the tasks ran; ``master``, ``executors`` and ``hosts`` of the JSON document.
        repository: where a snapshot was published; empty if none was.
        published: that snapshot.
        unchanged: the newest snapshot, if a checkpoint of all stores found nothing new and published nothing.
    """

    application_id: str
    plan_id: str
    processing_guarantee: str
    state_dir: str
    seconds: float
    phases: Mapping[str, float]
    stores: tuple[StoreReport, ...]
    notes: tuple[str, ...] = ()
    placed: bool = True
    placement: str = ""
    work: Mapping[str, float] = field(default_factory=dict)
    cpu: Mapping[str, float] = field(default_factory=dict)
    request_id: str = ""
    host: str = ""
    user: str = ""
    process: int = 0
    release: str = ""
    started: str = ""
    finished: str = ""
    ran_on: RanOn = field(default_factory=RanOn)
    repository: str = ""
    published: Published | None = None
    unchanged: Unchanged | None = None

    @property
    def totals(self) -> dict[str, float]:
        """Sums over all store partitions, unknown rows and bytes counted as 0, and the wall seconds."""
        return {
            "records": sum(store.records for store in self.stores),
            "rows": sum(max(store.rows, 0) for store in self.stores),
            "bytes": sum(max(store.bytes, 0) for store in self.stores),
            "tail_left": sum(store.tail_left for store in self.stores),
            "seconds": self.seconds,
        }

    def finish(self) -> ReadReport:
        """The report of stores that are in place now."""
        return replace(self, finished=utc_now())

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON document, totals included."""
        return REPORT.to_json(self)

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> ReadReport:
        """Read a report. Raises ``Invalid`` if it is not one of a success."""
        return REPORT.from_json(document)


_WHERE = tuple(item.name for item in fields(RanOn))


def _to_fields(report: ReadReport) -> Fields:
    document = plain(report)
    where = document.pop("ran_on")
    stores = document.pop("stores")  # last, so that the short fields come first for a reader
    return {**document, "totals": report.totals, **where, "stores": stores}


def _nested(document: Fields) -> Fields:
    return {**document, "ran_on": {name: document[name] for name in _WHERE if name in document}}


REPORT = DocumentType(
    "report",
    REPORT_VERSION,
    ReadReport,
    "Read it with the release that wrote it.",
    is_open=True,
    form=_to_fields,
    lift=_nested,
)
"""Open, because others show and index reports, and may add fields."""
