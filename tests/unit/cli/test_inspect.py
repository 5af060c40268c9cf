"""``statecore inspect --offset-sums``: a line for every task, and an exit code for the worst of them."""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from statecore.cli.main import main
from statecore.errors import Invalid
from statecore.formats.kinds import StoreKind
from statecore.spec.writer import spec_to_yaml
from statecore.stores.rocksdb.store import RocksDBStore
from tests.unit.tasks.startup_tasks_world import APPLICATION, KV, World, spec_of


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path / "state")
    world.put_task("0_0", 4)
    return world


@pytest.fixture
def look(world: World, capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, dict[str, Any]]]:
    def looked(*more: str) -> tuple[int, dict[str, Any]]:
        code = main(["inspect", "--state-dir", str(world.directory.state_dir), "--offset-sums", "--json", *more])
        document = json.loads(capfd.readouterr().out)
        assert (document["version"], document["exit_code"]) == (1, code)
        return code, document

    return looked


Look = Callable[..., tuple[int, dict[str, Any]]]


def states(document: dict[str, Any]) -> dict[str, str]:
    (application,) = document["applications"]
    return {one["task"]: one["state"] for one in application["tasks"]}


def damage(world: World, task: str) -> None:
    world.put_task(task, 4)
    (world.path(task) / "rocksdb" / KV / "CURRENT").unlink()


def test_tasks_that_are_well_empty_or_open_end_with_0(world: World, look: Look) -> None:
    world.path("0_1").mkdir()
    world.put_task("0_2", 4)
    with RocksDBStore(world.path("0_2") / "rocksdb" / KV, StoreKind.KEY_VALUE):
        code, document = look()
    assert code == 0
    assert states(document) == {"0_0": "known", "0_1": "empty", "0_2": "open"}


def test_a_task_of_another_application_exits_13_and_the_others_are_printed(world: World, look: Look) -> None:
    world.put_plain("0_1", 30, application="other")
    code, document = look()
    assert code == 13
    assert states(document) == {"0_0": "known", "0_1": "foreign"}
    assert document["applications"][0]["tasks"][1]["offset_sum"] == 0


def test_brokers_that_do_not_answer_in_time_leave_the_sums_without_ends(
    world: World, look: Look, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        declared = replace(spec_of(), bootstrap_servers=f"127.0.0.1:{silent.getsockname()[1]}")
        (tmp_path / "stores.yaml").write_text(spec_to_yaml(declared))
        began = time.monotonic()
        code, document = look("--spec", str(tmp_path / "stores.yaml"), "--timeout", "0.5")
    assert (code, time.monotonic() - began < 9) == (0, True)
    (application,) = document["applications"]
    assert application["not_asked"]


def test_a_timeout_that_cannot_be_waited_for_is_refused(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["inspect", "--state-dir", str(world.directory.state_dir), "--offset-sums", "--timeout", "0"]
    assert main(words) == Invalid.exit_code
    assert "duration-invalid" in capsys.readouterr().err


def test_damage_ends_with_12_whatever_else_there_is(world: World, look: Look) -> None:
    damage(world, "0_1")
    world.put_plain("0_2", 30, application="other")
    code, document = look()
    assert code == 12
    assert states(document) == {"0_0": "known", "0_1": "damaged", "0_2": "foreign"}
    assert look("--task", "0_0")[0] == 0


def test_damage_of_one_application_comes_before_what_is_wrong_with_another(world: World, look: Look) -> None:
    shutil.copytree(world.directory.path, world.directory.state_dir / "copied")
    damage(world, "0_1")
    code, document = look()
    assert code == 12
    found = {one["application_id"]: one["exit_code"] for one in document["applications"]}
    assert found == {APPLICATION: 12, "copied": 13}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_task_that_may_not_be_read_ends_with_13(world: World, look: Look) -> None:
    world.put_task("0_1", 4)
    world.path("0_1").chmod(0)
    try:
        code, document = look()
    finally:
        world.path("0_1").chmod(0o700)
    assert code == 13
    assert states(document) == {"0_0": "known", "0_1": "unreadable"}
