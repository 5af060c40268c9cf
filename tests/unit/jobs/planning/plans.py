"""Plans for tests, of a cluster that is a value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from statecore.changelog.cluster import Cluster
from statecore.changelog.model import LogOffsets, TopicDescription
from statecore.errors import Retryable
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.planning.frozen_plan import FrozenPlan
from statecore.jobs.planning.planner import NewPlan, plan_reads
from statecore.jobs.restore.request import RestoreRequest
from statecore.spec.model import ApplicationSpec
from statecore.spec.reader import parse_spec
from tests.unit.changelog.consumed import GroupCoordinator


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

    def epoch_ends(self, _: Any) -> dict[Any, Any]:
        return {}

    def time_ms(self) -> int:
        return 7_000

    def cluster_id(self) -> str:
        return "one"

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
) -> NewPlan:
    fake = cast(Cluster, cluster or FakeCluster())
    return plan_reads(fake, declared or spec(), asked or request(), parallelism=lambda: 2)


def frozen_plan() -> FrozenPlan:
    return FrozenPlan(plan()[0], (), 1000.0, "one", "/staging", broker_read_at_ms=7_000)
