"""The examination: what is wrong with the directories of applications. Nothing is changed.

It has no engine, and no report beside the state: what it found is returned.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statecore.doctor.doctor import Diagnosis, examine
from statecore.errors import StatecoreError
from statecore.formats.releases import RELEASES
from statecore.jobs.diagnose.request import DiagnoseRequest
from statecore.progress import Progress
from statecore.spec.model import ApplicationSpec
from statecore.spec.reader import load_spec
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.store_places import (
    application_directory,
    applications,
    check_application,
    guarantee_of,
    no_application,
)

if TYPE_CHECKING:
    from statecore.doctor.doctor_topics import Brokers


@dataclass(frozen=True)
class Examination:
    """What an examination came to.

    Attributes:
        applications: what was found in the directory of each application.
        unasked: why the brokers could not be asked; ``None`` where they were, or were not meant to be.
    """

    applications: tuple[Diagnosis, ...]
    unasked: StatecoreError | None = None

    @property
    def exit_code(self) -> int:
        """Of the worst finding; without one that of brokers that could not be asked."""
        worst = max(one.exit_code for one in self.applications)
        return self.unasked.exit_code if not worst and self.unasked is not None else worst

    def to_json(self) -> dict[str, Any]:
        """Everything, as one JSON object."""
        return {"applications": [one.to_json() for one in self.applications], "exit_code": self.exit_code}


def run_diagnose(request: DiagnoseRequest, progress: Progress | None = None) -> Examination:
    """Examine the directory of an application, or of every one there is.

    Args:
        request: which directories, and how.
        progress: told how far it is; ``None`` for nobody.

    Returns:
        What was found. That the brokers could not be asked hides nothing of what the directories tell.

    Raises:
        NotFound: there is no such application, task or store.
        Invalid: the directory may not be read, or the spec contradicts the request.
    """
    spec = load_spec(Path(request.spec_path)) if request.spec_path is not None else None
    wanted = request.application_id or (spec.application_id if spec else None)
    if wanted is not None:
        check_application(spec, wanted)
    guarantee_of(spec, request.processing_guarantee)  # a contradiction is said before anything is read
    state_dir = Path(request.state_dir)
    names = [wanted] if wanted is not None else applications(state_dir)
    if not names:
        raise no_application(state_dir)
    brokers = brokers_of(request, spec, progress, patient=True)
    found = tuple(diagnosis(request, application_directory(state_dir, name), spec, brokers, progress) for name in names)
    return Examination(found, None if brokers is None else brokers.failed)


def brokers_of(
    request: DiagnoseRequest, spec: ApplicationSpec | None, progress: Progress | None, *, patient: bool
) -> Brokers | None:
    """Who asks the brokers that a request names, or else its spec; ``None`` where none are to be asked.

    Args:
        request: the request.
        spec: what it declares.
        progress: told how far they are asked; ``None`` for nobody.
        patient: whether an error of theirs is said beside what the directory tells, and not raised.
    """
    servers = request.bootstrap_servers or (spec.bootstrap_servers if spec else None)
    if not servers or request.offline:
        return None
    from statecore.doctor.doctor_topics import Brokers

    return Brokers(servers, spec, request.processing_guarantee, patient=patient, progress=progress)


def diagnosis(
    request: DiagnoseRequest,
    directory: StateDirectory,
    spec: ApplicationSpec | None,
    brokers: Brokers | None,
    progress: Progress | None,
    *,
    is_locked: bool = False,
) -> Diagnosis:
    """Examine one directory, as a request says; ``is_locked`` where the caller holds its lock.

    Raises as :func:`statecore.doctor.doctor.examine`.
    """
    return examine(
        directory,
        spec=spec,
        guarantee=request.processing_guarantee,
        tasks=request.tasks,
        stores=request.stores,
        scan=request.scan,
        release=None if request.release is None else RELEASES[request.release],
        cleanup_max_age_ms=request.cleanup_max_age_ms,
        topics=brokers,
        progress=progress if request.scan else None,
        is_locked=is_locked,
    )
