"""The base of a new copy: where it comes from, where it is put, and what is left when it is not."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from statecore.errors import Capacity, Fenced, Invalid, NotFound, Retryable, StatecoreError
from statecore.faults import NO_FAULTS, FaultInjected, FaultPoints, InjectedFault
from statecore.jobs.fetch.report import FetchReport
from statecore.jobs.fetch.run import run_fetch
from statecore.objectstore.base import RetryPolicy
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.repository import create_repository
from statecore.standby.bootstrap import RETENTION_MS, BaseDownloads, sweep_bases
from statecore.statedir.state_directory import StateDirectory
from tests.harness.raising import raises
from tests.unit.jobs.fetch.fetching import Topics, files_of, flipped
from tests.unit.jobs.published import TOPIC_ID, Shop, expected, rows_in

TASK = "0_1"
AWAY = Retryable("The repository does not answer.", code="test-error", action="Wait.")
NO_RIGHTS = Invalid("The repository may not be read.", code="test-error", action="Give credentials.")

FROM_START = "from the start of "
"""What is said of a task that gets no base."""


fitting = partial(run_fetch, connect=Topics(lambda _: 400))
"""The topics fit every snapshot; that they are compared is the fetch's business."""


def failing(error: StatecoreError) -> Callable[..., Any]:
    """In place of whatever asks a repository."""

    def fails(*_: object, **__: object) -> Any:
        raise error

    return fails


class Warm:
    """A directory of standby tasks, and the processes that bring bases into it, one after the other.

    Attributes:
        fetch: how a task is fetched.
        opens: how a repository is opened.
    """

    def __init__(self, shop: Shop, path: Path, application: str = "orders") -> None:
        self.shop, self.path, self.said = shop, path, list[str]()
        self.fetch: Callable[..., FetchReport] = fitting
        self.opens: Callable[..., ApplicationRepository] = ApplicationRepository.open
        self.directory = StateDirectory(path, application)
        self.place = self.directory.task_path(TASK)
        self.work = self.directory.work_path / "standby" / TASK
        self.base = self.work / "base"
        self.spec = replace(shop.declared, application_id=application)

    @contextmanager
    def process(self, faults: FaultPoints | None = None) -> Iterator[BaseDownloads]:
        with self.directory.lock():
            bases = BaseDownloads(
                self.spec,
                self.directory,
                self.shop.url,
                self.said.append,
                faults=faults or NO_FAULTS,
                open_repository=lambda *where: self.opens(*where),
                fetch=lambda *what, **how: self.fetch(*what, **how),
            )
            try:
                yield bases
            finally:
                bases.close()

    @property
    def rows(self) -> dict[str, dict[bytes, bytes]]:
        return rows_in(self.path)


@pytest.fixture
def warm(shop: Shop, state_dir: Path) -> Warm:
    return Warm(shop, state_dir)


def fetched(bases: BaseDownloads, task: str = TASK) -> None:
    """The base is fetched and not placed yet."""
    assert not bases.prepare(task)
    wait([bases._pending[task].fetched], 60)


def settled(bases: BaseDownloads) -> None:
    """All that was begun has ended."""
    bases._worker.submit(lambda: None).result(60)


def brought(bases: BaseDownloads, task: str = TASK) -> None:
    """Whatever comes has come."""
    fetched(bases, task)
    assert bases.prepare(task)
    settled(bases)


def of_task(count: int) -> dict[str, dict[bytes, bytes]]:
    return {name: rows for name, rows in expected(count).items() if name.startswith(f"{TASK}/")}


class Halt(FaultPoints):
    """Holds a fetch while its first bytes come."""

    def __init__(self) -> None:
        self.reached, self.go_on = Event(), Event()
        self.points: list[str] = []

    def reach(self, point: str) -> None:
        super().reach(point)
        self.points.append(point)
        if point == "fetch.during-download" and not self.reached.is_set():
            self.reached.set()
            assert self.go_on.wait(60)


