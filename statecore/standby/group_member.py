"""Consumer group member that assigns tasks by the state each member has.

::

    with GroupMember(cluster, settings, ends=read_ends) as group:
        group.start(sums)
        while running:
            assigned = group.poll(1.0)
            if assigned is not None:
                apply(assigned.roles)
            group.publish(sums_of_my_tasks())

Members subscribe to the application's changelogs but get no partitions; tasks travel in user data
(`assignment/protocol.py`). The leader triggers a rebalance when the changelog ends it reads show other tasks than those
it assigned, e.g. after partitions were added.

kafka-python calls an assignor on its I/O loop (`kafka_group.py`), where slow code stops heartbeats. So the user data is
encoded by :meth:`GroupMember.publish` and the ends are read by :meth:`GroupMember.poll`, both on the caller's thread.
Only the leader's assignment is computed on the loop, for at most a third of the session timeout: meanwhile the leader
sends no heartbeats, and the broker would replace it.

:class:`AssignmentResult` says under which conditions a member may delete a copy it was not assigned.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
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
from statecore.standby.kafka_group import NOT_IN_THE_GROUP, GroupConsumer, GroupSettings, foreign_group


@dataclass(frozen=True)
class AssignmentResult:
    """A member's assignment; replaces the previous one."""

    generation: int  # of the group; -1 when lost
    roles: Mapping[str, Role] = field(default_factory=dict)  # its tasks; the others are closed before the next publish
    errors: Mapping[str, str] = field(default_factory=dict)  # tasks that it must not touch, with the reason
    lost: bool = False  # it was removed from the group; an assignment follows when it has rejoined
    leader: bool = False  # whether it was the leader
    # best offset sum at the owners of local tasks that were not assigned to it
    elsewhere: Mapping[str, int] = field(default_factory=dict)
    # whether all members have published their state since this member took part; false where the broker returns the
    # previous assignment of a static member
    is_new: bool = False


@dataclass(frozen=True)
class ReceivedAssignment:
    """An assignment as received from kafka-python."""

    generation: int  # of the group
    data: bytes  # user data
    partitions: bool  # whether it includes partitions
    joins: int  # how often the member had joined the group by then
    at: float  # time of arrival, on the group's clock


__all__ = ["AssignmentResult", "Ends", "GroupMember", "GroupSettings"]

LOG = logging.getLogger(__name__)
_SLICE_MS = 100

Ends = Callable[[], Mapping[str, int]]


