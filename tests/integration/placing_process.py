"""A process that places prepared databases, to be killed: ``python -m ... <job.json>``; the fault is in the
environment.

The job: ``state_dir``, ``application_id``, ``swapping`` (``exchange`` or ``renames``), ``images`` and ``siblings`` as
lists of ``[task, store, kind, topic, partition, path, offset]`` (siblings without the last two).
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from statecore.faults import fault_points_from_environment
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import ProcessingGuarantee
from statecore.statedir import journal_replay as settlement
from statecore.statedir.placement import apply_placement, recover
from statecore.statedir.placement_plan import plan_placement
from statecore.statedir.placement_stores import SiblingStore, StoreImage
from statecore.statedir.state_directory import StateDirectory


def main(job: dict[str, Any]) -> None:
    faults = fault_points_from_environment()
    if job["swapping"] == "renames":
        settlement.exchange = lambda first, second: False
    directory = StateDirectory(Path(job["state_dir"]), job["application_id"])
    with directory.lock():
        recover(directory, faults)
        images = []
        for task, store, kind, topic, partition, path, offset in job["images"]:
            staged = directory.work_path / "staged" / "images" / task / "rocksdb" / store
            shutil.copytree(path, staged, dirs_exist_ok=True)
            changelog = TopicPartition(topic, partition)
            images.append(StoreImage(task, store, StoreKind(kind), changelog, staged, {changelog: offset}))
        siblings = [
            SiblingStore(task, store, StoreKind(kind), TopicPartition(topic, partition))
            for task, store, kind, topic, partition in job["siblings"]
        ]
        plan = plan_placement(
            directory,
            images,
            siblings=siblings,
            guarantee=ProcessingGuarantee.EXACTLY_ONCE_V2,
            replace=True,
            request_id="one",
        )
        apply_placement(plan, faults)
        shutil.rmtree(directory.work_path / "staged", ignore_errors=True)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