@contextmanager
def in_the_middle(warm: Warm) -> Iterator[tuple[BaseDownloads, Halt]]:
    """A process in the middle of a fetch, which goes on when the test says so, or when it was told to stop."""
    halt = Halt()
    with warm.process(halt) as bases:
        shutdown = bases._worker.shutdown

        def stopped(**how: bool) -> None:
            halt.go_on.set()
            shutdown(**how)

        bases._worker.shutdown = stopped  # type: ignore[method-assign,assignment]
        assert not bases.prepare(TASK)
        assert halt.reached.wait(60)
        yield bases, halt


def test_a_base_is_seen_when_it_is_whole_and_its_changelogs_are_known_then(warm: Warm) -> None:
    with warm.process() as bases:
        fetched(bases)
        assert not warm.place.exists()
        assert bases.prepare(TASK)
        assert warm.rows == of_task(300)
        logs = json.loads((warm.work / "logs.json").read_text())["logs"]
        assert {(log["topic"], log["partition"], log["topic_id"], log["end"]) for log in logs} == {
            (f"orders-{store}-changelog", 1, TOPIC_ID, 300) for store in ("plain", "clicks")
        }
        assert all(log["read_at_ms"] for log in logs)
        settled(bases)
        assert [one.name for one in warm.work.iterdir()] == ["logs.json"]
        assert bases.prepare(TASK)
    newest = warm.shop.app_repository.head().snapshots[0].snapshot
    (said,) = warm.said
    assert said.startswith(f"Task {TASK} starts from snapshot {newest} of {warm.shop.url}, ")


def test_an_empty_directory_with_offsets_and_locks_does_not_keep_a_base_from_its_place(warm: Warm) -> None:
    warm.place.mkdir(parents=True)
    (warm.place / ".checkpoint").write_text("0\n0\n")
    (warm.place / ".lock").touch()
    with warm.process() as bases:
        brought(bases)
    assert warm.rows == of_task(300)
    assert not (warm.place / ".checkpoint").exists()


def test_where_there_is_no_snapshot_the_task_is_read_from_the_start(tmp_path: Path, state_dir: Path) -> None:
    warm = Warm(Shop(tmp_path), state_dir)
    create_repository(warm.shop.url)
    with warm.process() as bases:
        assert bases.find_snapshot(TASK) is None
        brought(bases)
        assert bases.prepare(TASK)
        assert not warm.base.exists()
        brought(bases, "0_0")
    (said,) = warm.said
    assert (FROM_START in said, "there is no snapshot" in said) == (True, True)
    assert not warm.place.exists()


def test_a_task_that_the_snapshot_has_not_is_read_from_the_start(warm: Warm) -> None:
    with warm.process() as bases:
        assert (bases.find_snapshot("0_7"), bases.find_snapshot(TASK)) == (
            None,
            warm.shop.app_repository.head().snapshots[0].snapshot,
        )
        brought(bases, "0_7")
    (said,) = warm.said
    assert (said.startswith("Task 0_7 "), FROM_START in said, "has no task 0_7" in said) == (True, True, True)


@pytest.mark.parametrize("copied", [False, True])
def test_a_snapshot_of_another_application_is_no_base(own_shop: Shop, state_dir: Path, copied: bool) -> None:
    if copied:
        apps = own_shop.root / "repository" / "apps"
        shutil.copytree(apps / "orders", apps / "other")
    warm = Warm(own_shop, state_dir, "other")
    with warm.process() as bases:
        brought(bases)
    assert FROM_START in " ".join(warm.said)
    assert not warm.place.exists()


def test_a_damaged_snapshot_is_passed_over_and_where_none_is_whole_the_task_is_read_from_the_start(
    own_shop: Shop, state_dir: Path
) -> None:
    warm = Warm(own_shop, state_dir)
    new, old = own_shop.app_repository.head().snapshots
    damaged = files_of(own_shop)
    flipped(damaged["manifest"])
    with warm.process() as bases:
        brought(bases)
    assert warm.rows == of_task(200)
    assert warm.said[-1].startswith(f"Task {TASK} starts from snapshot {old.snapshot} ")
    flipped(damaged["manifest"].with_name(f"{old.snapshot}.json"))
    other = Warm(own_shop, state_dir.with_name("other"))
    with other.process() as bases:
        brought(bases)
        assert not other.base.exists()
    (said,) = other.said
    assert FROM_START in said
    assert new.snapshot in said
    assert old.snapshot in said


