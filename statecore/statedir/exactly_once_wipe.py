"""Whether Kafka Streams deletes a task's directory at an exactly-once start because of one of its stores. Pure.

A start deletes it if a store cannot be opened, was not closed cleanly (``RocksDBStore.openDB``), or is logged and has
no offset (``ProcessorStateManager.initializeStoreOffsets``). With -4 as its offset only that store is restored. Where
a start finds an offset:

====================================  ================================================================================
release and store                     places
====================================  ================================================================================
4.2 and older                         ``.checkpoint``, also -4
4.3 and later                         any database of the store; ``.checkpoint``, not -4
4.3 and later, grace buffer, custom   ``.checkpoint_<store>``; ``.checkpoint``, not -4
====================================  ================================================================================

Policies over it:

- A logged store without a database counts here, whatever the files say: with an offset in a file it is not wiped, but
  trusted, and answers without its rows.
- Promotion ignores transactional stores (4.4, KIP-892): without an offset they are not wiped, but restored over their
  rows. The standby copy is better than either.
- A placement ignores ``.checkpoint``, which it drops, and creates the segment of a store that has none. It also refuses
  a database whose MANIFEST lost its end: Kafka Streams opens it.
- The doctor reports a missing offset under either guarantee, with the wipe as its consequence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from statecore.errors import Reason
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.releases import CURRENT, Release
from statecore.formats.topic_partition import TopicPartition
from statecore.statedir.database_state import DatabaseState
from statecore.statedir.store_on_disk import StoreOnDisk


@dataclass(frozen=True)
class StoreAtStart:
    """What a start finds of one persistent store of a task.

    Attributes:
        databases: the state of each of its databases; ``None`` for one that does not open.
        changelog: its changelog; ``None`` if unknown: any one of ``partition`` may be it.
        partition: that of its task; ``None`` if it does not matter.
        kind: ``?`` if unknown: its offset may then be in a database or in its own file.
        own_file: offsets in ``.checkpoint_<store>``.
        task_file: offsets in ``.checkpoint``.
    """

    databases: Sequence[DatabaseState | None]
    changelog: TopicPartition | None
    partition: int | None
    kind: StoreKind = StoreKind.UNKNOWN
    logged: bool = field(default=True, kw_only=True)
    own_file: Mapping[TopicPartition, int] = field(default_factory=dict, kw_only=True)
    task_file: Mapping[TopicPartition, int] = field(default_factory=dict, kw_only=True)


def states_at_start(store: StoreOnDisk) -> list[DatabaseState | None]:
    """The states of a store's databases, for :class:`StoreAtStart`."""
    return [one.state if one.opens else None for one in store.databases]


def why_wiped(store: StoreAtStart, release: Release = CURRENT, *, transactional: bool = False) -> Reason | None:
    """What the next start wipes the task for, as the end of a sentence about the store; ``None`` if it does not."""
    if any(state is None for state in store.databases):
        return Reason("cannot be read", "store-damaged")
    if not all(state.closed_cleanly for state in store.databases if state is not None):
        return Reason("was not closed", "store-not-closed")
    if not store.logged or transactional:
        return None
    if not store.databases:
        return Reason("has no database", "database-missing")
    return None if has_offset(store, release) else Reason("has no offset", "offset-missing")


def has_offset(store: StoreAtStart, release: Release = CURRENT) -> bool:
    """Whether a start finds an offset of the store's changelog, which may be -4."""
    if not release.offsets_inside:
        return _has(store, store.task_file)
    if _has(store, {part: offset for part, offset in store.task_file.items() if offset != OFFSET_UNKNOWN}):
        return True
    unknown = store.kind is StoreKind.UNKNOWN
    if (unknown or store.kind.manages_offsets) and any(
        state and _has(store, state.offsets) for state in store.databases
    ):
        return True
    return (unknown or not store.kind.manages_offsets) and _has(store, store.own_file)


def _has(store: StoreAtStart, offsets: Mapping[TopicPartition, int]) -> bool:
    if store.changelog is not None:
        return store.changelog in offsets
    return any(store.partition in (None, one.partition) for one in offsets)
