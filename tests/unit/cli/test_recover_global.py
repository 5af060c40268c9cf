"""What ``recover-global`` prints."""

from __future__ import annotations

from dataclasses import replace

import pytest

from statecore.cli.recover_global import show
from statecore.doctor.global_store_outcome import NextStart, StartOutcome
from statecore.jobs.attempt import Attempt
from statecore.jobs.repair.report import RebuiltStores, RepairOutcome, RepairReport


def test_after_a_recovery_the_averted_outcome_of_a_start_is_in_the_past_tense(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = RepairReport(
        **vars(Attempt.begin("app", "/state", "one")),
        finished="now",
        outcome=RepairOutcome.PLANNED,
        plan_id="p",
        exit_code=0,
        found=({"severity": "loss"}, {"severity": "loss"}),
        rebuilt=(RebuiltStores(("table",), ("global",), ("offset-past-end",)),),
        next_starts=(NextStart("table", StartOutcome.FAILS, ("The topic was made anew.",)),),
    )
    show(report)
    assert capsys.readouterr().out.splitlines()[0] == f"global store table: {StartOutcome.FAILS}"
    show(replace(report, outcome=RepairOutcome.REPAIRED))
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"global store table before the recovery: {StartOutcome.FAILS}"
    assert "2 findings before the repair" in said
