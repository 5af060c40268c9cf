"""An application's directory with real databases, and a task over them, for tests of what a start finds.

``python -m tests.unit.tasks.startup_tasks_world start|clean STATE_DIR FAULT``: runs one of them and dies at a fault
point.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from statecore.errors import Corrupted
from statecore.faults import InjectedFault
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import STATUS_OPEN
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import ApplicationSpec, ProcessingGuarantee, StoreSpec
from statecore.standby.state_cleaner import clean_unowned
from statecore.statedir.database_state import create_database
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.task_layout import databases_of
from statecore.stores.legacy_offsets import write_offsets
from statecore.stores.rocksdb.manifest_guard import remove_guard_record
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.tasks.offset_sums import Task
from statecore.tasks.startup_tasks import StartupTasks
from tests.harness.filesystems import refusing

APPLICATION = "app"
KV, WINDOW = "by-id", "per-hour"


def spec_of(guarantee: ProcessingGuarantee = ProcessingGuarantee.EXACTLY_ONCE_V2) -> ApplicationSpec:
    """Subtopology 0 with a key-value and a window store, and an in-memory and an unlogged one, which do not count."""
    stores = (
        StoreSpec(KV, StoreKind.KEY_VALUE, 0, changelog(KV).topic),
        StoreSpec(WINDOW, StoreKind.WINDOW, 0, changelog(WINDOW).topic, retention_ms=7_200_000),
        StoreSpec("memory", StoreKind.IN_MEMORY, 0, changelog("memory").topic),
        StoreSpec("scratch", StoreKind.KEY_VALUE, 0, "none"),
    )
    everywhere = (StoreSpec("names", StoreKind.KEY_VALUE, -1, "names"),)
    return ApplicationSpec(APPLICATION, "nowhere:9092", guarantee, stores, everywhere)


def changelog(store: str, partition: int = 0, application: str = APPLICATION) -> TopicPartition:
    """The changelog partition of a store."""
    return TopicPartition(f"{application}-{store}-changelog", partition)


def partition_of(task: str) -> int:
    """Its number."""
    return int(task.rpartition("_")[2])


class World:
    """The directory of one application."""

    def __init__(self, state_dir: Path) -> None:
        self.directory = StateDirectory(state_dir, APPLICATION)

    def path(self, task: str) -> Path:
        """A task's directory."""
        return self.directory.path / task

    def put_plain(self, task: str, offset: int | None, store: str = KV, application: str = APPLICATION) -> Path:
        """A store that is one database."""
        at = changelog(store, partition_of(task), application)
        return self._put(self.path(task) / "rocksdb" / store, at, offset)

    def put_segment(self, task: str, start: int, offset: int | None, store: str = WINDOW) -> Path:
        """A segment of a store of windows."""
        at = changelog(store, partition_of(task))
        return self._put(self.path(task) / store / f"{store}.{start}", at, offset)

    def put_task(self, task: str, offset: int) -> None:
        """Both stores, at one offset."""
        self.put_plain(task, offset)
        self.put_segment(task, 0, offset)

    def leave_open(self, task: str) -> None:
        """Its key-value store as Kafka Streams leaves one that it did not close, and without a word of ours."""
        path = self.path(task) / "rocksdb" / KV
        with RocksDBStore(path, StoreKind.KEY_VALUE) as store:
            store._write_status(STATUS_OPEN)
            store._rows_ahead = True  # so that closing it leaves the status
        remove_guard_record(path)

    def write_checkpoint(self, task: str, offsets: Mapping[TopicPartition, int]) -> None:
        """``.checkpoint``."""
        write_offsets(self.path(task) / ".checkpoint", offsets)

    def _put(self, path: Path, at: TopicPartition, offset: int | None) -> Path:
        create_database(path, StoreKind.KEY_VALUE, {} if offset is None else {at: offset})
        return path


class OpenStores(Task):
    """A task whose databases are really open, and that says what they say."""

    def __init__(self, world: World, task: str, log: list[str]) -> None:
        self._name, self._log = task, log
        places = [*databases_of(world.path(task) / "rocksdb" / KV), *databases_of(world.path(task) / WINDOW)]
        self.stores: list[RocksDBStore] = []
        try:
            for path in places:
                store = RocksDBStore(path, StoreKind.KEY_VALUE)
                store.open()
                self.stores.append(store)
        except BaseException:
            self.close()
            raise
        log.append(f"open {task}")

    @property
    def name(self) -> str:
        return self._name

    def offsets(self) -> Mapping[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for name in (KV, WINDOW):
            at = changelog(name, partition_of(self._name))
            said = [one for store in self.stores if (one := store.committed_offset(at)) is not None]
            if said:
                found[at] = min(said)
        return found

    def close(self) -> None:
        for store in self.stores:
            store.close()
        self._log.append(f"close {self._name}")


def lock_lost(world: World, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """The lock is lost while the system does something, and that fails for another reason."""

    def lost(_: Path) -> bool:
        (world.directory.path / ".lock").unlink(missing_ok=True)
        return True

    refusing(monkeypatch, call, errno.EIO, lost)


def opener(world: World, log: list[str], corrupt: str = "") -> Callable[[str], Task]:
    """Opens tasks; one of them is corrupt, while it has a directory."""

    def open_task(task: str) -> Task:
        if task == corrupt and world.path(task).is_dir():
            raise Corrupted(f"{task} is corrupt.", code="test-error", action="None.")
        return OpenStores(world, task, log)

    return open_task


def main(what: str, state_dir: Path, fault: str, nth: int) -> None:
    """Die at a fault point."""
    world, faults = World(state_dir), InjectedFault(fault, "kill", nth)
    with world.directory.lock():
        if what == "start":
            tasks = StartupTasks(world.directory, spec_of(), opener(world, [], "0_1"), faults=faults)
            tasks.start()
            tasks.close_rest()
        else:
            elsewhere = {"0_0": 1000, "0_1": 1000}
            later = 4_000_000_000.0
            clean_unowned(
                world.directory,
                (),
                elsewhere,
                spec=spec_of(),
                cleanup_delay_ms=600_000,
                clock=lambda: later,
                faults=faults,
            )
    raise SystemExit(f"{fault} was not reached")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
