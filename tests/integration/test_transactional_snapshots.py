"""Snapshots of exactly-once applications with transactional stores: while they run, and after they were killed.

Transactions are open all the time, some are aborted, and RocksDB flushes in the middle of them.
"""

from __future__ import annotations

import gc
import random
import time
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import Fenced, Invalid, Retryable
from statecore.formats.kinds import StoreKind
from statecore.jobs.backup.report import BackupOutcome, BackupReport
from statecore.jobs.backup.request import BackupRequest
from statecore.jobs.backup.run import run_backup
from statecore.jobs.fetch.request import FetchRequest
from statecore.jobs.fetch.run import run_fetch
from statecore.repository.repository import create_repository
from tests.harness import directory
from tests.harness.aborting import STORES, VERSIONED, AbortingApplication
from tests.harness.broker import Broker
from tests.harness.case_selection import one_of
from tests.harness.flushing import flush
from tests.harness.streams import StreamsJvm, leave_group
from tests.harness.topics import Record

pytestmark = pytest.mark.integration

Rows = dict[bytes, bytes]
Key = tuple[str, int]


def snapshot(world: AbortingApplication, url: str, *stores: str, **changes: Any) -> BackupReport:
    request = BackupRequest(spec=world.spec(), state_dir=str(world.state_dir), repository=url, stores=stores, **changes)
    return run_backup(request)


