"""What jobs have in common that change the directory of a closed application by a plan that somebody has approved.

Nothing is kept between plan and approval: the id of a plan is a hash of what would be done and of the directories that
it was decided by, so whoever approves it approves just that.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from statecore.errors import Fenced, Invalid
from statecore.statedir.state_directory import StateDirectory


def plan_id_of(said: Mapping[str, Any]) -> str:
    """The id of a plan.

    Args:
        said: what would be done, and the fingerprints of the directories that it was decided by, as for JSON.
    """
    return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()[:16]


def refuse_another_plan(directory: StateDirectory, approved: str, plan_id: str) -> None:
    """Refuse to do another plan than the one that was approved; an empty id approves any.

    Raises:
        Invalid: it is another.
    """
    if approved not in ("", plan_id):
        raise Invalid(
            f"The plan for {directory.path} is {plan_id} now, and {approved} was approved: the directory has changed "
            "since.",
            code="plan-changed",
            action="Look at the plan again and approve it; nothing was changed.",
            state_dir=str(directory.state_dir),
            plan_id=plan_id,
        )


def refuse_in_use(directory: StateDirectory, instead: str = "") -> None:
    """Refuse a directory whose application runs, for who only looks and does not take its lock.

    Args:
        directory: it.
        instead: what can be done while it runs, as a sentence.

    Raises:
        Fenced: somebody has it in use.
    """
    holder = directory.in_use_by()
    if holder is not None:
        raise Fenced(
            f"{directory.path} is in use by {holder}.",
            code="state-directory-in-use",
            action=" ".join(filter(None, ["Close the application, or wait for the other job.", instead])),
            state_dir=str(directory.state_dir),
        )
