"""The request of a diagnosis."""

from __future__ import annotations

from dataclasses import dataclass

from statecore.jobs.fields.diagnosis import OfDiagnosis


@dataclass(frozen=True, kw_only=True)
class DiagnoseRequest(OfDiagnosis):
    """A request to diagnose the directories of applications."""
