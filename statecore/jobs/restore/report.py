"""What a restore did, store partition by store partition: the job's result, for people, for Airflow and for tests.

A report is one JSON document. It lies at the path that the job was given and, of a restore that went well, beside the
plan in the application's directory (``statecore/jobs/planning/frozen_plan.py``). Every report names its attempt
(``statecore/jobs/attempt.py``); the rest depends on how that one ended::

    {"version": 2, <the attempt>}                                        it began, and nobody has heard of its end
    {"version": 2, <the attempt>, "finished": ..., "error": ..., ...}    it failed: the error of statecore/errors.py
    {"version": 2, <the attempt>, "finished": ..., "stores": [...], ...} it succeeded: a RestoreReport

Version 1 had no version, no attempt and no times; ``statecore/jobs/history/report_head.py`` takes what it has. A report
of a later version than 2 is refused by name. A field that nobody here knows is kept (:data:`REPORT`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from statecore.documents import DocumentType, Fields, plain
from statecore.jobs.attempt import REPORT_VERSION
from statecore.repository.publication import Published
from statecore.words import number_of


@dataclass(frozen=True)
class StoreReport:
    """One restored store of one task; a global store is one entry over all partitions of its topic.

    Attributes:
        task: Kafka Streams' task id, or ``global``.
        store: the store.
        partition: the partition of task and changelog; -1 for a global store.
        kind: the store's kind.
        changelog: the topic it was rebuilt from.
        start: first offset that was read for (a global store: added up over its partitions, as the next two).
        end: the read stopped before this offset.
        committed_offset: the offset stored with the data; -4 for an empty changelog, and for a store that is left to
            Kafka Streams. A global store's are in ``offsets``; added up they mean nothing.
        records: records read (aborted ones and control records are not records).
        tombstones: of them with a null value.
        null_keys: of them skipped because their key is null.
        aborted: records dropped because their transaction was aborted.
        rows: live rows of the image; -1 where none was built, and nobody has counted them.
        bytes: bytes of keys and values of the rows; -1 likewise.
        file_bytes: bytes of the image on disk; where none was built, of its runs.
        digest: order-free digest of the rows; empty likewise.
        runs: runs the image was built from.
        seconds: time of the tasks that read and built it, added up.
        tail_left: offsets beyond ``end`` that the application will restore itself.
        max_timestamp: the greatest record timestamp seen, in ms; -1 without a record.
        offsets: what the ``offsets`` family says, by ``<topic>-<partition>``.
        stream_time: what decides the expiry of rows, in ms: the greatest window start, session end or (versioned
            stores) record timestamp in the changelog, tombstones and dropped rows included. The disk does not keep it.
            -1 for stores whose rows do not expire, and without a record.
        segments: databases of segments; 0 where the store has none.
        expired: rows and deletes left out because their segment has expired at the stream time, as they were met (an
            index row counts, and so does a key met again in another range): a statistic, not a sum to reconcile.
        left_to_restore: nothing was read (``start`` and ``end`` say what there was), the image is empty, and Kafka
            Streams restores the store itself.
        parent: what its runs were put upon: the id of a snapshot, or the state directory; empty where the whole
            changelog was read.
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
    left_to_restore: bool = False
    parent: str = ""


PROCESSES = "processes"
"""In place of a Spark master where the tasks ran in processes of the driver's machine."""


@dataclass(frozen=True)
class RanOn:
    """Where the tasks of a job ran.

    Attributes:
        master: the Spark master, or :data:`PROCESSES`; empty where a report does not say it.
        executors: how many executors, or processes, there were when the work began.
        hosts: their hosts, as the cluster manager names them.
    """

    master: str = ""
    executors: int = 0
    hosts: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.master == PROCESSES:
            return f"{self.executors} process{'' if self.executors == 1 else 'es'} on {', '.join(self.hosts)} work."
        count = number_of(self.executors, "executor")
        return f"Spark runs on {self.master} with {count} on {', '.join(self.hosts)}."


@dataclass(frozen=True)
class RestoreReport:
    """The result of one restore of one application.

    Attributes:
        application_id: Kafka Streams' ``application.id``.
        plan_id: digest of the plan; equal for a retry of the same request.
        processing_guarantee: the application's own.
        state_dir: Kafka Streams' ``state.dir`` that now holds the stores.
        seconds: wall time from the first check to the last swap.
        phases: wall seconds of each phase, in order.
        stores: one entry a store partition, in task and store order.
        notes: what an operator should know although nothing failed (a tail that is left, for instance).
        placed: false when the stores were already in place from an earlier attempt of the same request.
        placement: names the attempt that placed them; whoever finds them in place says the same name.
        work: where the time of the tasks went, seconds added up over all of them: ``fetch`` (network, brokers),
            ``decode`` (CRC, decompression, columns), ``collect`` (last write per key), ``write`` (sort, SST), ``image``
            (merge, ingest, commit).
        cpu: the CPU seconds of each of these, and of ``place``, which the job's own process does.
        request_id: as the following, of the attempt.
        host: the machine that ran it.
        user: the user it ran as.
        process: its process id.
        release: the version of statecore.
        started: when it began (ISO 8601, UTC).
        finished: when its stores were in place; empty while they are being placed.
        ran_on: where the tasks ran; ``master``, ``executors`` and ``hosts`` of the JSON document.
        repository: where a snapshot was published; empty where none was.
        published: that snapshot.
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
    ran_on: RanOn = RanOn()
    repository: str = ""
    published: Published | None = None

    @property
    def totals(self) -> dict[str, float]:
        """Sums over all store partitions: records, rows and bytes as far as these are known; and the wall seconds."""
        return {
            "records": sum(store.records for store in self.stores),
            "rows": sum(max(store.rows, 0) for store in self.stores),
            "bytes": sum(max(store.bytes, 0) for store in self.stores),
            "tail_left": sum(store.tail_left for store in self.stores),
            "seconds": self.seconds,
        }

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON document, totals included."""
        return REPORT.to_json(self)

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> RestoreReport:
        """Read a report back, of any version that is understood; the totals are computed anew.

        Raises:
            Invalid: it is none of a success, or of another version.
        """
        return REPORT.from_json(document)


_WHERE = tuple(item.name for item in fields(RanOn))


def _form(report: RestoreReport) -> Fields:
    document = plain(report)
    where = document.pop("ran_on")
    stores = document.pop("stores")  # last: whoever looks at a report by hand sees first whose it is
    return {**document, "totals": report.totals, **where, "stores": stores}


def _lifted(document: Fields) -> Fields:
    return {**document, "ran_on": {name: document[name] for name in _WHERE if name in document}}


def _of_version_1(document: Fields) -> Fields:
    """It lacks fields, and all that it lacks has a default."""
    return document


REPORT = DocumentType(
    "report",
    REPORT_VERSION,
    RestoreReport,
    "Read it with the release that wrote it.",
    older={1: _of_version_1},
    unversioned=1,
    is_open=True,
    form=_form,
    lift=_lifted,
)
"""Reports are shown, indexed and kept by others, who may add to them."""
