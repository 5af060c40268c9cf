"""Approval of plans by a person, and the outcome of each directory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk.exceptions import AirflowSkipException

from statecore.airflow.directory_change.change import ASK, NONE, Change, approved_within
from statecore.airflow.directory_change.operator import CHANGES
from statecore.airflow.directory_change.plans import page
from statecore.airflow.directory_change.xcom_values import (
    REFUSED_KEY,
    Answer,
    ApprovedEntry,
    DirectoryOutcome,
    NotVerified,
    Outcome,
    Plans,
    ShortReport,
    StepResult,
)
from statecore.airflow.failures import JobRefused
from statecore.airflow.reports import columns
from statecore.jobs.migrate.report import MigrationOutcome
from statecore.jobs.repair.report import RepairOutcome

if TYPE_CHECKING:
    from airflow.sdk import Context

ANSWER_KEY = "answer"
"""XCom key of the answer (:class:`~.xcom_values.Answer`)."""

_NAMED = 20
"""Number of directories that a failure names."""

_UNCHANGED = frozenset({str(MigrationOutcome.UNCHANGED), str(RepairOutcome.UNCHANGED)})
"""Outcomes in the report of a job that had nothing to do."""


class DirectoryChangeApproval(ApprovalOperator):
    """Shows all plans of a run as one page and waits for Approve or Reject; no answer in time rejects.

    It is deferred while it waits, so it uses no worker. Returns the entries of all directories for the tasks that apply
    plans, in the order of ``directories``, with the approved ``plan_id`` or with ``why`` there is none. Airflow shows a
    rejection and a timeout alike; the XCom ``answer``, the log and the task ``outcome`` tell them apart.

    Args:
        change: the kind of change, as of the operator that plans.
        directories: the entries (:class:`~.xcom_values.Entry`). (templated)
        plan_task_id: the mapped task that has planned, with a map index for each entry.
        kwargs: see ``ApprovalOperator``.

    Raises:
        AirflowSkipException: there is nothing to do in any directory.
    """

    template_fields: Sequence[str] = (*ApprovalOperator.template_fields, "directories")

    def __init__(self, *, change: str, directories: Any, plan_task_id: str, **kwargs: Any) -> None:
        super().__init__(subject="Apply the plans?", defaults=ApprovalOperator.REJECT, **kwargs)
        self.change = change
        self.directories = directories
        self.plan_task_id = plan_task_id

    def execute(self, context: Context) -> Any:
        """Show the plans and wait; without approval, return their entries."""
        kind, plans, to = CHANGES[self.change], self._plans(context), str(context["params"].get("to", ""))
        changed = sum(bool(plan and plan["changed"]) for _, plan in plans)
        if not changed:
            why = why_nothing(kind, plans, self.plan_task_id)
            self.log.info("%s", why)  # Airflow does not log the reason of a skip
            raise AirflowSkipException(why)
        if context["params"]["approve"] == NONE:
            self.log.info("%d plans are applied without approval", changed)
            return without_approval(kind, plans)
        directories = f"{changed:,} state director{'y' if changed == 1 else 'ies'}"
        self.subject, self.body = (
            kind.subject.format(directories=directories, to=to),
            page(kind, plans, to, self._reasons(context)),
        )
        self.response_timeout = approved_within(context["params"])
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Continue with the answer; after a rejection the following tasks are skipped."""
        if "error" not in event:
            user = event.get("responded_by_user") or {}
            answer: Answer = {
                "chosen": event["chosen_options"][0],
                "by": user.get("name") or user.get("id"),
                "at": str(event["responded_at"]),
            }
            context["ti"].xcom_push(key=ANSWER_KEY, value=answer)
            if answer["by"] is None:
                within = context["params"]["approve_within"]
                self.log.warning("no answer within %s: nothing is applied, as after a Reject", within)
            else:
                self.log.info("answered by %s: %s", answer["by"], answer["chosen"])
        super().execute_complete(context, event)
        return approved(CHANGES[self.change], self._plans(context))

    def _plans(self, context: Context) -> Plans:
        found = context["ti"].xcom_pull(task_ids=self.plan_task_id, map_indexes=range(len(self.directories)))
        return list(zip(self.directories, found, strict=True))

    def _reasons(self, context: Context) -> list[str | None]:
        """Why planning failed, by directory."""
        indexes = range(len(self.directories))
        return list(context["ti"].xcom_pull(task_ids=self.plan_task_id, map_indexes=indexes, key=REFUSED_KEY))


def why_nothing(change: Change, plans: Plans, plan_task_id: str) -> str:
    """Why no approval is needed."""
    nothing = "; ".join(dict.fromkeys(change.why_nothing(plan) for _, plan in plans if plan is not None))
    refused, every = sum(plan is None for _, plan in plans), len(plans)
    if not refused:
        return f"Nothing to do: {nothing}."
    where = f"see the logs of their tasks {plan_task_id}"
    if refused == every:
        return f"No directory could be planned ({refused} of {every} were refused): {where}."
    done = f"Nothing to do in {every - refused} of {every} directories: {nothing}."
    return f"{done} {refused} could not be planned: {where}."


