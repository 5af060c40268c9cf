"""A member of a consumer group whose members share tasks by what each of them has.

::

    with TaskGroup(cluster, settings, ends=read_ends) as group:
        group.start(sums)
        while running:
            assigned = group.poll(1.0)
            if assigned is not None:
                take_up(assigned.roles)
            group.publish(sums_of_my_tasks())

Members subscribe to the application's changelogs and are given no partition of them; tasks travel in user data
(`assignment/protocol.py`). The leader asks for another assignment when it reads the ends and finds other tasks than
those it assigned, as when a changelog was given more partitions.

kafka-python calls an assignor on its I/O loop (`kafka_group.py`), where whatever takes long stops heartbeats. There,
only bytes are handed over: what a member says of itself is made by :meth:`TaskGroup.publish`, the ends are read by
:meth:`TaskGroup.poll`, both on the caller's thread. Only the decision of the leader is computed there, for
a third of the session timeout at most: the broker hears nothing of a leader that decides, and would take another one.

Under which conditions a member may delete a copy that it was not given is in `assigned.py`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Set
from types import TracebackType
from typing import Self

from statecore.changelog.cluster import Cluster
from statecore.errors import Invalid, NotFound, Retryable, StatecoreError
from statecore.progress import Clock
from statecore.standby.assignment.leader import Decision, decide
from statecore.standby.assignment.model import Assignment, AssignmentSettings, Copy, Role
from statecore.standby.assignment.protocol import (
    KEEP,
    Subscription,
    decode_assignment,
    encode_subscription,
    is_readable,
    only_known,
)
from statecore.standby.assignment_result import AssignmentResult, HandedOver
from statecore.standby.kafka_group import NOT_IN_THE_GROUP, GroupConsumer, GroupSettings, foreign_group

__all__ = ["AssignmentResult", "Ends", "GroupSettings", "TaskGroup"]

LOG = logging.getLogger(__name__)
_SLICE_MS = 100

Ends = Callable[[], Mapping[str, int]]


class TaskGroup:
    """A member of the group; a context manager. ``poll`` and ``publish`` are for one thread.

    Args:
        cluster: where the brokers are; its own connections are not used.
        settings: how it takes part.
        ends: reads every task with the end sum of its changelogs; called by ``start`` and ``poll``.
        assignment: how tasks are assigned, if this member decides.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: GroupSettings,
        *,
        ends: Ends,
        assignment: AssignmentSettings | None = None,
        clock: Clock = time.monotonic,
        decide: Callable[..., Decision] = decide,
        consumer: Callable[[Cluster, GroupSettings, TaskGroup], GroupConsumer] = GroupConsumer,
    ) -> None:
        self._cluster, self.settings, self._read_ends = cluster, settings, ends
        self._decide, self._make_consumer = decide, consumer
        self.assignment_settings = assignment or AssignmentSettings()
        self._clock = clock
        self._consumer: GroupConsumer | None = None
        self._lock = threading.Lock()
        """Guards what is handed over between the caller's thread and the I/O loop: all from here to ``_joins``."""
        self._user_data = b""
        self._ends: Mapping[str, int] = {}
        self._handed: deque[HandedOver | StatecoreError] = deque()
        self._round, self._sent_round = 0, -1
        self._led: tuple[int, Assignment | None] = (NOT_IN_THE_GROUP, None)
        self._led_tasks: Set[str] = frozenset()
        self._fell_out = False
        self._joins = 0

        self._sums: Mapping[str, int] = {}
        self._roles: Mapping[str, Role] = {}
        self._assigned: AssignmentResult | None = None
        self._generation = NOT_IN_THE_GROUP
        self._taken: HandedOver | None = None
        """What the assignment that is in force came in."""
        self._believed: Mapping[str, int] = {}
        self._asked = False
        self._probe_at: float | None = None
        self._ends_read_at = 0.0
        self._ends_are_old = False

    @property
    def decision(self) -> Assignment | None:
        """What this member decided for all when it was the leader last; ``None`` when it was not, or could not."""
        with self._lock:
            return self._led[1]

    @property
    def ends(self) -> Mapping[str, int]:
        """Every task there is with its end sum, as they were read last."""
        with self._lock:
            return self._ends

    def start(self, sums: Mapping[str, int]) -> None:
        """Get ready to join; the group is joined by the first ``poll``.

        Args:
            sums: the offset sum of each task that lies on this member's disk.

        Raises:
            Invalid: the settings do not fit, or there is too much to say.
            StatecoreError: the ends could not be read.
        """
        ends = dict(self._read_ends())
        with self._lock:
            self._ends = ends
        self._ends_read_at = self._clock()
        self._sums = dict(sums)
        self._encode()
        self._consumer = self._make_consumer(self._cluster, self.settings, self)

    def poll(self, timeout: float) -> AssignmentResult | None:
        """Take part: heartbeats are sent as long as this is called every ``max.poll.interval.ms``.

        While the group is joined there are none: who then does not call this for ``session.timeout.ms`` falls out.

        Args:
            timeout: seconds to wait for an assignment; 0 takes part once, for a moment.

        Returns:
            A new assignment, or that the member fell out of the group; ``None`` when all stays as it was.

        Raises:
            Fenced: another process has taken this member's instance id.
            Invalid: the group belongs to another kind of consumer, or refuses this member; or it has no right to it.
            Capacity: the group has as many members as the broker lets in.
            Retryable: no broker answered.
        """
        consumer = self._started()
        until = self._clock() + timeout
        self._refresh_ends()
        took_part = False
        while True:
            if consumer.fell_out:
                self.fell_out()
            found = self._next()
            left = until - self._clock()
            if found is not None or (took_part and left <= 0):
                return found
            if self._probe_at is not None and self._clock() >= self._probe_at:
                self._probe_at = None
                self.probe()
            with self._lock:
                ask = self._sent_round not in (-1, self._round)
            consumer.poll(min(_SLICE_MS, max(1, round(left * 1000))), ask=ask)
            took_part = True

    def publish(self, sums: Mapping[str, int]) -> None:
        """Say what this member has now, and that it does what the last assignment from ``poll`` asked for.

        Another assignment is asked for when an active task was given up for somebody else, when all warm-ups have
        caught up, and when a copy has less than that for which it was assigned.

        Args:
            sums: the offset sum of each task on this member's disk.

        Raises:
            Invalid: there is too much to say.
        """
        roles = {} if self._assigned is None else self._assigned.roles
        gave_up = [task for task in _having(self._roles, Role.ACTIVE) if roles.get(task) is not Role.ACTIVE]
        self._sums, self._roles = dict(sums), roles
        ask = bool(gave_up)
        if not self._asked:
            less = self._less_than_believed()
            warm = _having(roles, Role.WARMUP)
            ends, near = self.ends, self.assignment_settings.recovery_lag
            ready = bool(warm) and all(ends.get(task, 0) - sums.get(task, 0) <= near for task in warm)
            self._asked = less or ready
            ask = ask or self._asked
        self._encode(ask=ask)

    def take_back(self, task: str) -> bool:
        """Say from the next join on that this member has nothing of a task, because it is about to be deleted.

        To be asked right before a task is deleted that others keep by the last assignment; ``publish`` what is there
        afterwards.

        Returns:
            Whether it may be deleted: by the last assignment nobody counts on this member's copy, nor can by a next.

        Raises:
            Invalid: there is too much to say.
        """
        assigned, taken = self._assigned, self._taken
        if assigned is None or taken is None or task in assigned.roles or not assigned.is_new:
            return False
        sums = {name: held for name, held in self._sums.items() if name != task}
        data = self._subscription(sums, self._round)
        with self._lock:
            # The group waits so long for a member that does not join before it goes on with what that has said before.
            waited = (self._clock() - taken.at) * 1000 >= self.settings.max_poll_interval_ms / 2
            if self._fell_out or self._handed or self._joins != taken.joins or waited:
                return False
            self._user_data = data
        self._sums = sums
        return True

    def probe(self) -> None:
        """Ask for another assignment, at the next ``poll``."""
        self._encode(ask=True)

    def close(self) -> None:
        """Leave the group; a static member stays in it until its session ends, so that it can be restarted."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # On the I/O loop

    def user_data(self) -> bytes:
        """For kafka-python: what is sent when the group is joined."""
        with self._lock:
            self._sent_round = self._round
            self._joins += 1
            return self._user_data

    def fell_out(self) -> None:
        """For kafka-python: the group goes on without this member, which may come back."""
        with self._lock:
            self._fell_out = True

    def lead(self, generation: int, leader: str, subscriptions: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """For kafka-python: what each member is given, by who was made the leader.

        Whatever goes wrong is raised by ``poll``: out of here it would leave all others waiting.
        """
        until = self._clock() + self.settings.session_timeout_ms / 3_000
        with self._lock:
            ends = self._ends
        try:
            decision = self._decide(
                subscriptions,
                leader,
                ends,
                self.assignment_settings,
                is_late=lambda: self._clock() >= until,
            )
        except Exception as error:
            if not isinstance(error, StatecoreError):
                LOG.exception("The tasks of the group %s could not be assigned", self.settings.group_id)
                error = Invalid(
                    f"The tasks of the group {self.settings.group_id} could not be assigned: {error!r}.",
                    code="assignment-failed",
                    action="Report this as a defect, with the log.",
                )
            with self._lock:
                self._handed.append(error)
            return dict.fromkeys(subscriptions, KEEP)
        with self._lock:
            self._led, self._led_tasks = (generation, decision.assignment), ends.keys()
        return decision.data

    def hand_over(self, generation: int, data: bytes, *, partitions: bool) -> None:
        """For kafka-python: what this member was given."""
        with self._lock:
            self._handed.append(HandedOver(generation, data, partitions, self._joins, self._clock()))

    # On the caller's thread

    def _next(self) -> AssignmentResult | None:
        while True:
            with self._lock:
                fell_out, self._fell_out = self._fell_out, False
                found = self._handed.popleft() if self._handed and not (fell_out and self._assigned) else None
                led = self._led[0]
            if fell_out and self._assigned is not None:
                self._assigned, self._believed, self._probe_at = None, {}, None
                self._generation, self._taken = NOT_IN_THE_GROUP, None
                return AssignmentResult(NOT_IN_THE_GROUP, "", lost=True)
            if found is None:
                return None
            if isinstance(found, StatecoreError):
                raise found
            taken = self._take(found, led == found.generation)
            if taken is not None:
                return taken

    def _take(self, handed: HandedOver, leads: bool) -> AssignmentResult | None:
        if handed.partitions or not handed.data:
            raise foreign_group(self.settings.group_id)
        before, self._generation, self._taken = self._generation, handed.generation, None
        if self.settings.instance_id and before == NOT_IN_THE_GROUP and not is_readable(handed.data):
            # The broker may have kept for a static member what the release before has said. It is asked for once.
            self._asked = True
            self._encode(ask=True)
            return None
        given = decode_assignment(handed.data)
        if given is None:
            return None
        if given.refusal:
            raise Invalid(
                f"The group {self.settings.group_id} refuses this member. {given.refusal}",
                code="group-member-refused",
                action=f"{given.action} Then start it again; the others go on.",
                group=self.settings.group_id,
            )
        given = only_known(given, self.ends)
        self._believed, self._asked, self._probe_at = given.believed, False, None
        is_of_before = given.process != self.settings.process
        if self._less_than_believed() or (is_of_before and self._has_nothing_of(given.roles)):
            # A static member that came back with less on its disk: the broker gave it what it had before.
            self._asked = True
            self._encode(ask=True)
            return None
        if given.probing and leads:
            self._probe_at = self._clock() + self.assignment_settings.probing_interval_ms / 1000
        member_id = self._started().member_id
        self._taken = handed
        self._assigned = AssignmentResult(
            handed.generation,
            member_id,
            given.roles,
            given.errors,
            leader=leads,
            probing=given.probing,
            elsewhere=given.elsewhere,
            is_new=before != NOT_IN_THE_GROUP and handed.generation > before,
        )
        return self._assigned

    def _has_nothing_of(self, tasks: Iterable[str]) -> bool:
        """Whether there is nothing of one of these on the disk, though its changelogs have records."""
        return any(not self._sums.get(task, 0) and self._ends.get(task, 0) for task in tasks)

    def _less_than_believed(self) -> bool:
        return any(self._sums.get(task, 0) < believed for task, believed in self._believed.items())

    def _encode(self, *, ask: bool = False) -> None:
        following = self._round + ask
        data = self._subscription(self._sums, following)
        with self._lock:
            self._user_data, self._round = data, following

    def _subscription(self, sums: Mapping[str, int], number: int) -> bytes:
        copies = {
            task: Copy(sums.get(task, 0), self._roles.get(task, Role.ON_DISK))
            for task in sums.keys() | self._roles.keys()
        }
        own = self.settings
        return encode_subscription(Subscription(own.spec, own.host, own.capacity, number, own.process, copies))

    def _refresh_ends(self) -> None:
        if self._clock() - self._ends_read_at < self.settings.ends_age_ms / 1000:
            return
        self._ends_read_at = self._clock()
        try:
            ends = dict(self._read_ends())
        except (Retryable, NotFound) as error:
            if not self._ends_are_old:  # once an outage, and not at every look
                LOG.warning("The ends of the changelogs could not be read, the older ones stand: %s", error)
            self._ends_are_old = True
            return
        if self._ends_are_old:
            LOG.info("The ends of the changelogs are read again")
        self._ends_are_old = False
        with self._lock:
            new = self._led[1] is not None and ends.keys() != self._led_tasks
            self._ends = ends
        if new and self._assigned is not None and self._assigned.leader:
            self.probe()

    def _started(self) -> GroupConsumer:
        if self._consumer is None:
            raise Invalid(
                f"The group {self.settings.group_id} is not joined.",
                code="group-not-joined",
                action="Call start first.",
            )
        return self._consumer


def _having(roles: Mapping[str, Role], role: Role) -> list[str]:
    return [task for task, given in roles.items() if given is role]