def test_a_process_that_dies_before_it_has_put_a_base_leaves_it_to_the_next(warm: Warm) -> None:
    with warm.process(InjectedFault("base.before-rename")) as bases:
        fetched(bases)
        with pytest.raises(FaultInjected):
            bases.prepare(TASK)
    assert not warm.place.exists()
    warm.fetch = lambda *_, **__: pytest.fail("it is fetched again")
    with warm.process() as bases:
        brought(bases)
    assert warm.rows == of_task(300)
    (said,) = warm.said
    assert said.startswith(f"Task {TASK} starts from a snapshot of {warm.shop.url} ")


def test_a_process_that_dies_when_it_has_put_a_base_leaves_a_whole_task(warm: Warm) -> None:
    with warm.process(InjectedFault("base.after-rename")) as bases:
        fetched(bases)
        with pytest.raises(FaultInjected):
            bases.prepare(TASK)
    assert warm.rows == of_task(300)
    assert (warm.work / "logs.json").exists()
    with warm.process() as bases:
        sweep_bases(warm.directory, now_ms=0)
        assert bases.prepare(TASK)
    assert not warm.base.exists()


def test_a_process_killed_before_it_recorded_a_fetch_leaves_no_valid_base(own_shop: Shop, state_dir: Path) -> None:
    """A newer snapshot is there by then, and what is known of that must not be said of the rows of the older one."""
    warm = Warm(own_shop, state_dir)
    with warm.process(InjectedFault("fetch.after-placement")) as bases:
        fetched(bases)
        with pytest.raises(FaultInjected):
            bases.prepare(TASK)
    own_shop.publish([150, 200, 300, 350])
    with warm.process() as bases:
        brought(bases)
    assert warm.rows == of_task(350)
    assert {log["end"] for log in json.loads((warm.work / "logs.json").read_text())["logs"]} == {350}


def test_a_process_that_is_stopped_in_the_middle_leaves_what_came_to_the_next(warm: Warm) -> None:
    with in_the_middle(warm):
        pass
    assert not warm.place.exists()
    came = sum(file.stat().st_size for file in warm.base.rglob("fetched/files/*"))
    assert came
    with warm.process() as bases:
        brought(bases)
    assert warm.rows == of_task(300)
    whole = Warm(warm.shop, warm.path.with_name("whole"))
    with whole.process() as bases:
        brought(bases)
    resumed, all_of_it = (int(one.said[-1].split()[-2].replace(",", "")) for one in (warm, whole))
    assert resumed == all_of_it - came


def test_a_base_that_is_given_up_in_the_middle_is_stopped_and_deleted_and_comes_when_the_task_does(warm: Warm) -> None:
    with in_the_middle(warm) as (bases, halt):
        bases.cancel_fetch(TASK)
        assert warm.base.exists(), "the caller did not wait"
        halt.go_on.set()
        settled(bases)
        assert "fetch.after-placement" not in halt.points, "it did not come to its end"
        assert not warm.base.exists()
        assert not warm.place.exists()
        brought(bases)
    assert warm.rows == of_task(300)


def test_a_base_that_is_given_up_and_asked_for_again_at_once_comes(warm: Warm) -> None:
    with in_the_middle(warm) as (bases, halt):
        bases.cancel_fetch(TASK)
        assert not bases.prepare(TASK)
        halt.go_on.set()
        wait([bases._pending[TASK].fetched], 60)
        assert bases.prepare(TASK)
    assert warm.rows == of_task(300)


def test_a_base_that_waits_for_others_is_not_begun_when_it_is_given_up(warm: Warm) -> None:
    with in_the_middle(warm) as (bases, halt):
        assert not bases.prepare("0_0")
        bases.cancel_fetch("0_0")
        halt.go_on.set()
        settled(bases)
        assert bases.prepare(TASK)
    assert warm.rows == of_task(300)
    assert not (warm.work.parent / "0_0").exists()


def test_a_base_that_came_and_is_given_up_is_not_put(warm: Warm) -> None:
    with warm.process() as bases:
        fetched(bases)
        bases.cancel_fetch(TASK)
        settled(bases)
        assert not warm.base.exists()
        assert not warm.place.exists()
        bases.cancel_fetch(TASK)  # again is fine
    assert warm.said == []


