"""A person's word on plans of migrations, before anything is changed; and what became of each directory at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk.exceptions import AirflowSkipException

from statecore.airflow.failures import JobRefused
from statecore.airflow.migration_plans import body
from statecore.airflow.migrations import NONE, approved_within
from statecore.airflow.reports import columns

if TYPE_CHECKING:
    from airflow.sdk import Context

ANSWER_KEY = "answer"
"""XCom key of the answer: ``chosen``, ``by`` and ``at``."""

Plans = Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]
"""Each directory's entry, and its plan in short; ``None`` where that failed."""

_NAMED = 20
"""Directories that a failure names."""


class MigrationApproval(ApprovalOperator):
    """Shows all plans of a run as one page, and waits for Approve or Reject; no answer in time rejects.

    It takes no worker meanwhile. Returns the entries of all directories for the tasks that apply plans, in the order of
    ``directories``: with the ``plan_id`` that was approved, or ``why`` there is none.

    Args:
        directories: the entries (``statecore.airflow.migrations``). (templated)
        plan_task_id: the mapped task that has planned, with an index for each of them.
        kwargs: see ``ApprovalOperator``.

    Raises:
        AirflowSkipException: nothing is to be done in any directory.
    """

    template_fields: Sequence[str] = (*ApprovalOperator.template_fields, "directories")

    def __init__(self, *, directories: Any, plan_task_id: str, **kwargs: Any) -> None:
        super().__init__(subject="Migrate state directories?", defaults=ApprovalOperator.REJECT, **kwargs)
        self.directories = directories
        self.plan_task_id = plan_task_id

    def execute(self, context: Context) -> Any:
        """Show the plans, and wait; without approval, hand them on."""
        plans = self._plans(context)
        to, changed = str(context["params"]["to"]), sum(bool(plan and plan["changed"]) for _, plan in plans)
        if not changed:
            refused = sum(plan is None for _, plan in plans)
            others = f"; {refused} of {len(plans)} were refused" if refused else ""
            why = f"Nothing is to be done: Kafka Streams {to} opens what is there{others}."
            self.log.info("%s", why)  # Airflow's own line does not say it
            raise AirflowSkipException(why)
        if context["params"]["approve"] == NONE:
            self.log.info("%d plans are applied without asking anybody", changed)
            return approved(plans)
        self.subject = f"Migrate {changed} state director{'y' if changed == 1 else 'ies'} to Kafka Streams {to}?"
        self.body = body(plans, to)
        self.response_timeout = approved_within(context["params"])
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Go on with the answer; where it is no, what follows is skipped."""
        if "error" not in event:
            by = (event.get("responded_by_user") or {}).get("name")
            answer = {"chosen": event["chosen_options"][0], "by": by, "at": str(event["responded_at"])}
            context["ti"].xcom_push(key=ANSWER_KEY, value=answer)
            self.log.info("answered by %s: %s", by or "nobody in time", answer["chosen"])
        super().execute_complete(context, event)
        return approved(self._plans(context))

    def _plans(self, context: Context) -> Plans:
        found = context["ti"].xcom_pull(task_ids=self.plan_task_id, map_indexes=range(len(self.directories)))
        return list(zip(self.directories, found, strict=True))


def approved(plans: Plans) -> list[dict[str, Any]]:
    """The entries for the tasks that apply plans."""
    return [{**entry, **_word_on(plan)} for entry, plan in plans]


def _word_on(plan: Mapping[str, Any] | None) -> dict[str, str]:
    if plan is None:
        return {"plan_id": "", "why": "Its plan failed."}
    if not plan["changed"]:
        return {"plan_id": "", "why": f"Nothing is to be done: Kafka Streams {plan['to']} opens it as it is."}
    return {"plan_id": plan["plan_id"], "why": ""}


def outcomes(
    plans: Plans,
    answer: Mapping[str, Any] | None,
    applied: Sequence[Mapping[str, Any] | None],
    verified: Sequence[Mapping[str, Any] | None],
) -> list[dict[str, str]]:
    """What became of each directory.

    Args:
        plans: the entries with what the planning tasks have returned.
        answer: the answer; ``None`` where nobody was asked.
        applied: what was returned by the tasks that apply plans, of each directory,
        verified: and by those that look again.
    """
    rejected = answer is not None and answer["chosen"] == ApprovalOperator.REJECT
    return [
        {
            "name": entry["name"],
            "state_dir": entry["request"]["state_dir"],
            "outcome": _became(plan, done, seen, rejected=rejected),
        }
        for (entry, plan), done, seen in zip(plans, applied, verified, strict=True)
    ]


_REFUSED, _FAILED, _DAMAGED = "not planned", "not migrated", "migrated, and not as it has to be"


def _became(
    plan: Mapping[str, Any] | None, done: Mapping[str, Any] | None, seen: Mapping[str, Any] | None, *, rejected: bool
) -> str:
    if plan is None:
        return _REFUSED
    if not plan["changed"]:
        return "nothing to do"
    if done is None:
        return "rejected" if rejected else _FAILED
    if seen is None:
        return _DAMAGED
    return "migrated" if seen.get("looked", True) else "migrated; works again, so it was not looked at once more"


def conclude(found: Sequence[Mapping[str, str]], log: Any) -> None:
    """Say what became of each directory; the last word of a run.

    Raises:
        JobRefused: one is not what it was asked to be, and nobody has rejected that.
    """
    for line in columns(("application", "state directory", "outcome"), [tuple(one.values()) for one in found]):
        log.info("%s", line)
    wrong = [one for one in found if one["outcome"] in (_REFUSED, _FAILED, _DAMAGED)]
    if wrong:
        said = "\n".join(f"  {one['name']} in {one['state_dir']}: {one['outcome']}" for one in wrong[:_NAMED])
        more = f"\n  and {len(wrong) - _NAMED:,} more" if len(wrong) > _NAMED else ""
        raise JobRefused(
            f"{len(wrong)} of {len(found)} directories are not what they were to become:\n{said}{more}\nWhat to do: "
            "see the logs of their tasks, then clear those with all that follows, or start a new run for them."
        )
