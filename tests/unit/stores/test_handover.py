"""One store, several processes: the one that has it is not disturbed, the others are told so, and nothing is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from statecore.stores.rocksdb.store import RocksDBStore
from tests.unit.stores.handover import CHANGELOG, KIND

_MANY = 100


def started(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.unit.stores.handover", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def answer(process: subprocess.Popen[str], seconds: float) -> dict[str, Any]:
    out, errors = process.communicate(timeout=seconds)
    assert process.returncode == 0, errors
    said: dict[str, Any] = json.loads(out)
    return said


def handed_over(directory: Path, *, writers: int, readers: int, rounds: int, seconds: float) -> None:
    path = directory / "0_0" / "rocksdb" / "counts"
    writing = [started("write", path, rounds) for _ in range(writers)]
    reading = [started("read", path, directory / "end") for _ in range(readers)]
    try:
        said = [answer(process, seconds) for process in writing]
        (directory / "end").touch()
        seen = [answer(process, seconds) for process in reading]
    finally:
        for process in (*writing, *reading):
            process.kill()
            process.communicate()
    examples = {name: text for one in (*said, *seen) for name, text in one["examples"].items()}
    met = sum((Counter(one["counts"]) for one in said), Counter[str]())
    assert met.keys() <= {"open: Fenced"}, examples
    if writers * rounds >= _MANY:
        assert met["open: Fenced"] > 0  # else nobody ever waited; few may pass each other
    views = sum((Counter(one["counts"]) for one in seen), Counter[str]())
    assert views.keys() <= {"opened", "wrong", "open: Fenced", "open: NotFound"}, examples  # before it is made
    assert views["wrong"] == 0
    assert (views["opened"] > 0) == (readers > 0)
    names = {file.name for file in path.iterdir()}
    assert not {name for name in names if name.startswith("LOG") or "rocksdict" in name}
    assert {file.stat().st_mode & 0o777 for file in path.iterdir()} == {0o640}
    with RocksDBStore(path, KIND, exactly_once=True) as store:
        assert store.get(b"count") == b"%d" % (writers * rounds)
        assert store.committed_offset(CHANGELOG) == writers * rounds
        store.verify()


def test_processes_hand_a_store_over(tmp_path: Path) -> None:
    handed_over(tmp_path, writers=3, readers=0, rounds=15, seconds=300)


def test_a_store_is_read_while_processes_hand_it_over(tmp_path: Path) -> None:
    handed_over(tmp_path, writers=2, readers=1, rounds=15, seconds=300)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("writers", "readers", "rounds"), [(4, 0, 250), (4, 2, 100)])
def test_a_campaign_of_processes_hands_a_store_over(tmp_path: Path, writers: int, readers: int, rounds: int) -> None:
    handed_over(tmp_path, writers=writers, readers=readers, rounds=rounds, seconds=1800)