def approved(change: Change, plans: Plans) -> list[ApprovedEntry]:
    """The entries for the tasks that apply plans."""
    return [{**entry, "plan_id": _approved_id(plan), "why": _why_not(change, plan)} for entry, plan in plans]


def without_approval(change: Change, plans: Plans) -> list[ApprovedEntry]:
    """The entries for the tasks that apply plans nobody has approved: none whose plan has doubts."""
    why = "A person has to approve it: it may remove rows."
    return [
        {**entry, "plan_id": "", "why": why} if plan is not None and plan.get("doubts") else entry
        for entry, (_, plan) in zip(approved(change, plans), plans, strict=True)
    ]


def _approved_id(plan: ShortReport | None) -> str:
    return plan["plan_id"] if plan is not None and plan["changed"] else ""


def _why_not(change: Change, plan: ShortReport | None) -> str:
    if plan is None:
        return "Planning failed."
    return "" if plan["changed"] else f"Nothing to do: {change.why_nothing(plan)}."


def outcomes(
    plans: Plans,
    answer: Answer | None,
    approved: Sequence[ApprovedEntry] | None,
    applied: Sequence[StepResult | None],
    verified: Sequence[StepResult | NotVerified | None],
    reasons: Sequence[str | None],
    done: str,
) -> list[DirectoryOutcome]:
    """The outcome of each directory; ``reasons`` are those of failed tasks, ``done`` is the change's participle."""
    found: list[DirectoryOutcome] = []
    for number, (entry, plan) in enumerate(plans):
        handed_on = approved[number] if approved else None
        outcome = _outcome(plan, answer, handed_on, applied[number], verified[number])
        why = handed_on["why"] if handed_on and outcome is Outcome.NEEDS_APPROVAL else reasons[number]
        result = applied[number]
        unchanged = result is not None and result["outcome"] in _UNCHANGED
        text = _TEXTS[outcome].format(done="nothing to do" if unchanged else done)
        found.append(
            {
                "application_id": entry["application_id"],
                "state_dir": entry["request"]["state_dir"],
                "host": entry["host"],
                "outcome": outcome,
                "text": f"{text}: {why}" if why and outcome.is_failure else text,
            }
        )
    return found


_TEXTS = {
    Outcome.CHANGED: "{done}",
    Outcome.NOT_VERIFIED: "{done}; not verified, because the application is running again",
    Outcome.NOTHING_TO_DO: "nothing to do",
    Outcome.REJECTED: "rejected",
    Outcome.NO_ANSWER: "rejected, because there was no answer in time",
    Outcome.NOT_PLANNED: "not planned",
    Outcome.NEEDS_APPROVAL: "not {done}",
    Outcome.NOT_CHANGED: "not {done}",
    Outcome.VERIFICATION_FAILED: "{done}, but its verification failed",
}


def _outcome(
    plan: ShortReport | None,
    answer: Answer | None,
    entry: ApprovedEntry | None,
    result: StepResult | None,
    checked: StepResult | NotVerified | None,
) -> Outcome:
    if plan is None:
        return Outcome.NOT_PLANNED
    if not plan["changed"]:
        return Outcome.NOTHING_TO_DO
    if result is None:
        if answer is not None and answer["chosen"] == ApprovalOperator.REJECT:
            return Outcome.NO_ANSWER if answer["by"] is None else Outcome.REJECTED
        return Outcome.NEEDS_APPROVAL if entry is not None and not entry["plan_id"] else Outcome.NOT_CHANGED
    if checked is None:
        return Outcome.VERIFICATION_FAILED
    if result["outcome"] in _UNCHANGED:  # something else has changed the directory since it was planned
        return Outcome.NOTHING_TO_DO
    return Outcome.CHANGED if checked.get("verified", True) else Outcome.NOT_VERIFIED


def _place(one: DirectoryOutcome) -> str:
    return f"{one['state_dir']} on {one['host']}" if one["host"] else one["state_dir"]


def conclude(found: Sequence[DirectoryOutcome], log: Any) -> None:
    """Log the outcome of each directory, and fail if one was neither changed as planned nor rejected."""
    for line in columns(
        ("application", "state directory", "outcome"),
        [(one["application_id"], _place(one), one["text"]) for one in found],
    ):
        log.info("%s", line)
    wrong = [one for one in found if Outcome(one["outcome"]).is_failure]
    if wrong:
        lines = "\n".join(f"  {one['application_id']} in {_place(one)}: {one['text']}" for one in wrong[:_NAMED])
        more = f"\n  and {len(wrong) - _NAMED:,} more" if len(wrong) > _NAMED else ""
        unapproved = [one for one in wrong if one["outcome"] == Outcome.NEEDS_APPROVAL]
        actions = []
        if unapproved:
            actions.append(f"start a new run with approve={ASK} for the directories that a person has to approve")
        if len(unapproved) < len(wrong):
            actions.append(
                "see the logs of the failed tasks, then clear these tasks and those downstream, or start a new run for "
                "the directories"
            )
        raise JobRefused(
            f"{len(wrong)} of {len(found)} directories failed:\n{lines}{more}\nWhat to do: {'; '.join(actions)}."
        )
