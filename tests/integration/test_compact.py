"""Folds over a real S3 server: requests, kills at every point, and two at once as processes of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench.s3_request_log import RequestLog
from statecore.faults import VARIABLE
from statecore.formats.kinds import StoreKind
from statecore.jobs.compact.report import CompactionOutcome
from tests.harness.case_selection import one_of
from tests.harness.s3_server import S3Server
from tests.unit.jobs.compact.compacting import At, Farm, old_rows, some_rows, spec_of

pytestmark = pytest.mark.integration

ATS = [At(f"0_{task}", "plain") for task in range(3)]


@pytest.fixture
def farm(server: S3Server, tmp_path: Path) -> Farm:
    """Three store partitions with runs enough; of one a large run outweighs what came since."""
    at = server.bucket("folds").below(tmp_path.name)
    farm = Farm(tmp_path / "farm", spec_of({"plain": StoreKind.KEY_VALUE}), at.url)
    farm.checkpoint({ATS[0]: old_rows()}, *({at: some_rows(number, of=at.task) for at in ATS} for number in range(10)))
    return farm


def process(farm: Farm, fault: str = "") -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "tests.unit.jobs.compacting_process", str(farm.root), farm.url]
    environment = {**os.environ, "TMPDIR": str(farm.root), **({VARIABLE: fault} if fault else {})}
    return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def names(farm: Farm) -> list[list[str]]:
    return [[stored.run.sha256 for stored in farm.runs(at)] for at in ATS]


@pytest.mark.full
def test_a_compaction_of_small_runs_is_four_puts_and_a_read_of_each_pack(farm: Farm, server: S3Server) -> None:
    for number in range(10, 13):
        farm.checkpoint({at: some_rows(number, of=at.task) for at in ATS})
    app_repository = farm.app_repository
    asked = RequestLog(server.root / "server.log")
    before = farm.runs(ATS[0])
    counted = asked.counts()
    done = farm.fold(carries_digests=False)
    counts = {kind: count - counted[kind] for kind, count in asked.counts().items()}
    assert done.outcome is CompactionOutcome.PUBLISHED
    packs = {stored.extent.blob for at in ATS for stored in farm.runs(at)} | {stored.extent.blob for stored in before}
    assert (counts["PUT"], counts["POST"], counts["LIST"], counts["DELETE"]) == (4, 0, 0, 0), json.dumps(counts)
    assert counts["GET"] <= len(packs) + 6, json.dumps(counts)
    farm.check()
    assert app_repository.head().snapshots[0].new_bytes == done.written_bytes


@pytest.mark.full
@pytest.mark.parametrize("point", one_of(["publish.after-task-manifests", "compact.after-merge", "publish.after-head"]))
def test_after_a_kill_the_next_compaction_comes_to_the_same(farm: Farm, point: str) -> None:
    farm.checkpoint(*({at: some_rows(number, of=at.task) for at in ATS} for number in range(10, 13)))
    killed = process(farm, f"{point}:kill")
    _, said = killed.communicate(timeout=1200)
    assert killed.returncode == -signal.SIGKILL, said
    expected = CompactionOutcome.NOT_DUE if point == "publish.after-head" else CompactionOutcome.PUBLISHED
    assert farm.fold().outcome is expected
    farm.check()
    assert [entry.origin for entry in farm.app_repository.head().snapshots].count("compaction") == 1
    assert all(len(runs) < 8 for runs in names(farm))


def test_of_compactions_at_once_one_counts_and_a_checkpoint_beside_them_stays(farm: Farm) -> None:
    farm.checkpoint(*({at: some_rows(number, of=at.task) for at in ATS} for number in range(10, 13)))
    running = [process(farm) for _ in range(2)]
    farm.checkpoint({ATS[1]: some_rows(99)})
    said = [one.communicate(timeout=1200)[1] for one in running]
    assert [one.returncode for one in running] == [0] * 2, said
    origins = [entry.origin for entry in farm.app_repository.head().snapshots]
    assert origins.count("compaction") == 1
    assert origins.count("tests") == 3
    assert all(len(runs) < 9 for runs in names(farm))
    farm.check()
