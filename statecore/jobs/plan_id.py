"""Approval of plans that change the directory of a closed application.

Nothing is stored between plan and approval: the id of a plan is a hash of its actions and of the state of the
directories it is based on, so an approval covers exactly that.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from statecore.errors import Fenced, Invalid
from statecore.statedir.state_directory import StateDirectory


def plan_id_of(said: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()[:16]


def refuse_another_plan(directory: StateDirectory, approved: str, plan_id: str) -> None:
    """Refuse a plan other than the approved one; an empty id approves any. Raises ``Invalid``."""
    if approved not in ("", plan_id):
        raise Invalid(
            f"The plan for {directory.path} is now {plan_id}, but {approved} was approved: the directory has changed.",
            code="plan-changed",
            action="Review the plan again and approve it; nothing was changed.",
            state_dir=str(directory.state_dir),
            plan_id=plan_id,
        )


def refuse_in_use(directory: StateDirectory, instead: str = "") -> None:
    """Refuse a directory that is in use, for a job that only reads and does not take its lock."""
    holder = directory.in_use_by()
    if holder is not None:
        raise Fenced(
            f"{directory.path} is in use by {holder}.",
            code="state-directory-in-use",
            action=" ".join(filter(None, ["Close the application, or wait for the other job.", instead])),
            state_dir=str(directory.state_dir),
        )
