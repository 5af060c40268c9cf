"""A change of the directory of a closed application: migrate, repair, recover-global and promote are one template.

::

    inspect   what is to be changed, as a plan with an id     nothing is changed; without ``apply`` the job ends here
    approve   refuse obstacles, and any plan but the approved one
    change    copies of task directories                      in .statecore, which the next job cleans
    swap      whole tasks, by the placement journal           each task is entirely old or new; the next job finishes it
    verify    inspect the live directory again

One lock is held from the inspection to the end. Nothing is stored between plan and approval: the id of a plan is a hash
of its actions and, where it has to be approved, of the state of the directories that it is based on, so an approval
covers exactly that.

A killed job is resumed by the same command. So that the command is known, an attempt writes a file before it changes
something; :mod:`statecore.jobs.history.directory_changes` reads it::

    <application>/.statecore/plans/<request>.attempt    the attempt, its job, and its command; deleted when it ends
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from statecore.errors import Fenced, Invalid, StatecoreError
from statecore.jobs.context import JobContext
from statecore.jobs.history.directory_changes import UnfinishedChange, unfinished_changes
from statecore.jobs.job import Job
from statecore.jobs.job_home import DirectoryHome
from statecore.jobs.planning.frozen_plan import ATTEMPT_SUFFIX
from statecore.statedir.placement import recover
from statecore.statedir.state_directory import StateDirectory


def plan_id_of(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:16]


class Plan(Protocol):
    """What a job will change."""

    @property
    def plan_id(self) -> str:
        """Hash of the plan; see the module."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to change, and nothing to refuse."""


class Report(Protocol):
    """The report of a job."""

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON document."""


PlanT = TypeVar("PlanT", bound=Plan)
ChangedT = TypeVar("ChangedT")
ReportT = TypeVar("ReportT", bound=Report)


class DirectoryChange(Job, ABC, Generic[PlanT, ChangedT, ReportT]):
    """One attempt of a job that changes an application's directory; :meth:`run` runs the phases.

    Attributes:
        name: name of the job in attempt files.
        approved: id of the approved plan; empty for any.
    """

    name: ClassVar[str]
    approved: str = ""

    def __init__(self, context: JobContext[Any], directory: StateDirectory, doing: str) -> None:
        home = DirectoryHome(directory.work_path, directory.work_path, context.request.request_id)
        super().__init__(context, home, doing)
        self.directory, self.declared, self._applies = directory, context.declared, context.request.apply

    def run(self) -> ReportT:
        """Plan the change, or apply the approved plan."""
        if not self._applies:
            self.refuse_in_use()
            return self.report(self._inspect(), None)
        with self.locked():
            plan = self._inspect()
            if plan.is_empty:
                report = self.report(plan, None)
                if self._delete_attempts():  # this one has finished theirs
                    self.finish(plan.plan_id, report.to_json())
                return report
            self.refuse(plan)
            if not self.resumes(plan):
                self._refuse_another(plan)
            self.faults.reach("change.after-plan")
            self._begin(plan)
            changed = self.verify(plan, self.change(plan))
            report = self.report(plan, changed)
            self.finish(plan.plan_id, report.to_json())
            return report

    @abstractmethod
    def command(self) -> tuple[str, ...]:
        """The command line that resumes this attempt, without ``statecore``."""

    @abstractmethod
    def inspect(self) -> PlanT:
        """Inspect the directory, and plan the change."""

    @abstractmethod
    def change(self, plan: PlanT) -> ChangedT:
        """Change copies of the tasks, and swap them in."""

    @abstractmethod
    def report(self, plan: PlanT, changed: ChangedT | None) -> ReportT:
        """The report of a plan that was applied; without ``changed`` of one that was not, or has nothing to do."""

    def refuse_in_use(self) -> None:
        """Before a plan without the lock: refuse a directory that is in use."""
        refuse_in_use(self.directory)

    def refuse(self, plan: PlanT) -> None:
        """Refuse a plan that cannot be applied."""

    def resumes(self, plan: PlanT) -> bool:  # noqa: ARG002
        """Whether a plan is the rest of the approved one, which an attempt has begun."""
        return False

    def record(self, plan: PlanT) -> Mapping[str, object]:  # noqa: ARG002
        """Further fields of the attempt file, by which a later attempt knows the rest of a plan."""
        return {}

    def verify(self, plan: PlanT, changed: ChangedT) -> ChangedT:  # noqa: ARG002
        """Inspect the live directory again. Raises ``Corrupted``: it is not what it was changed to."""
        return changed

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Around all steps: hold the lock, after recovering an interrupted placement."""
        with self.directory.lock():
            recover(self.directory, self.faults, self.say)
            with self.attempted():
                self.faults.reach("change.after-lock")
                yield

    def attempts(self) -> list[UnfinishedChange]:
        """Unfinished attempts of this job in the directory."""
        return [one for one in unfinished_changes(self.directory.work_path) if one.job == self.name]

    def finish(self, plan_id: str, report: Mapping[str, Any]) -> None:
        """After the last step: save the report, and delete attempt files."""
        self._delete_attempts()
        super().finish(plan_id, report)
        with suppress(OSError, StatecoreError):
            self.directory.apply_ownership()

    def _inspect(self) -> PlanT:
        with self.phase("inspect"):
            return self.inspect()

    def _refuse_another(self, plan: PlanT) -> None:
        """Refuse a plan other than the approved one. Raises ``Invalid``."""
        if self.approved not in ("", plan.plan_id):
            raise Invalid(
                f"The plan for {self.directory.path} is {plan.plan_id}, but {self.approved} was approved: the "
                "directory has changed since, or that id is not of a plan for it.",
                code="plan-changed",
                action="Review the plan again and approve it; nothing was changed.",
                state_dir=str(self.directory.state_dir),
                plan_id=plan.plan_id,
            )

    def _begin(self, plan: PlanT) -> None:
        """Write the attempt file, so that a killed attempt can be resumed."""
        self.save(
            ATTEMPT_SUFFIX,
            {**self.attempt.begun(), "job": self.name, "words": list(self.command()), **self.record(plan)},
        )
        self.directory.apply_ownership()  # the resuming process may be the owner's, and has to delete it

    def _delete_attempts(self) -> bool:
        """Delete attempt files of killed attempts, once nothing is left to do; returns whether there were any."""
        found = self.attempts()
        for one in found:
            with suppress(PermissionError):
                one.file.unlink(missing_ok=True)
        return bool(found)


def refuse_in_use(directory: StateDirectory, hint: str = "") -> None:
    """Refuse a directory that is in use, for a job that only reads and does not take its lock."""
    holder = directory.in_use_by()
    if holder is not None:
        raise Fenced(
            f"{directory.path} is in use by {holder}.",
            code="state-directory-in-use",
            action=" ".join(filter(None, ["Close the application, or wait for the other job.", hint])),
            state_dir=str(directory.state_dir),
        )
