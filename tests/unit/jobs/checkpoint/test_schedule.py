"""Which applications a checkpoint is due for, and which not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.changelog.model import LogOffsets, TopicDescription
from statecore.errors import Corrupted, NotFound, Retryable
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.checkpoint.last_checkpoint import NO_SNAPSHOT, made_ms
from statecore.jobs.checkpoint.schedule import DueVerdict, check_all, check_due, is_due
from statecore.repository.manifest import ReadPosition
from statecore.repository.publish.publication import Publication
from statecore.spec.reader import parse_spec
from tests.harness.raising import raises
from tests.unit.changelog.consumed import GroupCoordinator
from tests.unit.jobs.backup.snapshots import World

MINUTE = 60_000
DAY = 24 * 60 * MINUTE
NOW = 1_800_000_000_000


def moments(interval_ms: int, tick_ms: int, chance: Random, jitter_ms: int, latest_ms: int) -> list[int]:
    """When the ends of each checkpoint of a day were read: ticks come early and late, and the job begins later."""
    made: list[int] = [NOW]
    for number in range(1, DAY // tick_ms):
        now = NOW + number * tick_ms + chance.randint(-jitter_ms, jitter_ms)
        if now > made[-1] and is_due(made[-1], now, interval_ms, tick_ms):
            made.append(now + chance.randint(0, latest_ms))
    return made


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 2**32),
    st.sampled_from(
        [(5 * MINUTE, MINUTE), (MINUTE, MINUTE), (90_000, MINUTE), (MINUTE, 10_000), (15 * MINUTE, MINUTE)]
    ),
)
def test_over_a_day_of_ticks_with_jitter_no_interval_is_doubled_and_none_halved(
    seed: int, times: tuple[int, int]
) -> None:
    interval, tick = times
    made = moments(interval, tick, Random(seed), jitter_ms=tick // 10, latest_ms=tick // 4)
    gaps = [later - before for before, later in pairwise(made)]
    assert max(gaps) <= interval + tick
    assert min(gaps) >= interval // 2


def test_ticks_that_are_some_seconds_early_or_late_do_not_make_a_checkpoint_rarer() -> None:
    made = moments(5 * MINUTE, MINUTE, Random(1), jitter_ms=5_000, latest_ms=15_000)
    assert len(made) >= DAY // (5 * MINUTE) - 2


@pytest.mark.parametrize(
    ("passed", "due"),
    [(4 * MINUTE, False), (4 * MINUTE + 29_999, False), (4 * MINUTE + 30_000, True), (6 * MINUTE, True)],
)
def test_an_interval_is_over_half_a_tick_early(passed: int, due: bool) -> None:
    assert is_due(NOW - passed, NOW, 5 * MINUTE, MINUTE) is due


def test_a_tick_that_is_longer_than_the_interval_does_not_make_two_of_one() -> None:
    assert not is_due(NOW - 14_000, NOW, 30_000, MINUTE)
    assert is_due(NOW - 15_000, NOW, 30_000, MINUTE)


def test_a_snapshot_of_a_clock_that_was_a_day_ahead_keeps_nobody_waiting_for_a_day() -> None:
    assert not is_due(NOW + MINUTE, NOW, 5 * MINUTE, MINUTE)
    assert is_due(NOW + DAY, NOW, 5 * MINUTE, MINUTE)


class Brokers:
    """What a cluster says of one changelog; ``now_ms`` is its clock."""

    def __init__(
        self,
        end: int,
        *,
        retention_ms: int = DAY,
        topic_id: str = "a" * 32,
        policy: str = "compact",
        now_ms: int | None = None,
    ) -> None:
        self.end, self.topic_id, self.now_ms = end, topic_id, now_ms
        self.configs = {"cleanup.policy": policy, "delete.retention.ms": str(retention_ms)}
        self.asked = 0

    def __call__(self, servers: str, kafka: Mapping[str, Any], *, timeout: float) -> Brokers:
        assert (servers, timeout) == ("localhost:9", 10.0)
        return self

    def __enter__(self) -> Brokers:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def time_ms(self) -> int | None:
        return self.now_ms

    def describe_topics(self, names: list[str]) -> dict[str, TopicDescription]:
        self.asked += 1
        return {name: TopicDescription(name, self.topic_id, 1, self.configs) for name in names}

    def log_offsets(self, parts: set[TopicPartition]) -> dict[TopicPartition, LogOffsets]:
        return {part: LogOffsets(0, self.end, self.end, 3) for part in parts}


class Consuming(GroupCoordinator, Brokers):
    """One whose group has consumed so far of a source topic with more."""

    def __init__(self, committed: int | None, *, policy: str = "compact") -> None:
        Brokers.__init__(self, 5000, policy=policy)
        GroupCoordinator.__init__(self, lambda group, _: committed if group == "app" else None)


class AtTheBrokers:
    """An application with a snapshot that ends at offset 10, and whoever looks at it."""

    def __init__(self, root: Path) -> None:
        self.world = World(root)
        self.world.write({b"a": b"1"}, 9)
        self.world.snapshot()
        (self.entry,) = self.world.app_repository.head().snapshots

    def look(self, brokers: Brokers, *, after_ms: int = 5 * MINUTE, **spec: Any) -> DueVerdict:
        made = made_ms([self.entry])
        assert made is not None
        application = parse_spec({**self.world.spec, **spec}, "test")
        now = (made + after_ms) / 1000
        return check_due(self.world.app_repository, application, clock=lambda: now, cluster=brokers)  # type: ignore[arg-type]


@pytest.fixture
def application(tmp_path: Path) -> AtTheBrokers:
    return AtTheBrokers(tmp_path)


def test_what_is_new_in_the_changelog_makes_an_application_due(application: AtTheBrokers) -> None:
    verdict = application.look(Brokers(25))
    assert verdict.is_due
    newest = application.world.app_repository.head().newest
    assert (verdict.newest, verdict.current_ms) == (newest, made_ms(application.world.app_repository.head().snapshots))
    times = {"age_ms": 5 * MINUTE, "interval_ms": 5 * MINUTE}
    assert (verdict.why.code, verdict.why.context) == ("offsets-new", {"offsets": 15, "partitions": 1, **times})
    assert verdict.last_snapshot == application.entry.snapshot


def test_a_changelog_that_ends_lower_is_not_told_as_new_offsets(application: AtTheBrokers) -> None:
    why = application.look(Brokers(5)).why
    assert str(why).startswith("5 fewer offsets in 1 partitions")
    assert (why.code, why.context["offsets"], why.context["fewer_offsets"]) == ("offsets-new", 0, 5)


@pytest.mark.parametrize(("retention_ms", "is_due"), [(DAY - 1, True), (DAY, False), (2 * DAY, False)])
def test_deletes_that_are_kept_for_a_shorter_time_make_an_application_due(
    application: AtTheBrokers, retention_ms: int, is_due: bool
) -> None:
    app_repository, made = application.world.app_repository, made_ms([application.entry])
    assert made is not None
    publication = Publication(
        app_repository,
        parse_spec(application.world.spec, "test"),
        request="q",
        origin="checkpoint",
        clock=lambda: made / 1000,
    )
    assert publication.publish([], drops_other_tasks=False, read_positions={"0_0": ReadPosition(made, DAY)}) is not None
    assert application.look(Brokers(10, retention_ms=retention_ms, now_ms=made + 1)).is_due is is_due
    # A checkpoint that does not know the cluster's time keeps what the snapshot says.
    assert not application.look(Brokers(10, retention_ms=retention_ms)).is_due
    assert not application.look(Brokers(10, retention_ms=retention_ms), after_ms=9 * DAY).is_due


def test_before_its_interval_is_over_nobody_asks_the_brokers_nor_for_more_than_the_head(
    application: AtTheBrokers,
) -> None:
    brokers = Brokers(25)
    (manifest,) = (application.world.root / "repository" / "apps" / "app" / "manifests").iterdir()
    manifest.unlink()  # who reads it finds it missing
    verdict = application.look(brokers, after_ms=4 * MINUTE)
    assert (verdict.is_due, brokers.asked) == (False, 0)
    times = {"age_ms": 4 * MINUTE, "interval_ms": 5 * MINUTE}
    assert (verdict.why.code, verdict.why.context) == ("interval-not-over", times)


def test_the_interval_is_the_one_of_the_spec(application: AtTheBrokers) -> None:
    often = {"statestore.checkpoint.interval.ms": 60_000}
    assert application.look(Brokers(25), after_ms=MINUTE, **often).is_due
    assert not application.look(Brokers(25), after_ms=MINUTE).is_due


def test_an_idle_application_is_left_alone_as_long_as_nothing_can_be_missing(application: AtTheBrokers) -> None:
    # Nobody knows when the ends of a directory were read, so a compacted topic's deletes may be missing.
    assert application.look(Brokers(10)).why.code == "base-age-unknown"
    idle = application.look(Brokers(10, policy="delete"))
    assert (idle.is_due, idle.why.code, idle.why.context["age_ms"]) == (False, "nothing-new", 5 * MINUTE)


def test_an_application_without_a_snapshot_is_due(tmp_path: Path) -> None:
    world = World(tmp_path)
    verdict = check_due(world.app_repository, parse_spec(world.spec, "test"), cluster=Brokers(0))  # type: ignore[arg-type]
    assert (verdict.is_due, verdict.why.code, verdict.last_snapshot) == (True, "no-snapshot", NO_SNAPSHOT)


def test_nobody_can_look_at_an_application_without_a_snapshot_whose_brokers_are_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise Retryable("No broker answered.", code="test-error", action="Look at them.")

    world, brokers = World(tmp_path), Brokers(0)
    monkeypatch.setattr(brokers, "describe_topics", away)
    with pytest.raises(Retryable):
        check_due(world.app_repository, parse_spec(world.spec, "test"), cluster=brokers)  # type: ignore[arg-type]


def test_while_a_long_checkpoint_is_under_way_no_other_is_due_and_the_brokers_are_not_asked(
    application: AtTheBrokers, tmp_path: Path
) -> None:
    young, brokers = World(tmp_path / "young"), Brokers(25)
    for app_repository in (application.world.app_repository, young.app_repository):
        app_repository.blobs.replace(
            app_repository.names.in_progress_marker("other"), b"A checkpoint is in progress.\n"
        )
    verdict = application.look(brokers, after_ms=MINUTE, **{"statestore.checkpoint.interval.ms": MINUTE})
    assert (verdict.is_due, brokers.asked) == (False, 0)
    assert verdict.why.code == "in-progress"
    first = check_due(young.app_repository, parse_spec(young.spec, "test"), cluster=brokers)  # type: ignore[arg-type]
    assert not first.is_due, "its first snapshot takes longest"


def test_what_the_snapshot_lacks_or_has_otherwise_makes_it_due_although_the_log_stands_still(
    application: AtTheBrokers,
) -> None:
    brokers = Brokers(10, policy="delete")
    other = {"0": {"stores": {"counts": {"kind": "timestamped-key-value"}}}}
    more = {"0": {"stores": {"counts": {"kind": "key-value"}, "more": {"kind": "key-value"}}}}
    for declared, code, store in ((other, "store-redeclared", "counts"), (more, "store-new", "more")):
        why = application.look(brokers, subtopologies=declared).why
        assert (why.code, why.context["task"], why.context["store"]) == (code, "0_0", store)


def test_a_source_topic_counts_as_far_as_the_application_has_consumed_it(
    application: AtTheBrokers, tmp_path: Path
) -> None:
    world = World(tmp_path / "source")
    world.spec["subtopologies"]["0"]["stores"]["counts"]["changelog"] = "orders"
    world.write({b"a": b"1"}, 9, changelog=TopicPartition("orders", 0))
    world.snapshot()
    application.world, (application.entry,) = world, world.app_repository.head().snapshots
    assert not application.look(Consuming(10, policy="delete")).is_due
    assert not application.look(Consuming(10)).is_due, "a checkpoint could not say that nothing lies behind it"
    assert "2 new offsets" in application.look(Consuming(12, policy="delete")).why
    with raises(NotFound, "committed-offset-missing"):  # as the checkpoint itself would refuse it
        application.look(Consuming(None))


def test_many_applications_are_looked_at_beside_each_other_and_none_keeps_the_others_waiting() -> None:
    release, together = threading.Event(), threading.Barrier(3, timeout=120)

    def meets() -> DueVerdict:
        together.wait()
        return DueVerdict(False, "met the two others")

    def raises() -> DueVerdict:
        raise Corrupted("The head is torn.", code="test-error", action="Repair it.")

    def is_defect() -> DueVerdict:
        raise KeyError("x")

    def hangs() -> DueVerdict:
        release.wait(300)
        return DueVerdict(False, "too late")

    looks: dict[str, Callable[[], DueVerdict]] = {
        "hangs": hangs,
        "a": meets,
        "broken": raises,
        "b": meets,
        "defect": is_defect,
        "c": meets,
    }
    found = check_all(looks, at_once=4, timeout=5.0)
    release.set()
    assert list(found) == list(looks)
    assert [found[name].why for name in "abc"] == ["met the two others"] * 3
    assert isinstance(found["hangs"].error, Retryable)
    assert "checked whether" not in found["hangs"].why
    assert "took longer than 5 s" in found["hangs"].why
    assert found["broken"] == DueVerdict(True, "The head is torn.", found["broken"].error)
    assert "KeyError" in found["defect"].why
    assert all(found[name].is_due for name in ("hangs", "broken", "defect"))


def test_one_after_the_other_where_only_one_is_let_in() -> None:
    under_way = 0

    def alone() -> DueVerdict:
        nonlocal under_way
        under_way += 1
        assert under_way == 1
        time.sleep(0.01)
        under_way -= 1
        return DueVerdict(True, "")

    found = check_all({str(number): alone for number in range(5)}, at_once=1)
    assert [one.error for one in found.values()] == [None] * 5