def test_a_base_partly_deleted_at_a_kill_is_fetched_again(warm: Warm) -> None:
    with warm.process(InjectedFault("base.during-discard")) as bases:
        fetched(bases)
        bases.cancel_fetch(TASK)
        settled(bases)
    (kept,) = (path for path in warm.base.rglob("clicks") if path.is_dir())
    shutil.rmtree(kept)  # as far as the process had come with it
    with warm.process() as bases:
        brought(bases)
    assert warm.rows == of_task(300)


@pytest.mark.parametrize(("fails", "error"), [("opens", NO_RIGHTS), ("fetch", AWAY)])
def test_a_temporarily_unreadable_repository_causes_no_read_from_the_start(
    warm: Warm, fails: str, error: StatecoreError
) -> None:
    works = {"opens": ApplicationRepository.open, "fetch": fitting}[fails]
    with warm.process() as bases:
        setattr(warm, fails, failing(error))
        for _ in range(2):
            fetched(bases)
            with pytest.raises(type(error)) as caught:
                bases.prepare(TASK)
            assert caught.value is error
        setattr(warm, fails, works)
        brought(bases)
    assert warm.rows == of_task(300)


@pytest.mark.parametrize("error", [NO_RIGHTS, AWAY])
def test_a_process_that_has_copies_starts_without_the_repository(warm: Warm, error: StatecoreError) -> None:
    (warm.place / "rocksdb").mkdir(parents=True)
    warm.opens = failing(error)
    with warm.process() as bases:
        bases.check_repository(Event())
    (said,) = warm.said
    assert said.startswith(f"{error} ")


def test_a_process_without_copies_is_refused_where_the_repository_may_not_be_read(warm: Warm) -> None:
    warm.opens = failing(NO_RIGHTS)
    with warm.process() as bases, pytest.raises(Invalid) as caught:
        bases.check_repository(Event())
    assert caught.value is NO_RIGHTS


def test_a_url_at_which_there_is_no_repository_is_refused_whatever_copies_there_are(warm: Warm) -> None:
    (warm.place / "rocksdb").mkdir(parents=True)
    nowhere = warm.path.with_name("nowhere").as_uri()
    bases = BaseDownloads(warm.spec, warm.directory, nowhere, warm.said.append)
    with raises(NotFound, "repository-not-found"):
        bases.check_repository(Event())
    with raises(Invalid, "repository-url-invalid"):
        BaseDownloads(warm.spec, warm.directory, "file://host/path", warm.said.append)


def test_a_start_does_not_wait_for_a_repository_that_does_not_answer(warm: Warm) -> None:
    go_on, stop = Event(), Event()

    def hang(*_: object) -> Any:
        assert go_on.wait(300)
        raise AWAY

    warm.opens = hang
    with warm.process() as bases:
        bases.check_repository(stop, seconds=0.2)
        (said,) = warm.said
        assert " 0.2 s" in said
        stop.set()
        bases.check_repository(stop, seconds=60)
        assert warm.said == [said]
        go_on.set()


