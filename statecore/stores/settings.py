"""What a user decides about a store."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from statecore.errors import Invalid

UNCOMMITTED_MAX_BYTES = 64 << 20
"""Default of ``statestore.uncommitted.max.bytes``, that of KIP-892."""

NO_LIMIT = -1


class Durability(StrEnum):
    """What a commit has survived when it returns; after a crash data and offsets agree either way."""

    SYNC = "sync"
    """The loss of power: the log is forced to the disk."""

    PROCESS = "process"
    """The death of the process, SIGKILL too: the log is with the kernel. After a loss of power the store stands at an
    earlier commit, whole."""


@dataclass(frozen=True)
class StoreSettings:
    """Settings of one store.

    Attributes:
        durability: what a commit has survived when it returns.
        uncommitted_max_bytes: memory of staged writes, in bytes, from which on the store asks for a commit
            (``statestore.uncommitted.max.bytes``); -1 for no limit.
        automatic_compaction: let RocksDB merge files in the background, as Kafka Streams does. For a store that a
            processor writes to for long: else files add up and reads slow down until :meth:`RocksDBStore.compact` is
            called. Off by default, because an image that is opened to be read or advanced must keep its files.
    """

    durability: Durability = Durability.SYNC
    uncommitted_max_bytes: int = UNCOMMITTED_MAX_BYTES
    automatic_compaction: bool = False

    def __post_init__(self) -> None:
        if self.uncommitted_max_bytes < NO_LIMIT:
            raise Invalid(
                f"statestore.uncommitted.max.bytes cannot be {self.uncommitted_max_bytes}.",
                action="Give a number of bytes, or -1 for no limit.",
            )
