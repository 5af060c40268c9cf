"""Which release of Kafka Streams a state directory is to be opened by next: names alone, for requests."""

from __future__ import annotations

from enum import StrEnum


class TargetRelease(StrEnum):
    """A release, by the name that it has in :data:`statecore.formats.releases.RELEASES`."""

    V3_9 = "3.9"
    V4_2 = "4.2"
    V4_3 = "4.3"
    V4_4 = "4.4"
