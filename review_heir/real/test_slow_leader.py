# ruff: noqa
"""runtime/group.py: "while a group waits for [the leader's decision] no heartbeat is due". Is that so?"""

from __future__ import annotations

import threading
import time

from statecore.changelog.cluster import Cluster
from statecore.runtime import group
from statecore.runtime.assignment.model import AssignmentSettings
from statecore.runtime.group import GroupSettings, TaskGroup
from tests.harness import topics
from tests.harness.broker import Broker


def test_a_leader_that_decides_for_longer_than_a_session_stays_in_the_group(broker: Broker, monkeypatch) -> None:
    servers = broker.bootstrap_servers
    topics.create(servers, "slow-leader-changelog", 1)
    decide, began = group.decide, []

    def slow(*args):
        began.append(time.monotonic())
        print("deciding for", len(args[0]), flush=True)
        time.sleep(10)
        return decide(*args)

    monkeypatch.setattr(group, "decide", slow)
    stop, given, lost = threading.Event(), [], []

    def member(host: str) -> None:
        settings = GroupSettings(
            "slow-leader-fleet",
            ("slow-leader-changelog",),
            "s",
            host=host,
            session_timeout_ms=6_000,
            heartbeat_interval_ms=1_000,
        )
        with (
            Cluster(servers) as cluster,
            TaskGroup(cluster, settings, ends=lambda: {"0_0": 1, "0_1": 1}, assignment=AssignmentSettings()) as one,
        ):
            one.start({})
            while not stop.is_set():
                found = one.poll(0.2)
                if found is not None:
                    print(time.monotonic(), host, found, flush=True)
                    (lost if found.lost else given).append((host, found.generation))
                    one.publish({})

    threads = [threading.Thread(target=member, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    time.sleep(75)
    stop.set()
    for thread in threads:
        thread.join(60)
    print(len(began), given, lost)
    assert len(began) <= 3, (len(began), given, lost)
    assert {host for host, _ in given} == {"a", "b"}
