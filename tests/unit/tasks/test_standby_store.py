"""A store that follows its changelog stands where its databases say, and nowhere else."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from statecore.errors import Corrupted, Invalid, Retryable
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.segments import Segmentation
from statecore.formats.topic_partition import TopicPartition
from statecore.statedir.database_state import create_database, read_database_state
from statecore.statedir.task_layout import segments_in
from statecore.stores.legacy_offsets import read_offsets, write_offsets
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.tasks.standby_store import StandbyStore, StandbyStoreSpec
from tests.harness.raising import raises

CHANGELOG = TopicPartition("orders-store-changelog", 0)


def store_of(
    tmp_path: Path, kind: StoreKind, *, exactly_once: bool = False, keep: Callable[[Path], object] | None = None
) -> StandbyStore:
    segmentation = Segmentation(60_000, 60_000) if kind.is_segmented else None
    (tmp_path / "scratch").mkdir(exist_ok=True)
    (tmp_path / "0_0").mkdir(exist_ok=True)
    spec = StandbyStoreSpec("store", kind, CHANGELOG, segmentation)
    return StandbyStore(spec, tmp_path / "0_0", tmp_path / "scratch", exactly_once=exactly_once, keep=keep)


@pytest.mark.parametrize("exactly_once", [False, True])
@pytest.mark.parametrize("kind", [StoreKind.KEY_VALUE, StoreKind.WINDOW, StoreKind.GRACE_BUFFER])
def test_it_resumes_where_it_was_closed(tmp_path: Path, kind: StoreKind, exactly_once: bool) -> None:
    store = store_of(tmp_path, kind, exactly_once=exactly_once)
    store.open()
    assert (store.offset, store.position) == (OFFSET_UNKNOWN, 0)
    store.apply([], 7)
    store.close()
    again = store_of(tmp_path, kind, exactly_once=exactly_once)
    again.open()
    assert (again.offset, again.position) == (6, 7)
    again.close()


def test_an_end_behind_its_position_is_refused_by_value(tmp_path: Path) -> None:
    store = store_of(tmp_path, StoreKind.KEY_VALUE)
    store.open()
    store.apply([], 7)
    where = {"store": "store", "topic": CHANGELOG.topic, "partition": CHANGELOG.partition}
    with raises(Invalid, "offset-unexpected", **where, offset=6, expected=6):
        store.apply([], 6)
    store.close()


def test_a_grace_buffer_whose_database_is_gone_does_not_stand_where_its_file_says(tmp_path: Path) -> None:
    store = store_of(tmp_path, StoreKind.GRACE_BUFFER)
    store.open()
    store.apply([], 501)
    store.close()
    shutil.rmtree(store.path)
    again = store_of(tmp_path, StoreKind.GRACE_BUFFER)
    again.open()
    assert (again.offset, again.position) == (OFFSET_UNKNOWN, 0)
    again.close()


def test_a_grace_buffer_that_was_killed_during_its_first_read_keeps_its_rows(tmp_path: Path) -> None:
    store = store_of(tmp_path, StoreKind.GRACE_BUFFER)
    store.open()
    store.checkpoint()  # as a task does when it has opened its stores
    store.apply([], 7)
    store.close_after_failure()
    again = store_of(tmp_path, StoreKind.GRACE_BUFFER)
    again.open()
    assert (again.offset, again.position) == (6, 7)
    again.close()


@pytest.mark.parametrize("exactly_once", [False, True])
@pytest.mark.parametrize("left", ["*.sst", "*.log"])
@pytest.mark.parametrize("kind", [StoreKind.KEY_VALUE, StoreKind.WINDOW])
def test_files_of_rows_without_current_are_refused_and_stay(
    tmp_path: Path, kind: StoreKind, left: str, exactly_once: bool
) -> None:
    store = store_of(tmp_path, kind, exactly_once=exactly_once)
    name = "store/store.60000" if kind.is_segmented else "rocksdb/store"
    database = tmp_path / "0_0" / name
    database.parent.mkdir(parents=True, exist_ok=True)
    if kind.is_segmented:
        create_database(tmp_path / "0_0" / "store" / "store.0", kind, {CHANGELOG: 6})
    with RocksDBStore(database, kind, create=True) as made:
        made.put(b"k" * 30, b"row")
        made.commit({CHANGELOG: 6})
    if left == "*.log":
        for file in database.glob("*.sst"):
            file.unlink()
        next(database.glob("*.log")).write_bytes(b"rows that were not flushed")
    (database / "CURRENT").unlink()
    before = sorted((file.name, file.read_bytes()) for file in database.iterdir())
    with pytest.raises(Corrupted, match="no CURRENT") as raised:
        store.open()
    assert raised.value.context["store"] == "store"
    assert not store.is_open
    assert sorted((file.name, file.read_bytes()) for file in database.iterdir()) == before


@pytest.mark.parametrize("lost", ["CURRENT", "*.sst", "MANIFEST-*"])
def test_an_expired_partly_deleted_segment_is_kept_aside_with_the_next_rows(tmp_path: Path, lost: str) -> None:
    kept: list[str] = []

    def keep(path: Path) -> None:
        kept.append(path.rename(tmp_path / path.name).name)

    store = store_of(tmp_path, StoreKind.WINDOW, keep=keep)
    for segment in (0, 60_000, 300_000):
        with RocksDBStore(tmp_path / "0_0" / "store" / f"store.{segment}", StoreKind.WINDOW, create=True) as made:
            made.put(b"k" * 30, b"row")
            made.commit({CHANGELOG: 6})
    for file in (tmp_path / "0_0" / "store" / "store.60000").glob(lost):
        file.unlink()
    store.open()
    assert (store.offset, store.segments, kept) == (6, (5,), [])
    store.apply([], 8)
    store.close()
    assert sorted(kept) == ["store.0", "store.60000"]
    assert databases(store) == {"store.300000": 7}


def test_a_segment_that_expires_later_is_deleted_at_once(tmp_path: Path) -> None:
    """Else a standby would keep a week of expired segments, however short the retention is."""
    kept: list[Path] = []
    for number in (19, 20):
        segment(tmp_path, number, 4)
    store = store_of(tmp_path, StoreKind.WINDOW, keep=kept.append)
    store.open()
    for end, stream_time in ((6, 6_000_000), (7, 9_000_000)):
        store.apply([], end, stream_time=stream_time)
    store.close()
    assert (kept, list(databases(store))) == ([], ["store.9000000"])


def test_where_a_segment_had_expired_the_others_of_that_time_are_kept_aside_too(tmp_path: Path) -> None:
    """The declared retention may be too short."""
    kept: list[str] = []

    def keep(path: Path) -> None:
        kept.append(path.rename(tmp_path / path.name).name)

    for number in (3, 20):
        segment(tmp_path, number, 4)
    store = store_of(tmp_path, StoreKind.WINDOW, keep=keep)
    store.open()
    store.apply([], 6, stream_time=6_000_000)
    store.apply([], 7, stream_time=9_000_000)
    store.close()
    assert kept == ["store.1200000", "store.180000"]
    assert list(databases(store)) == ["store.9000000"]


@pytest.mark.parametrize("exactly_once", [False, True])
def test_only_a_grace_buffer_with_a_damaged_file_is_rebuilt(tmp_path: Path, exactly_once: bool) -> None:
    store = store_of(tmp_path, StoreKind.GRACE_BUFFER, exactly_once=exactly_once)
    store.open()
    store.apply([], 7)
    store.close()
    file = tmp_path / "0_0" / ".checkpoint_store"
    file.write_bytes(b"\0garbage")
    for _ in range(2):
        store.open()
        assert store.offset is None
        store.close()
        assert file.read_bytes() == b"\0garbage"
    store.open()
    store.reset()
    assert store.offset == OFFSET_UNKNOWN
    store.apply([], 9)
    store.close()
    assert read_offsets(file) == {CHANGELOG: 8}


def test_a_database_of_a_killed_creation_is_recreated(tmp_path: Path) -> None:
    store = store_of(tmp_path, StoreKind.KEY_VALUE)
    store.path.mkdir(parents=True)
    for name in ("LOCK", "LOG", "IDENTITY", "MANIFEST-000001"):
        (store.path / name).touch()
    store.open()
    assert store.offset == OFFSET_UNKNOWN
    store.close()


def databases(store: StandbyStore) -> dict[str, int | None]:
    """The segments on the disk, each with its offset."""
    return {
        one.path.name: read_database_state(one.path).offsets.get(CHANGELOG)
        for one in segments_in(store.path, store.name)
    }


def segment(tmp_path: Path, number: int, offset: int | None) -> Path:
    path = tmp_path / "0_0" / "store" / f"store.{number * 60_000}"
    path.parent.mkdir(parents=True, exist_ok=True)
    create_database(path, StoreKind.WINDOW, {} if offset is None else {CHANGELOG: offset})
    return path


FOLLOWED = [kind for kind in StoreKind if kind.can_be_built and not kind.is_versioned]


def opened_with(tmp_path: Path, offsets: dict[int, int | None]) -> StandbyStore:
    for number, offset in offsets.items():
        segment(tmp_path, number, offset)
    store = store_of(tmp_path, StoreKind.WINDOW)
    store.open()
    return store


@pytest.mark.parametrize("exactly_once", [False, True])
@pytest.mark.parametrize("kind", FOLLOWED)
def test_a_store_of_every_kind_follows_and_is_emptied(tmp_path: Path, kind: StoreKind, exactly_once: bool) -> None:
    store = store_of(tmp_path, kind, exactly_once=exactly_once)
    store.open()
    store.apply([], 5, stream_time=120_000)
    kept: list[Path] = []

    def keep(path: Path) -> None:
        kept.append(path.rename(tmp_path / "kept"))

    store.reset(keep)
    assert (store.offset, store.position, store.has_rows) == (OFFSET_UNKNOWN, 0, False)
    assert kept[0].is_dir()
    store.apply([], 3)
    store.close()
    again = store_of(tmp_path, kind, exactly_once=exactly_once)
    again.open()
    assert again.offset == 2
    again.close()


@pytest.mark.parametrize("offsets", [{11: 3, 12: 9}, {11: 9, 12: 3}])
def test_segments_are_set_to_the_least_of_their_offsets(tmp_path: Path, offsets: dict[int, int | None]) -> None:
    store = opened_with(tmp_path, offsets)
    assert (store.offset, store.segments, store.stream_time) == (3, (11, 12), 720_000)
    store.close()
    assert set(databases(store).values()) == {3}


def test_a_store_with_rows_and_a_segment_without_an_offset_has_an_unknown_offset(tmp_path: Path) -> None:
    path = segment(tmp_path, 10, 5)
    with RocksDBStore(path, StoreKind.WINDOW) as one:
        one.put(b"k" + (600_000).to_bytes(8, "big") + b"\0\0\0\0", b"v")
        one.commit({CHANGELOG: 5})
    store = opened_with(tmp_path, {11: None})
    assert store.offset is None
    store.close()


def test_a_segment_that_has_expired_does_not_set_the_store_back(tmp_path: Path) -> None:
    store = opened_with(tmp_path, {3: 1, 20: 9, 21: 9})
    assert store.offset == 9
    store.apply([], 11)
    store.close()
    assert databases(store) == {"store.1200000": 10, "store.1260000": 10}


def test_a_segment_that_expires_while_the_store_is_open_is_deleted(tmp_path: Path) -> None:
    kept: list[Path] = []
    for number in (10, 11):
        segment(tmp_path, number, 4)
    store = store_of(tmp_path, StoreKind.WINDOW, keep=kept.append)
    store.open()
    store.apply([], 6, stream_time=6_000_000)
    store.close()
    assert (list(databases(store)), kept) == (["store.6000000"], [])


@pytest.mark.parametrize("opened", ["the databases", "all"])
def test_a_grace_buffer_that_was_not_settled_leaves_its_file(tmp_path: Path, opened: str) -> None:
    store = store_of(tmp_path, StoreKind.GRACE_BUFFER)
    store.open()
    store.apply([], 7)
    store.close()
    write_offsets(tmp_path / "0_0" / ".checkpoint_store", {CHANGELOG: 3})  # as another process does
    if opened == "all":
        store.open()
        assert store.offset == 3
    else:
        store.open_databases()
    store.close()
    assert read_offsets(tmp_path / "0_0" / ".checkpoint_store") == {CHANGELOG: 3}


def test_expired_segments_go_and_one_stays(tmp_path: Path) -> None:
    store = opened_with(tmp_path, {10: 4, 11: 4})
    store.apply([], 6, stream_time=6_000_000)
    assert store.segments == (100,)
    store.close()
    assert databases(store) == {"store.6000000": 5}


@pytest.mark.parametrize("broken", ["close", "take away"])
def test_an_expired_segment_that_cannot_be_closed_or_taken_away_is_neither_forgotten_nor_closed_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    store = opened_with(tmp_path, {10: 4, 11: 4})
    closed: list[Path] = []
    close = RocksDBStore.close

    def fails(self: RocksDBStore) -> None:
        closed.append(self._path)
        close(self)
        raise Retryable("The disk failed.", code="test-error", action="Later.")

    def full(self: Path, target: Path) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device", str(self))

    with monkeypatch.context() as patched:
        if broken == "close":
            patched.setattr(RocksDBStore, "close", fails)
            store.apply([], 6, stream_time=720_000)
            assert closed == [tmp_path / "0_0" / "store" / "store.600000"]
        else:
            store._create_database(12)
            patched.setattr(Path, "rename", full)
            with pytest.raises(OSError, match="No space"):
                store.apply([], 6, stream_time=720_000)
            assert (store.offset, "store.600000" in databases(store)) == (5, True)
    store.apply([], 7, stream_time=720_001)
    store.close()
    assert "store.600000" not in databases(store)
    assert set(databases(store).values()) == {6}


def test_a_store_that_was_dropped_is_opened_where_it_was_committed(tmp_path: Path) -> None:
    store = store_of(tmp_path, StoreKind.KEY_VALUE, exactly_once=True)
    store.open()
    store.apply([], 8)
    store.close_after_failure()
    assert not store.is_open
    shutil.rmtree(store.path)
    store.open()
    assert store.offset == OFFSET_UNKNOWN
    store.close()


def test_a_segment_of_another_interval_is_refused(tmp_path: Path) -> None:
    segment(tmp_path, 10, 4).rename(tmp_path / "0_0" / "store" / "store.600001")
    store = store_of(tmp_path, StoreKind.WINDOW)
    with raises(Invalid, "segment-interval-mismatch", store="store"):
        store.open()
    assert not store.is_open
