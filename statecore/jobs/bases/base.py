"""Bases: stores of a snapshot or of the state directory above which a job reads only the tail of a changelog.

With a base a job reads ``[base end, end)``. Whether that gives the current store is decided by topics and offsets
(:mod:`statecore.changelog.soundness`): partly before the tail is read, partly after. A refused base is reported with
the reason, and the next candidate is tried. Without any the whole log is read, and a note says so::

    state directory ──┐
    newest snapshot ──┼──▶ the first that is sound ──▶ its runs and files stay, the tail is appended
    older snapshots ──┘         none ──▶ the whole log is read
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from statecore.changelog.soundness import BaseEnd
from statecore.errors import Reason
from statecore.formats.topic_partition import TopicPartition
from statecore.images.model import BaseDatabases, segment_order
from statecore.jobs.bases.base_database import BaseDirectory
from statecore.repository.manifest import StoredEnd, StoreSnapshot
from statecore.words import shortened_list

Key = tuple[str, str]
"""Task and store."""

DIRECTORY = "the state directory"
"""In place of a snapshot's id: the base is a store of the application's state directory."""


@dataclass(frozen=True)
class Base:
    """A store to which a tail is appended.

    Attributes:
        name: the id of its snapshot, or :data:`DIRECTORY`.
        ends: its end, by partition of its changelog.
        segments: its databases by segment, ``None`` for a store without segments; empty for an empty store.
        stream_time: greatest time of a row in ms if rows expire; -1 if they do not, or if unknown.
        snapshot: its entry, if it is in a snapshot.
        databases: the directories of its databases, by segment, if it is in the state directory.
    """

    name: str
    ends: Mapping[TopicPartition, BaseEnd]
    segments: frozenset[int | None]
    stream_time: int = -1
    snapshot: StoreSnapshot | None = None
    databases: Mapping[int | None, str] = field(default_factory=dict)

    @property
    def is_directory(self) -> bool:
        return self.snapshot is None

    @property
    def bases(self) -> tuple[BaseDirectory, ...]:
        starts = {part: end.end for part, end in self.ends.items()}
        return tuple(
            BaseDirectory(segment, self.databases[segment], starts)
            for segment in sorted(self.databases, key=segment_order)
        )

    @property
    def below(self) -> BaseDatabases:
        """Where deletes have rows to hide."""
        return BaseDatabases(segments=self.segments)

    def within(self, delete_retention_ms: int | None) -> Base:
        """This base with the delete retention limited, where it is known."""
        if delete_retention_ms is None:
            return self
        ends = {
            part: end
            if end.delete_retention_ms is None
            else replace(end, delete_retention_ms=min(end.delete_retention_ms, delete_retention_ms))
            for part, end in self.ends.items()
        }
        return replace(self, ends=ends)

    @staticmethod
    def of_snapshot(name: str, store: StoreSnapshot, read_at_ms: int | None) -> Base:
        delete_retention_ms = store.delete_retention_ms
        ends = {end.topic_partition: base_end(end, read_at_ms, delete_retention_ms) for end in store.changelogs}
        segments = frozenset(one.segment for one in store.databases)
        stream_time = store.stream_time
        if stream_time is None:  # unknown, but at least the start of the newest segment
            stream_time = max((segment or 0 for segment in segments), default=0) * (store.segment_interval_ms or 0)
        return Base(name, ends, segments, stream_time, store)


def base_end(end: StoredEnd, read_at_ms: int | None, delete_retention_ms: int | None) -> BaseEnd:
    """An end of a snapshot's store, with the time it was read and the delete retention at that time."""
    return BaseEnd(end.topic_partition, end.topic_id, end.end, end.leader_epoch, read_at_ms, delete_retention_ms)


@dataclass(frozen=True)
class Refused:
    """A base that could not be used.

    Attributes:
        missed_deletes: whether the only problem is that deletes may be missing in its tail.
        is_passing: whether only this plan is affected; the next plan may use the base again.
    """

    task: str
    store: str
    base: str
    why: str
    missed_deletes: bool = False
    is_passing: bool = False
    code: str = ""
    values: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        """Copy code and values of the reason, which a document stores as plain text."""
        if isinstance(self.why, Reason):
            object.__setattr__(self, "code", self.why.code)
            object.__setattr__(self, "values", self.why.context)

    @property
    def reason(self) -> Reason:
        """The reason, with its code and values."""
        return Reason(self.why, self.code, **self.values)

    def to_json(self) -> dict[str, Any]:
        """As one of the ``problems`` of an error."""
        about = {"what": str(self), "task": self.task, "store": self.store, "base": self.base}
        return {**self.reason.to_json(), **about}

    @property
    def key(self) -> Key:
        return self.task, self.store

    def __str__(self) -> str:
        return f"Store {self.store} of task {self.task} is not advanced from {self.base}: {self.why}."


SHOWN = 20
"""Most lines about refused bases in notes and errors; the plan has all of them."""

_NUMBERED = re.compile(r"[\w,.-]*[0-9][\w,.-]*")
"""A word with a number in it: a partition, an offset, an age, a snapshot."""


def grouped(refused: Iterable[Refused]) -> tuple[str, ...]:
    """Lines about refused bases, one per store and reason, at most :data:`SHOWN`."""
    groups: dict[tuple[str, str], list[Refused]] = {}
    for one in refused:
        groups.setdefault((one.store, _NUMBERED.sub("#", one.why)), []).append(one)
    lines = [_line(group) for group in groups.values()]
    more = [f"... and {len(lines) - SHOWN} more stores and reasons."] if len(lines) > SHOWN else []
    return (*lines[:SHOWN], *more)


def _line(group: Sequence[Refused]) -> str:
    first = group[0]
    if len(group) == 1:
        return str(first)
    tasks, bases = (tuple(dict.fromkeys(names)) for names in zip(*((o.task, o.base) for o in group), strict=True))
    likewise = "; the others likewise" if any(one.why != first.why for one in group) else ""
    of = "task" if len(tasks) == 1 else "tasks"
    names = shortened_list(bases, 3)
    return (
        f"Store {first.store} of {of} {shortened_list(tasks, 3)} is not advanced from {names}: {first.why}{likewise}."
    )


class BaseCandidates(Protocol):
    """Source of bases."""

    def of(self, key: Key) -> Iterator[Base | Refused]:
        """The possible bases of a store, best first, and those refused without checking its topics."""


class Younger(NamedTuple):
    """Candidates filtered by age for some stores.

    Attributes:
        stores: the stores with a maximum age.
        since_ms: earliest time at which nothing may have lain beyond their ends, in ms since the epoch.
    """

    candidates: BaseCandidates
    stores: Collection[Key]
    since_ms: int

    def of(self, key: Key) -> Iterator[Base | Refused]:
        for found in self.candidates.of(key):
            if (
                key not in self.stores
                or isinstance(found, Refused)
                or all((end.read_at_ms or 0) >= self.since_ms for end in found.ends.values())
            ):
                yield found
