"""Whole directories of real applications, unpacked and examined."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from statecore.doctor.diagnosis import Diagnosis, diagnose_directory
from statecore.doctor.finding_catalog import Severity
from statecore.spec.model import ProcessingGuarantee
from statecore.spec.reader import parse_spec
from statecore.statedir.state_directory import StateDirectory
from tests.golden.directories import golden_directories


def examined(application: Path, name: str, *, declared: bool = False, **how: Any) -> Diagnosis:
    """What the doctor finds in a copy of a golden directory.

    Args:
        application: the copy.
        name: of the golden directory, which says the guarantee.
        declared: whether it is compared with its spec.
        how: as :func:`statecore.doctor.diagnosis.diagnose_directory`.
    """
    golden = golden_directories()[name]
    spec = parse_spec(golden.spec) if declared else None
    guarantee = ProcessingGuarantee(golden.guarantee)
    return diagnose_directory(
        StateDirectory(application.parent, application.name), spec=spec, guarantee=guarantee, **how
    )


def worse(diagnosis: Diagnosis) -> set[tuple[str, str, str, str]]:
    """Code, severity, task and store of all that is more than a note."""
    return {
        (one.code, one.severity.value, one.task, one.store)
        for one in diagnosis.findings
        if one.severity is not Severity.NOTE
    }
