"""What a close leaves for the next start: believed as long as the databases are as they were, and no longer."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from statecore.formats.kinds import StoreKind
from statecore.statedir.database_state import create_database
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.store_on_disk import read_store
from statecore.statedir.task_layout import stores_in
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.tasks.clean_close_record import CleanCloseRecord
from statecore.tasks.offset_sums import Source, read_task_sum
from statecore.tasks.startup_tasks import StartupSettings, StartupTasks
from statecore.tasks.task_offsets import MeantFor
from tests.harness.filesystems import refusing
from tests.unit.tasks.standby_world import STORE, TASK, World, changelog_of, spec_of, store_of

CLICKS = "clicks"
HOUR_MS = 3_600_000


def closed(tmp_path: Path, meant_for: MeantFor = MeantFor.KAFKA_STREAMS_4_3) -> World:
    """A task with a store that is one database, and one of windows, both at offset 9, closed."""
    spec = spec_of(store_of(STORE), store_of(CLICKS, StoreKind.WINDOW), exactly_once=True)
    world = World(tmp_path / "state", spec)
    with world.directory.lock():
        stores = world.stores()
        stores.open()
        for store in (STORE, CLICKS):
            stores.apply(store, [], 10, stream_time=HOUR_MS)
        stores.close(meant_for)
    return world


def sources(world: World) -> dict[str, tuple[Source, int | None]]:
    return {one.store: (one.source, one.offset) for one in read_task_sum(world.directory, TASK, world.spec).stores}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return closed(tmp_path)


def databases(world: World, store: str) -> tuple[Path, ...]:
    return next(one.databases for one in world.directory.stores(TASK) if one.store == store)


def test_what_was_closed_for_kafka_streams_is_known_without_opening_it_and_leaves_no_checkpoint(world: World) -> None:
    assert not (world.directory.task_path(TASK) / ".checkpoint").exists()
    assert sources(world) == {STORE: (Source.NOTE, 9), CLICKS: (Source.NOTE, 9)}
    assert read_task_sum(world.directory, TASK).sum == 20, "without a spec, too"


def test_who_only_reads_the_databases_changes_nothing(world: World) -> None:
    for store in world.directory.stores(TASK):
        assert read_store(store).damage is None
    with RocksDBStore(databases(world, STORE)[0], StoreKind.KEY_VALUE, read_only=True):
        pass
    assert sources(world) == {STORE: (Source.NOTE, 9), CLICKS: (Source.NOTE, 9)}


def write(world: World) -> None:
    with RocksDBStore(databases(world, STORE)[0], StoreKind.KEY_VALUE) as store:
        store.commit({changelog_of(STORE): 3})


def rewritten(path: Path, content: bytes) -> None:
    """Other bytes, which nobody sees who does not read them."""
    status = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def replace(world: World) -> None:
    """By a copy of an earlier moment, with the times of its files."""
    (path,) = databases(world, STORE)
    shutil.copytree(path, path.with_name("copy"))
    with RocksDBStore(path.with_name("copy"), StoreKind.KEY_VALUE) as store:
        store.commit({changelog_of(STORE): 3})
    shutil.copystat(path / "CURRENT", path.with_name("copy") / "CURRENT")
    shutil.rmtree(path)
    path.with_name("copy").rename(path)


def lose(world: World) -> None:
    """A file of rows."""
    next(databases(world, STORE)[0].glob("*.sst")).unlink()


def tear(world: World) -> None:
    """The end of the MANIFEST."""
    manifest = next(databases(world, STORE)[0].glob("MANIFEST-*"))
    manifest.write_bytes(manifest.read_bytes()[:-20])


@pytest.mark.parametrize("change", [lose, tear])
def test_a_database_that_has_lost_something_is_found_by_who_looks_into_it(
    world: World, change: Callable[[World], None]
) -> None:
    change(world)
    assert sources(world)[STORE][0] is not Source.NOTE
    assert sources(world)[CLICKS] == (Source.NOTE, 9)


@pytest.mark.parametrize("change", [write, replace])
def test_a_database_that_somebody_has_written_to_or_put_in_its_place_is_asked_itself(
    world: World, change: Callable[[World], None]
) -> None:
    change(world)
    assert sources(world) == {STORE: (Source.DATABASES, 3), CLICKS: (Source.NOTE, 9)}
    note = CleanCloseRecord(world.directory, TASK)
    note.read()
    assert note.untouched == set(databases(world, CLICKS))


def test_a_store_with_another_segment_or_one_less_is_asked_itself(world: World) -> None:
    (segment,) = databases(world, CLICKS)
    other = segment.with_name(f"{CLICKS}.{int(segment.name.rpartition('.')[2]) + HOUR_MS}")
    shutil.copytree(segment, other)
    with RocksDBStore(other, StoreKind.WINDOW) as store:
        store.commit({changelog_of(CLICKS): 4})
    assert sources(world)[CLICKS] == (Source.DATABASES, 4)
    shutil.rmtree(segment)
    assert sources(world)[CLICKS] == (Source.DATABASES, 4)
    shutil.rmtree(other)
    assert sources(world)[CLICKS] == (Source.NOBODY, None)


def test_a_note_that_is_damaged_says_nothing(world: World) -> None:
    note = world.directory.work_path / "standby" / TASK / "closed.json"
    whole = note.read_bytes()
    note.write_bytes(whole.replace(b'"offset": 9', b'"offset": 8').replace(b'"offset":9', b'"offset":8'))
    assert note.read_bytes() != whole
    assert sources(world) == {STORE: (Source.DATABASES, 9), CLICKS: (Source.DATABASES, 9)}


def test_a_task_that_is_open_or_was_killed_is_not_known_by_the_note_of_its_last_close(world: World) -> None:
    with world.directory.lock():
        stores = world.stores()
        stores.open()
        stores.apply(STORE, [], 12)
        for one in stores.stores:
            one.drop()  # as a kill leaves them: no note, and .checkpoint as it was written last
    (world.directory.task_path(TASK) / ".checkpoint").unlink()
    assert sources(world)[STORE] == (Source.DATABASES, 11)


def test_a_store_that_could_not_be_closed_is_not_in_the_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = closed(tmp_path)
    with world.directory.lock():
        stores = world.stores()
        stores.open()
        failing = stores.store(STORE)
        close = failing.close

        def fail() -> None:
            close()
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(failing, "close", fail)
        with pytest.raises(Exception, match="could not be closed"):
            stores.close()
    assert sources(world) == {STORE: (Source.DATABASES, 9), CLICKS: (Source.NOTE, 9)}


def test_a_grace_buffer_is_not_in_the_note_because_its_offset_lies_in_a_file(tmp_path: Path) -> None:
    world = World(tmp_path / "state", spec_of(store_of("buffer", StoreKind.GRACE_BUFFER)))
    with world.directory.lock():
        stores = world.stores()
        stores.open()
        stores.apply("buffer", [], 10, stream_time=HOUR_MS)
        stores.close()
    assert sources(world) == {"buffer": (Source.FILE, 9)}


def test_a_disk_that_takes_no_note_keeps_no_task_from_being_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing(monkeypatch, "replace", errno.ENOSPC, lambda path: path.name == "closed.json")
    assert sources(closed(tmp_path)) == {STORE: (Source.DATABASES, 9), CLICKS: (Source.DATABASES, 9)}


def test_a_start_above_its_bound_opens_no_database_that_was_closed_here_last(
    world: World,
) -> None:
    def start() -> int:
        with world.directory.lock():
            tasks = StartupTasks(world.directory, world.spec, lambda _: 1 / 0, settings=StartupSettings(0))
            return tasks.start()[TASK].sum

    manifests = {path: path.read_bytes() for path in world.directory.path.rglob("MANIFEST-*")}
    for path in manifests:
        rewritten(path, bytes(len(manifests[path])))  # who opens a database sees no more than damage
    assert start() == 20
    for path, content in manifests.items():
        rewritten(path, content)
    write(world)
    assert start() == 14


def test_a_store_that_has_lost_one_of_its_segments_is_not_known_by_its_note(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path, "app")
    at = changelog_of(CLICKS)
    segments = [directory.task_path(TASK) / CLICKS / f"{CLICKS}.{start}" for start in (0, HOUR_MS)]
    for segment in segments:
        create_database(segment, StoreKind.WINDOW, {at: 9})
    (directory.work_path / "standby" / TASK).mkdir(parents=True)
    note = CleanCloseRecord(directory, TASK)
    (place,) = stores_in(directory.task_path(TASK))
    note.write({place.name: (at, 9)})
    note.read()
    assert note.offset(place, at) == 9
    shutil.rmtree(segments[1])
    (place,) = stores_in(directory.task_path(TASK))
    assert note.offset(place, at) is None
