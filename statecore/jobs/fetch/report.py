"""What a fetch did: which tasks of which snapshot are in place now, and which were there before.

The report is what ``statecore fetch --json`` prints. It lies beside the files of restores
(:mod:`statecore.jobs.planning.frozen_plan`), written before the placement, and after it again with the time when it was
finished; a retry of its request takes what it has placed for done::

    <application>/.statecore/plans/<request>.fetch

A fetch has no plan, because what a snapshot has is frozen already. So a restore may have the same request id, and
neither touches the files of the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from statecore.documents import DocumentType
from statecore.jobs.fetch.select import SkippedSnapshot

FETCH_SUFFIX = ".fetch"
"""Of the report's file."""


@dataclass(frozen=True)
class FetchedStore:
    """A store of one task that was fetched.

    Attributes:
        task: Kafka Streams' task id, or ``global``.
        store: the store.
        kind: its kind.
        identity: hash of what the snapshot says it is made of.
        rows: live rows; ``None`` where nobody knows.
        bytes: bytes of their keys and values; ``None`` likewise.
        digest: their digest; ``None`` likewise.
        file_bytes: bytes of its files in the repository.
        offsets: what its databases say, by ``<topic>-<partition>``: the last applied offset (a global store: the next
            one), or -4.
        left_to_restore: it was placed empty, and Kafka Streams restores it itself.
        seconds: time that was spent on building it; 0 of a plan.
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
    left_to_restore: bool
    seconds: float = 0.0


@dataclass(frozen=True)
class FetchReport:
    """The result of one fetch, or what it would do.

    Attributes:
        application_id: Kafka Streams' ``application.id``.
        repository: where the snapshot is.
        state_dir: Kafka Streams' ``state.dir``.
        snapshot: the snapshot.
        snapshot_identity: hash of what all its stores are made of.
        made: when it was published (ISO 8601, UTC).
        cut: when the first of its offsets was read (ISO 8601, UTC); ``None`` where nobody knows.
        age: seconds since that, or since it was published where nobody knows.
        placed: whether anything was placed now; ``False`` of a plan, and where all was there.
        plan_only: whether it is a plan.
        plan_id: digest of what was to be placed.
        stores: what was fetched, or would be, in task and store order.
        kept: tasks that were there already, and were left as they are.
        passed_over: newer snapshots that could not be used.
        downloaded_bytes: bytes that came, or would come.
        at_hand_bytes: bytes of files that were on this machine already.
        notes: what an operator should know although nothing failed.
        seconds: wall time.
        phases: wall seconds of each phase, in order.
        request_id: as the following, of the attempt.
        host: the machine.
        user: the user it ran as.
        process: its process id.
        release: the version of statecore.
        started: when it began (ISO 8601, UTC).
        finished: when its stores were in place; empty while they are being placed, and of a plan.
    """

    application_id: str
    repository: str
    state_dir: str
    snapshot: str
    snapshot_identity: str
    made: str
    cut: str | None
    age: float
    placed: bool
    plan_only: bool
    plan_id: str
    stores: tuple[FetchedStore, ...]
    kept: tuple[str, ...]
    passed_over: tuple[SkippedSnapshot, ...]
    downloaded_bytes: int
    at_hand_bytes: int
    notes: tuple[str, ...]
    seconds: float
    phases: Mapping[str, float] = field(default_factory=dict)
    request_id: str = ""
    host: str = ""
    user: str = ""
    process: int = 0
    release: str = ""
    started: str = ""
    finished: str = ""

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON document."""
        return FETCH_REPORT.to_json(self)


FETCH_REPORT = DocumentType(
    "report of a fetch", 1, FetchReport, "Read it with the release that wrote it.", is_open=True
)
"""Reports are shown and kept by others, who may add to them."""
