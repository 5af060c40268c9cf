"""How old the newest snapshot of each application is, and when it was verified, by the last check.

That is of the Dag ``checkpoint_stores``.

A job's report shows a success as long as no later one replaces it, also when no later one comes: the object store is
away, or nothing runs at all. So ``decide`` writes at every tick what it found, and the page compares that with the
clock::

    <reports>/.checks.json      by application: when it was checked, until when its snapshot was complete then, and
                                what was verified

An application that could not be checked keeps its last entry, which becomes old. A check sees no snapshot that is
published after it, such as that of the checkpoint it has found due; until the next check the job's report tells
(:meth:`Freshness.with_report`). A checkpoint that finds nothing new publishes nothing, and its report tells as well
(:meth:`Freshness.with_unchanged`): a check does not look at the records that it finds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from statecore.documents import DocumentType
from statecore.errors import Invalid
from statecore.filesystem import replace_file
from statecore.jobs.attempt import made_at_ms, parsed_time
from statecore.jobs.history.report_head import ReportHead
from statecore.repository.maintenance.verification_record import VerifiedLevel

FILE = ".checks.json"

_LEAST_PATIENCE_MS = 120_000
"""How long no check may be missed, however short the tick: a run of Airflow takes a while, and a retry 30 s."""


@dataclass(frozen=True)
class Freshness:
    """What the last check of an application found.

    Attributes:
        checked_ms: a time before it read the head.
        current_ms: the latest known time at which the newest snapshot had all records; ``None`` without a snapshot.
        snapshot: its id; empty without one.
        published_at: when it was published; empty without one.
        run_id, map_index: the task that was last mapped for its checkpoint; empty before the first.
        mapped_ms: when that was.
        repository: URL of the repository that was checked.
        verified: the verified levels of its snapshots, the highest first.
        kept: the last snapshot before its changelogs were replaced, which is pinned; empty without one.
        kept_note: the note of its pin.
    """

    checked_ms: int
    interval_ms: int
    current_ms: int | None = None
    snapshot: str = ""
    published_at: str = ""
    run_id: str = ""
    map_index: int = -1
    mapped_ms: int = 0
    repository: str = ""
    verified: tuple[VerifiedLevel, ...] = ()
    kept: str = ""
    kept_note: str = ""

    def not_before(self, earlier: Freshness) -> Freshness:
        """This check; what an earlier one proved of the same snapshot stays true."""
        if self.snapshot != earlier.snapshot or earlier.current_ms is None:
            return self
        return replace(self, current_ms=max(earlier.current_ms, self.current_ms or 0))

    def with_report(self, published: ReportHead) -> Freshness:
        """What is known with the report of a job that has published; that of one before this check adds nothing."""
        moment = parsed_time(published.published_at)
        if moment is None or published.repository != self.repository:
            return self
        if published.snapshot == self.snapshot or moment.timestamp() * 1000 < self.checked_ms:
            return self
        made_ms = made_at_ms(published.published_at, published.read_at_ms, self.interval_ms)
        return replace(
            self,
            current_ms=max(made_ms, self.current_ms or 0),
            snapshot=published.snapshot,
            published_at=published.published_at,
        )

    def with_unchanged(self, report: ReportHead) -> Freshness:
        """What is known with the report of a checkpoint that found nothing new, before or after this check."""
        if self.current_ms is None or report.read_at_ms is None:
            return self
        if (report.repository, report.unchanged) != (self.repository, self.snapshot):
            return self
        return replace(self, current_ms=max(report.read_at_ms, self.current_ms))

    def is_late(self, now_ms: int) -> bool:
        """Whether more than two intervals have passed since the snapshot had all records."""
        return self.current_ms is not None and now_ms - self.current_ms > 2 * self.interval_ms

    def is_unchecked(self, now_ms: int, tick_ms: int) -> bool:
        """Whether at least one tick brought no check."""
        return now_ms - self.checked_ms > max(2 * tick_ms, _LEAST_PATIENCE_MS)


@dataclass(frozen=True)
class _Checks:
    applications: Mapping[str, Freshness]


_DOCUMENT = DocumentType("last checks of the applications", 1, _Checks, "It is written again at the next tick.")


def read_checks(directory: Path) -> Mapping[str, Freshness]:
    """The last checks by application id; empty without a readable file."""
    try:
        return _DOCUMENT.decode((directory / FILE).read_bytes()).applications
    except (OSError, Invalid):
        return {}


def record_checks(directory: Path, found: Mapping[str, Freshness], requested: set[str] | None = None) -> None:
    """Write checks over earlier ones, without those of applications outside ``requested``. May raise ``OSError``."""
    kept = {name: one for name, one in read_checks(directory).items() if requested is None or name in requested}
    directory.mkdir(parents=True, exist_ok=True)
    replace_file(directory / FILE, _DOCUMENT.encode(_Checks({**kept, **found})))
