"""Application and restore as a user other than root, whatever the umask."""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import jars
from tests.harness.another_user import AnotherUser, another_user
from tests.harness.broker import Broker
from tests.harness.streams import StreamsJvm
from tests.harness.tables import World

pytestmark = [pytest.mark.integration]

ROOT = Path(__file__).parents[2]


def modes(directory: Path) -> dict[str, str]:
    """Mode and owner of every directory by its name, and of all files of a suffix."""
    found = {}
    for path in (directory, *directory.rglob("*")):
        if ".statecore" not in path.parts:
            seen = path.lstat()
            relative = str(path.relative_to(directory))
            name = relative if path.is_dir() else f"{Path(relative).parent}/*{path.suffix or path.name.split('-')[0]}"
            found[name] = f"{stat.S_IMODE(seen.st_mode):o} {seen.st_uid} {seen.st_gid}"
    return found


def restore(world: World, spec: Path, user: AnotherUser | None) -> None:
    """Rebuild by the command line, as this user or as root."""
    words = [sys.executable, "-m", "statecore.cli.main", "restore", "--json", "--engine", "processes"]
    words += ["--spec", str(spec), "--state-dir", str(world.state_dir)]
    command, environment = (user.command(*words), user.environment) if user else (words, dict(os.environ))
    environment["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, cwd=world.state_dir, timeout=240
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("umask", ["077", pytest.param("002", marks=pytest.mark.full)])
def test_what_a_user_other_than_root_rebuilds_its_application_opens(
    broker: Broker, application_id: str, tmp_path: Path, umask: str
) -> None:
    with another_user(umask) as user:
        java = user.home / "java"
        java.write_text(f'#!/bin/sh\nexec {shlex.join(user.command(jars.java()))} "$@"\n')
        java.chmod(0o755)
        with StreamsJvm(tmp_path / "streams.log", java=str(java)) as jvm:
            world = World(broker, jvm, application_id, user.home / "state", "exactly_once_v2")
            spec = user.home / "stores.yaml"
            spec.write_text(json.dumps(world.request().spec))
            world.feed()
            before = world.live()
            theirs = modes(world.state_dir / application_id)
            assert {mode.split()[1] for mode in theirs.values()} == {str(user.uid)}
            world.lose()
            restore(world, spec, user)
            ours = modes(world.state_dir / application_id)
            assert {path for path in theirs if path.endswith(("rocksdb/plain", "*.sst"))} <= ours.keys()
            assert {mode.split()[1] for mode in ours.values()} == {str(user.uid)}
            more_open = {
                path: (ours[path], theirs[path])
                for path in ours.keys() & theirs.keys()
                if int(ours[path].split()[0], 8) & ~int(theirs[path].split()[0], 8)
            }
            assert more_open == {}
            assert world.reopen() == (before, 0)
            # By root, in the same place: what it makes belongs to the user.
            world.lose()
            restore(world, spec, None)
            assert {mode.split()[1] for mode in modes(world.state_dir / application_id).values()} == {str(user.uid)}
            assert world.reopen() == (before, 0)
