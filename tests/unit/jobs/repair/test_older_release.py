"""A repair of a directory of an older release keeps its only offsets."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

from statecore.formats.checkpoint import decode_checkpoint
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.repair.request import RepairRequest
from statecore.jobs.repair.run import run_repair
from statecore.statedir.task_layout import stores_in
from tests.golden import directories

NAME = "4.2.0-at-least-once-flushed"  # fed and closed, started again and fed, flushed, killed
SECOND = 10**9


def test_only_the_stray_entry_goes_where_rows_were_flushed_after_the_file(tmp_path: Path) -> None:
    """Without spec and guarantee no store can be rebuilt, and at-least-once none has to be."""
    with tarfile.open(directories.HERE / f"{NAME}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="fully_trusted")
    before = {}
    for task in sorted((tmp_path / NAME).glob("[0-9]*_*")):
        file = task / ".checkpoint"
        before[task] = decode_checkpoint(file.read_bytes(), "it")
        version, count, *rest = file.read_text().splitlines()
        stray = f"{NAME}-gone-changelog {task.name.partition('_')[2]} 5"
        file.write_text("\n".join([version, str(int(count) + 1), *rest, stray]) + "\n")
        tables = [path for store in stores_in(task) for database in store.databases for path in database.glob("*.sst")]
        for path in tables:
            os.utime(path, ns=(path.stat().st_mtime_ns // SECOND * SECOND + SECOND // 2,) * 2)
        if tables:
            newest = max(path.stat().st_mtime_ns for path in tables)
            os.utime(file, ns=(newest - SECOND // 10,) * 2)
    request = RepairRequest(application_id=NAME, state_dir=str(tmp_path), offline=True, apply=True)
    report = run_repair(request, InProcessEngine())
    assert "rows-after-checkpoint" in {one["code"] for one in report.found}
    assert {task.name for task in before} == {one.task for one in report.repaired}
    for task, offsets in before.items():
        left = decode_checkpoint((task / ".checkpoint").read_bytes(), "it")
        assert left == offsets, task
        assert TopicPartition(f"{NAME}-gone-changelog", 0) not in left
