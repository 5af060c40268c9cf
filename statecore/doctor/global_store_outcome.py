"""Predicts what the next start of Kafka Streams does with global stores, from their findings.

Kafka Streams deletes and restores a task that cannot continue. Global stores are restored before anything else, by one
thread whose end is the application's, and Kafka Streams recovers by itself from few of their problems. So most findings
in them mean an application that ends in ``ERROR``, at one start or at every one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

from statecore.doctor.finding_catalog import Severity
from statecore.doctor.findings import Finding
from statecore.errors import NOT_READABLE_HERE
from statecore.formats.releases import GLOBAL


class StartOutcome(StrEnum):
    """What a start does with a global store, the worst last."""

    SOUND = "sound"
    """It continues from its offset."""
    RECOVERS = "recovers by itself"
    """Rows are read again; the start takes longer."""
    UNKNOWN = "unknown"
    """Its content could not be read here: it may be sound, or its files may be gone."""
    FAILS = "fails"
    """The application ends in ``ERROR``, at this start or at every one."""
    WRONG = "answers wrongly"
    """The application runs, and rows are missing or superfluous, without an error."""


@dataclass(frozen=True)
class NextStart:
    """Outcome of the next start for one global store.

    Attributes:
        why: findings in sentences; empty for a sound store.
    """

    store: str
    start: StartOutcome
    why: tuple[str, ...] = ()

    @property
    def is_unknown(self) -> bool:
        return self.start is StartOutcome.UNKNOWN


_RECOVERS = frozenset({"store-absent", "checkpoint-behind"})
_ONCE = "The start ends in ERROR and deletes all of global/; the next one reads all topics again."
_OFTEN = {
    "offset-before-start": _ONCE,
    "offset-past-end": _ONCE,
    "global-store-not-closed": "Every start ends in ERROR (KAFKA-21034).",
    "topic-missing": "Every start ends in ERROR until the topic exists.",
}
"""How often a finding prevents the start."""


def next_starts(stores: Collection[str], findings: Iterable[Finding]) -> tuple[NextStart, ...]:
    """Outcome of the next start for each of some global stores."""
    of_globals = [one for one in findings if not one.task or one.task == GLOBAL]
    return tuple(_next_start(store, [one for one in of_globals if _is_of(one, store)]) for store in stores)


def _is_of(finding: Finding, store: str) -> bool:
    """Whether a finding applies to a store; those about files of ``global/`` have no store and apply to each."""
    return finding.store == store or (not finding.store and finding.task == GLOBAL)


def _next_start(store: str, findings: Iterable[Finding]) -> NextStart:
    counts = [one for one in findings if one.severity is not Severity.NOTE]
    worst = max((_outcome(one) for one in counts), key=list(StartOutcome).index, default=StartOutcome.SOUND)
    return NextStart(store, worst, tuple(dict.fromkeys(map(_why, counts))))


def _why(finding: Finding) -> str:
    what = f"It {finding.what}" if finding.what[:1].islower() else finding.what
    return " ".join(filter(None, [f"{what.rstrip('.')}.", _OFTEN.get(finding.code, "")]))


def _outcome(finding: Finding) -> StartOutcome:
    if finding.code in _RECOVERS:
        return StartOutcome.RECOVERS
    if finding.code == NOT_READABLE_HERE:
        return StartOutcome.UNKNOWN
    return {Severity.ERROR: StartOutcome.FAILS, Severity.LOSS: StartOutcome.WRONG}.get(
        finding.severity, StartOutcome.SOUND
    )
