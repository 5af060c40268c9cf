"""How far changelogs can be applied now, and what is needed to validate that they may be.

The end is the last stable offset under exactly-once, else the log's end. Of a source topic it is at most what the
application has consumed: a store with later records would be ahead of its input.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from dataclasses import dataclass, replace

from statecore.changelog.cluster import Cluster
from statecore.changelog.delete_retention import recorded_retention_ms
from statecore.changelog.groups import committed_offsets
from statecore.changelog.model import LogOffsets, TopicDescription
from statecore.changelog.soundness import BaseEnd
from statecore.errors import Retryable, StatecoreError
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import ApplicationSpec
from statecore.tasks.standby_store import StandbyStoreSpec


@dataclass(frozen=True)
class ChangelogEnd:
    """How far a changelog partition can be applied, as the brokers tell it at one time.

    Attributes:
        end: the offset that a store may be updated up to, exclusive.
        log: where the log begins and ends.
        topic: the topic.
        epoch_end: end of the leader epoch that was asked for; ``None`` where none was asked for, or the brokers do not
            tell it.
        read_at_ms: a time before the brokers were asked, by the cluster's clock, in ms since the epoch; ``None`` where
            the cluster does not tell the time.
        read_at_uptime_ms: the same time by :func:`uptime_ms`; ``None`` where it is unknown.
    """

    end: int
    log: LogOffsets
    topic: TopicDescription
    epoch_end: int | None
    read_at_ms: int | None
    read_at_uptime_ms: int | None = None

    @property
    def delete_retention_ms(self) -> int | None:
        """How long deletes were kept at that time; ``None`` where the time is unknown."""
        return None if self.read_at_ms is None else recorded_retention_ms(self.topic)


def uptime_ms() -> int:
    """Uptime of this machine in ms, including suspension: a clock for times that one process measures alone."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class LocalAges:
    """Ages of stores by what this process has observed itself; used where the cluster does not tell the time."""

    def __init__(self) -> None:
        self._observed: dict[TopicPartition, tuple[int, int]] = {}

    def observe(self, now: ChangelogEnd, changelog: TopicPartition, *, is_at_end: bool) -> None:
        """Record an answer of the brokers, and whether no record was beyond the store's position then."""
        delete_retention_ms, known = recorded_retention_ms(now.topic), self._observed.get(changelog)
        if is_at_end and now.read_at_uptime_ms is not None:
            self._observed[changelog] = now.read_at_uptime_ms, delete_retention_ms
        elif known is not None:
            self._observed[changelog] = known[0], min(known[1], delete_retention_ms)

    def with_local_age(self, known: BaseEnd) -> BaseEnd:
        """The end with its age by :func:`uptime_ms`; unknown where this process has not observed it."""
        read_at_ms, delete_retention_ms = self._observed.get(known.topic_partition, (None, None))
        return replace(known, read_at_ms=read_at_ms, delete_retention_ms=delete_retention_ms)

    def clear(self) -> None:
        """Forget all ages, because other processes may have changed the stores."""
        self._observed.clear()


def changelog_ends(
    cluster: Cluster,
    spec: ApplicationSpec,
    stores: Collection[StandbyStoreSpec],
    epochs: Mapping[TopicPartition, int] | None = None,
) -> dict[TopicPartition, ChangelogEnd]:
    """Ask the brokers for the changelogs of stores, all at once.

    Args:
        cluster: the cluster.
        spec: the application's spec.
        stores: the stores.
        epochs: by changelog the leader epoch whose end is asked for.

    Raises:
        NotFound: a topic or partition does not exist.
        Retryable: brokers did not answer in time.
        Invalid: this client may not see a topic, or the application's group.
    """
    here_ms, asked_at_ms = uptime_ms(), cluster.time_ms()
    changelogs = {store.changelog for store in stores}
    topics = cluster.describe_topics(sorted({changelog.topic for changelog in changelogs}))
    wanted = {at: epoch for at, epoch in (epochs or {}).items() if at in changelogs and epoch >= 0}
    epoch_ends = cluster.epoch_ends(wanted) if wanted else {}
    committed = committed_offsets(
        cluster, spec.application_id, {store.changelog for store in stores if store.is_source}
    )
    logs = cluster.log_offsets(changelogs)
    isolation = spec.processing_guarantee.isolation
    found: dict[TopicPartition, ChangelogEnd] = {}
    for changelog, log in logs.items():
        followed = log.consumed(committed[changelog]) if changelog in committed else log
        topic, epoch_end = topics[changelog.topic], epoch_ends.get(changelog)
        found[changelog] = ChangelogEnd(followed.end(isolation), log, topic, epoch_end, asked_at_ms, here_ms)
    return found


Ends = Mapping[TopicPartition, ChangelogEnd]


def ends_of_tasks(
    topics: Mapping[str, Set[str]], ask: Callable[[Collection[str]], Ends], stopped: Callable[[], bool] = lambda: False
) -> Iterator[tuple[Collection[str], Ends | StatecoreError]]:
    """Ask for the changelogs of tasks in one request, so that an error is that of as few tasks as possible.

    Where some changelogs have no leader, the other tasks are asked for again; after any other error each task alone.

    Args:
        topics: the changelog topics of each task.
        ask: asks for the ends of some tasks.
        stopped: whether to ask for no more.

    Yields:
        Some tasks and their ends, or the error they share; it names ``topics`` where brokers have answered for others.
    """
    left = list(topics)
    while left and not stopped():
        stuck = left
        try:
            found: Ends | StatecoreError = ask(left)
        except Retryable as error:
            away = set(error.context.get("topics", ()))
            stuck, found = [task for task in left if away & topics[task]] or left, error
        except StatecoreError as error:
            if len(left) > 1:
                for task in left:
                    yield from ends_of_tasks({task: topics[task]}, ask, stopped)
                return
            found = error
        yield stuck, found
        left = [task for task in left if task not in stuck]
