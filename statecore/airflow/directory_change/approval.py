"""Approval of migration plans by a person, and the outcome of each directory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk.exceptions import AirflowSkipException

from statecore.airflow.directory_change.migration_runs import NONE, approved_within
from statecore.airflow.directory_change.plans import body
from statecore.airflow.directory_change.xcom_values import (
    Answer,
    ApprovedEntry,
    DirectoryOutcome,
    NotVerified,
    Plans,
    ShortPlan,
    StepResult,
)
from statecore.airflow.failures import JobRefused
from statecore.airflow.reports import columns

if TYPE_CHECKING:
    from airflow.sdk import Context

ANSWER_KEY = "answer"
"""XCom key of the answer (:class:`~.xcom_values.Answer`)."""

_NAMED = 20
"""Number of directories that a failure names."""


class MigrationApproval(ApprovalOperator):
    """Shows all plans of a run as one page and waits for Approve or Reject; no answer in time rejects.

    It is deferred while it waits, so it uses no worker. Returns the entries of all directories for the tasks that apply
    plans, in the order of ``directories``, with the approved ``plan_id`` or with ``why`` there is none. Airflow shows a
    rejection and a timeout alike; the XCom ``answer``, the log and the task ``outcome`` tell them apart.

    Args:
        directories: the entries (:class:`~.xcom_values.Entry`). (templated)
        plan_task_id: the mapped task that has planned, with a map index for each entry.
        kwargs: see ``ApprovalOperator``.

    Raises:
        AirflowSkipException: there is nothing to do in any directory.
    """

    question: ClassVar[str] = "Migrate state directories?"

    template_fields: Sequence[str] = (*ApprovalOperator.template_fields, "directories")

    def __init__(self, *, directories: Any, plan_task_id: str, **kwargs: Any) -> None:
        super().__init__(subject=self.question, defaults=ApprovalOperator.REJECT, **kwargs)
        self.directories = directories
        self.plan_task_id = plan_task_id

    def execute(self, context: Context) -> Any:
        """Show the plans and wait; without approval, return their entries."""
        plans = self._plans(context)
        changed = sum(bool(plan and plan["changed"]) for _, plan in plans)
        if not changed:
            why = self._why_nothing(context, plans)
            self.log.info("%s", why)  # Airflow does not log the reason of a skip
            raise AirflowSkipException(why)
        if context["params"]["approve"] == NONE:
            self.log.info("%d plans are applied without approval", changed)
            return self._unasked(plans)
        self.subject, self.body = self._shown(context, plans, changed)
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
        return approved(self._plans(context))

    def _why_nothing(self, context: Context, plans: Plans) -> str:
        """Why no approval is needed."""
        refused = sum(plan is None for _, plan in plans)
        if not refused:
            return f"Nothing to do: {self._sound(context)}."
        where = f"see the logs of their tasks {self.plan_task_id}"
        if refused == len(plans):
            return f"No directory could be planned ({refused} of {len(plans)} were refused): {where}."
        return (
            f"Nothing to do in {len(plans) - refused} of {len(plans)} directories: "
            f"{self._sound(context)}. {refused} could not be planned: {where}."
        )

    def _sound(self, context: Context) -> str:
        """Why there is nothing to do in a directory that was planned."""
        return f"Kafka Streams {context['params']['to']} can open the directories as they are"

    def _shown(self, context: Context, plans: Plans, changed: int) -> tuple[str, str]:
        """The question, and the body that is shown with it."""
        to = str(context["params"]["to"])
        return f"Migrate {changed} state director{'y' if changed == 1 else 'ies'} to Kafka Streams {to}?", body(
            plans, to
        )

    def _unasked(self, plans: Plans) -> list[ApprovedEntry]:
        """The entries to apply without approval."""
        return approved(plans)

    def _plans(self, context: Context) -> Plans:
        found = context["ti"].xcom_pull(task_ids=self.plan_task_id, map_indexes=range(len(self.directories)))
        return list(zip(self.directories, found, strict=True))


def approved(plans: Plans) -> list[ApprovedEntry]:
    """The entries for the tasks that apply plans."""
    return [{**entry, "plan_id": _approved_id(plan), "why": _why_not(plan)} for entry, plan in plans]


def _approved_id(plan: ShortPlan | None) -> str:
    return plan["plan_id"] if plan is not None and plan["changed"] else ""


def _why_not(plan: ShortPlan | None) -> str:
    if plan is None:
        return "Planning failed."
    return "" if plan["changed"] else f"Nothing to do: Kafka Streams {plan['to']} can open it as it is."


def outcomes(
    plans: Plans,
    answer: Answer | None,
    applied: Sequence[StepResult | None],
    verified: Sequence[StepResult | NotVerified | None],
    refused: Sequence[str | None],
    done: str = "migrated",
) -> list[DirectoryOutcome]:
    return [
        {
            "name": entry["title"],
            "state_dir": entry["request"]["state_dir"],
            "outcome": _became(plan, result, seen, answer, done) if plan is not None else _not_planned(why),
        }
        for (entry, plan), result, seen, why in zip(plans, applied, verified, refused, strict=True)
    ]


_REFUSED, _FAILED, _DAMAGED = "not planned", "not ", ", but its verification failed"


def _not_planned(why: str | None) -> str:
    return f"{_REFUSED}: {why}" if why else _REFUSED


def _became(
    plan: ShortPlan,
    result: StepResult | None,
    seen: StepResult | NotVerified | None,
    answer: Answer | None,
    done: str,
) -> str:
    if not plan["changed"]:
        return "nothing to do"
    if result is None:
        if answer is None or answer["chosen"] != ApprovalOperator.REJECT:
            return _FAILED + done
        return "rejected, because there was no answer in time" if answer["by"] is None else "rejected"
    if seen is None:
        return done + _DAMAGED
    return done if seen.get("looked", True) else f"{done}; not verified, because the application is running again"


def conclude(found: Sequence[DirectoryOutcome], log: Any) -> None:
    """Log the outcome of each directory, and fail if one was neither changed as planned nor rejected."""
    for line in columns(
        ("application", "state directory", "outcome"),
        [(one["name"], one["state_dir"], one["outcome"]) for one in found],
    ):
        log.info("%s", line)
    wrong = [one for one in found if one["outcome"].startswith(_FAILED) or one["outcome"].endswith(_DAMAGED)]
    if wrong:
        lines = "\n".join(f"  {one['name']} in {one['state_dir']}: {one['outcome']}" for one in wrong[:_NAMED])
        more = f"\n  and {len(wrong) - _NAMED:,} more" if len(wrong) > _NAMED else ""
        raise JobRefused(
            f"{len(wrong)} of {len(found)} directories failed:\n{lines}{more}\nWhat to do: see the logs of their "
            "tasks, then clear these tasks and those downstream, or start a new run for the directories."
        )
