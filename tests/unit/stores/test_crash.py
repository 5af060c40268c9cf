"""SIGKILL at any moment of a commit or an ingest: data and offset agree, and what was acknowledged is there."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from statecore.errors import Corrupted
from statecore.stores.rocksdb import RocksDBStore
from tests.unit.stores.crash import CHANGELOG, KEYS, KIND


def killed(mode: str, directory: Path, delay: float) -> int:
    """Run the writer, kill it some time after it opened the store; the last number it acknowledged, or 0."""
    command = [sys.executable, "-m", "tests.unit.stores.crash", mode, str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        lines = [line for line in process.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
    return int(lines[-1]) if lines else 0


def rows_and_offset(path: Path) -> tuple[dict[bytes, bytes], int | None, int | None]:
    with RocksDBStore(path, KIND, read_only=True) as store:
        return dict(store.all()), store.committed_offset(CHANGELOG), store.status


def check(mode: str, directory: Path, kills: int, seed: int) -> None:
    moments = random.Random(seed)
    acknowledged = 0
    for _ in range(kills):
        acknowledged = max(acknowledged, killed(mode, directory, moments.uniform(0, 0.12)))
        rows, offset, status = rows_and_offset(directory / "db")
        assert status == 1
        assert (offset or 0) >= acknowledged
        numbers = {int(value) for value in rows.values()}
        assert len(rows) in (0, len(KEYS))
        assert len(numbers) <= 1
        behind = (next(iter(numbers)) if numbers else 0) - (offset or 0)
        # Ingested rows may be one batch ahead of the offset, never behind it; the status says so (see below).
        assert behind == 0 if mode == "commit" else behind in (0, 1)
        with pytest.raises(Corrupted, match="not closed cleanly"):
            RocksDBStore(directory / "db", KIND, exactly_once=True).open()
    assert acknowledged > 0


@pytest.mark.parametrize("mode", ["commit", "ingest"])
def test_a_kill_leaves_data_and_offset_in_agreement(tmp_path: Path, mode: str) -> None:
    check(mode, tmp_path, kills=10, seed=11)


@pytest.mark.parametrize(("mode", "number"), [("before-write", 2), ("after-write", 3)])
def test_a_commit_is_one_write(tmp_path: Path, mode: str, number: int) -> None:
    """Nothing of a commit is there before its only write, and all of it after, flushed or not."""
    command = [sys.executable, "-m", "tests.unit.stores.crash", mode, str(tmp_path)]
    assert subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == -signal.SIGKILL
    rows, offset, _ = rows_and_offset(tmp_path / "db")
    assert offset == number
    assert rows == dict.fromkeys(KEYS, b"%d" % number)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("mode", ["commit", "ingest"])
def test_a_campaign_of_kills_leaves_data_and_offset_in_agreement(tmp_path: Path, mode: str, seed: int) -> None:
    check(mode, tmp_path, kills=25, seed=seed)
