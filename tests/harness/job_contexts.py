"""Contexts of jobs without a request, over what is open already."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from statecore.faults import NO_FAULTS, FaultPoints
from statecore.jobs.context import JobContext, ignore
from statecore.repository.application_repository import ApplicationRepository
from statecore.spec.model import ApplicationSpec


def context_of(
    repository: ApplicationRepository,
    spec: ApplicationSpec,
    faults: FaultPoints = NO_FAULTS,
    say: Callable[[str], None] = ignore,
) -> JobContext[Any]:
    """The context of a job on an application's part of a repository."""
    return JobContext.open(None, faults=faults, say=say, spec=spec, shared_repository=repository)
