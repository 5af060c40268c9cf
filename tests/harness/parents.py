"""Parents as a real cluster tells them: how far a store has come, and whether something may be put above it."""

from __future__ import annotations

import time

from statecore.changelog.cluster import Cluster
from statecore.changelog.model import LogOffsets
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.soundness import ParentEnd, refusal


def log_of(cluster: Cluster, topic: str) -> LogOffsets:
    """The offsets of partition 0."""
    tp = TopicPartition(topic, 0)
    return cluster.log_offsets([tp])[tp]


def parent_of(cluster: Cluster, topic: str, *, stable: bool = False, known: bool = True) -> ParentEnd:
    """A parent that has come to the end of partition 0: the log end, or the last stable offset.

    Args:
        cluster: where it is.
        topic: the changelog.
        stable: whether it was read committed.
        known: whether its age is known.
    """
    described = cluster.describe_topics([topic])[topic]
    read_at = int(time.time() * 1000) if known else None
    log = log_of(cluster, topic)
    end = log.last_stable if stable else log.log_end
    return ParentEnd(TopicPartition(topic, 0), described.topic_id, end, log.leader_epoch, read_at)


def why_hopeless(cluster: Cluster, parent: ParentEnd) -> str | None:
    """What is asked before anything is read."""
    tp = parent.topic_partition
    described = cluster.describe_topics([tp.topic])[tp.topic]
    log = log_of(cluster, tp.topic)
    return refusal(parent, described, log, cluster.epoch_ends({tp: parent.leader_epoch})[tp])
