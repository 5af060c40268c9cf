"""Diagnosis of application directories: read-only, without an engine or a stored report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statecore.doctor.diagnosis import Diagnosis, diagnose_directory
from statecore.errors import StatecoreError
from statecore.formats.releases import RELEASES
from statecore.jobs.context import JobContext
from statecore.jobs.diagnose.request import DiagnoseRequest
from statecore.jobs.failures import translated_errors
from statecore.jobs.fields.diagnosis import OfDiagnosis
from statecore.progress import Progress
from statecore.spec.model import ApplicationSpec
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.store_places import applications, guarantee_of, no_application_error

if TYPE_CHECKING:
    from statecore.doctor.topic_inspection import Brokers


@dataclass(frozen=True)
class DiagnosisReport:
    """The result of a diagnosis.

    Attributes:
        unasked: why the brokers could not be asked; ``None`` if they were, or were not meant to be.
    """

    applications: tuple[Diagnosis, ...]
    unasked: StatecoreError | None = None

    @property
    def exit_code(self) -> int:
        """Exit code of the worst finding; without one that of the brokers' error."""
        worst = max(one.exit_code for one in self.applications)
        return self.unasked.exit_code if not worst and self.unasked is not None else worst

    def to_json(self) -> dict[str, Any]:
        return {"applications": [one.to_json() for one in self.applications], "exit_code": self.exit_code}


def run_diagnose(request: DiagnoseRequest, progress: Progress | None = None, **opened: Any) -> DiagnosisReport:
    """Diagnose the directory of an application, or of all; errors of the brokers are part of the result."""
    with translated_errors(f"{request.state_dir} was diagnosed"):
        return _diagnose(JobContext.open(request, progress, **opened))


def _diagnose(context: JobContext[DiagnoseRequest]) -> DiagnosisReport:
    request, spec, progress = context.request, context.declared, context.progress
    guarantee_of(spec, request.processing_guarantee)  # reports a contradiction before anything is read
    names = [context.application_id] if context.application_id else applications(Path(request.state_dir))
    if not names:
        raise no_application_error(Path(request.state_dir))
    brokers = brokers_of(request, spec, progress, patient=True)
    found = tuple(diagnosis(request, context.existing_directory(name), spec, brokers, progress) for name in names)
    return DiagnosisReport(found, None if brokers is None else brokers.failed)


def brokers_of(
    request: OfDiagnosis, spec: ApplicationSpec | None, progress: Progress | None, *, patient: bool
) -> Brokers | None:
    """Client of the request's or spec's brokers, or ``None``; if patient its errors are reported, not raised."""
    servers = request.bootstrap_servers or (spec.bootstrap_servers if spec else None)
    if not servers or request.offline:
        return None
    from statecore.doctor.topic_inspection import Brokers

    return Brokers(
        servers,
        spec,
        request.processing_guarantee,
        timeout=request.timeout,
        compare_time=request.compare_time,
        patient=patient,
        progress=progress,
    )


def diagnosis(
    request: OfDiagnosis,
    directory: StateDirectory,
    spec: ApplicationSpec | None,
    brokers: Brokers | None,
    progress: Progress | None,
    *,
    is_locked: bool = False,
) -> Diagnosis:
    """Diagnose one directory, as ``diagnose_directory``; ``is_locked`` if the caller holds its lock."""
    return diagnose_directory(
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
