"""What a report says, of any version and however its attempt ended: for those who look at many of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from statecore.documents import parsed
from statecore.errors import Invalid
from statecore.jobs.attempt import Attempt, utc
from statecore.jobs.restore.report import REPORT


class ReportError(Exception):
    """A report file is absent or is not what a job writes."""


class Outcome(StrEnum):
    """How an attempt ended, as far as its report says."""

    RESTORED = "restored"
    PUBLISHED = "published"
    """A snapshot was published; there was no state directory, and nothing was placed."""
    UNCHANGED = "unchanged"
    """Nothing was new since the newest snapshot, and nothing was published."""
    FAILED = "failed"
    PLANNED = "planned"
    """Only a plan was asked for; nothing was changed."""
    BEGUN = "begun"
    """No end was reported: it is under way, or was killed."""


@dataclass(frozen=True)
class ReportHead:
    """What a report says besides its store partitions: small, whatever the application's size.

    Attributes:
        attempt: whose it is.
        outcome: how it ended.
        finished: when; of a report of version 1 when its file was written; empty while nobody has heard of an end.
        plan_id: digest of the plan; empty when it did not succeed, as all that follows but ``error``.
        processing_guarantee: the application's own.
        seconds: wall time.
        stores: how many stores were restored.
        partitions: how many store partitions.
        rows: their rows; -1 where nobody has counted those of all.
        notes: what an operator should know although nothing failed.
        placed: false when the stores were in place already from an earlier try of the request.
        repository: where a snapshot was published; empty where none was.
        snapshot: its id; empty likewise.
        error: of a failure: ``error`` (the kind), ``code``, ``what``, ``action``; ``phase`` where it had reached one.
    """

    attempt: Attempt
    outcome: Outcome
    finished: str
    plan_id: str = ""
    processing_guarantee: str = ""
    seconds: float = 0.0
    stores: int = 0
    partitions: int = 0
    rows: int = 0
    notes: tuple[str, ...] = ()
    placed: bool = True
    repository: str = ""
    snapshot: str = ""
    error: Mapping[str, str] = field(default_factory=dict)

    @property
    def succeeded(self) -> bool:
        """Whether it did what it was to do, and that was not only to plan."""
        return self.outcome in (Outcome.RESTORED, Outcome.PUBLISHED, Outcome.UNCHANGED)

    @property
    def when(self) -> str:
        """When the last was heard of it: its end, or its begin."""
        return self.finished or self.attempt.started

    def to_json(self) -> dict[str, Any]:
        """The head as a JSON document."""
        return {**vars(self), "attempt": vars(self.attempt), "error": dict(self.error), "notes": list(self.notes)}


@dataclass(frozen=True)
class RestoredPartition:
    """One store partition as a report tells of it.

    Attributes:
        task: Kafka Streams' task id, or ``global``.
        store: the store.
        partition: the partition; -1 for a global store, which holds all of its topic.
        kind: the store's kind.
        rows: live rows; -1 where nobody has counted them.
        records: changelog records read.
        bytes: bytes of keys and values; -1 likewise.
        committed_offset: the offset stored with the data; -4 for an unknown one.
        offsets: of a global store the next offset of each partition of its topic, by partition; else empty.
        tail_left: offsets beyond the end of the read, which the application had left to restore: the lag then.
        digest: order-free digest of the rows; empty likewise.
        when: when it was restored (ISO 8601, UTC).
        request_id: by which request; empty where a report of version 1 does not say it.
    """

    task: str
    store: str
    partition: int
    kind: str
    rows: int
    records: int
    bytes: int
    committed_offset: int
    offsets: Mapping[str, int]
    tail_left: int
    digest: str
    when: str
    request_id: str


def read_report(path: Path) -> dict[str, Any]:
    """The document at ``path``. Raises ``ReportError`` when there is none or it is no JSON object."""
    try:
        document = parsed(path.read_bytes())
    except FileNotFoundError:
        raise ReportError(f"The job wrote no report to {path}.") from None
    except (OSError, ValueError) as cause:
        raise ReportError(f"The report {path} cannot be read: {cause}.") from cause
    if not isinstance(document, dict):
        raise ReportError(f"The report {path} holds no JSON object.")
    return document


def check_report(document: Mapping[str, Any]) -> None:
    """Make sure that a report is of a version that is understood. One of a plan has the version of plans.

    Raises:
        ReportError: it is of another one.
    """
    if not _is_plan(document):
        try:
            REPORT.check_version(document)
        except Invalid as refused:
            raise ReportError(str(refused)) from refused


def _is_plan(document: Mapping[str, Any]) -> bool:
    return "partitions" in document and "stores" not in document and "error" not in document


def read_head(document: Mapping[str, Any], written: float) -> ReportHead:
    """What a report says besides its store partitions.

    Args:
        document: the report, of any version.
        written: when its file was written, in seconds since the epoch; version 1 does not say when it was made.

    Raises:
        ReportError: it is no report, or of a version that is not understood.
    """
    check_report(document)
    try:
        attempt = Attempt.of(document)
        dated = bool(attempt.started)
        finished = str(document.get("finished") or "") if dated else utc(written)
        if "error" in document:
            said = {name: str(document.get(name) or "") for name in ("error", "code", "what", "action", "phase")}
            return ReportHead(attempt, Outcome.FAILED, finished, error={k: text for k, text in said.items() if text})
        if _is_plan(document):
            return ReportHead(attempt, Outcome.PLANNED, finished)
        if dated and "stores" not in document:
            return ReportHead(attempt, Outcome.BEGUN, "")
        stores, published = document["stores"], document.get("published") or {}
        repository = str(document.get("repository") or "")
        done = Outcome.RESTORED
        if repository and not attempt.state_dir:
            done = Outcome.PUBLISHED if published else Outcome.UNCHANGED
        return ReportHead(
            attempt,
            done if finished else Outcome.BEGUN,
            finished,
            plan_id=str(document.get("plan_id") or ""),
            processing_guarantee=str(document.get("processing_guarantee") or ""),
            seconds=float(document.get("seconds") or 0.0),
            stores=len({str(entry["store"]) for entry in stores}),
            partitions=len(stores),
            rows=known_sum(int(entry["rows"]) for entry in stores),
            notes=tuple(str(note) for note in document.get("notes") or ()),
            placed=bool(document.get("placed", True)),
            repository=repository,
            snapshot=str(published.get("snapshot") or ""),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as cause:
        raise ReportError(f"This is no report: {type(cause).__name__}: {cause}.") from cause


def read_partitions(
    document: Mapping[str, Any], head: ReportHead, wanted: Callable[[str, str, int], bool] = lambda *_: True
) -> Iterator[RestoredPartition]:
    """The store partitions that a report says are restored, or published; none unless it succeeded.

    Args:
        document: the report.
        head: what :func:`read_head` read from it.
        wanted: told store, task and partition: whether that one is asked for.

    Raises:
        ReportError: it is no report.
    """
    if not head.succeeded:
        return
    try:
        for entry in document["stores"]:
            store, task, partition = str(entry["store"]), str(entry["task"]), int(entry["partition"])
            if wanted(store, task, partition):
                yield RestoredPartition(
                    task=task,
                    store=store,
                    partition=partition,
                    kind=str(entry["kind"]),
                    rows=int(entry["rows"]),
                    records=int(entry["records"]),
                    bytes=int(entry.get("bytes") or 0),
                    committed_offset=int(entry["committed_offset"]),
                    offsets=_next_offsets(entry) if partition < 0 else {},
                    tail_left=int(entry.get("tail_left") or 0),
                    digest=str(entry["digest"]),
                    when=head.when,
                    request_id=head.attempt.request_id,
                )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as cause:
        raise ReportError(f"This is no report: {type(cause).__name__}: {cause}.") from cause


def _next_offsets(entry: Mapping[str, Any]) -> dict[str, int]:
    """Partition → offset of a global store's entry, whose ``offsets`` are by ``<topic>-<partition>``."""
    offsets = {name.rpartition("-")[2]: int(offset) for name, offset in (entry.get("offsets") or {}).items()}
    return dict(sorted(offsets.items(), key=lambda item: int(item[0])))


def known_sum(numbers: Iterable[int]) -> int:
    """The sum of numbers none of which is negative; -1 where one is, which nobody has counted."""
    found = list(numbers)
    return -1 if any(number < 0 for number in found) else sum(found)


def combined_digest(partitions: Sequence[tuple[int, str]]) -> str:
    """One digest of a store over the digests of its partitions, each bound to its number; empty where one has none."""
    if not all(digest for _, digest in partitions):
        return ""
    lines = sorted(f"{partition}:{digest}" for partition, digest in partitions)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]
