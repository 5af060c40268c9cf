"""How an application is configured: its guarantee, transactional state stores, and the protocol of its group.

Tests with real applications run in every ``Mode``: ``make test`` in ``COVERING``, in which each setting has each of
its values once, ``make test-full`` in all of ``MODES``.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import pytest

from tests.harness import directory
from tests.harness.fed_application import FedApplication
from tests.harness.kinds import TRANSACTIONAL, KindsApplication
from tests.harness.streams import StreamsJvm

EXACTLY_ONCE, AT_LEAST_ONCE = "exactly_once_v2", "at_least_once"

each_guarantee = pytest.mark.parametrize(
    "guarantee", [EXACTLY_ONCE, pytest.param(AT_LEAST_ONCE, marks=pytest.mark.full)]
)
"""Runs a test once for each guarantee; ``make test`` has exactly-once alone."""


@dataclass(frozen=True)
class Mode:
    """One way to configure an application.

    Attributes:
        guarantee: ``processing.guarantee``.
        transactional: ``enable.transactional.statestores`` (KIP-892), which Kafka Streams knows since 4.4.
        protocol: ``group.protocol``, ``classic`` or ``streams`` (KIP-1071), which it knows since 4.2.
    """

    guarantee: str
    transactional: bool = False
    protocol: str = "classic"

    @property
    def name(self) -> str:
        """For ids of tests, and of applications."""
        stores = "transactional" if self.transactional else "direct"
        return f"{self.guarantee.replace('_', '-')}-{stores}-{self.protocol}"

    @property
    def properties(self) -> dict[str, str]:
        """The Streams properties, but the guarantee; what an older release does not know is left out."""
        transactional = {TRANSACTIONAL: "true"} if self.transactional else {}
        return transactional | ({"group.protocol": self.protocol} if self.protocol != "classic" else {})

    def of(self, kinds: KindsApplication) -> KindsApplication:
        """The same stores, of an application that is configured so."""
        return replace(kinds, properties={**kinds.properties, **self.properties})

    def assert_used(self, jvm: StreamsJvm, world: FedApplication) -> None:
        """What its group and its directory, which it has closed, show of the settings."""
        assert group_type(jvm, world.servers, world.application_id) == self.protocol
        assert statuses(world) == {None if self.transactional else 0}


COVERING = (Mode(EXACTLY_ONCE, True, "streams"), Mode(AT_LEAST_ONCE))
"""Each setting has each of its values."""

MODES = (
    *COVERING,
    *(
        mode
        for made in itertools.product((EXACTLY_ONCE, AT_LEAST_ONCE), (False, True), ("classic", "streams"))
        if (mode := Mode(*made)) not in COVERING
    ),
)
"""Every combination of them, those of ``COVERING`` first."""


def transactional(kinds: KindsApplication) -> KindsApplication:
    """The same stores, transactional."""
    return Mode(AT_LEAST_ONCE, True).of(kinds)


def statuses(world: FedApplication) -> set[int | None]:
    """The statuses that its databases have; ``None`` of one in which none was ever written."""
    said = (dict(families["offsets"]) for families in directory.read_application(world.directory).values())
    return {int.from_bytes(one[b"status"], signed=True) if b"status" in one else None for one in said}


def group_type(jvm: StreamsJvm, servers: str, group: str) -> str:
    """What the broker says a group is: ``classic``, ``streams``.

    Raises:
        LookupError: there is no such group.
    """
    properties = jvm.jvm.java.util.Properties()
    properties.setProperty("bootstrap.servers", servers)
    admin = jvm.jvm.org.apache.kafka.clients.admin.Admin.create(properties)
    try:
        for listing in admin.listGroups().all().get().toArray():
            if str(listing.groupId()) == group:
                return str(listing.type().get().toString()).lower()
    finally:
        admin.close()
    raise LookupError(f"there is no group {group}")
