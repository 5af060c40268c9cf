"""kafka-python's consumer as a member of a group: the one module that touches kafka-python's group protocol.

Private parts of kafka-python 3.0.12 that are used:

- ``request_rejoin``: without it nobody can ask for another assignment.
- ``_heartbeat_enabled``: a static member whose id somebody else took stops its heartbeats, and says so in its log only.
  For the same reason ``heartbeat``: whoever heard nothing for a session asks the broker what it is.
- ``_join_task``: the join that is under way. kafka-python forgets it when its answer comes between two polls: it joins
  once more, which makes all others join once more, or waits for ever without heartbeats when it had another reason to
  join that is gone since. :class:`_Join` stands in its place until the answer is taken.
- ``_client``, ``_manager``, ``_conns``, ``_sock``: the socket of a connection that still has something to send when the
  consumer is closed is left to the garbage collector.
- ``reset_generation``: who takes an answer so late that its session has ended has fallen out of the group.
"""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from statecore.changelog.client import reason
from statecore.changelog.cluster import Cluster
from statecore.errors import Capacity, Fenced, Invalid, Retryable, StatecoreError

ASSIGNOR = "statecore-tasks"
NOT_IN_THE_GROUP = -1
"""The generation of who is not in the group."""


@dataclass(frozen=True)
class GroupSettings:
    """How a process takes part.

    Attributes:
        group_id: the fleet's own group, never the application's.
        topics: what is subscribed to: the application's changelogs.
        spec: digest of what this process knows the application to be; all members must have the same.
        instance_id: ``group.instance.id``: a restart within the session timeout moves nothing; ``None`` for a member
            that leaves when it is closed.
        host: whose loss would take this member's copies; members with the same never have two copies of a task, as long
            as there are others.
        capacity: this member's share of the tasks, as a weight.
        session_timeout_ms: ``session.timeout.ms``: after how long without a heartbeat its tasks are given to others.
        heartbeat_interval_ms: ``heartbeat.interval.ms``.
        max_poll_interval_ms: ``max.poll.interval.ms``: who does not poll for so long loses its tasks.
        ends_age_ms: after how many milliseconds the ends are read anew.
        process: a number that no earlier process with the same instance id has had.
    """

    group_id: str
    topics: tuple[str, ...]
    spec: str
    instance_id: str | None = None
    host: str = field(default_factory=socket.gethostname)
    capacity: int = 1
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    ends_age_ms: int = 30_000
    process: int = field(default_factory=lambda: secrets.randbits(64))


