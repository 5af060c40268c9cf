"""Processes that share standby tasks: one is killed, one is added, all are restarted, while records come in."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import Invalid
from statecore.faults import BASE_POINTS
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.reader import parse_spec
from statecore.statedir.state_directory import StateDirectory
from tests.harness import topics
from tests.harness.broker import Broker
from tests.harness.command import statecore_here, statecore_killed
from tests.harness.modes import each_guarantee
from tests.harness.shop_application import AT_LEAST_ONCE, EXACTLY_ONCE, Shop
from tests.harness.verify_image import verify_image

pytestmark = [pytest.mark.integration]

TASKS = [f"0_{partition}" for partition in range(4)]
LINE = re.compile(r"(\d_\d) (\?|\d{1,3}(?:,\d{3})*)( \(warmup\))?")


def command(shop: Shop, state_dir: Path, *more: str) -> list[str]:
    """The words of ``statecore standby --json``."""
    spec = shop.scratch / "stores.yaml"
    spec.write_text(json.dumps(shop.spec))
    return ["standby", "--spec", str(spec), "--json", "--state-dir", str(state_dir), *more]


class Member:
    """A process of the fleet, and what it says. One that is restarted has to be back within its session."""

    def __init__(self, shop: Shop, name: str, *more: str, session: str = "90s") -> None:
        self.name, self.state_dir = name, shop.scratch / f"warm-{name}"
        words = ["--group", f"{shop.application_id}-warm", "--instance-id", name, "--host", name, "--replicas", "2"]
        words += ["--session-timeout", session, "--interval", "300ms", "--recovery-lag", "100"]
        words += ["--probing-interval", "1s", *more]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "statecore.cli.main", *command(shop, self.state_dir, *words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip())

    @property
    def lags(self) -> dict[str, str]:
        """The lag of each task that it follows for good, as it said last."""
        found: dict[str, str] = {}
        for line in list(self.lines):
            if line.startswith("round "):
                told, _, gone = line.partition(":")[2].partition("no longer here: ")
                for task, lag, warmup in LINE.findall(told):
                    found[task] = "" if warmup else lag
                for task in gone.split(", "):
                    found.pop(task, None)
        return {task: lag for task, lag in found.items() if lag}

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> dict[str, Any]:
        """Ends it as an operator does; what it reports."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.stdout is not None
        report = json.loads(self.process.stdout.read())
        assert self.process.wait(240) == 0, self.lines[-20:]
        return dict(report)

    def end(self) -> None:
        if self.process.poll() is None:
            self.kill()
        self._reader.join(10)
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


@dataclass(frozen=True)
class Row:
    """What one life of a member did with one store."""

    member: str
    life: str
    task: str
    store: str
    first: int
    last: int
    records: int


def rows_of(member: Member, life: str, report: dict[str, Any]) -> list[Row]:
    return [
        Row(
            *(member.name, life, task["task"], store["store"]),
            store["offset"] + 1 - store["records"],
            store["offset"],
            store["records"],
        )
        for task in report["tasks"]
        for store in task["stores"]
    ]


def wait(true: Callable[[], Any], *members: Member, seconds: float = 240.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "\n".join(f"{one.name} {one.lines[-3:]}" for one in members)
        time.sleep(0.1)


def placed(*members: Member) -> bool:
    """Whether every task has two copies that are near the end, and each member as many as the others."""
    lags = [one.lags for one in members]
    copies = sorted(task for one in lags for task in one)
    near = all(lag != "?" and int(lag.replace(",", "")) <= 100 for one in lags for lag in one.values())
    return copies == sorted([*TASKS, *TASKS]) and near and max(map(len, lags)) - min(map(len, lags)) <= 1


class Writer:
    """Writes records all the while."""

    def __init__(self, shop: Shop) -> None:
        self._shop, self._stop = shop, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.2):
            self._shop.write(8)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)


