from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowSkipException, TaskAwaitingInput

from statecore.airflow.directory_change import approval
from statecore.airflow.directory_change.approval import DirectoryChangeApproval, conclude, outcomes, without_approval
from statecore.airflow.directory_change.operator import CHANGES
from statecore.airflow.directory_change.xcom_values import Answer, DirectoryOutcome, Entry, Outcome, Plans, ShortReport
from statecore.airflow.failures import JobRefused
from statecore.jobs.migrate.report import MIGRATE_REPORT
from tests.unit.airflow.stub_migrate import report

DIRECTORIES: list[Entry] = [
    {
        "title": name,
        "name": f"statecore migrate {name}",
        "application_id": name,
        "host": None,
        "engine": "processes",
        "conf": None,
        "request": {"state_dir": f"/srv/{name}"},
    }
    for name in ("orders", "billing", "clicks")
]


def plan(number: int, *, done: bool = False) -> ShortReport:
    request = {"application_id": DIRECTORIES[number]["title"], "state_dir": "/srv", "to": "4.3"}
    return CHANGES["migrate"].short(MIGRATE_REPORT.from_json(report({}, request, done=done)))


class Task:
    """As much of a task instance as an approval asks."""

    id = "0"

    def __init__(self, plans: list[ShortReport | None]) -> None:
        self.plans = plans
        self.pushed: dict[str, Any] = {}

    def xcom_pull(self, task_ids: str, map_indexes: range, key: str = "") -> list[Any]:
        assert (task_ids, len(map_indexes)) == ("plan", len(self.plans))
        return (
            ["Fenced (application-running): It runs." if one is None else None for one in self.plans]
            if key
            else [*self.plans]
        )

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value


def context(*plans: ShortReport | None, **params: Any) -> dict[str, Any]:
    task = Task(list(plans))
    params = {"to": "4.3", "approve": "ask", "approve_within": "30m", **params}
    return {"ti": task, "task_instance": task, "params": params}


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    monkeypatch.setattr(
        "airflow.providers.standard.operators.hitl.upsert_hitl_detail", lambda **said: found.append(said)
    )
    return found


def operator(change: str = "migrate") -> DirectoryChangeApproval:
    return DirectoryChangeApproval(task_id="approve", change=change, directories=DIRECTORIES, plan_task_id="plan")


def event(chosen: str, by: str | None = "vera") -> dict[str, Any]:
    user = {"id": by, "name": by} if by else None
    return {
        "chosen_options": [chosen],
        "params_input": {},
        "responded_at": datetime(2026, 1, 2, tzinfo=UTC),
        "responded_by_user": user,
    }


def test_a_person_is_shown_all_plans_and_no_answer_is_a_no(shown: list[dict[str, Any]]) -> None:
    with pytest.raises(TaskAwaitingInput) as waits:
        operator().execute(context(plan(0), None, plan(2, done=True)))  # type: ignore[arg-type]
    (said,) = shown
    assert {"1", "4.3?"} <= set(said["subject"].split())
    assert (said["options"], said["defaults"]) == (["Approve", "Reject"], ["Reject"])
    assert all(name in said["body"] for name in ("orders", "billing", "clicks", "plan-1"))
    assert "Fenced (application-running): It runs." in said["body"]
    assert waits.value.timeout == timedelta(minutes=30)


def test_what_was_approved_is_handed_on_and_of_the_others_why_not() -> None:
    running = context(plan(0), None, plan(2, done=True))
    handed = operator().execute_complete(running, event("Approve"))  # type: ignore[arg-type]
    assert [(one["title"], one["plan_id"], one["why"]) for one in handed] == [
        ("orders", "plan-1", ""),
        ("billing", "", "Planning failed."),
        ("clicks", "", handed[2]["why"]),
    ]
    assert handed[2]["why"] not in ("", handed[1]["why"])
    assert running["ti"].pushed["answer"] == {"chosen": "Approve", "by": "vera", "at": "2026-01-02 00:00:00+00:00"}


@pytest.mark.parametrize("by", ["vera", None])
def test_a_rejection_skips_the_following_tasks_and_records_its_author(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], by: str | None
) -> None:
    task, running = operator(), context(plan(0), None, plan(2))
    task.downstream_task_ids.add("migrate.apply")
    following = SimpleNamespace(is_teardown=False)
    running["task"] = SimpleNamespace(get_direct_relatives=lambda **_: [following])
    skipped: list[Any] = []
    monkeypatch.setattr(task, "skip", lambda ti, tasks: skipped.extend(tasks))
    task.execute_complete(running, event("Reject", by))  # type: ignore[arg-type]
    assert skipped == [following]
    assert running["ti"].pushed["answer"]["chosen"] == "Reject"
    assert running["ti"].pushed["answer"]["by"] == by
    said = "answered by vera: Reject" if by else "no answer within 30m: nothing is applied"
    assert said in capsys.readouterr().out


def test_approval_can_be_switched_off(shown: list[dict[str, Any]]) -> None:
    handed = operator().execute(context(plan(0), None, plan(2), approve="none"))  # type: ignore[arg-type]
    assert [one["plan_id"] for one in handed] == ["plan-1", "", "plan-1"]
    assert shown == []


@pytest.mark.parametrize("approve", ["ask", "none"])
def test_a_plan_without_changes_needs_no_approval_and_is_reported(shown: list[dict[str, Any]], approve: str) -> None:
    with pytest.raises(AirflowSkipException, match=r"2 of 3.*4\.3.*\. 1 "):
        operator().execute(context(plan(0, done=True), None, plan(2, done=True), approve=approve))  # type: ignore[arg-type]
    assert shown == []


