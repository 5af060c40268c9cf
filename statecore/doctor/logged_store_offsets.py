"""Offsets of a directory's stores for comparison with their changelogs.

Kafka Streams uses the offset of the newest segment that has one, and ``.checkpoint`` before all others. Releases before
4.3 keep offsets only there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from statecore.doctor.inspection import Inspection, StoreView
from statecore.errors import StatecoreError
from statecore.formats.kinds import WINDOWED_KINDS, StoreKind
from statecore.formats.offsets import next_offset
from statecore.formats.releases import CHECKPOINT_FILE, GLOBAL, PLAIN_PARENT
from statecore.formats.segments import Segmentation
from statecore.formats.task_id import TaskId
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import UNKNOWN_CHANGELOG, ApplicationSpec, default_changelog, segmentation_of
from statecore.statedir.checkpoint_overlay import entries_of, overlaid
from statecore.statedir.store_places import changelog_at, declared_at
from statecore.stores.legacy_offsets import read_offsets


@dataclass(frozen=True)
class DatabasePath:
    """Directory of one database of a store.

    Attributes:
        start: first ms of its segment; ``None`` for a store that is one database.
        end: first ms after it; ``None`` if unknown.
    """

    path: Path
    start: int | None = None
    end: int | None = None


@dataclass(frozen=True)
class LoggedStoreOffsets:
    """Offsets of one store of one task.

    Attributes:
        kind: ``?`` if unknown.
        default_changelog: the name that Kafka Streams gives to its changelog; empty for a global store, which has none.
        declared: the topic in the spec; empty without one.
        own_offsets: offsets in its databases, if ``.checkpoint`` overrules them; else empty. Kafka Streams uses them if
            the file is deleted.
        own_segments_agree: whether all of its databases have these.
        changelogs: the names that Kafka Streams gives to the changelogs of all stores, found or declared.
        offsets: changelog partition → offset that Kafka Streams uses: the last applied one, of a global store the next
            one, or -4. Of a global store with a declared topic only those of that topic.
        closed: whether all databases were closed cleanly; ``None`` if none has a status, as in older releases.
        in_use: whether a process has it open, or holds the application's lock.
        readable: whether all of them could be read correctly.
        segments_agree: whether all databases have these offsets, and no file overrules them.
        segmentation: how its rows are divided by time; ``None`` if that is not declared, or they are not.
        transactional: whether 4.4 last wrote it with transactional stores: its rows are those at its offset.
        flushed_later: whether rows were flushed after ``.checkpoint`` was written, or may have been.
    """

    task: str
    store: str
    kind: StoreKind
    default_changelog: str
    offsets: Mapping[TopicPartition, int]
    databases: tuple[DatabasePath, ...] = ()
    closed: bool | None = True
    in_use: bool = False
    readable: bool = True
    segments_agree: bool = True
    declared: str = ""
    own_offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    own_segments_agree: bool = True
    changelogs: frozenset[str] = frozenset()
    segmentation: Segmentation | None = None
    transactional: bool = False
    flushed_later: bool = False

    @property
    def may_be_ahead(self) -> bool:
        """Whether its rows may be of later records than its offset, because nothing records that it was closed."""
        return self.closed is None and not self.transactional

    @property
    def without_file(self) -> LoggedStoreOffsets | None:
        """The store as it would be without ``.checkpoint``; ``None`` if that file changes nothing."""
        return (
            replace(self, offsets=self.own_offsets, own_offsets={}, segments_agree=self.own_segments_agree)
            if self.own_offsets
            else None
        )

    @property
    def is_global(self) -> bool:
        return self.task == GLOBAL

    @property
    def known(self) -> dict[TopicPartition, int]:
        """Changelog partition → first offset that the store does not have, without unknown ones."""
        return {
            partition: next_offset(offset, is_global=self.is_global)
            for partition, offset in sorted(self.offsets.items())
            if offset >= 0
        }

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions of its offsets; without offsets its task's partition of the declared changelog."""
        number = TaskId.parse(self.task).partition
        if not self.offsets and self.declared and number is not None:
            return [TopicPartition(self.declared, number)]
        return sorted(self.offsets)

    def is_source(self, topic: str) -> bool:
        """Whether a topic is an input of the application: as declared; without a spec, if it is no store's by name.

        A copied store has an offset of the original's changelog.
        """
        if self.is_global or topic == self.default_changelog:
            return False
        return topic == self.declared or (not self.declared and topic not in self.changelogs)