@pytest.fixture
def ends() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def content(shop: Shop, state_dir: Path, task: str) -> dict[tuple[str, str], tuple[int | None, str | None]]:
    """Rows and digest of each store of a task, every row of which is read."""
    spec, directory = parse_spec(shop.spec), StateDirectory(state_dir, shop.application_id)
    found = {}
    for one in directory.stores(task):
        declared = spec.store(one.store)
        assert declared is not None
        image = verify_image(one.path, declared.kind, [TopicPartition(declared.changelog, int(task[-1]))])
        found[task, one.store] = image.rows, image.digest
    return found


@pytest.mark.parametrize(
    ("added", "restarted"), [("", ""), pytest.param("db", "abcd", marks=pytest.mark.full)], ids=["killed", "all"]
)
def test_no_member_failure_restarts_a_task_or_loses_or_repeats_a_record(
    broker: Broker, tmp_path: Path, ends: ExitStack, added: str, restarted: str
) -> None:
    """One is killed; in ``make test-full`` another is added, it comes back, and all are restarted one by one."""
    shop = Shop(broker.bootstrap_servers, tmp_path, guarantee=EXACTLY_ONCE, has_global=False, partitions=len(TASKS))
    shop.write(1_000)
    writer = Writer(shop)
    ends.callback(writer.stop)

    def start(name: str, session: str = "90s") -> Member:
        made = Member(shop, name, session=session)
        ends.callback(made.end)
        return made

    table: list[Row] = []
    a, c = start("a"), start("c")
    b = start("b", session="6s")  # it is killed, and the others have its tasks when that is over
    wait(lambda: placed(a, b, c), a, b, c)
    had = dict(b.lags)

    b.kill()
    wait(lambda: placed(a, c), a, c)
    members = {one.name: one for one in (a, c)}
    for name in added:
        members[name] = start(name)
        wait(lambda: placed(*members.values()), *members.values())
    assert "b" not in members or had.keys() & members["b"].lags.keys()

    given = {name: set(one.lags) for name, one in members.items()}
    for name in restarted:
        report = members[name].stop()
        table += rows_of(members[name], "before its restart", report)
        members[name] = start(name)
        wait(lambda: set(members[name].lags) == given[name], *members.values())  # noqa: B023
        wait(lambda: placed(*members.values()), *members.values())
    writer.stop()
    newest = {
        (task, store): topics.end_offset(shop.servers, shop.changelog(store), int(task[-1])) - 1
        for task in TASKS
        for store in shop.stores
    }

    def is_read(one: Member, task: str) -> bool:
        logs = StateDirectory(one.state_dir, shop.application_id).work_path / "standby" / task / "logs.json"
        ends = {log["topic"]: log["end"] for log in json.loads(logs.read_text())["logs"]}
        return all(ends[shop.changelog(store)] > newest[task, store] for store in shop.stores)

    wait(lambda: all(is_read(one, task) for name, one in members.items() for task in given[name]), *members.values())
    assert all(set(one.lags.values()) == {"0"} for one in members.values())
    last = {name: rows_of(one, "last", one.stop()) for name, one in members.items()}
    restored = shop.restored()
    for name, rows in last.items():
        assert {row.task for row in rows} == given[name]
        for row in rows:
            before = [one for one in table if (one.member, one.task, one.store) == (name, row.task, row.store)]
            assert len(before) == (name in restarted)
            assert all(row.first == was.last + 1 for was in before)  # not anew, nothing twice, nothing left out
            assert row.last == newest[row.task, row.store]
        for task in given[name]:
            there = content(shop, members[name].state_dir, task)
            assert there == {key: found for key, found in restored.items() if key[0] == task}
    again = [row for row in table if row.member == "b" and row.task in had]
    assert bool(again) is ("b" in members)
    assert all(row.first > 0 for row in again)  # it was killed, and went on from its last commit
    assert not [line for one in members.values() for line in one.lines if "is rebuilt from" in line]