class GroupMember:
    """A group member and context manager. ``poll`` and ``publish`` must be called from one thread."""

    def __init__(
        self,
        cluster: Cluster,
        settings: GroupSettings,
        *,
        ends: Ends,
        assignment: AssignmentSettings | None = None,
        clock: Clock = time.monotonic,
        decide: Callable[..., Decision] = decide,
        consumer: Callable[[Cluster, GroupSettings, GroupMember], GroupConsumer] = GroupConsumer,
    ) -> None:
        self._cluster, self.settings, self._read_ends = cluster, settings, ends
        self._decide, self._make_consumer = decide, consumer
        self.assignment_settings = assignment or AssignmentSettings()
        self._clock = clock
        self._consumer: GroupConsumer | None = None
        self._lock = threading.Lock()
        """Guards state shared by the caller's thread and the I/O loop: the attributes from here to ``_joins``."""
        self._user_data = b""
        self._ends: Mapping[str, int] = {}
        self._received: deque[ReceivedAssignment | StatecoreError] = deque()
        self._published_version, self._joined_version = 0, -1
        self._led: tuple[int, Assignment | None] = (NOT_IN_THE_GROUP, None)
        self._led_tasks: Set[str] = frozenset()
        self._left_group = False
        self._joins = 0

        self._sums: Mapping[str, int] = {}
        self._roles: Mapping[str, Role] = {}
        self._assigned: AssignmentResult | None = None
        self._generation = NOT_IN_THE_GROUP
        self._current: ReceivedAssignment | None = None  # The message that carried the current assignment
        self._assumed_sums: Mapping[str, int] = {}
        self._rebalance_requested = False
        self._probe_at: float | None = None
        self._ends_read_at = 0.0
        self._ends_are_old = False

    @property
    def ends(self) -> Mapping[str, int]:
        """End sum of every existing task, as last read."""
        with self._lock:
            return self._ends

    def start(self, sums: Mapping[str, int]) -> None:
        """Prepare to join; the first ``poll`` joins the group."""
        ends = dict(self._read_ends())
        with self._lock:
            self._ends = ends
        self._ends_read_at = self._clock()
        self._sums = dict(sums)
        self._encode()
        self._consumer = self._make_consumer(self._cluster, self.settings, self)

    def poll(self, timeout: float) -> AssignmentResult | None:
        """Take part in the group; must be called at least every ``max.poll.interval.ms``.

        No heartbeats are sent during a join: a member that then does not poll for ``session.timeout.ms`` is removed.

        Returns:
            A new assignment, or a lost membership; ``None`` if nothing changed.
        """
        consumer = self._started()
        until = self._clock() + timeout
        self._refresh_ends()
        took_part = False
        while True:
            if consumer.left_group:
                self.left_group()
            found = self._next()
            left = until - self._clock()
            if found is not None or (took_part and left <= 0):
                return found
            if self._probe_at is not None and self._clock() >= self._probe_at:
                self._probe_at = None
                self.probe()
            with self._lock:
                rebalance = self._joined_version not in (-1, self._published_version)
            consumer.poll(min(_SLICE_MS, max(1, round(left * 1000))), rejoin=rebalance)
            took_part = True

    def publish(self, sums: Mapping[str, int]) -> None:
        """Publish sums, confirm the assignment; rebalance if warm-ups caught up or a copy has less than assumed."""
        roles = {} if self._assigned is None else self._assigned.roles
        self._sums, self._roles = dict(sums), roles
        rebalance = False
        if not self._rebalance_requested:
            less = self._has_less_than_assumed()
            warm = _tasks_in_role(roles, Role.WARMUP)
            ends, near = self.ends, self.assignment_settings.recovery_lag
            ready = bool(warm) and all(ends.get(task, 0) - sums.get(task, 0) <= near for task in warm)
            self._rebalance_requested = less or ready
            rebalance = self._rebalance_requested
        self._encode(rebalance=rebalance)

    def withdraw(self, task: str) -> bool:
        """Stop advertising a task that is about to be deleted, from the next join on.

        Call this right before deleting a task that the last assignment gave to others; ``publish`` the rest afterwards.

        Returns:
            Whether it may be deleted: neither the last assignment nor a next one relies on this member's copy.
        """
        assigned, current = self._assigned, self._current
        if assigned is None or current is None or task in assigned.roles or not assigned.is_new:
            return False
        sums = {name: held for name, held in self._sums.items() if name != task}
        data = self._subscription(sums, self._published_version)
        with self._lock:
            # After this long the group continues without a member that does not join, using its previous user data.
            waited = (self._clock() - current.at) * 1000 >= self.settings.max_poll_interval_ms / 2
            if self._left_group or self._received or self._joins != current.joins or waited:
                return False
            self._user_data = data
        self._sums = sums
        return True

    def probe(self) -> None:
        """Trigger a rebalance at the next ``poll``."""
        self._encode(rebalance=True)

    def close(self) -> None:
        """Leave the group; a static member stays until its session times out, so that it can be restarted."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # On the I/O loop

    def user_data(self) -> bytes:
        """Called by kafka-python: user data of a join request."""
        with self._lock:
            self._joined_version = self._published_version
            self._joins += 1
            return self._user_data

    def left_group(self) -> None:
        """Called by kafka-python: the group continues without this member, which may rejoin."""
        with self._lock:
            self._left_group = True

    def lead(self, generation: int, leader: str, subscriptions: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Called by kafka-python on the leader: compute every member's assignment.

        Errors are raised by the next ``poll``: raised here they would leave all other members waiting.
        """
        until = self._clock() + self.settings.session_timeout_ms / 3_000
        with self._lock:
            ends = self._ends
        try:
            decision = self._decide(
                subscriptions, leader, ends, self.assignment_settings, is_late=lambda: self._clock() >= until
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
                self._received.append(error)
            return dict.fromkeys(subscriptions, KEEP)
        with self._lock:
            self._led, self._led_tasks = (generation, decision.assignment), ends.keys()
        return decision.data

    def receive_assignment(self, generation: int, data: bytes, *, partitions: bool) -> None:
        """Called by kafka-python: this member's assignment."""
        with self._lock:
            self._received.append(ReceivedAssignment(generation, data, partitions, self._joins, self._clock()))

    # On the caller's thread

    def _next(self) -> AssignmentResult | None:
        while True:
            with self._lock:
                left_group, self._left_group = self._left_group, False
                found = self._received.popleft() if self._received and not (left_group and self._assigned) else None
                led = self._led[0]
            if left_group and self._assigned is not None:
                self._assigned, self._assumed_sums, self._probe_at = None, {}, None
                self._generation, self._current = NOT_IN_THE_GROUP, None
                return AssignmentResult(NOT_IN_THE_GROUP, lost=True)
            if found is None:
                return None
            if isinstance(found, StatecoreError):
                raise found
            applied = self._apply(found, led == found.generation)
            if applied is not None:
                return applied

    def _apply(self, received: ReceivedAssignment, leads: bool) -> AssignmentResult | None:
        if received.partitions or not received.data:
            raise foreign_group(self.settings.group_id)
        before, self._generation, self._current = self._generation, received.generation, None
        if self.settings.instance_id and before == NOT_IN_THE_GROUP and not is_readable(received.data):
            # The broker may have kept an assignment that an older release encoded for a static member. Rejoin once.
            self._rebalance_requested = True
            self._encode(rebalance=True)
            return None
        decoded = decode_assignment(received.data)
        if decoded is None:
            return None
        if decoded.refusal:
            raise Invalid(
                f"The group {self.settings.group_id} refuses this member. {decoded.refusal}",
                code="group-member-refused",
                action=f"{decoded.action} Then start it again; the other members continue.",
                group=self.settings.group_id,
            )
        decoded = only_known(decoded, self.ends)
        self._assumed_sums, self._rebalance_requested, self._probe_at = decoded.assumed_sums, False, None
        is_of_earlier_process = decoded.process != self.settings.process
        if self._has_less_than_assumed() or (is_of_earlier_process and self._has_nothing_of(decoded.roles)):
            # A static member came back with less on its disk: the broker returned its previous assignment.
            self._rebalance_requested = True
            self._encode(rebalance=True)
            return None
        if decoded.probing and leads:
            self._probe_at = self._clock() + self.assignment_settings.probing_interval_ms / 1000
        self._current = received
        self._assigned = AssignmentResult(
            received.generation,
            decoded.roles,
            decoded.errors,
            leader=leads,
            elsewhere=decoded.elsewhere,
            is_new=before != NOT_IN_THE_GROUP and received.generation > before,
        )
        return self._assigned

    def _has_nothing_of(self, tasks: Iterable[str]) -> bool:
        """Whether one of these tasks has no local state though its changelogs have records."""
        return any(not self._sums.get(task, 0) and self._ends.get(task, 0) for task in tasks)

    def _has_less_than_assumed(self) -> bool:
        return any(self._sums.get(task, 0) < assumed for task, assumed in self._assumed_sums.items())

    def _encode(self, *, rebalance: bool = False) -> None:
        following = self._published_version + rebalance
        data = self._subscription(self._sums, following)
        with self._lock:
            self._user_data, self._published_version = data, following

    def _subscription(self, sums: Mapping[str, int], number: int) -> bytes:
        copies = {
            task: Copy(sums.get(task, 0), self._roles.get(task, Role.ON_DISK))
            for task in sums.keys() | self._roles.keys()
        }
        own = self.settings
        return encode_subscription(Subscription(own.spec, own.host, number, own.process, copies))

    def _refresh_ends(self) -> None:
        if self._clock() - self._ends_read_at < self.settings.ends_age_ms / 1000:
            return
        self._ends_read_at = self._clock()
        try:
            ends = dict(self._read_ends())
        except (Retryable, NotFound) as error:
            if not self._ends_are_old:  # once per outage
                LOG.warning("The ends of the changelogs could not be read, the previous ones are used: %s", error)
            self._ends_are_old = True
            return
        if self._ends_are_old:
            LOG.info("The ends of the changelogs can be read again")
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


def _tasks_in_role(roles: Mapping[str, Role], role: Role) -> list[str]:
    return [task for task, given in roles.items() if given is role]
