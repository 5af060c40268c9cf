"""What the next start of a Kafka Streams application does with its global stores, by what was found in each.

A task that cannot go on is deleted by Kafka Streams and restored. Global stores are restored before anything else
works, by one thread whose end is the application's, and of what is wrong with them Kafka Streams deletes only some. So
most findings in them mean an application that ends in ``ERROR``, at one start or at every one.

Pure functions: nothing is read or changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

from statecore.doctor.finding_catalog import Severity
from statecore.doctor.findings import Finding
from statecore.formats.releases import GLOBAL


class Start(StrEnum):
    """What a start does with a global store, the worst last."""

    SOUND = "sound"
    """It goes on from its offset."""
    RECOVERS = "recovers by itself"
    """Rows are read again that it has, or had; the start takes longer for it."""
    FAILS = "fails"
    """The application ends in ``ERROR``, at this start or at every one."""
    WRONG = "answers wrongly"
    """The application works, and rows are missing or too many, without a word."""


@dataclass(frozen=True)
class NextStart:
    """What the next start would do with one global store.

    Attributes:
        store: the store.
        start: what becomes of it.
        why: what was found, in sentences; empty of a sound one.
    """

    store: str
    start: Start
    why: tuple[str, ...] = ()


_RECOVERS = frozenset({"store-absent", "checkpoint-behind"})
_ONCE = "The start ends in ERROR and deletes all of global/; the one after it reads all topics anew."
_OFTEN = {
    "offset-before-start": _ONCE,
    "offset-past-end": _ONCE,
    "global-store-not-closed": "Every start ends in ERROR (KAFKA-21034).",
    "topic-missing": "Every start ends in ERROR until the topic is there.",
}
"""How often, of what keeps a start from its end."""


def next_starts(stores: Collection[str], findings: Iterable[Finding]) -> tuple[NextStart, ...]:
    """What the next start would do with each of some global stores.

    Args:
        stores: their names.
        findings: what was found; also of others.
    """
    of_globals = [one for one in findings if not one.task or one.task == GLOBAL]
    return tuple(_next_start(store, [one for one in of_globals if _is_of(one, store)]) for store in stores)


def _is_of(finding: Finding, store: str) -> bool:
    """Whether a finding is of a store; files of all global stores, which say their task alone, are of each."""
    return finding.store == store or (not finding.store and finding.task == GLOBAL)


def _next_start(store: str, findings: Iterable[Finding]) -> NextStart:
    counts = [one for one in findings if one.severity is not Severity.NOTE]
    worst = max((_start(one) for one in counts), key=list(Start).index, default=Start.SOUND)
    return NextStart(store, worst, tuple(dict.fromkeys(map(_why, counts))))


def _why(finding: Finding) -> str:
    what = f"It {finding.what}" if finding.what[:1].islower() else finding.what
    return " ".join(filter(None, [f"{what.rstrip('.')}.", _OFTEN.get(finding.code, "")]))


def _start(finding: Finding) -> Start:
    if finding.code in _RECOVERS:
        return Start.RECOVERS
    return {Severity.ERROR: Start.FAILS, Severity.LOSS: Start.WRONG}.get(finding.severity, Start.SOUND)
