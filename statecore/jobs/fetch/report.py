"""Report of a fetch: the placed tasks, and those that were kept.

``statecore fetch --json`` prints it. It is stored beside the files of restores
(:mod:`statecore.jobs.planning.frozen_plan`) before the placement, and again after it with the finish time; a retry of
the request treats what it placed as done::

    <application>/.statecore/plans/<request>.fetch

A fetch has no plan file, because the content of a snapshot is already frozen. So a restore may have the same request
id, and neither touches the files of the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from statecore.documents import DocumentType
from statecore.jobs.fetch.select import SkippedSnapshot

FETCH_SUFFIX = ".fetch"
"""File suffix of the report."""


@dataclass(frozen=True)
class FetchedStore:
    """A fetched store of one task.

    Attributes:
        identity: hash of what the snapshot's store is made of.
        rows: live rows; ``None`` if unknown, as for ``bytes`` and ``digest``.
        bytes: bytes of their keys and values.
        file_bytes: bytes of its files in the repository.
        offsets: offsets in its databases by ``<topic>-<partition>``: the last applied one (a global store: the next
            one), or -4.
        restored_by_kafka_streams: whether it was placed empty, so that Kafka Streams restores it.
        seconds: build time; 0 in a plan.
    """

    task: str
    store: str
    kind: str
    identity: str
    rows: int | None
    bytes: int | None
    digest: str | None
    file_bytes: int
    offsets: Mapping[str, int]
    restored_by_kafka_streams: bool
    seconds: float = 0.0


@dataclass(frozen=True)
class FetchReport:
    """The result of one fetch, or its plan.

    Attributes:
        snapshot_identity: hash of what all its stores are made of.
        created_at: publication time (ISO 8601, UTC).
        read_at: time when the first of its offsets was read (ISO 8601, UTC); ``None`` if unknown.
        age: seconds since ``read_at``, or since ``created_at`` if that is unknown.
        placed: whether this attempt places anything; ``False`` in a plan, and if everything was already there.
        kept: existing tasks that this attempt does not change, with those that an earlier attempt placed.
        skipped_snapshots: newer snapshots that could not be used; empty in reports of older releases.
        downloaded_bytes: downloaded bytes, or bytes to download.
        at_hand_bytes: bytes of files that were on this machine already.
        finished: time when the stores were in place; empty before, and in a plan.
    """

    application_id: str
    repository: str
    state_dir: str
    snapshot: str
    snapshot_identity: str
    created_at: str
    read_at: str | None
    age: float
    placed: bool
    plan_only: bool
    plan_id: str
    stores: tuple[FetchedStore, ...]
    kept: tuple[str, ...]
    downloaded_bytes: int
    at_hand_bytes: int
    notes: tuple[str, ...]
    seconds: float
    skipped_snapshots: tuple[SkippedSnapshot, ...] = ()
    phases: Mapping[str, float] = field(default_factory=dict)
    request_id: str = ""
    host: str = ""
    user: str = ""
    process: int = 0
    release: str = ""
    started: str = ""
    finished: str = ""

    def to_json(self) -> dict[str, Any]:
        return FETCH_REPORT.to_json(self)


FETCH_REPORT = DocumentType(
    "report of a fetch", 1, FetchReport, "Read it with the release that wrote it.", is_open=True
)
"""Open, because other programs store reports and may add fields."""
