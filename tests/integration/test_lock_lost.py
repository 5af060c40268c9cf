"""A real Kafka Streams that has lost its ``.lock`` and works on: every command is refused, and it goes on undisturbed.

A POSIX record lock falls when its process closes any descriptor of the file. A second instance in the same JVM that is
refused leaves such a descriptor to the garbage collector.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import Fenced
from statecore.formats.releases import GLOBAL
from statecore.statedir.open_stores import refuse_open_stores
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.store_places import store_places
from statecore.stores.lock_holder import lock_holder
from statecore.stores.rocksdb.directory_lock import writer_of
from tests.harness import topics
from tests.harness.broker import Broker
from tests.harness.command import statecore_here
from tests.harness.feeds import EVENTS
from tests.harness.kinds import GLOBALS
from tests.harness.rebuilding import PARTITIONS, KindsWorld, restored
from tests.harness.streams import StreamsJvm
from tests.harness.topics import Record

pytestmark = pytest.mark.integration


def lose_the_lock(world: KindsWorld) -> None:
    """A second instance is refused, and what it had opened is collected."""
    lock = world.directory / ".lock"
    assert getattr(lock_holder(lock), "process", None) == world.jvm.pid
    with pytest.raises(Exception, match="Unable to initialize state"):
        world.application()
    deadline = time.monotonic() + 180
    while lock_holder(lock) is not None:
        assert time.monotonic() < deadline, "the lock is still held"
        world.jvm.jvm.java.lang.System.gc()
        time.sleep(0.1)


def test_nothing_is_done_to_an_application_that_has_lost_its_lock(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path, tmp_path: Path
) -> None:
    world = KindsWorld(broker, streams_jvm, application_id, state_dir, "exactly_once_v2", GLOBALS)
    directory = StateDirectory(state_dir, application_id)
    repository, warm, spec_file = f"file://{tmp_path / 'repository'}", tmp_path / "warm", tmp_path / "stores.yaml"
    with world.application() as running:
        world.feed_all()
        world.write_spec(spec_file)
        assert statecore_here("repo", "init", "--repository", repository).returncode == 0
        assert statecore_here("standby", "--spec", spec_file, "--state-dir", warm, "--once").returncode == 0
        before = world.answers(running)
        lose_the_lock(world)

        # What RocksDB itself locks is held still: its list of locked paths refuses a second opening without a look.
        places = store_places(directory)
        assert {place.task for place in places} == {*directory.task_directories(), GLOBAL}
        holders = [writer_of(database) for place in places for database in place.databases]
        assert {holder.process if holder else None for holder in holders} == {streams_jvm.pid}
        for task in directory.every_task():
            with pytest.raises(Fenced, match=f"process {streams_jvm.pid} "):
                refuse_open_stores(directory.task_path(task))

        inodes = {task: directory.task_path(task).stat().st_ino for task in directory.every_task()}
        where: list[Any] = ["--spec", spec_file, "--state-dir", state_dir]
        migrate = ["--application-id", application_id, "--state-dir", state_dir, "--to", "4.2", "--apply"]
        for command in (
            ["backup", *where, "--repository", repository],
            ["standby", *where, "--once"],
            ["promote", *where, "--standby-dir", warm, "--apply"],
            ["recover-global", *where, "--apply"],
            ["migrate", *migrate, "--processing-guarantee", "exactly_once_v2"],
            ["restore", *where, "--replace", "--master", "local[1]"],
        ):
            done = statecore_here(*command)
            assert done.returncode == Fenced.exit_code, f"{command[0]}: {done.returncode} {done.stderr}"
            assert f"process {streams_jvm.pid}" in done.stderr, command[0]
        with pytest.raises(Fenced, match="has lost its lock"), directory.lock():
            pytest.fail("the lock was taken")
        told = statecore_here("info", "--state-dir", state_dir)
        assert f"in use by process {streams_jvm.pid}" in told.stdout
        for look in ("inspect", "doctor"):
            told = statecore_here(look, "--state-dir", state_dir, "--application-id", application_id)
            assert told.returncode == 0, told.stdout
            assert f"process {streams_jvm.pid} (java)" in told.stdout

        assert {task: directory.task_path(task).stat().st_ino for task in directory.every_task()} == inodes
        assert world.answers(running) == before
        later = [Record(b"0", b"later", partition, world.base + 1) for partition in range(PARTITIONS)]
        topics.produce(world.servers, world.inputs[EVENTS], later)
        world.wait({EVENTS})
        after = world.answers(running)
        assert running.state == "RUNNING"

    with world.application() as running:
        assert restored(running) == {}
        assert world.answers(running) == after
    with directory.lock():
        pass
