"""A process that shares the tasks of an application with others, by a consumer group of their own.

::

    start      a standby for every task directory that is there      before the group is joined (KAFKA-17411)
    attend     heartbeats; a new assignment is remembered            also between two pieces of a long first read
    take up    tasks that were given are followed, open ones         without being closed
               others are closed, and stay on the disk
    publish    what each task has now                                after each round
    clean      tasks that this process was not given                 where that was asked for

Cleaning takes two steps. Where a task's time is over, another assignment is asked for. When that is there, all members
have just said what they have, and the tasks go that those who keep them have all of, before this process says anything
else to the group (`standby/assignment_result.py` has the reasons).
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Mapping

from statecore.changelog.cluster import Cluster
from statecore.changelog.horizon import is_purely_compacted
from statecore.errors import Invalid, Retryable, StatecoreError
from statecore.faults import NO_FAULTS, FaultPoints
from statecore.formats.integers import INT64_MAX
from statecore.formats.topic_partition import TopicPartition
from statecore.progress import Clock
from statecore.spec.model import ApplicationSpec
from statecore.spec.writer import spec_hash
from statecore.standby.assignment.model import AssignmentSettings
from statecore.standby.eligible_tasks import followed_tasks
from statecore.standby.group import AssignmentResult, GroupSettings, TaskGroup
from statecore.standby.request import StandbyRequest
from statecore.standby.state_cleaner import CleaningSettings, clean_unowned, could_go
from statecore.standby.task_manager import TaskManager
from statecore.statedir.state_directory import StateDirectory
from statecore.tasks.changelog_ends import ChangelogEnd, changelog_ends
from statecore.tasks.offset_sums import TaskSum, offset_sum
from statecore.tasks.standby_task import StandbyTask
from statecore.tasks.startup_tasks import CorruptTask, StartupTasks
from statecore.tasks.task_stores import followed_in

_NUMBERS = re.compile(r"[0-9][0-9,.]*")


class GroupMember:
    """This process's part in the fleet, for one thread; :meth:`start` it, and :meth:`close` it in any case.

    Args:
        request: what is asked for; it names a group.
        spec: the application.
        cluster: where its changelogs are.
        directory: where the copies lie, locked.
        kept: the tasks that this process follows.
        tasks: those that lie on the disk; whoever takes one up gets it from there.
        say: told what an operator should read at once.
        sleep: waits for so many seconds.
        clock: seconds that never go back.
        faults: where tests let the process die.
    """

    def __init__(
        self,
        request: StandbyRequest,
        spec: ApplicationSpec,
        cluster: Cluster,
        directory: StateDirectory,
        kept: TaskManager,
        tasks: StartupTasks[StandbyTask],
        say: Callable[[str], None],
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Clock = time.monotonic,
        faults: FaultPoints = NO_FAULTS,
        group: Callable[..., TaskGroup] = TaskGroup,
        ends: Callable[..., Mapping[TopicPartition, ChangelogEnd]] = changelog_ends,
    ) -> None:
        self._make_group, self._ask_ends = group, ends
        self._request, self._spec, self._cluster, self._directory = request, spec, cluster, directory
        self._kept, self._say, self._sleep, self._faults = kept, say, sleep, faults
        self._clock = clock
        self._startup = tasks
        changelogs = {store.changelog for store in spec.stores if store.is_logged and not store.is_undecided}
        self._topics = tuple(sorted(changelogs))
        self._on_disk: dict[str, dict[TopicPartition, int]] = {}
        """Offsets of tasks that lie here and are not followed."""
        self._log_ends: dict[TopicPartition, int] = {}
        """Where the changelogs end, as it was read last, or seen since."""
        self._shortened: frozenset[str] = frozenset()
        """Tasks of which a changelog has lost records to something else than compaction."""
        self._group: TaskGroup | None = None
        self._pending: AssignmentResult | None = None
        self._has_assignment = False
        self._elsewhere: Mapping[str, int] = {}
        self._look_again_at = 0.0
        """When it is looked for unowned tasks next."""
        self._said: dict[str, dict[str, str]] = {}

    def start(self) -> None:
        """Look at what is on the disk, open it as far as the setting allows, and get ready to join.

        Raises:
            NotFound: a changelog does not exist.
            Retryable: no broker answered.
            Invalid: the settings, or the directory, are wrong.
        """
        request = self._request
        self._on_disk = {task: self._offsets(found) for task, found in self._startup.start().items()}
        for task, found in self._startup.left_alone.items():
            self._say(f"Task {task} is left alone: {found.reason}")
        for task, error in self._startup.refused.items():
            self._say(f"Task {task} is left as it is: {error}")
        for corrupt in self._startup.corrupt.values():
            self._say(_corrupt_in_words(corrupt))
        self._group = self._make_group(
            self._cluster,
            GroupSettings(
                request.group or "",
                self._topics,
                spec_hash(self._spec),
                instance_id=request.instance_id,
                host=request.host or socket.gethostname(),
                session_timeout_ms=request.session_timeout,
                # The group goes on with what a static member has said before if its session outlasts this.
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
        self._kept.when_less(self.publish)
        self._ends()  # behind what was read of the disk: what is beyond them is of another log
        self._group.start(self._sums())

    @property
    def is_told(self) -> bool:
        """Whether there is another assignment to be taken up."""
        return self._pending is not None

    def attend(self, timeout: float) -> bool:
        """Take part in the group for a while.

        Args:
            timeout: seconds to wait at most.

        Returns:
            :attr:`is_told`.

        Raises:
            Fenced: another process has taken this one's instance id.
            Invalid, Capacity: the group does not take this process.
        """
        if self._pending is None:
            try:
                self._pending = self._joined.poll(timeout)
                self._said.pop("group", None)
            except Retryable as error:
                self._say_changes("group", {"": str(error)})
                self._sleep(timeout)
        return self.is_told

    def take_up(self) -> None:
        """Follow the tasks that were given, close the others, and say so to the group."""
        assigned, self._pending = self._pending, None
        if assigned is None:
            return
        if assigned.lost:
            self._elsewhere = {}  # nobody says any more that the others have what they had
            self._say(f"This process fell out of the group {self._request.group}; it follows what it has meanwhile.")
            return
        self._elsewhere = assigned.elsewhere
        for name in self._kept.names:
            if name not in assigned.roles:
                self._drop(name)
                if name in self._joined.ends:
                    self._say(f"Task {name} is kept by others now; its copy stays here.")
                else:
                    self._say(f"Task {name} is followed by nobody now: its changelog is gone. Its copy stays here.")
        for name, role in assigned.roles.items():
            self._kept.take_up(name, role)
            self._on_disk.pop(name, None)
        if not self._has_assignment:
            self._has_assignment = True
            try:
                self._startup.close_rest()
            except StatecoreError as error:
                self._say(f"A task that others keep could not be closed: {error}")
        self._say_changes("assigned", {task: f"Task {task}: {why}" for task, why in assigned.errors.items()})
        self.publish()
        if assigned.is_new:
            self._clean()

    def publish(self) -> None:
        """Say to the group what each task has now. Raises ``Invalid``: there is too much to say."""
        self._joined.publish(self._sums())

    def look_for_unowned(self) -> None:
        """Ask for another assignment where there are tasks to be cleaned by it, that often as copies are probed.

        Somebody else keeps every task that this process was not given. Whether they have all of it is said with the
        next assignment: of one that was made when they began nobody knows.
        """
        settings = self._cleaning
        if settings is None or not self._has_assignment or self._clock() < self._look_again_at:
            return
        self._look_again_at = self._clock() + self._request.probing_interval / 1000
        force, kept = self._request.cleanup_even_best, self._kept.names
        others = self._joined.ends.keys() - set(kept)
        if could_go(self._directory, kept, others, spec=self._spec, settings=settings, force=force):
            self._joined.probe()

    def _clean(self) -> None:
        """Delete tasks that others keep and have all of, by what they have just said; others where that was told."""
        settings = self._cleaning
        if settings is None:
            return
        done = clean_unowned(
            self._directory,
            self._kept.names,
            self._caught_up_elsewhere(),
            spec=self._spec,
            settings=settings,
            force=self._request.cleanup_even_best,
            shortened=self._shortened,
            agreed=self._joined.take_back,
            faults=self._faults,
        )
        # What an earlier cleaning had left may have been of a task that lies here again.
        gone = {task for task in (*done.deleted, *done.left) if not self._directory.task_path(task).exists()}
        for task in gone:
            self._on_disk.pop(task, None)
        for task in gone.intersection(done.deleted):
            self._say(f"Task {task} is deleted here: others have it.")
        for task, path in done.aside.items():
            self._on_disk.pop(task, None)
            self._say(f"Task {task} is out of the way here, though others may have less of it: {path}, for a week.")
        self._say_changes("stays", {task: f"Task {task} stays here: {why}" for task, why in done.kept.items()})
        out_of_the_way = "is out of the way here, and not deleted yet"
        self._say_changes("left", {task: f"Task {task} {out_of_the_way}: {why}" for task, why in done.left.items()})
        self.publish()

    @property
    def _cleaning(self) -> CleaningSettings | None:
        delay = self._request.cleanup_delay
        return None if delay is None else CleaningSettings(delay)

    def close(self) -> None:
        """Leave the group, and close what nobody took."""
        try:
            if self._group is not None:
                self._group.close()
        finally:
            self._startup.close_rest()

    @property
    def _joined(self) -> TaskGroup:
        if self._group is None:
            raise Invalid("The fleet has not been started.", code="fleet-not-started", action="Call start first.")
        return self._group

    def _drop(self, name: str) -> None:
        held = self._kept.drop(name)
        self._on_disk[name] = {changelog: one.offset for changelog, one in held.items()}
        for changelog, one in held.items():
            if one.was_seen:
                self._log_ends[changelog] = max(self._log_ends.get(changelog, 0), one.offset + 1)

    def _sums(self) -> dict[str, int]:
        """What this process has of each task.

        What is beyond the end of its changelog counts nothing: the topic was created again, or has lost records, and
        whoever has less has a sound copy.
        """
        ends = self._log_ends
        on_disk = {
            task: offset_sum(offset for changelog, offset in offsets.items() if offset < ends.get(changelog, INT64_MAX))
            for task, offsets in self._on_disk.items()
        }
        return {**on_disk, **self._kept.sums(ends)}

    def _caught_up_elsewhere(self) -> dict[str, int]:
        """The best sums of others, of tasks that they have all of: a sum alone does not tell which store is behind."""
        ends, near = self._joined.ends, self._request.recovery_lag
        return {task: held for task, held in self._elsewhere.items() if task in ends and ends[task] - held <= near}

    def _offsets(self, found: TaskSum) -> dict[TopicPartition, int]:
        """The offsets of a task in the changelogs that are followed, by which the others count too."""
        try:
            followed = {store.changelog for store in followed_in(self._spec, found.task)}
        except StatecoreError:
            return {}
        return {changelog: offset for changelog, offset in found.offsets.items() if changelog in followed}

    def _ends(self) -> Mapping[str, int]:
        """Every task with the end sum of the changelogs that are followed."""
        found = followed_tasks(self._spec, self._cluster)
        refused = {name: f"Task {name} is followed by nobody: {error}" for name, error in found.refused.items()}
        self._say_changes("refused", refused)
        followed = found.stores
        ends = self._ask_ends(self._cluster, self._spec, [store for stores in followed.values() for store in stores])
        self._log_ends = {changelog: found.log.log_end for changelog, found in ends.items()}
        shortened = {at for at, one in ends.items() if one.log.log_start > 0 and is_purely_compacted(one.topic)}
        self._shortened = frozenset(
            name for name, stores in followed.items() if any(store.changelog in shortened for store in stores)
        )
        return {name: sum(ends[store.changelog].end for store in stores) for name, stores in followed.items() if stores}

    def _say_changes(self, kind: str, words: Mapping[str, str]) -> None:
        """Say what was not so before. Where nothing but numbers has changed, as offsets do, it is the same."""
        before = self._said.get(kind, {})
        self._said[kind] = now = {name: _NUMBERS.sub("", text) for name, text in words.items()}
        for name, text in words.items():
            if before.get(name) != now[name]:
                self._say(text)


def _corrupt_in_words(corrupt: CorruptTask) -> str:
    copy = "no snapshot is known to have a copy"
    if corrupt.copy:
        copy = f"snapshot {corrupt.copy} has a copy"
    elif corrupt.copy_unknown:
        copy = f"nobody knows whether a snapshot has a copy ({corrupt.copy_unknown.rstrip('.')})"
    reason = f": {corrupt.reason.rstrip('.')}" if corrupt.reason else ""
    return f"Task {corrupt.task} was corrupt, and lies in {corrupt.aside.path}; {copy}{reason}."
