"""A process that keeps a global store until it is running, to be killed at a fault point of ``STATECORE_FAULT``.

Arguments: state directory, brokers, topic, store, whether exactly-once (``True``).
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from statecore.changelog.cluster import Cluster
from statecore.faults import fault_points_from_environment
from statecore.formats.kinds import StoreKind
from statecore.global_stores.manager import GlobalStores
from statecore.global_stores.settings import GlobalSettings, GlobalTable
from statecore.global_stores.state import GlobalState
from statecore.statedir.state_directory import StateDirectory


def main(state_dir: str, servers: str, topic: str, store: str, exactly_once: str) -> None:
    directory = StateDirectory(Path(state_dir), "app")
    tables = [GlobalTable(store, StoreKind.KEY_VALUE, topic)]
    settings = GlobalSettings(round_offsets=1, exactly_once=exactly_once == "True")
    faults = fault_points_from_environment()
    with (
        directory.lock(),
        Cluster(servers) as cluster,
        GlobalStores(directory, tables, cluster, settings, faults=faults) as stores,
    ):
        deadline = time.monotonic() + 60
        while stores.state is not GlobalState.RUNNING and time.monotonic() < deadline:
            stores.poll()


if __name__ == "__main__":
    main(*sys.argv[1:])
