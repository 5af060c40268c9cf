"""The context that all global stores of a process share."""

from __future__ import annotations

import statecore.extras.pipeline

from collections.abc import Callable
from dataclasses import dataclass

from statecore.changelog.cluster import Cluster
from statecore.faults import FaultPoints
from statecore.global_stores.backups import GlobalBackups
from statecore.global_stores.settings import GlobalSettings
from statecore.global_stores.state import StateListener
from statecore.global_stores.topic_ids import TopicIds
from statecore.metrics import Metrics
from statecore.statedir.state_directory import StateDirectory


@dataclass(frozen=True)
class GlobalContext:
    """What all global stores of a process share.

    Attributes:
        directory: the application's state directory, locked.
        cluster: the cluster with the topics.
        settings: how the stores are kept.
        topics: the ids of the topics that they are built of.
        backups: backups of former rows.
        listener: called for every change of state, while locks are held.
        metrics: gets the measurements.
        faults: fault points of tests.
        clock: seconds, monotonic.
    """

    directory: StateDirectory
    cluster: Cluster
    settings: GlobalSettings
    topics: TopicIds
    backups: GlobalBackups
    listener: StateListener | None
    metrics: Metrics
    faults: FaultPoints
    clock: Callable[[], float]
