"""A process that places two stores into three tasks, to be killed: ``python -m ... <state.dir> <work> <swapping>``.

``work`` is ``place`` (recover, plan, place, as a job does) or ``recover``. The fault comes from the environment.
"""

from __future__ import annotations

import sys
from pathlib import Path

from statecore.faults import fault_points_from_environment
from statecore.runtime import settlement
from statecore.runtime.placement import apply_placement, plan_placement, recover
from statecore.runtime.state_directory import StateDirectory
from statecore.spec.model import ProcessingGuarantee
from tests.unit.runtime.support import make_image, sibling

TASKS = ("0_0", "0_1", "1_0")
REQUEST = "the-request"


def main(state_dir: str, work: str, swapping: str) -> None:
    faults = fault_points_from_environment()
    if swapping == "renames":
        settlement.exchange = lambda first, second: False
    directory = StateDirectory(Path(state_dir), "app")
    with directory.lock():
        recover(directory, faults)
        if work == "recover":
            return
        images = [make_image(directory, task, store) for task in TASKS for store in ("s", "t")]
        plan = plan_placement(
            directory,
            images,
            siblings=[sibling(task, name) for task in TASKS for name in ("k", "gap")],
            guarantee=ProcessingGuarantee.EXACTLY_ONCE_V2,
            replace=True,
            request_id=REQUEST,
        )
        apply_placement(plan, faults)


if __name__ == "__main__":
    main(*sys.argv[1:])
