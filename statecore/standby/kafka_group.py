"""Group membership over kafka-python's consumer; the only module that uses kafka-python's group protocol.

Private parts of kafka-python 3.0.12 that are used:

- ``request_rejoin``: the only way to trigger a rebalance.
- ``_heartbeat_enabled``: a static member that is fenced stops its heartbeats and only logs it. For the same reason
  ``heartbeat``: a member that heard nothing for a session rejoins to learn its state.
- ``_join_task``: the pending join. kafka-python forgets it when its response arrives between two polls: then it joins
  again, which makes all members rejoin, or waits forever without heartbeats if the reason to rejoin has gone.
  :class:`_Join` replaces it until the response is processed.
- ``_client``, ``_manager``, ``_conns``, ``_sock``: a connection that still has something to send when the consumer is
  closed leaves its socket to the garbage collector.
- ``reset_generation``: a member that processes a response after its session ended has left the group.
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
from statecore.spec.units import format_duration

ASSIGNOR = "statecore-tasks"
NOT_IN_THE_GROUP = -1  # Generation of a consumer that is not in the group


@dataclass(frozen=True)
class GroupSettings:
    """Settings of a group member."""

    group_id: str  # the standby group's own id, never the application's
    topics: tuple[str, ...]  # the application's changelogs, which are subscribed to
    spec: str  # digest of the application spec; it must be the same for all members
    # group.instance.id: a restart within the session timeout moves no task; None if dynamic
    instance_id: str | None = None
    # failure domain: members with the same host never have two copies of a task, as long as there are others
    host: str = field(default_factory=socket.gethostname)
    session_timeout_ms: int = 45_000  # session.timeout.ms, with a Kafka consumer's default
    heartbeat_interval_ms: int = 3_000  # heartbeat.interval.ms
    max_poll_interval_ms: int = 300_000  # max.poll.interval.ms
    ends_age_ms: int = 30_000  # changelog ends older than this are read again
    # random id of this process, to tell it from earlier ones with the same instance id
    process: int = field(default_factory=lambda: secrets.randbits(64))


class GroupCallbacks(Protocol):
    """Callbacks on kafka-python's I/O loop, where slow code stops heartbeats."""

    def user_data(self) -> bytes:
        """User data of a join request."""
        ...

    def left_group(self) -> None:
        """The group continues without this member, which may rejoin."""
        ...

    def lead(self, generation: int, leader: str, subscriptions: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """The leader's assignment for every member; must not raise, or all others would wait."""
        ...

    def receive_assignment(self, generation: int, data: bytes, *, partitions: bool) -> None:
        """This member's assignment, and whether it includes partitions."""
        ...


class GroupConsumer:
    """The kafka-python consumer of a group member."""

    def __init__(self, cluster: Cluster, settings: GroupSettings, group: GroupCallbacks) -> None:
        from kafka import KafkaConsumer
        from kafka.errors import KafkaError

        from statecore.changelog.sockets import DIRECT

        self._group, self._settings, self._cluster = group, settings, cluster
        self._was_in = False
        self._user_data_bytes = 0
        self._polled_at = time.monotonic()
        given = cluster.connection_settings
        known = {name: value for name, value in given.items() if name in KafkaConsumer.DEFAULT_CONFIG}
        try:
            self._consumer = KafkaConsumer(
                **{
                    "ssl_password": "",  # without one OpenSSL asks for it on the terminal
                    "proxy_url": DIRECT,  # closes the socket of a connect that the close of the consumer cancels
                    **known,
                    "bootstrap_servers": cluster.addresses,
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
    def left_group(self) -> bool:
        """Whether it has left the group since it was in it; true once."""
        if self._consumer.group_metadata().generation_id != NOT_IN_THE_GROUP:
            return False
        was_in, self._was_in = self._was_in, False
        return was_in

    def poll(self, milliseconds: int, *, rejoin: bool) -> None:
        """Poll once; with ``rejoin`` rejoin the group. Raises like `GroupMember.poll`."""
        from kafka.errors import KafkaError

        coordinator: Any = self._consumer._coordinator
        polled_at, self._polled_at = self._polled_at, time.monotonic()
        join = coordinator._join_task
        if join is not None:
            coordinator.request_rejoin()
            if not isinstance(join, _Join):
                join = coordinator._join_task = _Join(join)
            if join.answered and self._polled_at - polled_at > self._settings.session_timeout_ms / 1000:
                # Without heartbeats since the response, the group has continued without this member: it is outdated.
                coordinator._join_task = None
                coordinator.reset_generation()
        unheard = not coordinator._heartbeat_enabled or coordinator.heartbeat.session_timeout_expired()
        if rejoin or (coordinator.stable() and not coordinator.rejoin_needed and unheard):
            coordinator.request_rejoin()
        try:
            self._consumer.poll(timeout_ms=milliseconds)
        except KafkaError as error:
            raise self._translated(error) from error

    def close(self) -> None:
        """Leave the group; a static member stays until its session times out."""
        manager: Any = self._consumer._client._manager
        transports = [connection.transport for connection in list(manager._conns.values())]
        self._consumer.close(autocommit=False, timeout_ms=5_000)
        for transport in transports:
            sock = None if transport is None else transport._sock
            if sock is not None:
                sock.close()

    def metadata(self) -> bytes:
        """Called by the assignor before a join."""
        if self.left_group:
            self._group.left_group()
        data = self._group.user_data()
        self._user_data_bytes = len(data)
        return data

    def lead(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Called by the assignor on the leader."""
        own = self._consumer.group_metadata()
        return self._group.lead(own.generation_id, own.member_id, members)

    def assigned(self, generation: int, data: bytes, *, partitions: bool) -> None:
        """Called by the assignor after a join."""
        self._was_in = True
        self._group.receive_assignment(generation, data, partitions=partitions)

    def _translated(self, error: Exception) -> StatecoreError:
        from kafka import errors

        group, instance = self._settings.group_id, self._settings.instance_id
        if isinstance(error, errors.InconsistentGroupProtocolError):
            return foreign_group(group)
        if isinstance(error, errors.FencedInstanceIdError):
            return Fenced(
                f"Another process has joined the group {group} as {instance} and has taken over this one's tasks.",
                code="instance-fenced",
                action="Stop one of the two, or give each an instance id of its own.",
                group=group,
                instance=instance,
            )
        if isinstance(error, errors.GroupMaxSizeReachedError):
            return Capacity(
                f"The group {group} has as many members as the broker allows.",
                code="group-full",
                action="Run fewer processes, or raise group.max.size at the brokers.",
                group=group,
            )
        if isinstance(error, errors.InvalidSessionTimeoutError):
            return Invalid(
                f"The brokers refuse a session timeout of {format_duration(self._settings.session_timeout_ms)}.",
                code="session-timeout-invalid",
                action="Choose one between group.min.session.timeout.ms and group.max.session.timeout.ms.",
                group=group,
            )
        if isinstance(error, errors.GroupAuthorizationFailedError):
            return Invalid(
                f"The user of this client lacks the right Read on the consumer group {group}.",
                code="group-authorization-failed",
                action="Grant Read on the group.",
                group=group,
                right="Read",
            )
        if isinstance(error, errors.TopicAuthorizationFailedError):
            return Invalid(
                f"The user of this client lacks the right Describe on a changelog: {reason(error)}.",
                code="topic-authorization-failed",
                action="Grant Describe on the changelogs.",
                group=group,
                right="Describe",
            )
        if isinstance(error, errors.UnknownError):
            return Retryable(
                f"The broker could not store the metadata of the group {group}; this member's user data has "
                f"{self._user_data_bytes:,} bytes.",
                code="group-metadata-too-large",
                action="User data and assignments of all members have to fit into one record of __consumer_offsets "
                "(message.max.bytes, 1 MB): split the processes into several groups, each with some of the tasks, or "
                "delete unneeded copies (--cleanup-delay). If it is far less, look at the broker's log.",
                group=group,
                size=self._user_data_bytes,
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
            action="Check the brokers, and try again; the tasks on disk stay as they are.",
            group=group,
        )


class _Join:
    """A pending join that never reports done, so that the next poll processes its response in any case."""

    is_done = False

    def __init__(self, task: Any) -> None:
        self._task = task
        self.add_callback, self.add_errback = task.add_callback, task.add_errback

    @property
    def answered(self) -> bool:
        """Whether the response has arrived."""
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
    """Error for a group of other consumers."""
    return Invalid(
        f"The group {group} belongs to another kind of consumer.",
        code="group-of-another-application",
        action="Choose a group id that nothing else uses, not even the application, or stop those consumers.",
        group=group,
    )