@each_guarantee
def test_a_new_copy_begins_with_a_snapshot_and_reads_only_the_rest_also_where_it_is_killed(
    broker: Broker, tmp_path: Path, guarantee: str
) -> None:
    shop = Shop(broker.bootstrap_servers, tmp_path, guarantee=guarantee, has_global=False, partitions=2)
    shop.write(800)
    shop.checkpoint()
    shop.write(60)
    warm = tmp_path / "warm"

    words = command(shop, warm, "--once", "--repository", shop.url, "--task", "0_1")
    for point in BASE_POINTS:
        assert statecore_killed(f"{point}:kill", *words).returncode == -signal.SIGKILL
    ended = statecore_here(*words)
    assert ended.returncode == 0, ended.stderr
    (task,) = json.loads(ended.stdout)["tasks"]
    for store in task["stores"]:
        whole = topics.end_offset(shop.servers, shop.changelog(store["store"]), 1)
        assert (store["offset"], store["lag"]) == (whole - 1, 0)
        assert 0 < store["records"] < whole / 4
    restored = shop.restored()
    assert content(shop, warm, "0_1") == {key: found for key, found in restored.items() if key[0] == "0_1"}


def test_a_new_copy_of_which_there_is_no_snapshot_is_read_from_the_start(broker: Broker, tmp_path: Path) -> None:
    shop = Shop(broker.bootstrap_servers, tmp_path, has_global=False, partitions=1)
    shop.write(100)
    words = command(shop, tmp_path / "warm", "--once", "--repository", shop.url)
    ended = statecore_here(*words)
    assert ended.returncode == 0, ended.stderr
    (task,) = json.loads(ended.stdout)["tasks"]
    for store in task["stores"]:
        assert store["records"] == store["offset"] + 1
    assert content(shop, tmp_path / "warm", "0_0") == shop.restored()


def test_a_group_that_is_the_application_s_own_is_refused_before_anything_is_made(
    broker: Broker, tmp_path: Path
) -> None:
    shop = Shop(broker.bootstrap_servers, tmp_path, has_global=False, partitions=1)
    words = command(shop, tmp_path / "warm", "--group", shop.application_id)
    made = statecore_here(*words)
    assert made.returncode == Invalid.exit_code, (made.stdout, made.stderr)
    assert json.loads(made.stdout)["code"] == "group-of-another-application"
    assert not (tmp_path / "warm").exists()


@pytest.mark.full
def test_a_copy_goes_after_its_delay_once_another_process_keeps_the_task_and_has_all_of_it(
    broker: Broker, tmp_path: Path, ends: ExitStack
) -> None:
    shop = Shop(broker.bootstrap_servers, tmp_path, guarantee=AT_LEAST_ONCE, has_global=False, partitions=len(TASKS))
    shop.write(400)

    def start(name: str) -> Member:
        made = Member(shop, name, "--replicas", "1", "--cleanup-delay", "10s")
        ends.callback(made.end)
        return made

    a = start("a")
    wait(lambda: len(a.lags) == len(TASKS), a)
    b = start("b")
    directory = StateDirectory(a.state_dir, shop.application_id)
    dropped: set[str] = set()
    gone: set[str] = set()

    def looked() -> bool:
        kept, near = set(a.lags), {task for task, lag in b.lags.items() if lag in {str(few) for few in range(101)}}
        for task in TASKS:
            if not directory.task_path(task).exists():
                assert task in near
                gone.add(task)
            elif task not in kept:
                dropped.add(task)
        return len(gone) == len(TASKS) // 2

    wait(looked, a, b)
    assert gone == dropped  # each was seen, and not followed, before it went

    def said() -> list[str]:
        return sorted(line.split()[1] for line in list(a.lines) if "is deleted here: other processes have it" in line)

    wait(lambda: said() == sorted(gone), a, b)
    for one in (a, b):
        one.stop()
    restored = shop.restored()
    for member, tasks in ((a, set(TASKS) - gone), (b, gone)):
        for task in tasks:
            assert content(shop, member.state_dir, task) == {
                key: found for key, found in restored.items() if key[0] == task
            }
