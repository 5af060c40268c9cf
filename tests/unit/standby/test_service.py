"""Standby tasks as a service: what is done before the first round, without a broker."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from statecore.changelog.cluster import Cluster
from statecore.changelog.model import TopicDescription
from statecore.errors import Invalid, NotFound, StatecoreError
from statecore.jobs.fields.declaration import declared_fields
from statecore.metrics import BLOCK_CACHE_CAPACITY, BLOCK_CACHE_USAGE, STANDBY_FAILED, Instrument, NullMetrics, Tags
from statecore.standby import service as standby
from statecore.standby.promote.request import PromoteRequest
from statecore.standby.request import StandbyRequest
from statecore.standby.service import run_standby
from statecore.standby.task_manager import TaskManager
from statecore.tasks.standby_task import StandbySettings
from statecore.tasks.task_stores import TaskStores
from tests.harness.raising import raises

SPEC = {
    "application_id": "app",
    "bootstrap_servers": "127.0.0.1:1",
    "processing_guarantee": "at_least_once",
    "subtopologies": {"0": {"stores": {"counts": {"kind": "key-value"}}}},
}


class OnePartition(Cluster):
    """Brokers of which every topic is known."""

    partitions = 1

    def describe_topics(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        return {name: TopicDescription(name, "1" * 32, self.partitions, {}) for name in names}


class TwoPartitions(OnePartition):
    partitions = 2


def test_corrupt_copies_and_unused_bases_expire_without_a_group(tmp_path: Path) -> None:
    spec = tmp_path / "stores.json"
    spec.write_text(json.dumps(SPEC))
    days_ago = time.time() - 8 * 86_400
    old = tmp_path / "app" / ".statecore" / "corrupt" / f"0_0@{int(days_ago * 1000)}"
    old.mkdir(parents=True)
    (old / "file").write_text("x")
    os.utime(old / "file", (days_ago, days_ago))
    base = tmp_path / "app" / ".statecore" / "standby" / "0_1" / "base"
    base.mkdir(parents=True)
    os.utime(base, (1000, 1000))
    stop = Event()
    stop.set()
    done = run_standby(StandbyRequest(spec_path=str(spec), state_dir=str(tmp_path), tasks=("0_0",), timeout=0.5), stop)
    assert [task.task for task in done.tasks] == ["0_0"]
    assert not list(old.parent.iterdir())
    assert not base.exists()


def test_a_task_that_there_cannot_be_is_refused_and_no_directory_is_made(tmp_path: Path) -> None:
    spec = tmp_path / "stores.json"
    spec.write_text(json.dumps(SPEC))
    stop = Event()
    stop.set()
    with raises(NotFound, "task-not-found", tasks=["0_9"]):
        run_standby(
            StandbyRequest(spec_path=str(spec), state_dir=str(tmp_path), tasks=("0_0", "0_9")),
            stop,
            connect=TwoPartitions,
        )
    assert list(tmp_path.iterdir()) == [spec]


def test_what_one_subtopology_lacks_leaves_its_tasks_out_and_ends_with_its_exit_code(tmp_path: Path) -> None:
    more = {"1": {"stores": {"sums": {"kind": "?"}}}, "2": {"stores": {"names": {"kind": "?", "changelog": "?"}}}}
    spec = tmp_path / "stores.json"
    spec.write_text(json.dumps({**SPEC, "subtopologies": {**SPEC["subtopologies"], **more}}))  # type: ignore[dict-item]
    stop = Event()
    stop.set()
    failed: list[Callable[[], float | None]] = []

    class Told(NullMetrics):
        def observe(self, instrument: Instrument, read: Callable[[], float | None], tags: Tags) -> Callable[[], None]:
            if instrument is STANDBY_FAILED:
                failed.append(read)
            return super().observe(instrument, read, tags)

    done = run_standby(
        StandbyRequest(spec_path=str(spec), state_dir=str(tmp_path)), stop, metrics=Told(), connect=OnePartition
    )
    assert sum(read() or 0 for read in failed) == 2
    assert {task.task: task.exit_code for task in done.tasks} == {
        "0_0": 0, "1_0": Invalid.exit_code, "2_?": Invalid.exit_code,
    }  # fmt: skip
    assert done.exit_code == Invalid.exit_code
    assert [path.name for path in (tmp_path / "app").iterdir() if path.name.startswith("1_")] == []


@pytest.mark.parametrize(
    "of_group",
    [
        {"replicas": 2},
        {"max_open_databases": 7},
        {"session_timeout": 6000},
        {"cleanup_delay": 1},
        {"cleanup_even_best": True, "cleanup_delay": 1},
    ],
)
def test_what_only_a_group_heeds_is_refused_without_one(of_group: dict[str, int]) -> None:
    options = "|".join(of_group).replace("_", "-")
    with pytest.raises(Invalid, match=f"--({options}) needs a group"):
        StandbyRequest(spec_path="s", state_dir="d", **of_group)  # type: ignore[arg-type]
    StandbyRequest(spec_path="s", state_dir="d", group="g", **of_group)  # type: ignore[arg-type]


def test_to_clean_even_the_best_copy_is_refused_where_nothing_is_cleaned() -> None:
    with pytest.raises(Invalid, match="--cleanup-delay"):
        StandbyRequest(spec_path="s", state_dir="d", group="g", cleanup_even_best=True)


@pytest.mark.parametrize("request_type", [StandbyRequest, PromoteRequest])
def test_global_stores_have_no_standby_tasks_and_the_help_does_not_offer_them(request_type: type[Any]) -> None:
    more = {"standby_dir": "/w"} if request_type is PromoteRequest else {}
    with raises(Invalid, "global-task-unsupported"):
        request_type(spec_path="s", state_dir="d", tasks=("0_0", "global"), **more)
    assert "global" not in declared_fields(request_type)["tasks"].declaration.help


@pytest.mark.parametrize("name", ["group", "instance_id", "host"])
@pytest.mark.parametrize("empty", ["", " "])
def test_a_name_in_the_group_that_is_empty_is_refused(name: str, empty: str) -> None:
    """Two members whose instance ids are both empty would throw each other out."""
    with pytest.raises(Invalid, match=f"--{name.replace('_', '-')} is empty, perhaps"):
        StandbyRequest(spec_path="s", state_dir="d", **{"group": "g", name: empty})  # type: ignore[arg-type]


def test_what_is_too_little_is_refused_by_the_name_of_its_option() -> None:
    with pytest.raises(Invalid, match=r"--max-warmups is 0\."):
        StandbyRequest(spec_path="s", state_dir="d", group="g", max_warmups=0)
    with pytest.raises(Invalid) as refused:
        StandbyRequest(spec_path="s", state_dir="d", memory_budget=1)
    assert "512" not in str(refused.value)  # that is the default of other commands


def test_a_broker_is_waited_for_as_long_as_was_asked_also_while_a_copy_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    class Opened:
        def __init__(self, _stores: object, _cluster: object, _isolation: object, settings: StandbySettings) -> None:
            waits.append(settings.timeout)
            raise Invalid("It is enough.", code="test-error", action="None.")

    monkeypatch.setattr(standby, "StandbyTask", Opened)
    spec = tmp_path / "stores.json"
    spec.write_text(json.dumps(SPEC))
    (tmp_path / "app" / "0_0").mkdir(parents=True)
    stop = Event()
    stop.set()
    run_standby(StandbyRequest(spec_path=str(spec), state_dir=str(tmp_path), tasks=("0_0",), timeout=0.5), stop)
    assert waits == [0.5]


@pytest.mark.parametrize(("rounds", "exit_code"), [(0, 13), (1, 10)])
def test_a_refused_client_is_started_again_if_it_was_served_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: int, exit_code: int
) -> None:
    left = iter(range(rounds))

    def round_of(*_: object) -> None:
        if next(left, None) is None:
            raise Invalid("Refused.", code="token-refused", action="Correct the secret.")

    monkeypatch.setattr(TaskManager, "round", round_of)
    spec = tmp_path / "stores.json"
    spec.write_text(json.dumps(SPEC))
    request = StandbyRequest(spec_path=str(spec), state_dir=str(tmp_path), tasks=("0_0",), interval=1)
    with pytest.raises(StatecoreError) as caught:
        run_standby(request, Event(), connect=OnePartition)
    assert caught.value.exit_code == exit_code


@pytest.mark.full
def test_the_databases_use_a_block_cache_of_the_requested_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: dict[Instrument, Callable[[], float | None]] = {}
    capacity: list[float | None] = []
    used: list[float] = []

    class Told(NullMetrics):
        def observe(self, instrument: Instrument, value: Callable[[], float | None], tags: Tags) -> Callable[[], None]:
            read[instrument] = value
            return super().observe(instrument, value, tags)

    class Opened:
        def __init__(self, stores: TaskStores, *_: object) -> None:
            capacity.append(read[BLOCK_CACHE_CAPACITY]())
            used.append(read[BLOCK_CACHE_USAGE]() or 0)
            stores.open()
            used.append(read[BLOCK_CACHE_USAGE]() or 0)
            stores.close()
            raise Invalid("It is enough.", code="test-error", action="None.")

    monkeypatch.setattr(standby, "StandbyTask", Opened)
    spec = tmp_path / "stores.json"
    spec.write_text(json.dumps(SPEC))
    (tmp_path / "app" / "0_0").mkdir(parents=True)
    stop = Event()
    stop.set()
    request = StandbyRequest(spec_path=str(spec), state_dir=str(tmp_path), tasks=("0_0",), block_cache=3 << 20)
    run_standby(request, stop, metrics=Told())
    assert capacity == [3 << 20]
    assert used[1] > used[0]


def test_a_standby_s_block_cache_is_small_unless_it_is_asked_for() -> None:
    assert StandbyRequest(spec_path="s", state_dir="d").block_cache == 64 << 20