class OnLoop(Protocol):
    """Who is asked and told on kafka-python's I/O loop, where whatever takes long stops heartbeats."""

    def user_data(self) -> bytes:
        """What is sent when the group is joined."""
        ...

    def fell_out(self) -> None:
        """The group goes on without this member, which may come back."""
        ...

    def lead(self, generation: int, leader: str, subscriptions: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """What each member is given, by who was made the leader; must not raise: all others would wait."""
        ...

    def hand_over(self, generation: int, data: bytes, *, partitions: bool) -> None:
        """What this member was given, and whether partitions are among it."""
        ...


class GroupConsumer:
    """A member of the group, as far as kafka-python is concerned.

    Args:
        cluster: where the brokers are.
        settings: how it takes part.
        group: who is asked and told.

    Raises:
        Invalid: the settings do not fit.
        Retryable: no broker answered.
    """

    def __init__(self, cluster: Cluster, settings: GroupSettings, group: OnLoop) -> None:
        from kafka import KafkaConsumer
        from kafka.errors import KafkaError

        self._group, self._settings, self._cluster = group, settings, cluster
        self._was_in = False
        self._said_bytes = 0
        self._polled_at = time.monotonic()
        known = {name: value for name, value in cluster.settings.items() if name in KafkaConsumer.DEFAULT_CONFIG}
        try:
            self._consumer = KafkaConsumer(
                **{
                    "ssl_password": "",  # without one OpenSSL asks for it on the terminal
                    **known,
                    "bootstrap_servers": [
                        part.strip() for part in cluster.bootstrap_servers.split(",") if part.strip()
                    ],
                    "group_id": settings.group_id,
                    "group_instance_id": settings.instance_id,
                    "session_timeout_ms": settings.session_timeout_ms,
                    "heartbeat_interval_ms": settings.heartbeat_interval_ms,
                    "max_poll_interval_ms": settings.max_poll_interval_ms,
                    "partition_assignment_strategy": [_assignor(self)],
                    "enable_auto_commit": False,
                    "allow_auto_create_topics": False,
                }
            )
            self._consumer.subscribe(topics=sorted(settings.topics))
        except KafkaError as error:
            raise self._translated(error) from error

    @property
    def member_id(self) -> str:
        """The member's id at the broker."""
        return str(self._consumer.group_metadata().member_id)

    @property
    def fell_out(self) -> bool:
        """Whether it was in the group and is no more; said once."""
        if self._consumer.group_metadata().generation_id != NOT_IN_THE_GROUP:
            return False
        was_in, self._was_in = self._was_in, False
        return was_in

    def poll(self, milliseconds: int, *, ask: bool) -> None:
        """Take part for a while; with ``ask`` the group is joined anew. Raises as `TaskGroup.poll`."""
        from kafka.errors import KafkaError

        coordinator: Any = self._consumer._coordinator
        polled_at, self._polled_at = self._polled_at, time.monotonic()
        join = coordinator._join_task
        if join is not None:
            coordinator.request_rejoin()
            if not isinstance(join, _Join):
                join = coordinator._join_task = _Join(join)
            if join.answered and self._polled_at - polled_at > self._settings.session_timeout_ms / 1000:
                # Without heartbeats since the answer, the group has gone on: what the answer says is of the past.
                coordinator._join_task = None
                coordinator.reset_generation()
        unheard = not coordinator._heartbeat_enabled or coordinator.heartbeat.session_timeout_expired()
        if ask or (coordinator.stable() and not coordinator.rejoin_needed and unheard):
            coordinator.request_rejoin()
        try:
            self._consumer.poll(timeout_ms=milliseconds)
        except KafkaError as error:
            raise self._translated(error) from error

    def close(self) -> None:
        """Leave the group; a static member stays until its session ends."""
        manager: Any = self._consumer._client._manager
        transports = [connection.transport for connection in list(manager._conns.values())]
        self._consumer.close(autocommit=False, timeout_ms=5_000)
        for transport in transports:
            sock = None if transport is None else transport._sock
            if sock is not None:
                sock.close()

    def metadata(self) -> bytes:
        """For the assignor: the group is about to be joined."""
        if self.fell_out:
            self._group.fell_out()
        said = self._group.user_data()
        self._said_bytes = len(said)
        return said

    def lead(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """For the assignor: this member decides."""
        own = self._consumer.group_metadata()
        return self._group.lead(own.generation_id, own.member_id, members)

    def assigned(self, generation: int, data: bytes, *, partitions: bool) -> None:
        """For the assignor: the group was joined."""
        self._was_in = True
        self._group.hand_over(generation, data, partitions=partitions)

    def _translated(self, error: Exception) -> StatecoreError:
        from kafka import errors

        group, instance = self._settings.group_id, self._settings.instance_id
        if isinstance(error, errors.InconsistentGroupProtocolError):
            return foreign_group(group)
        if isinstance(error, errors.FencedInstanceIdError):
            return Fenced(
                f"Another process has joined the group {group} as {instance}, its tasks are this one's no longer.",
                code="instance-fenced",
                action="Stop one of the two, or give each an instance id of its own.",
                group=group,
                instance=instance,
            )
        if isinstance(error, errors.GroupMaxSizeReachedError):
            return Capacity(
                f"The group {group} has as many members as the broker lets in.",
                code="group-full",
                action="Run fewer processes, or raise group.max.size at the brokers.",
                group=group,
            )
        if isinstance(error, errors.InvalidSessionTimeoutError):
            return Invalid(
                f"The brokers do not take a session timeout of {self._settings.session_timeout_ms} ms.",
                code="session-timeout-invalid",
                action="Choose one between group.min.session.timeout.ms and group.max.session.timeout.ms.",
                group=group,
            )
        if isinstance(error, errors.GroupAuthorizationFailedError | errors.TopicAuthorizationFailedError):
            return Invalid(
                f"This client has no right to the group {group}, or to a changelog: {reason(error)}.",
                code="group-authorization-failed",
                action="Grant READ on the group, and DESCRIBE on the changelogs.",
                group=group,
            )
        if isinstance(error, errors.UnknownError):
            return Retryable(
                f"The broker could not keep what the members of the group {group} say and are told; this one says "
                f"{self._said_bytes:,} bytes.",
                code="group-metadata-too-large",
                action="All of that has to fit into one record of __consumer_offsets (message.max.bytes, 1 MB): split "
                "the fleet into groups, each with some of the tasks, or let copies go that nobody needs "
                "(--cleanup-delay). If it is far less, look at the broker's log.",
                group=group,
                size=self._said_bytes,
            )
        if isinstance(error, errors.InvalidGroupIdError | errors.KafkaConfigurationError):
            return Invalid(
                f"The group {group!r} cannot be joined: {reason(error)}.",
                code="group-settings-invalid",
                action="Correct the settings.",
                group=group,
            )
        return Retryable(
            f"The group {group} at {self._cluster.bootstrap_servers} cannot be reached: "
            f"{type(error).__name__} {reason(error)}.",
            code="broker-unreachable",
            action="Check the brokers, and try again; the tasks on the disk stay as they are.",
            group=group,
        )


class _Join:
    """A join that is never called done, so that the next poll takes its answer, also when it is there already."""

    is_done = False

    def __init__(self, task: Any) -> None:
        self._task = task
        self.add_callback, self.add_errback = task.add_callback, task.add_errback

    @property
    def answered(self) -> bool:
        """Whether the answer is there."""
        return bool(self._task.is_done)


def _assignor(consumer: GroupConsumer) -> Any:
    from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor
    from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

    class TaskAssignor(AbstractPartitionAssignor):  # type: ignore[misc,unused-ignore]
        name = ASSIGNOR

        def metadata(self, topics: Any) -> Any:
            return ConsumerProtocolSubscription(version=0, topics=sorted(topics), user_data=consumer.metadata())

        def assign(self, cluster: Any, members: Any) -> Any:  # noqa: ARG002
            given = consumer.lead({member.member_id: bytes(member.metadata.user_data or b"") for member in members})
            return {
                member: ConsumerProtocolAssignment(version=0, assigned_partitions=[], user_data=data)
                for member, data in given.items()
            }

        def on_assignment(self, assignment: Any, generation: int) -> None:
            data = bytes(assignment.user_data or b"")
            consumer.assigned(generation, data, partitions=bool(assignment.partitions()))

    return TaskAssignor()


def foreign_group(group: str) -> Invalid:
    """That a group is no fleet's."""
    return Invalid(
        f"The group {group} belongs to consumers of another kind.",
        code="group-of-another-application",
        action="Give the fleet a group id that nothing else uses, also not the application, or stop those consumers.",
        group=group,
    )
