"""Processes that place stores of all shapes, to be killed.

``python -m tests.unit.statedir.placing_process`` loads everything once and forks a process for each line
``[fault, state.dir, work, swapping]`` of JSON that it reads (it opens no database itself, so its children may). Its
answer is the child's exit code, negative where a signal ended it.

Three tasks get two plain stores each, one of them also a window store and a grace-period buffer; a task of a named
topology gets one store, and so do the global stores.

``work`` is ``place`` (recover, plan, place, as a job does) or ``recover``. The fault reaches it by its environment.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from statecore.faults import VARIABLE, fault_points_from_environment
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import ProcessingGuarantee
from statecore.statedir import journal_replay as settlement
from statecore.statedir.placement import apply_placement, recover
from statecore.statedir.placement_plan import plan_placement
from statecore.statedir.state_directory import StateDirectory
from tests.unit.statedir.support import BUFFER, WINDOW, make_global_image, make_image, make_segmented_image, sibling

TASKS = ("0_0", "0_1", "1_0")
ALONE = "2_1"
GLOBAL = "global"
GLOBAL_OFFSETS = {TopicPartition("products", 0): 12, TopicPartition("products", 1): 0}
REQUEST = "the-request"


def place(state_dir: str, work: str, swapping: str) -> None:
    faults = fault_points_from_environment()
    if swapping == "renames":
        settlement.exchange = lambda first, second: False
    directory = StateDirectory(Path(state_dir), "app")
    with directory.lock():
        recover(directory, faults)
        if work == "recover":
            return
        images = [make_image(directory, task, store) for task in TASKS for store in ("s", "t")]
        images += [
            make_segmented_image(directory, "1_0", "w", (60_000, 120_000)),
            make_segmented_image(directory, "1_0", "b", kind=BUFFER),
            make_image(directory, ALONE, "s"),
            make_global_image(directory, "g", GLOBAL_OFFSETS),
        ]
        plan = plan_placement(
            directory,
            images,
            siblings=[
                *(sibling(task, name) for task in TASKS for name in ("k", "gap")),
                sibling("0_1", "window-gap", WINDOW),
                sibling("0_1", "buffer-gap", BUFFER),
            ],
            guarantee=ProcessingGuarantee.EXACTLY_ONCE_V2,
            replace=True,
            request_id=REQUEST,
        )
        apply_placement(plan, faults)


def serve() -> None:
    """Answer until there are no more lines; a child returns from here, too, and ends as any process does."""
    for line in sys.stdin:
        fault, *words = json.loads(line)
        child = os.fork()
        if child == 0:
            os.environ[VARIABLE] = fault
            place(*words)
            return
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    serve()
