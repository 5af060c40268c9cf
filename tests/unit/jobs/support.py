"""A spec for tests that need one and do not look into it; plans on disk."""

from __future__ import annotations

from pathlib import Path

from statecore.filesystem import make_directories
from statecore.jobs.planning.frozen_plan import FROZEN_PLAN, FrozenPlan
from statecore.spec.model import ApplicationSpec
from statecore.spec.reader import parse_spec


def spec() -> ApplicationSpec:
    return parse_spec(
        {
            "application_id": "app",
            "bootstrap_servers": "localhost:9",
            "processing_guarantee": "at_least_once",
            "subtopologies": {"0": {"stores": {"store": {"kind": "key-value"}}}},
        },
        "<test>",
    )


def save_plan(path: Path, frozen: FrozenPlan) -> None:
    """Write a plan as the home of a job does."""
    make_directories(path.parent)
    path.write_bytes(FROZEN_PLAN.encode(frozen))
