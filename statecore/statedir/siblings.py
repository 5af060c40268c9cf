"""The stores of a placement: those it restores, and the declared ones beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition


@dataclass(frozen=True)
class SiblingStore:
    """A declared store of a task that this placement does not restore.

    Attributes:
        task: its task, ``0_1`` or ``__north__/0_1``; ``global`` for a global store.
        store: its name.
        kind: its kind.
        changelog: its changelog partition. A global store has none of its own: any partition of its source topic.
            ``None`` where the store is not logged, or nobody has decided which topic it is.
        logged: whether Kafka Streams logs it. It wants no offset of one that is not, restores nothing into it, and
            makes an empty one where there is none (``ProcessorStateManager.initializeStoreOffsets``).
    """

    task: str
    store: str
    kind: StoreKind
    changelog: TopicPartition | None
    logged: bool = field(default=True, kw_only=True)


@dataclass(frozen=True)
class StoreImage(SiblingStore):
    """A store to be placed.

    Attributes:
        path: the built database, of a segmented kind the directory of its segments' databases; ``None`` while only
            the plan is wanted. It is moved, not copied.
        offsets: what its ``offsets`` family must say: changelog partition → last applied offset, or -4; of a global
            store each partition of the source topic → next offset. ``None`` while only the plan is wanted.
        advances: whether it is made of what the live directory has, so that nothing is lost when that is replaced.
    """

    path: Path | None = None
    offsets: Mapping[TopicPartition, int] | None = None
    advances: bool = field(default=False, kw_only=True)

    @property
    def topics(self) -> set[str]:
        """The topics whose offsets this image brings, as far as ``changelog`` and ``offsets`` name them."""
        known = [*(self.offsets or ()), *([self.changelog] if self.changelog else [])]
        return {partition.topic for partition in known}