def test_an_unreachable_object_store_is_retried_once_within_the_timeout(
    warm: Warm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever stops the process waits for the request that is on its way."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"s3://bucket/states?endpoint=http://127.0.0.1:{silent.getsockname()[1]}&region=r"
        bases = BaseDownloads(warm.spec, warm.directory, url, warm.said.append, patience=RetryPolicy(2, 0.2))
        fetched(bases)
        silent.setblocking(False)
        for _ in range(2):
            silent.accept()[0].close()
        with pytest.raises(BlockingIOError):
            silent.accept()
        with pytest.raises(Retryable, match="could not be read"):
            bases.prepare(TASK)
        bases.close()


@pytest.mark.parametrize("seen", [True, False])
def test_a_directory_that_appeared_meanwhile_is_not_overwritten(warm: Warm, seen: bool) -> None:
    def appears() -> None:
        (warm.place / "rocksdb").mkdir(parents=True)
        (warm.place / "rocksdb" / "rows").write_text("somebody's")
        (warm.place / ".checkpoint").write_text("their offsets")

    class AfterTheLastLook(FaultPoints):
        def reach(self, point: str) -> None:
            if point == "base.before-rename":
                appears()

    with warm.process(None if seen else AfterTheLastLook()) as bases:
        fetched(bases)
        if seen:
            appears()
        assert bases.prepare(TASK)
        settled(bases)
    assert sorted(path.name for path in warm.place.rglob("*")) == [".checkpoint", "rocksdb", "rows"]
    assert not (warm.work / "logs.json").exists()
    assert not warm.base.exists()
    assert not [said for said in warm.said if "begins with" in said]


def test_where_the_disk_is_full_the_task_waits_for_room_and_is_not_read_from_the_start(warm: Warm) -> None:
    with warm.process() as bases:
        warm.fetch = failing(Capacity("There is no room.", code="no-space", action="Make room."))
        fetched(bases)
        with raises(Capacity, "no-space"):
            bases.prepare(TASK)
        warm.fetch = fitting
        brought(bases)
    assert warm.rows == of_task(300)
    assert not [said for said in warm.said if "from the start" in said]


def test_a_base_that_the_disk_did_not_let_be_put_is_put_later_and_not_fetched_again(
    warm: Warm, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename: Callable[[Path, Path], Path] = Path.rename

    def full(source: Path, target: Path) -> Path:
        if target == warm.place:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))
        return rename(source, target)

    with warm.process() as bases:
        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", full)
            fetched(bases)
            with pytest.raises(OSError, match="No space left"):
                bases.prepare(TASK)
        warm.fetch = lambda *_, **__: pytest.fail("it is fetched again")
        brought(bases)
    assert warm.rows == of_task(300)


def test_what_a_former_process_left_of_a_base_goes_after_a_day_and_at_once_where_the_task_is_there(warm: Warm) -> None:
    named = warm.directory.work_path / "standby" / "0_3"
    old, young, there = named / "base", warm.base, warm.directory.work_path / "standby" / "0_4" / "base"
    now = 1_800_000_000.0
    for base, at in ((old, now - RETENTION_MS / 1000 - 1), (young, now - RETENTION_MS / 1000 + 1), (there, now)):
        (base / "state").mkdir(parents=True)
        (base / "state" / "file").touch()
        for path in (base / "state" / "file", base / "state", base):
            os.utime(path, (at, at))
    os.utime(young, (now - 10 * RETENTION_MS, now - 10 * RETENTION_MS))  # what lies in it is younger
    (named / "logs.json").touch()
    no_task = warm.directory.work_path / "standby" / "0_1.bak" / "base"
    no_task.mkdir(parents=True)
    (warm.directory.task_path("0_4") / "rocksdb").mkdir(parents=True)
    with pytest.raises(Fenced):
        sweep_bases(warm.directory, int(now * 1000))
    with warm.directory.lock():
        sweep_bases(warm.directory, int(now * 1000))
    assert (old.exists(), young.exists(), there.exists()) == (False, True, False)
    assert no_task.exists(), "it is none of ours"
    assert (named / "logs.json").exists()


def test_a_task_that_had_no_base_and_was_given_up_is_asked_for_again(warm: Warm) -> None:
    with warm.process() as bases:
        warm.fetch = failing(NotFound("There is no snapshot.", code="test-error", action="Make one."))
        brought(bases)
        warm.fetch = fitting
        assert bases.prepare(TASK)
        bases.cancel_fetch(TASK)
        brought(bases)
    assert warm.rows == of_task(300)


def test_facts_of_a_deleted_base_are_not_used_for_the_next_one(own_shop: Shop, state_dir: Path) -> None:
    """A process dies when it has fetched a newer snapshot, and before it knows what of."""
    warm = Warm(own_shop, state_dir)
    with warm.process(InjectedFault("base.before-rename")) as bases:
        fetched(bases)
        with pytest.raises(FaultInjected):
            bases.prepare(TASK)
    shutil.rmtree(warm.base / "state")
    own_shop.publish([150, 200, 300, 350])
    with warm.process(InjectedFault("fetch.after-placement")) as bases:
        fetched(bases)
        with pytest.raises(FaultInjected):
            bases.prepare(TASK)
    with warm.process() as bases:
        brought(bases)
    assert warm.rows == of_task(350)
    assert {log["end"] for log in json.loads((warm.work / "logs.json").read_text())["logs"]} == {350}
