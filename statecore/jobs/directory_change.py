"""Common base of jobs that change the directory of a closed application: migrations and repairs.

They hold one lock from the first inspection to the last, and freeze no plan: a killed job is resumed by the same
command.
So that the command is known, an attempt writes a file as soon as it begins to change something::

    <application>/.statecore/plans/<request>.attempt    the attempt, its job, and the words of its command; deleted
                                                        when the attempt ends

Remaining files are read by :mod:`statecore.jobs.history.directory_changes`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar, Protocol

from statecore.errors import StatecoreError
from statecore.faults import FaultPoints
from statecore.jobs.history.directory_changes import unfinished_changes
from statecore.jobs.job import Job, JobContext
from statecore.jobs.job_files import DirectoryHome
from statecore.jobs.planning.frozen_plan import ATTEMPT_SUFFIX
from statecore.progress import NullProgress, Progress
from statecore.spec.model import ApplicationSpec
from statecore.spec.reader import load_spec
from statecore.statedir.apply import recover
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.store_places import application_directory, check_application


class DirectoryRequest(Protocol):
    """Fields that the requests of these jobs have in common."""

    @property
    def application_id(self) -> str:
        """Kafka Streams' ``application.id``."""

    @property
    def state_dir(self) -> str:
        """Kafka Streams' ``state.dir``."""

    @property
    def spec_path(self) -> str | None:
        """The application's ``stores.yaml``, if given."""

    @property
    def owner(self) -> str | None:
        """Owner of placed files, if given."""

    @property
    def request_id(self) -> str:
        """The request id."""


def declared_in(request: DirectoryRequest) -> ApplicationSpec | None:
    """The application's spec, if the request names one."""
    spec = load_spec(Path(request.spec_path)) if request.spec_path is not None else None
    check_application(spec, request.application_id)
    return spec


def directory_of(request: DirectoryRequest) -> StateDirectory:
    """The application's existing directory."""
    found = application_directory(Path(request.state_dir), request.application_id)
    return StateDirectory(found.state_dir, found.application_id, request.owner)


class DirectoryChange(Job, ABC):
    """One attempt of a job that changes an application's directory.

    Attributes:
        called: name of the job.
    """

    called: ClassVar[str]

    def __init__(
        self,
        request: DirectoryRequest,
        directory: StateDirectory,
        declared: ApplicationSpec | None,
        progress: Progress | None,
        faults: FaultPoints,
        say: Callable[[str], None],
        doing: str,
    ) -> None:
        home = DirectoryHome(directory.work_path, directory.work_path, request.request_id)
        spec = declared or ApplicationSpec.undeclared(request.application_id)
        around = JobContext(spec, home, progress or NullProgress(), faults, say)
        super().__init__(around, request_id=request.request_id, state_dir=request.state_dir, doing=doing)
        self.directory, self.declared = directory, declared

    @abstractmethod
    def words(self) -> tuple[str, ...]:
        """The command that resumes this attempt, without ``statecore``."""

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Around all steps: hold the lock, after recovering an interrupted placement."""
        with self.directory.lock():
            if recovered := str(recover(self.directory, self.faults)):
                self.say(recovered)
            with self.attempted():
                yield

    def begin_changes(self, more: Mapping[str, object] | None = None) -> None:
        """Write the attempt file, so that a killed attempt can be resumed."""
        fields = {**self.attempt.begun(), "job": self.called, "words": list(self.words()), **(more or {})}
        self.save(ATTEMPT_SUFFIX, fields)
        self.directory.apply_ownership()  # the resuming process may be the owner's, and has to delete it

    def has_ended_others(self) -> bool:
        """Delete attempt files of killed attempts of this job, once nothing is left to do; whether there were any."""
        found = [one.file for one in unfinished_changes(self.directory.work_path) if one.job == self.called]
        for file in found:
            with suppress(PermissionError):
                file.unlink(missing_ok=True)
        return bool(found)

    def end(self, plan_id: str, report: dict[str, object]) -> None:
        """After the last step: save the report, and delete attempt files."""
        self.has_ended_others()
        self.finish(plan_id, report)
        with suppress(OSError, StatecoreError):
            self.directory.apply_ownership()
