"""A member of a fleet as a process of its own: reads each task's records at once, and says what it was given.

Lines to its output: ``assigned <generation> <task>=<role> …``, ``lost``, ``error <kind> <text>``, ``closed``. A line to
its input ends it as an operator would.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from queue import Empty, Queue

from statecore.changelog.cluster import Cluster
from statecore.errors import StatecoreError
from statecore.standby.assignment import leader, protocol
from statecore.standby.assignment.model import AssignmentSettings
from statecore.standby.group_member import GroupMember, GroupSettings


def main() -> None:
    asked = json.loads(sys.argv[1])
    protocol.VERSION = leader.VERSION = asked["version"]
    said: Queue[str] = Queue()
    threading.Thread(target=lambda: [said.put(line.strip()) for line in sys.stdin], daemon=True).start()
    ends: dict[str, int] = asked["ends"]
    sums: dict[str, int] = asked["sums"]
    assignment = AssignmentSettings(replicas=asked["replicas"], recovery_lag=10, max_warmups=2)
    group = GroupMember(
        Cluster(asked["servers"]),
        GroupSettings(
            asked["group"],
            (asked["topic"],),
            asked["spec"],
            instance_id=asked["instance"],
            host=asked["host"],
            session_timeout_ms=asked["session_ms"],
            heartbeat_interval_ms=asked["session_ms"] // 12,
            max_poll_interval_ms=600_000,  # a machine that stalls must not end a membership
        ),
        ends=lambda: ends,
        assignment=assignment,
    )
    try:
        group.start(sums)
        while True:
            assigned = group.poll(0.3)
            if assigned is not None and assigned.lost:
                print("lost", flush=True)
            elif assigned is not None:
                roles = " ".join(f"{task}={role.name.lower()}" for task, role in sorted(assigned.roles.items()))
                print(f"assigned {assigned.generation} {roles}", flush=True)
                if asked["follows"]:
                    sums = {**sums, **{task: ends[task] for task in assigned.roles}}
                group.publish(sums)
            with contextlib.suppress(Empty):
                said.get_nowait()
                break
        group.close()
        print("closed", flush=True)
    except StatecoreError as error:
        print(f"error {type(error).__name__} {error}", flush=True)
        group.close()


if __name__ == "__main__":
    main()
