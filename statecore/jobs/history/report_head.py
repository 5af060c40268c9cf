"""Reads reports of any outcome into a small common form."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from statecore.documents import parse_json
from statecore.errors import Invalid
from statecore.jobs.attempt import Attempt
from statecore.jobs.read_report import REPORT


class ReportError(Exception):
    """A report file is absent or is not what a job writes."""


class ReportOutcome(StrEnum):
    """Outcome of an attempt according to its report."""

    RESTORED = "restored"
    PUBLISHED = "published"
    """A snapshot was published, without a state directory."""
    UNCHANGED = "unchanged"
    """Nothing was new since the newest snapshot, and nothing was published."""
    FAILED = "failed"
    PLANNED = "planned"
    """Plan only; nothing was changed."""
    BEGUN = "begun"
    """No end was reported: it is running, or was killed."""


@dataclass(frozen=True)
class ReportHead:
    """A report without its store partitions: small, whatever the application's size.

    Attributes:
        finished: end time; empty without a reported end.
        plan_id: digest of the plan; empty if it did not succeed, like all fields below except ``error``.
        rows: their rows; -1 unless all were counted.
        placed: false if an earlier attempt of the request had placed the stores.
        repository: URL of the published snapshot; empty if none was published.
        snapshot: its id; empty likewise.
        published_at: when it was published; empty likewise.
        read_at_ms: a time at which it had all records, in ms since the epoch; ``None`` where unknown.
        unchanged: id of the newest snapshot, of which ``read_at_ms`` is then, if a checkpoint found nothing new.
        error: of a failure: ``error`` (the kind), ``code``, ``what``, ``action``; ``phase`` if it had reached one.
        failing_since: of a failure that was reported again and again in the same file: when it was first.
    """

    attempt: Attempt
    outcome: ReportOutcome
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
    published_at: str = ""
    read_at_ms: int | None = None
    unchanged: str = ""
    error: Mapping[str, str] = field(default_factory=dict)
    failing_since: str = ""

    @property
    def succeeded(self) -> bool:
        """Whether it did its work, and was not only a plan."""
        return self.outcome in (ReportOutcome.RESTORED, ReportOutcome.PUBLISHED, ReportOutcome.UNCHANGED)

    @property
    def was_idle(self) -> bool:
        """Whether a checkpoint had nothing to do, because another job had made it since it was found to be due."""
        return self.outcome is ReportOutcome.UNCHANGED and not self.plan_id

    @property
    def when(self) -> str:
        """Time of its last sign of life: its end, or its start."""
        return self.finished or self.attempt.started

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "attempt": vars(self.attempt), "error": dict(self.error), "notes": list(self.notes)}


@dataclass(frozen=True)
class RestoredPartition:
    """One store partition of a report.

    Attributes:
        partition: the partition; -1 for a global store, which has its whole topic.
        rows: live rows; -1 if not counted.
        bytes: bytes of keys and values; -1 if not counted.
        committed_offset: the offset stored with the data; -4 if unknown.
        offsets: for a global store the next offset by partition of its topic; otherwise empty.
        tail_left: offsets after the end of the read, which the application had left to restore: its lag at that time.
        digest: order-independent digest of the rows; empty if not counted.
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
    """Read the document at ``path``. Raises ``ReportError``: it does not exist or is no JSON object."""
    try:
        document = parse_json(path.read_bytes())
    except FileNotFoundError:
        raise ReportError(f"The job wrote no report to {path}.") from None
    except (OSError, ValueError) as cause:
        raise ReportError(f"The report {path} cannot be read: {cause}.") from cause
    if not isinstance(document, dict):
        raise ReportError(f"The report {path} is no JSON object.")
    return document


def check_report(document: Mapping[str, Any]) -> None:
    """Check that the version of a report, or of a plan, is supported. Raises ``ReportError``."""
    if not _is_plan(document):
        try:
            REPORT.check_version(document)
        except Invalid as refused:
            raise ReportError(str(refused)) from refused


def _is_plan(document: Mapping[str, Any]) -> bool:
    return "partitions" in document and "stores" not in document and "error" not in document


def read_head(document: Mapping[str, Any]) -> ReportHead:
    """Read a report without its store partitions."""
    check_report(document)
    try:
        attempt = Attempt.of(document)
        finished = str(document.get("finished") or "")
        if not attempt.started:
            raise ReportError("This is no report: it does not say when it began.")
        if "error" in document:
            error = {name: str(document.get(name) or "") for name in ("error", "code", "what", "action", "phase")}
            return ReportHead(
                attempt,
                ReportOutcome.FAILED,
                finished,
                error={k: text for k, text in error.items() if text},
                failing_since=str(document.get("failing_since") or ""),
            )
        if _is_plan(document):
            return ReportHead(attempt, ReportOutcome.PLANNED, finished)
        if "stores" not in document:
            return ReportHead(attempt, ReportOutcome.BEGUN, "")
        stores, published = document["stores"], document.get("published") or {}
        unchanged = document.get("unchanged") or {}
        read_at_ms = (published or unchanged).get("read_at_ms")
        repository = str(document.get("repository") or "")
        done = ReportOutcome.RESTORED
        if repository and not attempt.state_dir:
            done = ReportOutcome.PUBLISHED if published else ReportOutcome.UNCHANGED
        return ReportHead(
            attempt,
            done if finished else ReportOutcome.BEGUN,
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
            published_at=str(published.get("created_at") or ""),
            read_at_ms=None if read_at_ms is None else int(read_at_ms),
            unchanged=str(unchanged.get("snapshot") or ""),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as cause:
        raise ReportError(f"This is no report: {type(cause).__name__}: {cause}.") from cause


def read_partitions(
    document: Mapping[str, Any], head: ReportHead, wanted: Callable[[str, str, int], bool] = lambda *_: True
) -> Iterator[RestoredPartition]:
    """The restored or published store partitions of a report; none unless it succeeded."""
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
    """Offsets of a global store by partition; its entry has them by ``<topic>-<partition>``."""
    offsets = {name.rpartition("-")[2]: int(offset) for name, offset in (entry.get("offsets") or {}).items()}
    return dict(sorted(offsets.items(), key=lambda item: int(item[0])))


def known_sum(numbers: Iterable[int]) -> int:
    """The sum of numbers; -1 if one is negative, that is unknown."""
    found = list(numbers)
    return -1 if any(number < 0 for number in found) else sum(found)


def combined_digest(partitions: Sequence[tuple[int, str]]) -> str:
    """Digest of a store over the digests of its partitions and their numbers; empty if one has none."""
    if not all(digest for _, digest in partitions):
        return ""
    lines = sorted(f"{partition}:{digest}" for partition, digest in partitions)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]
