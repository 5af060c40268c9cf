"""Whether Kafka Streams deletes a task's directory at an exactly-once start because of one of its stores. Pure.

A start deletes it if a store was not closed cleanly (``RocksDBStore.openDB``), or is logged and has no offset
(``ProcessorStateManager.initializeStoreOffsets``). With -4 as its offset only that store is restored. A store that
cannot be opened deletes nothing in 4.3 and later: ``KafkaStreams.start`` throws. Where a start finds an offset:

====================================  ================================================================================
release and store                     places
====================================  ================================================================================
4.2 and older                         ``.checkpoint``, also -4
4.3 and later                         any database of the store; ``.checkpoint``, not -4, unless it lacks all segments
4.3 and later, grace buffer, custom   ``.checkpoint_<store>``; ``.checkpoint``, not -4
====================================  ================================================================================

``tests/integration/test_exactly_once_wipe.py`` lets Kafka Streams decide each case. Who asks, and what each adds:

- Promotion (``standby/promote/store_check.py``): a store that cannot be opened, and a logged one without a database,
  whatever the files say. With an offset in a file Kafka Streams trusts the latter, and answers without its rows.
  Transactional stores (4.4, KIP-892) count too: without an offset they are restored over their rows, and the standby
  copy is better.
- A placement (``carried_stores.py``, ``custom_stores.py``): it drops ``.checkpoint``, so that does not count. It
  creates the segment of a store that has none, and refuses a database whose MANIFEST lost its end, which opens.
- The doctor (``doctor/checks/context.py``): reports a missing offset under either guarantee, with the wipe as its
  consequence. It asks also which stores without changelog are deleted with their task.
- A migration (``conversion/upward.py``): which stores rely on a wipe that transactional stores do not get.

Others deliberately do not ask: offset sums and standbys open tasks with this library, which trusts what it wrote last
(``DatabaseOnDisk.trusted``); a repair asks for the offset to go on from, not for a wipe.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from statecore.errors import Reason
from statecore.formats.kinds import StoreKind
from statecore.formats.releases import CURRENT, Release
from statecore.formats.topic_partition import TopicPartition
from statecore.statedir.checkpoint_overlay import migrated
from statecore.statedir.database_state import DatabaseState

NO_DATABASE = Reason("has no database", "database-missing")


@dataclass(frozen=True)
class StoreAtStart:
    """What a start finds of one persistent store of a task.

    Attributes:
        databases: the state of each of its databases that opens.
        changelog: its changelog; ``None`` if unknown: any one of ``partition`` may be it.
        partition: that of its task; ``None`` if it does not matter.
        kind: ``?`` if unknown: its offset may then be in a database or in its own file.
        segmented: whether its databases are segments.
        own_file: offsets in ``.checkpoint_<store>``.
        task_file: offsets in ``.checkpoint``.
    """

    databases: Sequence[DatabaseState]
    changelog: TopicPartition | None
    partition: int | None
    kind: StoreKind = StoreKind.UNKNOWN
    segmented: bool = field(default=False, kw_only=True)
    logged: bool = field(default=True, kw_only=True)
    own_file: Mapping[TopicPartition, int] = field(default_factory=dict, kw_only=True)
    task_file: Mapping[TopicPartition, int] = field(default_factory=dict, kw_only=True)


def why_wiped(store: StoreAtStart, release: Release = CURRENT, *, transactional: bool = False) -> Reason | None:
    """What the next start wipes the task for, as the end of a sentence about the store; ``None`` if it does not."""
    if not all(state.closed_cleanly for state in store.databases):
        return Reason("was not closed", "store-not-closed")
    if not store.logged or transactional:
        return None
    if has_offset(store, release):
        return None
    return Reason("has no offset", "offset-missing") if store.databases else NO_DATABASE


def has_offset(store: StoreAtStart, release: Release = CURRENT) -> bool:
    """Whether a start finds an offset of the store's changelog, which may be -4."""
    if not release.offsets_inside:
        return _has(store, store.task_file)
    inside = store.kind is StoreKind.UNKNOWN or store.kind.manages_offsets
    if _has(store, migrated(store.task_file)) and (
        store.databases or not store.segmented or not store.kind.manages_offsets
    ):
        return True
    if inside and any(_has(store, state.offsets) for state in store.databases):
        return True
    return store.kind.may_keep_offset_outside and _has(store, store.own_file)


def _has(store: StoreAtStart, offsets: Collection[TopicPartition]) -> bool:
    if store.changelog is not None:
        return store.changelog in offsets
    return any(store.partition in (None, one.partition) for one in offsets)
