"""What the stores of a state directory say of their changelogs: how far each has come, and in which of its files.

Kafka Streams goes by the offset of the newest segment that has one, and by ``.checkpoint`` before all others. Releases
before 4.3 keep no offset anywhere else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from statecore.doctor.views import Inspection, StoreView
from statecore.errors import StatecoreError
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.releases import CHECKPOINT_FILE, GLOBAL, PLAIN_PARENT
from statecore.formats.task_id import TaskId
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import UNKNOWN_CHANGELOG, ApplicationSpec
from statecore.statedir.store_places import changelog_at, declared_at
from statecore.stores.legacy_offsets import read_offsets


@dataclass(frozen=True)
class DatabasePlace:
    """Where one database of a store lies.

    Attributes:
        path: its directory.
        start: first ms of its segment; ``None`` for a store that is one database.
        end: the ms behind it; ``None`` where it is not known.
    """

    path: Path
    start: int | None = None
    end: int | None = None


@dataclass(frozen=True)
class StoreOffsets:
    """One store of one task.

    Attributes:
        task: ``0_1``, ``__north__/0_1`` or ``global``.
        store: its name.
        kind: what it is; ``?`` where nobody knows.
        usual: the name that Kafka Streams gives to its changelog; empty for a global store, which has none.
        declared: the topic that the spec says; empty without one.
        own: what its databases say themselves, where ``.checkpoint`` overrules them; else empty. By that Kafka Streams
            goes when the file is gone.
        own_agreed: whether all of its databases say these.
        offsets: changelog partition → what Kafka Streams goes by: the last applied offset, of a global store the next
            one, or -4.
        databases: where its rows lie.
        closed: whether all of them were closed cleanly; ``None`` where none says so, as those of older releases.
        in_use: whether somebody has it open, or holds the application's lock.
        readable: whether all of them could be read, and rightly.
        agreed: whether all of them say these offsets, which no file overrules.
    """

    task: str
    store: str
    kind: StoreKind
    usual: str
    offsets: Mapping[TopicPartition, int]
    databases: tuple[DatabasePlace, ...] = ()
    closed: bool | None = True
    in_use: bool = False
    readable: bool = True
    agreed: bool = True
    declared: str = ""
    own: Mapping[TopicPartition, int] = field(default_factory=dict)
    own_agreed: bool = True

    @property
    def without_file(self) -> StoreOffsets | None:
        """The store as it is without ``.checkpoint``; ``None`` where that file changes nothing."""
        return replace(self, offsets=self.own, own={}, agreed=self.own_agreed) if self.own else None

    @property
    def is_global(self) -> bool:
        """Whether it is a global store."""
        return self.task == GLOBAL

    @property
    def known(self) -> dict[TopicPartition, int]:
        """Changelog partition → the first offset that the store has not, without those that are unknown."""
        return {
            partition: offset + (not self.is_global)
            for partition, offset in sorted(self.offsets.items())
            if offset != OFFSET_UNKNOWN
        }

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions of which it says something; its task's, where its changelog is declared and it says none."""
        number = TaskId.parse(self.task).partition
        if not self.offsets and self.declared and number is not None:
            return [TopicPartition(self.declared, number)]
        return sorted(self.offsets)

    def is_source(self, topic: str) -> bool:
        """Whether a topic is one that the application reads, and no changelog of its own, which has another name."""
        return not self.is_global and topic != self.usual


def stored_offsets(inspection: Inspection, spec: ApplicationSpec | None = None) -> list[StoreOffsets]:
    """What all logged stores of a directory say.

    Args:
        inspection: a look at the directory.
        spec: what is declared.
    """
    files = {task: _checkpoint(inspection.path / task) for task in sorted({view.task for view in inspection.stores})}
    return [_store(inspection, view, files[view.task], spec) for view in inspection.stores if view.logged]


def _store(
    inspection: Inspection, view: StoreView, file: Mapping[TopicPartition, int], spec: ApplicationSpec | None
) -> StoreOffsets:
    application_id, said = inspection.application_id, declared_at(spec, view.task, view.store)
    usual = changelog_at(application_id, view.task, view.store, None)
    decided = said is not None and said.changelog != UNKNOWN_CHANGELOG
    declared = changelog_at(application_id, view.task, view.store, said) if decided else ""
    changelog = declared or usual
    own = dict(view.offsets)
    offsets = dict(own)
    for partition, offset in file.items():
        if offset != OFFSET_UNKNOWN and (partition in offsets or partition.topic == changelog):
            offsets[partition] = offset
    overruled = offsets != own and bool(view.keeps_offsets_inside) and view.kind.manages_offsets
    in_use = inspection.holder is not None or view.holder is not None
    return StoreOffsets(
        view.task,
        view.store,
        view.kind,
        usual,
        offsets,
        # Undeclared, an interval is what the segments that are there allow, and may be a multiple of the right one.
        tuple(_place(inspection, view, one.name, one.start, one.end if declared else None) for one in view.databases),
        closed=view.closed,
        in_use=in_use,
        readable=not any(one.broken for one in view.databases)
        and not any(one.code == "older-rows-misread" for one in view.findings),
        agreed=_agree(view, offsets),
        declared=declared,
        own=own if overruled else {},
        own_agreed=_agree(view, own),
    )


def _agree(view: StoreView, offsets: Mapping[TopicPartition, int]) -> bool:
    return all(said == offsets.get(part) for one in view.databases for part, said in one.offsets.items())


def _place(inspection: Inspection, view: StoreView, name: str, start: int | None, end: int | None) -> DatabasePlace:
    task = inspection.path / view.task
    return DatabasePlace(task / (view.store if view.segmented else PLAIN_PARENT) / name, start, end)


def _checkpoint(task: Path) -> dict[TopicPartition, int]:
    """What a task's ``.checkpoint`` says; nothing where there is none, or where it cannot be read."""
    file = task / CHECKPOINT_FILE
    with contextlib.suppress(StatecoreError):  # said of the file itself, where files are looked at
        return read_offsets(file)
    return {}
