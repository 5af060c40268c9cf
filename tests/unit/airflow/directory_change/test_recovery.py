from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from statecore.airflow.directory_change.approval import approved, outcomes, why_nothing, without_approval
from statecore.airflow.directory_change.operator import StatecoreDirectoryChangeOperator
from statecore.airflow.directory_change.plans import page
from statecore.airflow.directory_change.recovery import Recovery
from statecore.airflow.directory_change.xcom_values import DoubtfulPlan, Entry, Outcome
from statecore.doctor.global_store_outcome import NextStart, StartOutcome
from statecore.errors import Invalid
from statecore.jobs.attempt import Attempt
from statecore.jobs.repair.report import RebuiltStores, RepairOutcome, RepairReport
from statecore.spec.reader import parse_spec
from tests.harness.raising import raises
from tests.harness.transcripts import check
from tests.unit.airflow.stub import StubSpark, spec
from tests.unit.airflow.test_operators import context

RECOVERY = Recovery()
PARAMS = {"approve": "ask", "approve_within": "24h"}
DIRECTORY = {"application_id": "a_b", "state_dir": "/srv", "spec_path": "/srv/a.yaml"}


def entry() -> Entry:
    (found,) = RECOVERY.entries({"directories": [DIRECTORY], "accept_uncompacted": True, **PARAMS})
    return found


def plan(*doubts: str, rebuilt: bool = True, unknown: bool = False) -> DoubtfulPlan:
    of = (RebuiltStores(("prices",), ("global",), ("offset-past-end",), sources="the brokers at b", doubts=doubts),)
    said: dict[str, Any] = {"finished": "", "outcome": RepairOutcome.PLANNED, "plan_id": "p-1", "exit_code": 0}
    starts = (NextStart("prices", StartOutcome.FAILS, ("It says offset 9.",)), NextStart("rates", StartOutcome.SOUND))
    if unknown:
        starts = (NextStart("prices", StartOutcome.UNKNOWN, ("It has no SST files.",)), *starts[1:])
    attempt = vars(Attempt.begin("a_b", "/srv", "r"))
    return RECOVERY.short(RepairReport(**attempt, **said, rebuilt=of if rebuilt else (), next_starts=starts))


def test_an_entry_has_a_request_of_the_job() -> None:
    assert entry()["name"] == "statecore recover-global a_b"
    assert entry()["engine"] == "processes"
    assert entry()["request"].items() >= {**DIRECTORY, "accept_uncompacted": True}.items()


def test_a_parameter_that_there_is_not_is_refused() -> None:
    with raises(Invalid, "parameter-unknown", parameters=["store"]):
        RECOVERY.entries({"directories": [DIRECTORY], "store": "x", **PARAMS})


def test_the_approval_shows_rebuilds_and_the_effect_of_the_next_start() -> None:
    shown = page(RECOVERY, [(entry(), plan("Nothing would be left of prices."))], "")
    assert "| a_b | `/srv` | prices | `p-1` |" in shown
    check("approval-of-a-recovery", shown, {})
    assert "| global | `prices` | " in shown


def test_one_that_is_sound_or_refused_is_in_the_table_alone() -> None:
    shown = page(RECOVERY, [(entry(), plan(rebuilt=False)), (entry(), None)], "")
    assert "`p-1`" not in shown
    assert "###" not in shown


def test_a_store_that_cannot_be_read_here_is_not_called_valid() -> None:
    unread, known = plan(rebuilt=False, unknown=True), plan(rebuilt=False)
    why = "the outcome of the next start is unknown for prices, which cannot be read here"
    assert why in page(RECOVERY, [(entry(), unread)], "")
    (told,) = approved(RECOVERY, [(entry(), unread)])
    assert why in told["why"]
    both = why_nothing(RECOVERY, [(entry(), known), (entry(), unread), (entry(), known)], "plan")
    assert (both.count(why), both.count(RECOVERY.nothing)) == (1, 1)
    assert why not in why_nothing(RECOVERY, [(entry(), known)], "plan")


def test_the_short_report_of_a_recovery_has_no_fields_of_a_migration() -> None:
    assert plan().keys() == get_type_hints(DoubtfulPlan).keys()
    assert not plan().keys() & {"seen", "tasks", "rewritten_bytes"}


def test_an_application_without_global_stores_has_nothing_to_do_unless_one_is_asked_for() -> None:
    named = entry()["request"]
    without, declaring = (
        parse_spec({**spec("a_b"), **more}, "test")
        for more in ({}, {"global_stores": {"prices": {"kind": "key-value", "topic": "prices"}}})
    )
    found = RECOVERY.nothing_planned(without, named)
    assert found is not None
    assert found.keys() == get_type_hints(DoubtfulPlan).keys()
    assert (found["changed"], found["state_dir"]) == (0, "/srv")
    assert why_nothing(RECOVERY, [(entry(), found)], "plan") == "Nothing to do: its spec declares no global store."
    every = outcomes([(entry(), found)], None, None, [None], [None], [None], RECOVERY.done)
    assert [one["outcome"] for one in every] == [Outcome.NOTHING_TO_DO]
    assert RECOVERY.nothing_planned(declaring, named) is None
    assert RECOVERY.nothing_planned(without, {**named, "stores": ["prices"]}) is None
    another = parse_spec(spec("another"), "test")
    assert RECOVERY.nothing_planned(another, named) is None, "the job refuses the spec of another application"


def test_no_job_is_started_for_an_application_without_global_stores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = StubSpark.local(tmp_path, monkeypatch)
    file = tmp_path / "a.yaml"
    file.write_text(json.dumps(spec("a_b")))
    named = {**entry(), "request": {**entry()["request"], "spec_path": str(file)}}
    job = str(spark.jobs / "recover.py")
    operator = StatecoreDirectoryChangeOperator(task_id="plan", change="recover", step="plan", application=job, **named)
    found = operator.execute(context())
    assert (found["outcome"], found["changed"], found["report"]) == ("nothing to do", 0, "")


def test_without_a_person_a_plan_that_may_take_rows_away_is_not_applied() -> None:
    sound, doubtful = without_approval(RECOVERY, [(entry(), plan()), (entry(), plan("Another log."))])
    assert (sound["plan_id"], doubtful["plan_id"]) == ("p-1", "")
    assert (sound["why"], doubtful["why"] != "") == ("", True)
