"""Plans: what a frozen one answers, when it no longer holds, and what is refused before anything is read."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from statecore.changelog.cluster import Cluster
from statecore.changelog.model import LogOffsets, TopicDescription
from statecore.errors import Invalid, NotFound, Retryable
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.planning.frozen_plan import FROZEN_PLAN, FrozenPlan, load_plan, sweep_plans
from statecore.jobs.planning.plan import VersionedStart
from statecore.jobs.planning.planner import PlannedRestore, covers, plan_restore, why_stale
from statecore.jobs.restore.request import RestoreRequest
from statecore.spec.model import ApplicationSpec
from statecore.spec.reader import parse_spec
from statecore.spec.writer import spec_to_mapping
from tests.harness.raising import raises
from tests.unit.changelog.consumed import GroupCoordinator
from tests.unit.jobs.support import save_plan

HOUR = 3600.0


class FakeCluster:
    """Two partitions a topic, offsets 0 to 100."""

    def __init__(
        self, topics: Iterable[str] = (), seen: LogOffsets | None = None, configs: Mapping[str, str] | None = None
    ) -> None:
        self.topics, self.seen = list(topics), seen or LogOffsets(0, 100, 100)
        self.configs = {"delete.retention.ms": "7200000", **(configs or {})}

    def describe_topics(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        return {name: TopicDescription(name, f"id-{name}", 2, self.configs) for name in names}

    def log_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, LogOffsets]:
        return dict.fromkeys(partitions, self.seen)

    def time_ms(self) -> int:
        return 7_000

    def list_topics(self) -> list[str]:
        return self.topics

    def leader(self, tp: TopicPartition) -> Any:
        raise Retryable(f"Nobody leads {tp}.", code="test-error", action="Wait.")


class ConsumedCluster(GroupCoordinator, FakeCluster):
    """One whose group has consumed every source topic so far."""

    def __init__(self, committed: int | None, seen: LogOffsets | None = None, **configs: str) -> None:
        FakeCluster.__init__(self, seen=seen, configs=configs)
        GroupCoordinator.__init__(self, lambda group, _: committed if group == "app" else None)


def spec(guarantee: str = "exactly_once_v2", number: str = "0", **stores: Any) -> ApplicationSpec:
    declared = stores or {"a": {"kind": "key-value"}, "b": {"kind": "timestamped-key-value"}}
    return parse_spec(
        {
            "application_id": "app",
            "bootstrap_servers": "nowhere:1",
            "processing_guarantee": guarantee,
            "subtopologies": {number: {"stores": declared}},
        }
    )


def request(**fields: Any) -> RestoreRequest:
    return RestoreRequest(
        **{"state_dir": "/s", "spec_path": "x", "request_id": "one", "transaction_wait": 0.0, **fields}
    )


def plan(
    declared: ApplicationSpec | None = None, asked: RestoreRequest | None = None, cluster: FakeCluster | None = None
) -> PlannedRestore:
    fake = cast(Cluster, cluster or FakeCluster())
    return plan_restore(fake, declared or spec(), asked or request(), parallelism=lambda: 2)


@pytest.fixture
def frozen(tmp_path: Path) -> FrozenPlan:
    save_plan(
        tmp_path / "plans" / "one.json", FrozenPlan(plan()[0], (), 1000.0, "one", "/staging", broker_read_at_ms=7_000)
    )
    loaded = load_plan(tmp_path / "plans" / "one.json")
    assert loaded is not None
    return loaded


def test_a_plan_comes_back_from_its_file(frozen: FrozenPlan) -> None:
    assert frozen == FrozenPlan(plan()[0], (), 1000.0, "one", "/staging", broker_read_at_ms=7_000)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ("{}", "version None, and this release supports 5"),
        ('{"version": 4, "request_id": "one"}', "version 4, and this release supports 5"),
        ('{"version": 6}', "version 6"),
        ('{"version": true}', "version True"),
        ('{"version": 5, "plan": []}', "plan"),
        ('{"version": 5, "plan": {}, "partitions": [], "made_at": 1, "request_id": "one"}', "application_id"),
    ],
)
def test_a_plan_file_that_is_torn_or_of_another_release_says_so(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "p.json").write_text(content)
    with pytest.raises(Invalid, match=said) as refused:
        load_plan(tmp_path / "p.json")
    assert "recreates" in refused.value.action


def test_a_changed_plan_file_is_refused(tmp_path: Path, frozen: FrozenPlan) -> None:
    """A hole in its ranges would be a smaller store that nobody could tell from the whole one."""
    path = tmp_path / "plans" / "one.json"
    document = json.loads(path.read_bytes())
    document["plan"]["partitions"][0]["ranges"] = [[0, 1]]
    changed = [json.dumps(document).encode()]
    source, data = random.Random(7), path.read_bytes()
    for _ in range(300):
        at = source.randrange(len(data))
        flipped = bytes([data[at] ^ 1 << source.randrange(7)])
        if not flipped.isspace() or not data[at : at + 1].isspace():
            changed.append(data[:at] + flipped + data[at + 1 :])
    for content in changed:
        path.write_bytes(content)
        with pytest.raises(Invalid, match="frozen plan") as refused:
            load_plan(path)
        assert "recreates" in refused.value.action


def test_an_unknown_field_of_a_plan_file_is_refused_by_its_name(tmp_path: Path, frozen: FrozenPlan) -> None:
    document = FROZEN_PLAN.to_json(frozen)
    document["plan"]["partitions"][1]["colour"] = "snapshot"
    (tmp_path / "p.json").write_text(json.dumps(document))
    with pytest.raises(Invalid, match=r"the unknown field plan\.partitions\[1\]\.colour"):
        load_plan(tmp_path / "p.json")


def test_without_a_plan_file_there_is_no_plan(tmp_path: Path) -> None:
    assert load_plan(tmp_path / "p.json") is None


def test_a_plan_answers_the_same_request(frozen: FrozenPlan) -> None:
    assert covers(frozen, spec(), request())


@pytest.mark.parametrize(
    ("declared", "asked"),
    [
        pytest.param(spec("at_least_once"), request(), id="guarantee"),
        pytest.param(spec(number="1"), request(), id="subtopology"),
        pytest.param(spec(), request(partitions=(1,)), id="fewer partitions"),
        pytest.param(spec(), request(stores=("a",)), id="fewer stores"),
        pytest.param(
            spec(a={"kind": "timestamped-key-value"}, b={"kind": "timestamped-key-value"}), request(), id="kind"
        ),
        pytest.param(
            spec(a={"kind": "key-value", "changelog": "x"}, b={"kind": "timestamped-key-value"}), request(), id="topic"
        ),
    ],
)
def test_a_plan_does_not_answer_another_request_under_the_same_id(
    frozen: FrozenPlan, declared: ApplicationSpec, asked: RestoreRequest
) -> None:
    assert not covers(frozen, declared, asked)


def test_a_plan_of_one_partition_does_not_answer_a_request_for_all(tmp_path: Path) -> None:
    asked = request(partitions=(1,))
    save_plan(tmp_path / "p.json", FrozenPlan(plan(asked=asked)[0], asked.partitions, 0.0, asked.request_id))
    loaded = load_plan(tmp_path / "p.json")
    assert loaded is not None
    assert covers(loaded, spec(), asked)
    assert not covers(loaded, spec(), request())


def stale(frozen: FrozenPlan, seen: LogOffsets, age: float, partitions: int = 2) -> str | None:
    topics = FakeCluster().describe_topics({part.topic for part in frozen.plan.partitions})
    topics = {name: replace(topic, partitions=partitions) for name, topic in topics.items()}
    offsets = {part.topic_partition: seen for part in frozen.plan.partitions}
    return why_stale(frozen, topics, offsets, frozen.read_at_ms + int(age * 1000))


def test_a_plan_holds_while_nothing_was_written_whatever_its_age(frozen: FrozenPlan) -> None:
    assert stale(frozen, LogOffsets(0, 100, 100), 1000 * HOUR) is None


def test_a_plan_holds_for_half_the_time_that_deletes_are_kept_when_the_log_has_grown(frozen: FrozenPlan) -> None:
    assert stale(frozen, LogOffsets(0, 120, 120), 0.9 * HOUR) is None
    assert "delete.retention.ms" in str(stale(frozen, LogOffsets(0, 120, 120), 1.1 * HOUR))


def test_a_plan_that_ends_before_the_logs_start_would_make_the_application_wipe_the_task(frozen: FrozenPlan) -> None:
    assert stale(frozen, LogOffsets(100, 150, 150), 60) is None
    assert "begins at 101" in str(stale(frozen, LogOffsets(101, 150, 150), 60))


def test_a_log_that_was_cut_below_the_plans_end_makes_it_stale(frozen: FrozenPlan) -> None:
    assert "ends at 99" in str(stale(frozen, LogOffsets(0, 99, 99), 60))


def test_a_store_restored_by_kafka_streams_delays_no_plan_and_makes_none_stale(tmp_path: Path) -> None:
    declared = spec(v={"kind": "versioned-key-value", "retention": "10m"})
    waits: list[float] = []
    made, notes, *_ = plan_restore(
        cast(Cluster, FakeCluster(seen=LogOffsets(0, 50, 100))),  # a transaction is open
        declared,
        request(transaction_wait=60.0),
        parallelism=lambda: 2,
        sleep=waits.append,
    )
    assert not waits
    assert [(part.ranges, part.tail_left) for part in made.partitions] == [((), 0), ((), 0)]
    assert ["Restored by Kafka Streams: v." in note for note in notes] == [True]
    frozen = FrozenPlan(made, (), 0.0, "one", "/staging")
    topics = FakeCluster().describe_topics(["app-v-changelog"])
    later = {part.topic_partition: LogOffsets(80, 200, 200) for part in made.partitions}
    assert why_stale(frozen, topics, later, 10**12) is None
    assert covers(frozen, declared, request())
    assert not covers(frozen, declared, request(versioned=VersionedStart.LATEST))


def test_partitions_that_came_later_make_it_stale(frozen: FrozenPlan) -> None:
    assert "3 partitions" in str(stale(frozen, LogOffsets(0, 100, 100), 60, partitions=3))


def test_changelogs_that_no_declared_store_has_are_named_with_what_will_happen() -> None:
    cluster = FakeCluster(
        ["app-a-changelog", "app-b-changelog", "app-forgotten-changelog", "other-x-changelog", "app-in"]
    )
    (note,) = plan(cluster=cluster)[1]
    assert "app-forgotten-changelog" in note
    assert "WIPES" in note
    assert "app-a-changelog" not in note
    assert "other-x" not in note
    (note,) = plan(spec("at_least_once"), cluster=cluster)[1]
    assert "WIPES" not in note


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_a_store_that_is_declared_not_to_be_logged_and_has_a_changelog_is_named(guarantee: str) -> None:
    topics = ["app-a-changelog", "app-b-changelog", "app-own-changelog"]
    declared = spec(guarantee, a={"kind": "key-value"}, own={"kind": "custom", "changelog": "none"})
    notes = [note for note in plan(declared, cluster=FakeCluster(topics))[1] if "app-own-changelog" in note]
    assert [("WIPES" in note) for note in notes] == [guarantee == "exactly_once_v2"]
    assert not [note for note in plan(declared)[1] if "app-own-changelog" in note]


@pytest.mark.parametrize(("guarantee", "count"), [("exactly_once_v2", 1), ("at_least_once", 0)])
def test_a_store_that_is_declared_to_be_in_memory_is_named_where_a_task_would_be_wiped(
    guarantee: str, count: int
) -> None:
    notes = plan(spec(guarantee, a={"kind": "key-value"}, held={"kind": "in-memory"}))[1]
    assert len([note for note in notes if "held" in note and "WIPES" in note]) == count


@pytest.mark.parametrize(
    ("declared", "partitions", "why"),
    [
        ({"kind": "key-value"}, (0,), "only some partitions were asked for"),
        ({"kind": "key-value", "reprocess": True}, (), "the application fills it through its own processor"),
        ({"kind": "session", "retention": "10m"}, (), "the application fills it through its own processor"),
        ({"kind": "in-memory"}, (), "it is in memory"),
        ({"kind": "custom"}, (), "it is of the application's own class"),
    ],
)
def test_a_global_store_that_is_not_restored_is_named_with_the_reason(
    declared: dict[str, Any], partitions: tuple[int, ...], why: str
) -> None:
    application = spec()
    document = {**spec_to_mapping(application), "global_stores": {"products": {**declared, "topic": "products"}}}
    made, notes, *_ = plan(parse_spec(document), request(partitions=partitions))
    assert {part.store for part in made.partitions} == {"a", "b"}
    (note,) = notes
    assert ("'products'" in note, why in note) == (True, True)


@pytest.mark.parametrize(
    ("committed", "end", "offset"),
    [(40, 40, 39), (10, 10, 9), (500, 100, 99)],
)
def test_a_source_topic_reused_as_changelog_is_restored_as_far_as_the_application_consumed_it(
    committed: int | None, end: int, offset: int
) -> None:
    declared = spec(a={"kind": "key-value", "changelog": "profiles"}, b={"kind": "key-value"})
    made, *_ = plan(declared, cluster=ConsumedCluster(committed, LogOffsets(10, 100, 100)))
    by_store = {part.store: part for part in made.partitions}
    assert (by_store["a"].end, by_store["a"].committed_offset, by_store["a"].tail_left) == (end, offset, 0)
    assert by_store["b"].end == 100


@pytest.mark.parametrize("committed", [None, 5])
def test_a_source_topic_of_unknown_progress_is_refused(
    committed: int | None,
) -> None:
    declared = spec(a={"kind": "key-value", "changelog": "profiles"})
    with raises(NotFound, "committed-offset-missing", group="app", partitions=["profiles-0", "profiles-1"]):
        plan(declared, cluster=ConsumedCluster(committed, LogOffsets(10, 100, 100)))


@pytest.mark.parametrize("committed", [None, 5])
def test_a_source_topic_whose_records_are_gone_gets_no_offset_before_its_start(
    committed: int | None,
) -> None:
    declared = spec(a={"kind": "key-value", "changelog": "profiles"})
    made, *_ = plan(declared, cluster=ConsumedCluster(committed, LogOffsets(10, 10, 10)))
    assert {(part.ranges, part.committed_offset) for part in made.partitions} == {((), -4)}


def test_a_source_topic_without_records_needs_no_committed_offset() -> None:
    made, *_ = plan(
        spec(a={"kind": "key-value", "changelog": "profiles"}), cluster=ConsumedCluster(None, LogOffsets(0, 0, 0))
    )
    assert {part.committed_offset for part in made.partitions} == {-4}


def test_a_kind_that_the_changelog_s_configuration_contradicts_is_named() -> None:
    cluster = FakeCluster(configs={"cleanup.policy": "compact,delete"})
    notes = plan(spec(a={"kind": "key-value"}, w={"kind": "window", "retention": "1h"}), cluster=cluster)[1]
    (note,) = notes
    assert "Store 'a'" in note
    assert "key-value" in note
    assert "cleanup.policy compact,delete" in note
    assert "timestamped-window" in note


def test_a_source_topic_s_configuration_says_nothing_of_the_store() -> None:
    cluster = ConsumedCluster(50, **{"cleanup.policy": "delete"})
    assert plan(spec(a={"kind": "key-value", "changelog": "profiles"}), cluster=cluster)[1] == ()


def test_old_plans_and_reports_are_swept_but_for_the_newest(tmp_path: Path) -> None:
    plans = tmp_path / "plans"
    plans.mkdir()
    day = 86_400
    for name, age in {"new.json": 0, "old.json": 40, "older.report": 50, "oldest.report": 60, "young.json": 20}.items():
        (plans / name).touch()
        os.utime(plans / name, (1e9 - age * day, 1e9 - age * day))
    sweep_plans(tmp_path, 1e9, keep_files=2)
    assert {file.name for file in plans.iterdir()} == {"new.json", "young.json"}
    os.utime(plans / "young.json", (1e9 - 90 * day, 1e9 - 90 * day))
    sweep_plans(tmp_path, 1e9, keep_files=2)
    assert {file.name for file in plans.iterdir()} == {"new.json", "young.json"}


def test_a_plan_alone_says_what_it_will_take() -> None:
    asked = replace(request(), plan_only=True)
    _, notes, *_ = plan(asked=asked)
    (estimate,) = (note for note in notes if "are read" in note)
    numbers = {"400 records", "39 KiB", "4 ranges", "512 MiB", "--memory-budget", "48 KiB of disk"}
    assert {one for one in numbers if one in estimate} == numbers
    assert not any("are read" in note for note in plan()[1])


def test_a_plan_of_what_a_directory_has_answers_its_request_and_does_not_miss_the_rest(frozen: FrozenPlan) -> None:
    some = replace(frozen.plan, partitions=tuple(one for one in frozen.plan.partitions if one.partition == 1))
    part = replace(frozen, plan=some, is_partial=True)
    assert stale(part, LogOffsets(0, 100, 100), 60) is None
    alone = replace(
        part, plan=replace(some, partitions=some.partitions[:1]), excluded_stores=(some.partitions[1].store,)
    )
    assert covers(alone, spec(), request())
    assert not covers(replace(alone, excluded_stores=()), spec(), request())
    assert not covers(
        alone, spec(a={"kind": "window", "retention": "1h"}, b={"kind": "window", "retention": "1h"}), request()
    )


def test_a_plan_that_is_to_end_at_offsets_reads_no_farther_and_waits_for_no_transaction_behind_them() -> None:
    """Whoever holds a store against its changelog wants what was there at the store's own offset."""
    first, second = TopicPartition("app-a-changelog", 0), TopicPartition("app-a-changelog", 1)
    waited: list[float] = []
    made = plan_restore(
        cast(Cluster, FakeCluster(seen=LogOffsets(0, 90, 100))),
        spec(a={"kind": "key-value"}),
        request(transaction_wait=1.0),
        parallelism=lambda: 2,
        ends={first: 40, second: 90},
        clock=lambda: float(len(waited)),
        sleep=waited.append,
    )
    assert [(part.partition, part.end, part.committed_offset, part.tail_left) for part in made.plan.partitions] == [
        (0, 40, 39, 0),
        (1, 90, 89, 0),
    ]
    assert [part.reaches_log_end for part in made.plan.partitions] == [False, True]
    assert not waited
    made = plan_restore(
        cast(Cluster, FakeCluster(seen=LogOffsets(0, 90, 100))),
        spec(a={"kind": "key-value"}),
        request(transaction_wait=1.0),
        parallelism=lambda: 2,
        ends={first: 40, second: 200},
        clock=lambda: float(len(waited)),
        sleep=waited.append,
    )
    assert [(part.partition, part.end) for part in made.plan.partitions] == [(0, 40), (1, 90)]
    assert waited
