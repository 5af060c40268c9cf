"""Release of Kafka Streams that opens a state directory next: names only, for requests."""

from __future__ import annotations

from enum import StrEnum


class TargetRelease(StrEnum):
    """A release, by its name in :data:`statecore.formats.releases.RELEASES`."""

    V3_9 = "3.9"
    V4_2 = "4.2"
    V4_3 = "4.3"
    V4_4 = "4.4"
