from __future__ import annotations

import pytest

from statecore.doctor.finding_catalog import Severity
from statecore.doctor.findings import Finding
from statecore.doctor.global_store_outcome import StartOutcome, next_starts


def found(code: str, severity: Severity, store: str = "a", task: str = "global") -> Finding:
    return Finding(code, "is as it is", severity, task=task, store=store)


@pytest.mark.parametrize(
    ("finding", "start"),
    [
        (found("global-offset-unknown", Severity.ERROR), StartOutcome.FAILS),
        (found("topic-recreated", Severity.LOSS), StartOutcome.WRONG),
        (found("checkpoint-behind", Severity.WARNING), StartOutcome.RECOVERS),
        (found("global-topic-not-compacted", Severity.WARNING), StartOutcome.SOUND),
        (found("not-readable-here", Severity.WARNING), StartOutcome.UNKNOWN),
        (found("older-rows", Severity.NOTE), StartOutcome.SOUND),
        (found("checkpoint-unreadable", Severity.ERROR, store=""), StartOutcome.FAILS),
        (found("store-not-closed", Severity.ERROR, task="0_0"), StartOutcome.SOUND),
    ],
)
def test_a_start_goes_by_the_worst_that_was_found(finding: Finding, start: StartOutcome) -> None:
    (one,) = next_starts(["a"], [found("older-rows", Severity.NOTE), finding])
    assert (one.start, one.is_unknown) == (start, start is StartOutcome.UNKNOWN)


def test_findings_of_one_store_do_not_affect_another_and_reasons_are_listed_once() -> None:
    twice = [found("offset-before-start", Severity.ERROR)] * 2
    broken, sound = next_starts(["a", "b"], twice)
    (why,) = broken.why
    assert why.startswith("It is as it is. ")
    assert "deletes all of global/" in why
    assert (sound.start, sound.why) == (StartOutcome.SOUND, ())
