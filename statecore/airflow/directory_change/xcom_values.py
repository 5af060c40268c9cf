"""What the tasks of ``migrate_checkpoints`` hand to each other through XCom, key by key."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

REFUSED_KEY = "refused"
"""XCom key of a step that failed: kind and code of its error."""


class Entry(TypedDict):
    """One state directory: the arguments of its operator (:class:`~.migrate_operator.StatecoreMigrateOperator`).

    Attributes:
        title: its name in the grid.
        name: that of the Spark application, should it be one.
        application_id: Kafka Streams' ``application.id``.
        host: the machine that has it; ``None`` for any.
        engine: who converts.
        conf: Spark's; ``None`` for the site's.
        request: the job's, as JSON, without what a step adds.
    """

    title: str
    name: str
    application_id: str
    host: str | None
    engine: str
    conf: dict[str, str] | None
    request: dict[str, Any]


class ApprovedEntry(Entry):
    """One state directory, with a person's word on it.

    Attributes:
        plan_id: the plan that was approved; empty where nothing is to be applied.
        why: why that is so; empty where a plan was approved.
    """

    plan_id: str
    why: str


class Row(TypedDict):
    """What is the same in several tasks.

    Attributes:
        store: the store that it is done to; empty where it is none.
        kind: its kind; empty where it is not known.
        tasks: the first of them.
        count: how many there are.
        what: it, in words.
    """

    store: str
    kind: str
    tasks: list[str]
    count: int
    what: str


class Rows(TypedDict):
    """As many rows as are shown.

    Attributes:
        rows: they.
        left_out: how many there are besides.
    """

    rows: list[Row]
    left_out: int


class ShortPlan(TypedDict):
    """A report in short (:class:`statecore.jobs.migrate.report.MigrateReport`).

    Attributes:
        application_id, state_dir, host, to, outcome, plan_id, kept, seconds, phases: as the report has them.
        seen: which releases the layouts of its tasks are of.
        tasks: how many tasks there are.
        changed: to how many something is done.
        rewritten_bytes: bytes of files that are written anew.
        done: what is done to each store, and to files beside them.
        left: why something stays as it is.
        notes: what an operator should know.
    """

    application_id: str
    state_dir: str
    host: str
    to: str
    outcome: str
    plan_id: str
    kept: str
    seconds: float
    phases: dict[str, float]
    seen: list[str]
    tasks: int
    changed: int
    rewritten_bytes: int
    done: Rows
    left: Rows
    notes: Rows


class StepResult(ShortPlan):
    """What a step returns.

    Attributes:
        report: the file of the whole report.
        map_index: the task's.
        findings: of a look again, how many findings there are of each severity; ``None`` where nobody has looked.
    """

    report: str
    map_index: int
    findings: dict[str, int] | None


class NotLooked(TypedDict):
    """What a look again returns where the application works already.

    Attributes:
        looked: that nobody has.
        map_index: the task's.
    """

    looked: Literal[False]
    map_index: int


class Answer(TypedDict):
    """The answer to the plans of a run.

    Attributes:
        chosen: ``Approve`` or ``Reject``.
        by: who has answered; ``None`` where nobody has in time, which is a no.
        at: when.
    """

    chosen: str
    by: str | None
    at: str


class Became(TypedDict):
    """What became of one state directory.

    Attributes:
        name: its name in the grid.
        state_dir: its ``state.dir``.
        outcome: it, in words.
    """

    name: str
    state_dir: str
    outcome: str


Plans = list[tuple[Entry, ShortPlan | None]]
"""Each directory's entry, and its plan in short; ``None`` where that failed."""
