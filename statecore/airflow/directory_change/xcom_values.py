"""XCom values of the tasks of ``migrate_checkpoints`` and ``recover_global_stores``."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal, TypedDict

REFUSED_KEY = "refused"
"""XCom key of a step that failed: kind, code and first sentence of its error."""


class Entry(TypedDict):
    """One state directory: the arguments of its operator (:class:`~.operator.StatecoreDirectoryChangeOperator`).

    Attributes:
        title: its name in the grid.
        name: name of the Spark application, if Spark is used.
        host: the machine that has it; ``None`` for any.
        engine: ``processes`` or ``spark``.
        conf: Spark properties; ``None`` for the site's.
        request: the job's request as JSON, without what a step adds.
    """

    title: str
    name: str
    application_id: str
    host: str | None
    engine: str
    conf: dict[str, str] | None
    request: dict[str, Any]


class ApprovedEntry(Entry):
    """One state directory, with its approved plan.

    Attributes:
        plan_id: the approved plan; empty if nothing is to be applied.
        why: why ``plan_id`` is empty; empty if a plan was approved.
    """

    plan_id: str
    why: str


class Row(TypedDict):
    """A step or remark that is the same in several tasks.

    Attributes:
        store: its store; empty for none.
        kind: the store's kind; empty if not known.
        tasks: the first of the tasks.
        count: number of tasks.
        what: the step or remark, as text.
    """

    store: str
    kind: str
    tasks: list[str]
    count: int
    what: str


class Rows(TypedDict):
    """A bounded list of rows.

    Attributes:
        rows: the first rows.
        left_out: number of further rows.
    """

    rows: list[Row]
    left_out: int


class ShortReport(TypedDict):
    """A short report of a step, such as that of a :class:`statecore.jobs.migrate.report.MigrateReport`.

    Attributes:
        application_id, state_dir, host, to, outcome, plan_id, kept: as in the report.
        changed: number of tasks that change.
        done: what is done to each store, and to files outside stores.
        left: what stays unchanged, and why.
    """

    application_id: str
    state_dir: str
    host: str
    to: str
    outcome: str
    plan_id: str
    kept: str
    changed: int
    done: Rows
    left: Rows
    notes: Rows


class ShortMigrationPlan(ShortReport):
    """The short report of a migration.

    Attributes:
        seen: releases of the layouts of its tasks.
        tasks: number of tasks.
        rewritten_bytes: bytes of files that are rewritten.
    """

    seen: list[str]
    tasks: int
    rewritten_bytes: int


class DoubtfulPlan(ShortReport):
    """The short report of a recovery of global stores.

    Attributes:
        doubts: number of doubts that a person has to review before the plan is applied.
        unknown: the first stores that cannot be read here, as text; empty for none.
        nothing: why nothing had to be inspected; empty if it was.
    """

    doubts: int
    unknown: str
    nothing: str


class StepResult(ShortReport):
    """The result of a step.

    Attributes:
        report: path of the whole report; empty if no job had to run.
        findings: number of findings by severity, of ``verify``; ``None`` if ``statecore doctor`` did not run.
    """

    report: str
    findings: dict[str, int] | None


class NotVerified(TypedDict):
    """The result of ``verify`` if the application is running again.

    Attributes:
        verified: false: the directory was not verified.
    """

    verified: Literal[False]


class Answer(TypedDict):
    """The answer to the plans of a run.

    Attributes:
        chosen: ``Approve`` or ``Reject``.
        by: who answered; ``None`` after a timeout, which rejects.
    """

    chosen: str
    by: str | None
    at: str


class Outcome(StrEnum):
    """What has become of a state directory."""

    CHANGED = "changed"
    NOT_VERIFIED = "not-verified"  # Changed; its application was running again before it was verified
    NOTHING_TO_DO = "nothing-to-do"
    REJECTED = "rejected"
    NO_ANSWER = "no-answer"  # Rejected, because there was no answer in time
    NOT_PLANNED = "not-planned"
    NEEDS_APPROVAL = "needs-approval"  # Not changed: the plan has doubts, and the run asks no person
    NOT_CHANGED = "not-changed"
    VERIFICATION_FAILED = "verification-failed"

    @property
    def is_failure(self) -> bool:
        """Whether the directory was neither changed as planned nor rejected."""
        return self in (self.NOT_PLANNED, self.NEEDS_APPROVAL, self.NOT_CHANGED, self.VERIFICATION_FAILED)


class DirectoryOutcome(TypedDict):
    """The outcome of one state directory; without a ``host`` that of any worker.

    Attributes:
        outcome: an :class:`Outcome`.
        text: the outcome and its reason, for a person.
    """

    application_id: str
    state_dir: str
    host: str | None
    outcome: str
    text: str


Plans = list[tuple[Entry, ShortReport | None]]
"""Each directory's entry with its short plan; ``None`` if planning failed."""