def snapshot_of_running(
    world: AbortingApplication, url: str, *, lowered: bool = False, timeout: float = 120
) -> BackupReport:
    """A new snapshot, as soon as there is one: what was flushed may not be enough yet, or a task be between owners.

    Args:
        lowered: whether segments of a store must have been flushed at different times.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            report = snapshot(world, url, *STORES)
            if report.outcome is BackupOutcome.PUBLISHED and (
                not lowered or any(store.written for store in report.stores)
            ):
                assert report.running
                return report
        except (Invalid, Fenced, Retryable):
            if time.monotonic() > deadline:
                raise
        assert time.monotonic() < deadline
        time.sleep(0.2)


def can_be_taken(world: AbortingApplication, url: str) -> bool:
    try:
        return snapshot(world, url, *STORES, plan_only=True).outcome is BackupOutcome.PLANNED
    except Invalid:
        return False


def fetch(url: str, world: AbortingApplication, state_dir: Path, report: BackupReport) -> None:
    run_fetch(
        FetchRequest(
            repository=url,
            application_id=world.application_id,
            state_dir=str(state_dir),
            snapshot=report.snapshot,
        )
    )


def offsets_of(report: BackupReport) -> dict[Key, int]:
    return {(store.store, int(store.task[-1])): next(iter(store.offsets.values())) for store in report.stores}


def rows_of(state_dir: Path) -> dict[Key, Rows]:
    """The rows of each store, of all its segments."""
    found: dict[Key, Rows] = {}
    for (task, name), families in directory.read_application(state_dir).items():
        store = name.partition("/")[0]
        if store in STORES:
            rows = dict(families[STORES[store].data_column_family])
            found.setdefault((store, int(task[-1])), {}).update(rows)
    return found


def row(kind: StoreKind, record: Record) -> bytes | None:
    """The row that a record of the changelog is restored as."""
    if record.value is None or kind in (StoreKind.KEY_VALUE, StoreKind.SESSION):
        return record.value
    assert record.timestamp is not None
    return record.timestamp.to_bytes(8) + record.value


def replayed(store: str, records: list[Record], offset: int) -> dict[bytes, bytes | None]:
    """Rows, and deletes, as a replay up to an offset makes them."""
    return {one.key or b"": row(STORES[store], one) for one in records if (one.offset or 0) <= offset}


def check_rows(
    rows: dict[Key, Rows], offsets: dict[Key, int], committed: dict[Key, list[Record]], aborted: set[bytes]
) -> None:
    """Every row is of a committed record: of its offset, or of one that is restored again."""
    assert rows.keys() == offsets.keys() == committed.keys()
    for (store, partition), found in rows.items():
        records, offset = committed[store, partition], offsets[store, partition]
        allowed = {(key, value) for key, value in replayed(store, records, offset).items() if value is not None}
        allowed |= {(one.key or b"", row(STORES[store], one) or b"") for one in records if (one.offset or 0) > offset}
        assert set(found.items()) <= allowed
        assert not any(value.endswith(one) for value in found.values() for one in aborted)


def check_exact(rows: dict[Key, Rows], offsets: dict[Key, int], committed: dict[Key, list[Record]]) -> None:
    """What was not restored since is one commit: rows and offset agree to the record."""
    for key, found in rows.items():
        if not STORES[key[0]].is_segmented:
            expected = replayed(key[0], committed[key], offsets[key])
            assert found == {key: value for key, value in expected.items() if value is not None}


def tails(offsets: dict[Key, int], committed: dict[Key, list[Record]]) -> dict[Key, int]:
    """Committed records behind each offset."""
    return {key: sum(1 for one in committed[key] if (one.offset or 0) > offset) for key, offset in offsets.items()}


def restored_of(running: Any) -> dict[Key, int]:
    """Records that were restored of each store but the versioned one."""
    found = running.restored_records()
    return {(store, p): found.get((store, p), 0) for _, store, p in running.store_tasks() if store != VERSIONED}


@pytest.fixture
def url(tmp_path: Path) -> str:
    made = (tmp_path / "repository").as_uri()
    create_repository(made)
    return made


@pytest.mark.parametrize("aborts", one_of([1, 3]))
def test_snapshots_of_an_application_that_runs_and_aborts_have_what_was_committed(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, tmp_path: Path, url: str, aborts: int
) -> None:
    world = AbortingApplication(broker, application_id, tmp_path / "one")
    reports = []
    with world.application(streams_jvm) as running:
        with world.feeding():
            reports.append(snapshot_of_running(world, url))
            for _ in range(aborts):
                world.abort(streams_jvm)
                world.wait_until_open()
                reports.append(snapshot_of_running(world, url))
            reports.append(snapshot_of_running(world, url, lowered=True))
        world.wait()
        answers = world.all_answers(running)
        committed, aborted = world.committed(), world.aborted()
    assert aborted, "transactions were aborted"
    last = snapshot(world, url)
    assert {store.store for store in last.stores} == {*STORES, VERSIONED}, "nothing lies behind the versioned one"

    for number, report in enumerate(reports):
        world.state_dir = tmp_path / f"fetched-{number}"
        fetch(url, world, world.state_dir, report)
        rows, offsets = rows_of(world.directory), offsets_of(report)
        check_rows(rows, offsets, committed, aborted)
        if number == 0:
            check_exact(rows, offsets, committed)
        if number in (0, len(reports) - 1):
            with world.application(streams_jvm) as running:
                assert restored_of(running) == tails(offsets, committed)
                assert world.all_answers(running) == answers


def test_a_versioned_store_that_was_not_transactional_before_is_refused_with_a_wrong_spec(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, tmp_path: Path, url: str
) -> None:
    """Its status says closed, by the run before; what was flushed since may be ahead of the offset all the same."""
    world = AbortingApplication(broker, application_id, tmp_path / "one", transactional=False)
    with world.application(streams_jvm):
        world.feed_some(20)
        world.wait()
    snapshot(world, url)
    world.set_transactional(True)
    with world.application(streams_jvm) as running:
        world.feed_some(20)
        world.wait()
        flush(running)
        world.feed_some(20)
        world.wait()
        world.set_transactional(False)  # as the spec says it
        with pytest.raises(Invalid) as refused:
            snapshot(world, url)
    problems = refused.value.context["problems"]
    assert [one["code"] for one in problems] == ["versioned-store-ahead"] * world.partitions


@pytest.mark.full
def test_a_directory_that_was_killed_in_a_transaction_is_taken_and_restores_the_tail(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, tmp_path: Path, url: str
) -> None:
    world = AbortingApplication(broker, application_id, tmp_path / "killed")
    with StreamsJvm(tmp_path / "killed.log") as jvm:
        running = world.application(jvm).start()
        with world.feeding():
            snapshot_of_running(world, url, lowered=True)
            world.wait_until_segments(3)
        world.wait()
        deadline = time.monotonic() + 240
        # A segment of which nothing was flushed is refused, and none is to be begun before the kill.
        while not (world.has_room_in_segment() and can_be_taken(world, url)):
            assert time.monotonic() < deadline
            world.feed_some(20)
            world.wait()
        world.feed_some(20)
        while not world.is_open():
            assert time.monotonic() < deadline
            world.feed_some(20)
        running.kill()
    del running, jvm
    gc.collect()  # what py4j finalizes while something is compiled upsets Python 3.11 (gh-106905)
    world.wait_until_ended()
    committed, aborted = world.committed(), world.aborted()

    with pytest.raises(Invalid) as refused:
        snapshot(world, url)
    assert len(refused.value.context["problems"]) == world.partitions, "the versioned store of each task"
    report = snapshot(world, url, *STORES)
    assert not report.running
    assert report.outcome in (BackupOutcome.PUBLISHED, BackupOutcome.UNCHANGED)
    offsets = offsets_of(report)
    assert sum(tails(offsets, committed).values()) > 0

    leave_group(streams_jvm, world.servers, application_id)
    killed, world.state_dir = world.state_dir, tmp_path / "fetched"
    fetch(url, world, world.state_dir, report)
    rows = rows_of(world.directory)
    check_rows(rows, offsets, committed, aborted)
    check_exact(rows, offsets, committed)
    with world.application(streams_jvm) as running:
        assert restored_of(running) == tails(offsets, committed)
        world.wait()
        answers = world.all_answers(running)
    after = world.committed()

    world.state_dir = killed
    with world.application(streams_jvm) as running:
        found, expected = restored_of(running), tails(offsets, after)
        for (store, partition), records in found.items():
            if STORES[store].is_segmented:
                assert records <= expected[store, partition], "its newest segment counts"
            else:
                assert records == expected[store, partition] < len(after[store, partition]), "it was not wiped"
        at_once = world.all_answers(running)
    for key, value in answers.items():
        if not STORES[key[0]].is_segmented:
            assert at_once[key] == value

    world.state_dir = tmp_path / "nothing"
    with world.application(streams_jvm) as running:
        assert restored_of(running) == {key: len(records) for key, records in after.items()}
        assert world.all_answers(running) == answers


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_what_was_killed_at_any_moment_has_only_what_was_committed(
    seed: int, broker: Broker, streams_jvm: StreamsJvm, application_id: str, tmp_path: Path, url: str
) -> None:
    """Killed while it works, aborts or restores; then another one goes on upon the snapshot of what is there."""
    chance = random.Random(seed)
    world = AbortingApplication(broker, application_id, tmp_path / "first")
    taken: list[tuple[dict[Key, Rows], dict[Key, int]]] = []
    for number in range(12):
        run_and_kill(world, tmp_path / f"{number}.log", chance)
        world.wait_until_ended()
        try:
            report = snapshot(world, url, *STORES)
        except (Invalid, Fenced):  # nothing was flushed of a store or segment; or it has not restored all again
            world.state_dir = tmp_path / f"empty-{number}"
            continue
        world.state_dir = tmp_path / f"fetched-{number}"
        fetch(url, world, world.state_dir, report)
        taken.append((rows_of(world.directory), offsets_of(report)))
    leave_group(streams_jvm, world.servers, application_id)
    with world.application(streams_jvm) as running:
        world.wait()
        answers = world.all_answers(running)
    committed, aborted = world.committed(), world.aborted()
    assert taken
    assert aborted
    for rows, offsets in taken:
        check_rows(rows, offsets, committed, aborted)
    world.state_dir = tmp_path / "nothing"
    with world.application(streams_jvm) as running:
        assert world.all_answers(running) == answers


def run_and_kill(world: AbortingApplication, log: Path, chance: random.Random) -> None:
    with StreamsJvm(log) as jvm:
        leave_group(jvm, world.servers, world.application_id)  # the one before was killed
        running = world.application(jvm)
        running.launch()
        with world.feeding():
            if chance.random() < 0.7:
                running.wait_until_running()
                if chance.random() < 0.5:
                    world.abort(jvm)
            time.sleep(chance.uniform(0, 10))
            running.kill()
    gc.collect()