@pytest.mark.parametrize("change", ["migrate", "recover"])
def test_where_nothing_could_be_planned_nothing_is_called_sound(shown: list[dict[str, Any]], change: str) -> None:
    with pytest.raises(AirflowSkipException, match=r"^No .*3 of 3") as skipped:
        operator(change).execute(context(None, None, None))  # type: ignore[arg-type]
    assert CHANGES[change].nothing.format(to="4.3") not in str(skipped.value)
    assert shown == []


def became(
    planned: Any,
    done: Any = None,
    seen: Any = None,
    chosen: str | None = None,
    by: str | None = "vera",
    refused: str | None = None,
) -> tuple[Outcome, str]:
    answer: Answer | None = None if chosen is None else {"chosen": chosen, "by": by, "at": "now"}
    (found,) = outcomes([(DIRECTORIES[0], planned)], answer, None, [done], [seen], [refused], "migrated")
    return Outcome(found["outcome"]), found["text"]


def test_the_outcome_of_a_directory_is_that_of_its_tasks() -> None:
    applied: Any = {"outcome": "migrated"}
    assert became(None) == (Outcome.NOT_PLANNED, "not planned")
    assert became(None, refused="Invalid (x)") == (Outcome.NOT_PLANNED, "not planned: Invalid (x)")
    assert became(plan(0, done=True)) == (Outcome.NOTHING_TO_DO, "nothing to do")
    assert became(plan(0), chosen="Reject") == (Outcome.REJECTED, "rejected")
    assert became(plan(0), chosen="Reject", by=None)[0] is Outcome.NO_ANSWER
    assert became(plan(0), chosen="Approve") == (Outcome.NOT_CHANGED, "not migrated")
    assert became(plan(0), chosen="Approve", refused="Fenced (x): y")[1] == "not migrated: Fenced (x): y"
    assert became(plan(0), applied, refused="Corrupted (x)")[0] is Outcome.VERIFICATION_FAILED
    assert became(plan(0), applied, refused="Corrupted (x)")[1].endswith("failed: Corrupted (x)")
    assert became(plan(0)) == (Outcome.NOT_CHANGED, "not migrated")
    assert became(plan(0), applied)[0] is Outcome.VERIFICATION_FAILED
    assert became(plan(0), applied, {"outcome": "nothing to do"}) == (Outcome.CHANGED, "migrated")
    done_by_others: Any = {"outcome": "nothing to do"}
    assert became(plan(0), done_by_others, done_by_others) == (Outcome.NOTHING_TO_DO, "nothing to do")
    assert became(plan(0), done_by_others)[0] is Outcome.VERIFICATION_FAILED
    assert became(plan(0), done_by_others)[1] == "nothing to do, but its verification failed"
    assert became(plan(0), applied, {"verified": False})[0] is Outcome.NOT_VERIFIED


def test_a_doubtful_plan_without_a_person_fails_with_its_reason_and_the_way_on() -> None:
    plans: Plans = [(DIRECTORIES[0], {**plan(0), "doubts": 1})]  # type: ignore[typeddict-unknown-key]
    entries = without_approval(CHANGES["migrate"], plans)
    (found,) = outcomes(plans, None, entries, [None], [None], [None], "migrated")
    assert found["outcome"] == Outcome.NEEDS_APPROVAL
    assert found["text"] == f"not migrated: {entries[0]['why']}"
    with pytest.raises(JobRefused, match=r"approve=ask") as refused:
        conclude([found], logging.getLogger("test"))
    assert "clear these tasks" not in str(refused.value)


def test_an_application_with_a_longer_title_in_the_grid_is_named_by_its_id() -> None:
    entry: Entry = {**DIRECTORIES[0], "title": "orders in /srv/orders on a", "host": "a"}
    (found,) = outcomes([(entry, plan(0))], None, None, [None], [None], [None], "migrated")
    with pytest.raises(JobRefused, match=r"\n  orders in /srv/orders on a: not migrated\n"):
        conclude([found], logging.getLogger("test"))


def became_of(name: str, outcome: Outcome, text: str = "") -> DirectoryOutcome:
    return {"application_id": name, "state_dir": "/srv", "host": None, "outcome": outcome, "text": text or outcome}


def test_the_verification_names_what_differs_from_the_plan(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("test")
    found = [became_of(f"app-{number}", outcome) for number, outcome in enumerate(Outcome) if not outcome.is_failure]
    with caplog.at_level(logging.INFO):
        conclude(found, log)
    assert "app-3        /srv             rejected" in caplog.text
    refused: DirectoryOutcome = {**became_of("x", Outcome.NOT_PLANNED, "why"), "host": "a"}
    with pytest.raises(JobRefused, match=r"\n  x in /srv on a: why\n"):
        conclude([*found, refused], log)
    for wrong in (Outcome.NOT_CHANGED, Outcome.NEEDS_APPROVAL, Outcome.VERIFICATION_FAILED):
        with pytest.raises(JobRefused):
            conclude([became_of("x", wrong)], log)
    many = [became_of(f"app-{number}", Outcome.NOT_CHANGED) for number in range(approval._NAMED + 5)]
    with pytest.raises(JobRefused, match="and 5 more"):
        conclude(many, log)
