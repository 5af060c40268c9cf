"""The standby tasks that a consumer group assigns to this process: opened, followed, published, and cleaned.

::

    start              open a standby for every task directory found     before joining the group (KAFKA-17411)
    poll               send heartbeats; remember a new assignment        also between two chunks of a long first read
    apply_assignment   follow assigned tasks, without reopening them     close the others; delete what others have
    publish            offset sums of all tasks                          after each round
    probe_for_cleanup  trigger a rebalance if tasks could be deleted     if requested

Cleaning takes two steps. When a task's cleanup delay is over, a rebalance is triggered. With the new assignment all
members have just published their state, and the tasks that their owners have completely are deleted before this process
publishes anything else (:class:`statecore.standby.group_member.AssignmentResult`).
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping

from statecore.changelog.cluster import Cluster
from statecore.changelog.delete_retention import is_purely_compacted
from statecore.errors import Invalid, Retryable, StatecoreError
from statecore.faults import NO_FAULTS, FaultPoints
from statecore.formats.integers import INT64_MAX
from statecore.formats.topic_partition import TopicPartition
from statecore.progress import Clock
from statecore.spec.model import ApplicationSpec
from statecore.spec.writer import spec_hash
from statecore.standby.assignment.model import AssignmentSettings
from statecore.standby.group_member import AssignmentResult, GroupMember, GroupSettings
from statecore.standby.log_dedup import Messages
from statecore.standby.request import StandbyRequest
from statecore.standby.state_cleaner import clean_unowned, removable_tasks
from statecore.standby.task_manager import TaskManager
from statecore.standby.task_selection import find_eligible_tasks
from statecore.statedir.state_directory import StateDirectory
from statecore.tasks.changelog_ends import ChangelogEnd, changelog_ends
from statecore.tasks.offset_sums import TaskSum, offset_sum
from statecore.tasks.standby_task import StandbyTask
from statecore.tasks.startup_tasks import CorruptTask, StartupTasks
from statecore.tasks.task_stores import standby_stores


class AssignedTasks:
    """The tasks of this process, for one thread; always :meth:`close` them after :meth:`start`."""

    def __init__(
        self,
        request: StandbyRequest,
        spec: ApplicationSpec,
        cluster: Cluster,
        directory: StateDirectory,
        task_manager: TaskManager,
        tasks: StartupTasks[StandbyTask],
        say: Callable[[str], None],
        *,
        clock: Clock = time.monotonic,
        faults: FaultPoints = NO_FAULTS,
        group: Callable[..., GroupMember] = GroupMember,
        ends: Callable[..., Mapping[TopicPartition, ChangelogEnd]] = changelog_ends,
    ) -> None:
        self._make_group, self._ask_ends = group, ends
        self._request, self._spec, self._cluster, self._directory = request, spec, cluster, directory
        self._manager, self._say, self._faults = task_manager, say, faults
        self._clock = clock
        self._startup = tasks
        changelogs = {store.changelog for store in spec.stores if store.is_logged and not store.is_undecided}
        self._topics = tuple(sorted(changelogs))
        self._on_disk: dict[str, dict[TopicPartition, int]] = {}  # Offsets of local tasks that are not followed
        self._log_ends: dict[TopicPartition, int] = {}  # Changelog ends, as last read or seen since
        self._shortened: frozenset[str] = frozenset()
        """Tasks with a changelog that lost records to retention or deletion, not compaction."""
        self._group: GroupMember | None = None
        self._pending: AssignmentResult | None = None
        self._has_assignment = False
        self._elsewhere: Mapping[str, int] = {}
        self._next_unowned_check = 0.0  # Time of the next check for unowned tasks
        self._messages = Messages(say)

    def start(self) -> None:
        """Inspect the tasks on disk, open up to the configured number of databases, and prepare to join."""
        request = self._request
        self._on_disk = {task: self._offsets(found) for task, found in self._startup.start().items()}
        for task, found in self._startup.skipped.items():
            self._say(f"Task {task} is left alone: {found.reason}")
        for task, error in self._startup.refused.items():
            self._say(f"Task {task} is left as it is: {error}")
        for corrupt in self._startup.corrupt.values():
            self._say(_describe_corrupt(corrupt))
        self._group = self._make_group(
            self._cluster,
            GroupSettings(
                request.group or "",
                self._topics,
                spec_hash(self._spec),
                instance_id=request.instance_id,
                host=request.host or socket.gethostname(),
                session_timeout_ms=request.session_timeout,
                # If its session outlasts this, the group uses the previous user data of a static member.
                max_poll_interval_ms=max(GroupSettings.max_poll_interval_ms, request.session_timeout),
                heartbeat_interval_ms=min(3_000, request.session_timeout // 3),
            ),
            ends=self._ends,
            assignment=AssignmentSettings(
                replicas=request.replicas,
                recovery_lag=request.recovery_lag,
                max_warmups=request.max_warmups,
                probing_interval_ms=request.probing_interval,
            ),
        )
        self._manager.on_state_loss(self.publish)
        self._ends()  # after the offsets on disk were read: an offset beyond the end belongs to another log
        self._group.start(self._sums())

    @property
    def has_pending_assignment(self) -> bool:
        """Whether a new assignment is pending."""
        return self._pending is not None

    def poll(self, timeout: float) -> bool:
        """Poll the group for at most ``timeout`` seconds; returns :attr:`has_pending_assignment`."""
        if self._pending is None:
            try:
                self._pending = self._joined.poll(timeout)
                self._messages.changes("group", {})
            except Retryable as error:
                self._messages.changes("group", {"": str(error)})
                time.sleep(timeout)
        return self.has_pending_assignment

    def apply_assignment(self) -> None:
        """Apply the pending assignment: follow its tasks, close the others, and publish."""
        assigned, self._pending = self._pending, None
        if assigned is None:
            return
        if assigned.lost:
            self._elsewhere = {}  # what the other members have is no longer known
            self._say(
                f"The broker removed this process from the group {self._request.group}; it follows its tasks meanwhile."
            )
            return
        self._elsewhere = assigned.elsewhere
        for name in self._manager.names:
            if name not in assigned.roles:
                self._drop(name)
                if name in self._joined.ends:
                    self._say(f"Task {name} is assigned to other processes now; its copy stays here.")
                else:
                    self._say(f"Task {name} is not followed any more: its changelog was deleted. Its copy stays here.")
        for name, role in assigned.roles.items():
            self._manager.add(name, role)
            self._on_disk.pop(name, None)
        if not self._has_assignment:
            self._has_assignment = True
            try:
                self._startup.close_rest()
            except StatecoreError as error:
                self._say(f"A task that is assigned to other processes could not be closed: {error}")
        self._messages.changes("assigned", {task: f"Task {task}: {why}" for task, why in assigned.errors.items()})
        self.publish()
        if assigned.is_new:
            self._clean()

    def publish(self) -> None:
        """Publish the offset sums of all tasks. Raises ``Invalid``: the user data is too large."""
        self._joined.publish(self._sums())

    def probe_for_cleanup(self) -> None:
        """Trigger a rebalance, once a probing interval, if there are tasks that it would allow to delete.

        Other members own every task not assigned to this process. Whether they have all of it is known only from the
        next assignment, not from the one in which they started.
        """
        delay_ms = self._request.cleanup_delay
        if delay_ms is None or not self._has_assignment or self._clock() < self._next_unowned_check:
            return
        self._next_unowned_check = self._clock() + self._request.probing_interval / 1000
        force, assigned = self._request.cleanup_even_best, self._manager.names
        others = self._joined.ends.keys() - set(assigned)
        if removable_tasks(self._directory, assigned, others, spec=self._spec, cleanup_delay_ms=delay_ms, force=force):
            self._joined.probe()

    def _clean(self) -> None:
        """Delete tasks that their owners have completely; others only if the request forces it."""
        delay_ms = self._request.cleanup_delay
        if delay_ms is None:
            return
        done = clean_unowned(
            self._directory,
            self._manager.names,
            self._caught_up_elsewhere(),
            spec=self._spec,
            cleanup_delay_ms=delay_ms,
            force=self._request.cleanup_even_best,
            shortened=self._shortened,
            may_delete=self._joined.withdraw,
            faults=self._faults,
        )
        # Leftovers of an earlier cleaning may be of a task that exists here again.
        gone = {task for task in (*done.deleted, *done.failed) if not self._directory.task_path(task).exists()}
        for task in gone:
            self._on_disk.pop(task, None)
        for task in gone.intersection(done.deleted):
            self._say(f"Task {task} is deleted here: other processes have it.")
        for task, path in done.moved_away.items():
            self._on_disk.pop(task, None)
            self._say(f"Task {task} is moved to {path} for a week: other processes may have less of it.")
        self._messages.changes("stays", {task: f"Task {task} stays here: {why}" for task, why in done.kept.items()})
        self._messages.changes(
            "left",
            {task: f"Task {task} is moved away, but not deleted yet: {why}" for task, why in done.failed.items()},
        )
        self.publish()

    def close(self) -> None:
        """Leave the group, and close the tasks that were not taken from startup."""
        try:
            if self._group is not None:
                self._group.close()
        finally:
            self._startup.close_rest()

    @property
    def _joined(self) -> GroupMember:
        if self._group is None:
            raise Invalid("The group member is not started.", code="group-not-joined", action="Call start first.")
        return self._group

    def _drop(self, name: str) -> None:
        held = self._manager.drop(name)
        self._on_disk[name] = {changelog: one.offset for changelog, one in held.items()}
        for changelog, one in held.items():
            if one.is_confirmed:
                self._log_ends[changelog] = max(self._log_ends.get(changelog, 0), one.offset + 1)

    def _sums(self) -> dict[str, int]:
        """Offset sum of each local task.

        An offset beyond the end of its changelog counts nothing: the topic was recreated or has lost records, and a
        member with a smaller offset has the sound copy.
        """
        ends = self._log_ends
        on_disk = {
            task: offset_sum(offset for changelog, offset in offsets.items() if offset < ends.get(changelog, INT64_MAX))
            for task, offsets in self._on_disk.items()
        }
        return {**on_disk, **self._manager.sums(ends)}

    def _caught_up_elsewhere(self) -> dict[str, int]:
        """Best offset sums of tasks that others have completely; a smaller sum does not say which store lags."""
        ends, near = self._joined.ends, self._request.recovery_lag
        return {task: held for task, held in self._elsewhere.items() if task in ends and ends[task] - held <= near}

    def _offsets(self, found: TaskSum) -> dict[TopicPartition, int]:
        """Offsets of a task in the followed changelogs, the ones that other members count too."""
        try:
            followed = {store.changelog for store in standby_stores(self._spec, found.task)}
        except StatecoreError:
            return {}
        return {changelog: offset for changelog, offset in found.offsets.items() if changelog in followed}

    def _ends(self) -> Mapping[str, int]:
        """End sum of the followed changelogs of every task."""
        found = find_eligible_tasks(self._spec, self._cluster)
        refused = {name: f"Task {name} is followed by no process: {error}" for name, error in found.refused.items()}
        self._messages.changes("refused", refused)
        followed = found.stores
        ends = self._ask_ends(self._cluster, self._spec, [store for stores in followed.values() for store in stores])
        self._log_ends = {changelog: found.log.log_end for changelog, found in ends.items()}
        shortened = {at for at, one in ends.items() if one.log.log_start > 0 and is_purely_compacted(one.topic)}
        self._shortened = frozenset(
            name for name, stores in followed.items() if any(store.changelog in shortened for store in stores)
        )
        return {name: sum(ends[store.changelog].end for store in stores) for name, stores in followed.items() if stores}


def _describe_corrupt(corrupt: CorruptTask) -> str:
    copy = "no snapshot is known to have a copy"
    if corrupt.snapshot:
        copy = f"snapshot {corrupt.snapshot} has a copy"
    elif corrupt.why_snapshot_unknown:
        copy = f"whether a snapshot has a copy is unknown ({corrupt.why_snapshot_unknown.rstrip('.')})"
    reason = f": {corrupt.reason.rstrip('.')}" if corrupt.reason else ""
    return f"Task {corrupt.task} was corrupt, and was moved to {corrupt.quarantined.path}; {copy}{reason}."