def logged_store_offsets(inspection: Inspection, spec: ApplicationSpec | None = None) -> list[LoggedStoreOffsets]:
    """The offsets of all logged stores of an inspected directory."""
    files = {task: _checkpoint(inspection.path / task) for task in sorted({view.task for view in inspection.stores})}
    names = {view.store for view in inspection.stores if view.task != GLOBAL}
    names |= {store.name for store in (() if spec is None else spec.stores)}
    changelogs = frozenset(default_changelog(inspection.application_id, name) for name in names)
    return [_store(inspection, view, files[view.task], spec, changelogs) for view in inspection.stores if view.logged]


def _store(
    inspection: Inspection,
    view: StoreView,
    file: Mapping[TopicPartition, int],
    spec: ApplicationSpec | None,
    changelogs: frozenset[str],
) -> LoggedStoreOffsets:
    application_id, declaration = inspection.application_id, declared_at(spec, view.task, view.store)
    usual = changelog_at(application_id, view.task, view.store, None)
    decided = declaration is not None and declaration.changelog != UNKNOWN_CHANGELOG
    declared = changelog_at(application_id, view.task, view.store, declaration) if decided else ""
    changelog = declared or usual
    own = dict(view.offsets)
    offsets = overlaid(own, entries_of(file, own, {changelog}, TaskId.parse(view.task).partition))
    overruled = offsets != own and bool(view.keeps_offsets_inside) and view.kind.manages_offsets
    in_use = inspection.holder is not None or view.holder is not None

    number = TaskId.parse(view.task).partition

    def read_at_start(found: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Without the offsets that Kafka Streams does not look for, as those of a former changelog."""
        of_topic = {partition: offset for partition, offset in found.items() if partition.topic == declared}
        if view.task == GLOBAL:
            return of_topic if declared else dict(found)
        found = of_topic or found
        return {part: offset for part, offset in found.items() if part.partition == number} or dict(found)

    return LoggedStoreOffsets(
        view.task,
        view.store,
        view.kind,
        usual,
        read_at_start(offsets),
        # Undeclared, an interval is derived from the existing segments, and may be a multiple of the right one.
        tuple(one if declared else replace(one, end=None) for one in database_paths(inspection.path, view)),
        closed=view.closed,
        in_use=in_use,
        readable=not any(one.broken for one in view.databases)
        and not any(one.code == "older-rows-misread" for one in view.findings),
        segments_agree=_agree(view, offsets),
        declared=declared,
        own_offsets=read_at_start(own) if overruled else {},
        own_segments_agree=_agree(view, own),
        changelogs=changelogs,
        segmentation=None
        if declaration is None or view.kind not in WINDOWED_KINDS
        else segmentation_of(replace(declaration, kind=view.kind)),
        transactional=view.transactional,
        flushed_later=_flushed_later(inspection, view),
    )


def _flushed_later(inspection: Inspection, view: StoreView) -> bool:
    """Whether rows of a store were flushed after ``.checkpoint`` was written; assumed where that was not inspected."""
    return view.task not in inspection.whole_tasks or any(
        one.code == "rows-after-checkpoint" and (one.task, one.store) == (view.task, view.store)
        for one in inspection.findings
        if one.evidence.get("files")
    )


def _agree(view: StoreView, offsets: Mapping[TopicPartition, int]) -> bool:
    return all(offset == offsets.get(part) for one in view.databases for part, offset in one.offsets.items())


def database_paths(application: Path, view: StoreView) -> tuple[DatabasePath, ...]:
    """The databases of a store in the directory of its application."""
    parent = application / view.task / (view.store if view.segmented else PLAIN_PARENT)
    return tuple(DatabasePath(parent / one.name, one.start, one.end) for one in view.databases)


def _checkpoint(task: Path) -> dict[TopicPartition, int]:
    """The offsets in a task's ``.checkpoint``; empty if it is missing or unreadable."""
    file = task / CHECKPOINT_FILE
    with contextlib.suppress(StatecoreError):  # reported by the checks of files
        return read_offsets(file, last_wins=True)
    return {}
