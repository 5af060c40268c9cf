"""Stores of the application's own classes (kind ``custom``) in a task that is placed.

Their format is unknown, so they are neither read nor built: files that belong to one by name are carried over. Kafka
Streams keeps the offset of such a store in ``.checkpoint_<store>`` (``LegacyCheckpointingStateStore``). Under
exactly-once it deletes that file when it opens the store, and wipes the whole task at the next start if it is missing.
With -4 in it, only that store is restored, from the start of its changelog.

======================  ===============================  =====================================================
in the live task        at-least-once                    exactly-once
======================  ===============================  =====================================================
files and an offset     carried over                     carried over
files and no offset     carried over; restored over      -4, and its files are not carried over: it was not
                        them                             closed, and rows deleted since would stay in it
an offset and no files  -4: Kafka Streams would trust    the same
                        the offset and restore nothing
neither                 restored by Kafka Streams        -4
not logged              carried over                     carried over
======================  ===============================  =====================================================

Files that belong to no store by name may belong to any of them. If one store was not closed under exactly-once, none
of these files is carried over, and no custom store of that task is trusted; unless one is not logged, because nothing
could restore that.

An entry of ``.checkpoint`` (Kafka Streams 4.2 and older) wins over the file, as at a start of 4.3 or later, and is
written into it. In ``global/`` -4 fails every start, and a store without an offset is read again from the start of its
topic, under either guarantee: nothing is written there, and an offset file without files of the store is dropped.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from statecore.errors import StatecoreError
from statecore.formats.checkpoint import position_file, store_checkpoint_file
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.releases import CHECKPOINT_FILE, GLOBAL, PLAIN_PARENT, POSITION_SUFFIX
from statecore.formats.task_id import TaskId
from statecore.formats.topic_partition import TopicPartition
from statecore.statedir.checkpoint_overlay import overlaid
from statecore.statedir.exactly_once_wipe import StoreAtStart, has_offset
from statecore.statedir.placement_stores import SiblingStore
from statecore.statedir.task_layout import databases_of, names_in
from statecore.stores.legacy_offsets import read_offsets

_LEFTOVERS = (".lock", ".tmp")
_NOT_CLOSED = "it was not closed, and its files are not carried over"


@dataclass(frozen=True)
class CustomStore:
    """How a placement treats a store of the application's own class.

    Attributes:
        why_restored: why Kafka Streams restores it from the start; empty where it continues from its offset.
        dropped: names in the live task's directory that are not carried over.
        offsets: written into ``.checkpoint_<store>``; ``None`` leaves that file as it is.
    """

    store: str
    why_restored: str = ""
    dropped: tuple[str, ...] = ()
    offsets: Mapping[TopicPartition, int] | None = None

    @property
    def file(self) -> str:
        """The file with its offset."""
        return store_checkpoint_file(self.store)


class CustomStores:
    """The declared stores of the application's own classes of one task, or of ``global/``."""

    def __init__(
        self, live: Path, declared: Collection[SiblingStore], restored: Collection[str], exactly_once: bool
    ) -> None:
        self._live, self._exactly_once = live, exactly_once
        self._stores = [one for one in declared if one.kind is StoreKind.CUSTOM]
        self._known = {one.store for one in declared} | set(restored)
        self._names: list[str] = names_in(live) if live.is_dir() else []
        self._unclaimed = [name for name in self._names if self._is_unclaimed(name) and _has_file(live / name)]

    @property
    def topics(self) -> set[str]:
        """Changelogs, and source topics of global stores, whose entries of ``.checkpoint`` are carried over."""
        return {one.changelog.topic for one in self._stores if one.logged and one.changelog is not None}

    @property
    def undecided(self) -> list[SiblingStore]:
        """Stores that need an offset and whose changelog is not known."""
        if not self._exactly_once:
            return []
        return [one for one in self._stores if one.task != GLOBAL and one.logged and one.changelog is None]

    @property
    def without_offset(self) -> list[str]:
        """Logged stores without an offset in any file: under exactly-once Kafka Streams wipes their task."""
        return [
            one.store
            for one in self._stores
            if one.task != GLOBAL and one.logged and one.changelog is not None and not has_offset(self._at_start(one))
        ]

    def _at_start(self, store: SiblingStore) -> StoreAtStart:
        return StoreAtStart(
            (),
            store.changelog,
            TaskId.parse(store.task).partition,
            store.kind,
            own_file=self._offsets_in(store_checkpoint_file(store.store)),
            task_file=self._offsets_in(CHECKPOINT_FILE),
        )

    def has(self, name: str) -> bool:
        """Whether an entry of the task's directory belongs to one of them by name."""
        return any(name == store_checkpoint_file(one.store) or self._is_of(one.store, name) for one in self._stores)

    def may_have(self, name: str) -> bool:
        """Whether an entry of the task's directory may belong to one of them, because it belongs to no other store."""
        return bool(self._stores) and (self.has(name) or name in self._unclaimed)

    def decide(self) -> tuple[CustomStore, ...]:
        """The treatment of each store."""
        found = {one.store: self._decide(one) for one in self._stores}
        left = self.without_offset
        if self._exactly_once and self._unclaimed and left and all(one.logged for one in self._stores):
            # Some of these files may belong to a store that was not closed, and nothing tells which.
            others = "its files cannot be told from those of a store that was not closed"
            for one in self._stores:
                if one.changelog is not None:
                    found[one.store] = CustomStore(
                        one.store,
                        _NOT_CLOSED if one.store in left else others,
                        (
                            *self._unclaimed,
                            *self._files_of(one.store),
                            *self._existing(store_checkpoint_file(one.store)),
                        ),
                        {one.changelog: OFFSET_UNKNOWN},
                    )
        return tuple(found.values())

    def _decide(self, store: SiblingStore) -> CustomStore:
        if not store.logged or store.changelog is None:
            return CustomStore(store.store)
        if store.task == GLOBAL:
            return self._global(store.store, store.changelog.topic)
        changelog, file = store.changelog, store_checkpoint_file(store.store)
        older, own = self._offsets_in(CHECKPOINT_FILE).get(changelog, -1), self._offsets_in(file).get(changelog)
        offset = older if older >= 0 else own
        unknown = {changelog: OFFSET_UNKNOWN}
        if offset is not None and offset >= 0 and not self._has_files(store.store):
            why = f"it has the offset {offset} and no files"
            return CustomStore(store.store, why, self._existing(file), unknown)
        if offset is not None:
            left = "its offset is not known" if offset == OFFSET_UNKNOWN else ""
            return CustomStore(store.store, left, *((self._existing(file), {changelog: older}) if older >= 0 else ()))
        own_files = self._files_of(store.store)
        if not self._exactly_once:
            why = "its files have no offset, and stay" if own_files else "it has no files"
            broken = self._existing(file)  # without an entry of its changelog, or unreadable
            return CustomStore(store.store, why, broken, unknown if broken else None)
        why = _NOT_CLOSED if own_files else "it has no files"
        return CustomStore(store.store, why, (*own_files, *self._existing(file)), unknown)

    def _global(self, store: str, topic: str) -> CustomStore:
        file = store_checkpoint_file(store)
        older = {part: offset for part, offset in self._offsets_in(CHECKPOINT_FILE).items() if part.topic == topic}
        own = self._offsets_in(file)
        offsets = overlaid(own, older)
        if offsets and self._has_files(store) and min(offsets.values()) >= 0:
            return CustomStore(store, "", *((self._existing(file), offsets) if offsets != own else ()))
        why = "its files have no offset, and stay" if self._files_of(store) else "it has no files"
        return CustomStore(store, why, self._existing(file))

    def _offsets_in(self, name: str) -> Mapping[TopicPartition, int]:
        """The offsets in a file; empty if it is missing or unreadable."""
        try:
            return read_offsets(self._live / name)
        except StatecoreError:
            return {}

    def _existing(self, name: str) -> tuple[str, ...]:
        return (name,) if name in self._names else ()

    def _files_of(self, store: str) -> tuple[str, ...]:
        return tuple(name for name in self._names if self._is_of(store, name))

    def _is_of(self, store: str, name: str) -> bool:
        """Whether an entry is named after a store: ``s``, ``rocksdb/s``, or the file ``s.<anything>``."""
        if name in (store, f"{PLAIN_PARENT}/{store}"):
            return True
        if not name.startswith(f"{store}.") or (self._live / name).is_dir():
            return False
        longer = (one for one in self._known if len(one) > len(store))
        return not any(name == one or name.startswith(f"{one}.") for one in longer)

    def _has_files(self, store: str) -> bool:
        """Whether files exist that may hold its rows: its own or unclaimed ones, except hidden and lock files."""
        unclaimed = any(not name.startswith(".") for name in self._unclaimed)
        own_files = set(self._files_of(store)) - {position_file(store), *(f"{store}{suffix}" for suffix in _LEFTOVERS)}
        return unclaimed or any(_has_file(self._live / name) for name in own_files)

    def _is_unclaimed(self, name: str) -> bool:
        path = self._live / name
        if path.is_dir():
            return name.removeprefix(f"{PLAIN_PARENT}/") not in self._known and not databases_of(path)
        if name.startswith(CHECKPOINT_FILE) or name.endswith((POSITION_SUFFIX, *_LEFTOVERS)):
            return False
        return not any(name == one or name.startswith(f"{one}.") for one in self._known)


def restored_by_kafka_streams(stores: Sequence[tuple[str, CustomStore]]) -> list[str]:
    """Operator notes about custom stores, each with its task, that Kafka Streams restores from the start."""
    tasks: dict[tuple[str, str], list[str]] = {}
    for task, one in stores:
        if one.why_restored:
            tasks.setdefault((one.store, one.why_restored), []).append(task)
    return [
        f"Kafka Streams restores the store {store} (kind custom) in {', '.join(its)} from the start, and only it: "
        f"{why}."
        for (store, why), its in tasks.items()
    ]


def _has_file(path: Path) -> bool:
    if not path.is_dir():
        return True
    return any(files for _, _, files in os.walk(path))
