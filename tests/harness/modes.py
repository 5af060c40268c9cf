"""What an application is configured as beside its guarantee: transactional state stores, and the group's protocol.

Both are Streams properties of a ``KindsApplication``; older releases than 4.4 and 4.2 do not know them.
"""

from __future__ import annotations

from dataclasses import replace

from tests.harness.kinds import TRANSACTIONAL, KindsApplication
from tests.harness.streams import StreamsJvm


def transactional(kinds: KindsApplication) -> KindsApplication:
    """The same stores, transactional."""
    return replace(kinds, properties={**kinds.properties, TRANSACTIONAL: "true"})


def of_protocol(kinds: KindsApplication, protocol: str) -> KindsApplication:
    """The same stores of an application whose group has the protocol ``classic`` or ``streams`` (KIP-1071)."""
    return replace(kinds, properties={**kinds.properties, "group.protocol": protocol})


def group_type(jvm: StreamsJvm, servers: str, group: str) -> str:
    """What the broker says a group is: ``Classic``, ``Streams``.

    Raises:
        LookupError: there is no such group.
    """
    properties = jvm.jvm.java.util.Properties()
    properties.setProperty("bootstrap.servers", servers)
    admin = jvm.jvm.org.apache.kafka.clients.admin.Admin.create(properties)
    try:
        for listing in admin.listGroups().all().get().toArray():
            if str(listing.groupId()) == group:
                return str(listing.type().get().toString())
    finally:
        admin.close()
    raise LookupError(f"there is no group {group}")
