"""What a restore did, store partition by store partition: the job's result, for people, for Airflow and for tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


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
        committed_offset: the offset stored with the data; -4 for an empty changelog, and for a versioned store that the
            application is to restore itself. A global store's are in ``offsets``; added up they mean nothing.
        records: records read (aborted ones and control records are not records).
        tombstones: of them with a null value.
        null_keys: of them skipped because their key is null.
        aborted: records dropped because their transaction was aborted.
        rows: live rows of the image.
        bytes: bytes of keys and values of the rows.
        file_bytes: bytes of the image on disk.
        digest: order-free digest of the rows.
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


@dataclass(frozen=True)
class RanOn:
    """Where the tasks of a job ran.

    Attributes:
        master: the Spark master; empty where a report does not say it.
        executors: how many executors there were when the work began.
        hosts: their hosts, as the cluster manager names them.
    """

    master: str = ""
    executors: int = 0
    hosts: tuple[str, ...] = ()

    def __str__(self) -> str:
        count = f"{self.executors} executor{'' if self.executors == 1 else 's'}"
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
        work: where the time of the tasks went, seconds added up over all of them: ``read`` (network, decoding),
            ``collect`` (last write per key), ``write`` (sort, SST), ``image`` (ingest, commit).
        ran_on: where the tasks ran; ``master``, ``executors`` and ``hosts`` of the JSON document.
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
    work: Mapping[str, float] = field(default_factory=dict)
    ran_on: RanOn = RanOn()

    @property
    def totals(self) -> dict[str, float]:
        """Sums over all store partitions: records, rows, bytes; and the wall seconds."""
        return {
            "records": sum(store.records for store in self.stores),
            "rows": sum(store.rows for store in self.stores),
            "bytes": sum(store.bytes for store in self.stores),
            "tail_left": sum(store.tail_left for store in self.stores),
            "seconds": self.seconds,
        }

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON document, totals included."""
        document = {**asdict(self), "phases": dict(self.phases), "work": dict(self.work), "totals": self.totals}
        return {**document, **document.pop("ran_on"), "hosts": list(self.ran_on.hosts)}

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> RestoreReport:
        """Read a report back; the totals are computed anew."""
        where = ("master", "executors", "hosts")
        fields = {name: value for name, value in document.items() if name not in ("totals", *where)}
        known = {name: document[name] for name in where if name in document}
        fields["ran_on"] = RanOn(**{**known, "hosts": tuple(known.get("hosts", ()))})
        fields["stores"] = tuple(StoreReport(**store) for store in document["stores"])
        fields["notes"] = tuple(document.get("notes", ()))
        return RestoreReport(**fields)
