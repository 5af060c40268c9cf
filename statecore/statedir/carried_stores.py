"""Validation of the stores that a placement carries over beside the restored ones.

**In a task**, under exactly-once, Kafka Streams deletes the whole task if a persistent store in it has no offset or
was not closed cleanly (``ProcessorStateManager.initializeStoreOffsets``). At-least-once accepts any. A store without
changelog needs no offset, but must be closed cleanly too (``RocksDBStore.openDB``). Transactional stores of 4.4
(KIP-892) have no status, and are at their offset even after a kill. One without an offset is restored over its rows,
and keys whose deletes were compacted away survive: it is refused too.

**Global stores** have other rules (``GlobalStateManagerImpl``). Kafka Streams seeks to an offset of -4 as it is, and
every start fails. Under exactly-once a store that was not closed cleanly makes every start fail too (KAFKA-21034), and
one that cannot be opened makes Kafka Streams delete ``global/`` with all its stores. One without an offset is read
again from the start of its topic, under either guarantee.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from statecore.errors import Invalid, StatecoreError, is_not_readable_here
from statecore.formats.checkpoint import store_checkpoint_file
from statecore.formats.kinds import StoreKind
from statecore.formats.releases import GLOBAL
from statecore.formats.task_id import TaskId
from statecore.formats.topic_partition import TopicPartition
from statecore.statedir.database_state import DatabaseState
from statecore.statedir.exactly_once_wipe import StoreAtStart, why_wiped
from statecore.statedir.placement_stores import SiblingStore
from statecore.statedir.state_directory import store_directory
from statecore.statedir.store_on_disk import read_store
from statecore.statedir.task_layout import StoreDirectory, rows_without_current
from statecore.stores.legacy_offsets import read_offsets

_ADVICE = "restore this store too, or let the application itself recover the task"
_NOT_LOGGED = "declare it with 'changelog: none' if the application does not log it"


class Refuse(Protocol):
    """Called with every reason why a store cannot be carried over."""

    def __call__(self, code: str, what: str, *, store: str) -> None:
        """Record the reason."""


class CarriedStores:
    """Validates the stores of one task, or of ``global/``, that are carried over."""

    def __init__(self, task: str, declared: Mapping[str, SiblingStore], exactly_once: bool, refuse: Refuse) -> None:
        self.task, self.declared, self.exactly_once, self.refuse = task, declared, exactly_once, refuse

    def check(self, stores: Sequence[StoreDirectory]) -> list[SiblingStore]:
        """Validate all stores; returns the declared ones that lack only an (empty) database."""
        if self.task == GLOBAL:
            for store in stores:
                self._check_global(store)
        elif self.exactly_once:
            return [sibling for store in stores if (sibling := self._check(store)) is not None]
        return []

    def _check(self, store: StoreDirectory) -> SiblingStore | None:
        sibling = self.declared.get(store.store)
        if sibling is not None and not _is_directory_of(sibling, store):
            return None
        logged = sibling is None or sibling.logged
        states = self._states(store, logged=logged)
        if states is None:
            return None
        kind = StoreKind.UNKNOWN if sibling is None else sibling.kind
        has_file = logged and states and kind.may_keep_offset_outside
        why = why_wiped(
            StoreAtStart(
                states,
                None if sibling is None else sibling.changelog,
                TaskId.parse(self.task).partition,
                kind,
                segmented=store.segmented,
                logged=logged,
                own_file=self._own_file(store) if has_file else {},
            )
        )
        if why is None:
            return None
        if why.code == "store-not-closed":
            self._refuse_open(store, states, logged=logged)
        elif why.code == "offset-missing":
            self._refuse_without_offset(store, states, inside=kind.manages_offsets)
        elif lost := next(iter(rows_without_current(store)), None):  # also one that has expired: it is opened first
            self.refuse(
                "store-incomplete",
                f"keeps the store {store.store}, of which {lost.name} has data files and no CURRENT: under exactly-once"
                f" Kafka Streams would create an empty database there, and wipe the task; {_ADVICE}",
                store=store.store,
            )
        elif sibling is not None and kind.is_segmented and sibling.changelog is not None:
            return sibling
        else:
            self.refuse(
                "database-missing",
                f"has a directory of the store {store.store} without a database, and under exactly-once Kafka"
                " Streams wipes a task with such a gap; declare the store in the spec and restore it too, declare it"
                f" with 'kind: custom' if it is of the application's own class, or {_NOT_LOGGED}",
                store=store.store,
            )
        return None

    def _check_global(self, store: StoreDirectory) -> None:
        states = self._states(store)
        if states is None:
            return
        unknown = {str(key): offset for state in states for key, offset in state.offsets.items() if offset < 0}
        if unknown:
            self.refuse(
                "offset-unknown",
                f"keeps the store {store.store}, whose offset is {_describe(unknown)}: Kafka Streams would fail at"
                " every start; restore this store too",
                store=store.store,
            )
        elif self.exactly_once and not all(state.closed_cleanly for state in states):
            self.refuse(
                "not-closed-cleanly",
                f"keeps the store {store.store}, which was not closed cleanly: under exactly-once Kafka Streams would"
                " fail at every start (KAFKA-21034); restore this store too",
                store=store.store,
            )

    def _states(self, store: StoreDirectory, *, logged: bool = True) -> list[DatabaseState] | None:
        """The state of every database, or ``None`` if one of them cannot be opened."""
        damage: StatecoreError | None
        try:
            found = read_store(store, manifests=True)
            damage = found.damage
        except Invalid as error:
            if not is_not_readable_here(error):
                raise
            damage = error
        if damage is None:
            return [database.state for database in found.databases]
        what = damage.what
        advice = damage.action
        if not logged:
            advice = f"It has no changelog: put a copy of {store.path} back, or move that directory away."
        self.refuse(
            damage.code,
            f"keeps the store {store.store}, but {what[:1].lower()}{what[1:]} {advice}",
            store=store.store,
        )
        return None

    def _refuse_open(self, store: StoreDirectory, states: Sequence[DatabaseState], *, logged: bool) -> None:
        advice = _ADVICE
        if not logged:
            advice = f"move {store.path} away: it has no changelog, and that start would delete it in any case"
        status = next(state.status for state in states if not state.closed_cleanly)
        self.refuse(
            "not-closed-cleanly",
            f"keeps the store {store.store}, which was not closed cleanly (status {status}): under exactly-once"
            f" Kafka Streams would wipe the task; {advice}",
            store=store.store,
        )

    def _refuse_without_offset(self, store: StoreDirectory, states: Sequence[DatabaseState], *, inside: bool) -> None:
        where = "" if inside else f" in {store_checkpoint_file(store.store)}"
        hint = "" if any(state.offsets for state in states) else f"; {_NOT_LOGGED}"
        self.refuse(
            "offset-missing",
            f"keeps the store {store.store}, which has no offset{where}: under exactly-once Kafka Streams would"
            f" wipe the task, or with transactional stores restore it over its rows; {_ADVICE}{hint}",
            store=store.store,
        )

    def _own_file(self, store: StoreDirectory) -> Mapping[TopicPartition, int]:
        try:
            return read_offsets(store.checkpoint_file)
        except StatecoreError as error:
            self.refuse(
                "checkpoint-unreadable",
                f"keeps the store {store.store}, whose offset cannot be read: {error}",
                store=store.store,
            )
            return {}


def _is_directory_of(sibling: SiblingStore, store: StoreDirectory) -> bool:
    """Whether Kafka Streams uses this directory for the store; else it is a leftover of another kind."""
    if sibling.kind is StoreKind.UNKNOWN:
        return True
    return sibling.kind is not StoreKind.IN_MEMORY and store_directory(sibling.store, sibling.kind) == store.name


def _describe(offsets: Mapping[str, int]) -> str:
    return ", ".join(f"{offset} for {partition}" for partition, offset in offsets.items())
