"""What jobs have in common that change the directory of a closed application: migrations and repairs.

They begin alike, under one lock from the first look to the last, and freeze no plan: whoever is killed is gone on with
by the same command. So that somebody knows which, a try says it in a file of its own as soon as something is to be
changed::

    <application>/.statecore/plans/<request>.attempt    the try, which job it is of, and the words of its command;
                                                        it goes when the try ends

What is left of it is read by :mod:`statecore.jobs.history.directory_changes`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar, Protocol

from statecore.errors import StatecoreError
from statecore.faults import FaultPoints
from statecore.jobs.history.directory_changes import killed_tries
from statecore.jobs.job import Job, Surroundings
from statecore.jobs.job_files import DirectoryHome
from statecore.jobs.planning.frozen_plan import ATTEMPT_SUFFIX
from statecore.progress import NullProgress, Progress
from statecore.spec.model import ApplicationSpec
from statecore.spec.reader import load_spec
from statecore.statedir.apply import recover
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.store_places import application_directory, check_application


class DirectoryRequest(Protocol):
    """What the requests of these jobs have in common."""

    @property
    def application_id(self) -> str:
        """Kafka Streams' ``application.id``."""

    @property
    def state_dir(self) -> str:
        """Kafka Streams' ``state.dir``."""

    @property
    def spec_path(self) -> str | None:
        """The application's ``stores.yaml``, if there is one."""

    @property
    def owner(self) -> str | None:
        """Whose what is placed will be, if somebody says it."""

    @property
    def request_id(self) -> str:
        """The request."""


def declared_in(request: DirectoryRequest) -> ApplicationSpec | None:
    """What is declared of the application, if the request names a spec.

    Raises:
        NotFound: there is no such file.
        Invalid: it is no spec, or that of another application.
    """
    spec = load_spec(Path(request.spec_path)) if request.spec_path is not None else None
    check_application(spec, request.application_id)
    return spec


def directory_of(request: DirectoryRequest) -> StateDirectory:
    """The application's directory, which is there.

    Raises:
        NotFound: it is not.
        Invalid: the state directory is none, or may not be read.
    """
    found = application_directory(Path(request.state_dir), request.application_id)
    return StateDirectory(found.state_dir, found.application_id, request.owner)


class OnDirectory(Job, ABC):
    """One try of a job that changes an application's directory.

    Args:
        request: what is asked for.
        directory: the application's.
        declared: what is declared of it, if anything is.
        progress: told how far the job is; ``None`` for nobody.
        faults: points at which tests let the process die.
        say: told what an operator should read at once.
        doing: see :class:`Job`.

    Attributes:
        called: what the job is called.
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
        around = Surroundings(spec, home, progress or NullProgress(), faults, say)
        super().__init__(around, request_id=request.request_id, state_dir=request.state_dir, doing=doing)
        self.directory, self.declared = directory, declared

    @abstractmethod
    def words(self) -> tuple[str, ...]:
        """The words of the command that goes on with this try, without ``statecore``."""

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Around all steps: nobody else works there, and what was interrupted before is settled."""
        with self.directory.lock():
            if recovered := str(recover(self.directory, self.faults)):
                self.say(recovered)
            with self.attempted():
                yield

    def begin_changes(self, more: Mapping[str, object] | None = None) -> None:
        """From here on a kill leaves word of this try.

        Args:
            more: what else it says.

        Raises:
            OSError: it cannot be written.
        """
        said = {**self.attempt.begun(), "job": self.called, "words": list(self.words()), **(more or {})}
        self.save(ATTEMPT_SUFFIX, said)
        self.directory.give_to_owner()  # whoever goes on may be the owner, and takes it away

    def has_ended_others(self) -> bool:
        """Take away the word of killed tries of such a job, after which nothing is left to be done; whether any was."""
        found = [one.file for one in killed_tries(self.directory.work_path) if one.job == self.called]
        for file in found:
            with suppress(PermissionError):
                file.unlink(missing_ok=True)
        return bool(found)

    def end(self, plan_id: str, report: dict[str, object]) -> None:
        """After the last step: the report is kept, and nobody is told to go on with a try."""
        self.has_ended_others()
        self.finish(plan_id, report)
        with suppress(OSError, StatecoreError):
            self.directory.give_to_owner()
