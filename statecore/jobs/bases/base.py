"""What a job may put the runs upon that it reads: its *parent*, a store of a snapshot or of the state directory.

With a parent a job reads the tail of a changelog alone, ``[parent's end, end)``. Whether that gives the store as it is
now is told by the topics (:mod:`statecore.changelog.soundness`): some of it before the tail is read, the rest after. A
parent that is refused is named with the reason, and the next candidate is tried. Where none is left, the whole log is
read, and that is said aloud::

    state directory ──┐
    newest snapshot ──┼──▶ the first that is sound ──▶ its runs and files stay, the tail is put upon them
    older snapshots ──┘         none ──▶ the whole log is read
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from statecore.changelog.model import LogOffsets, TopicDescription
from statecore.changelog.soundness import BaseEnd, refusal
from statecore.errors import Reason
from statecore.formats.topic_partition import TopicPartition
from statecore.images.model import Below, segment_order
from statecore.jobs.pipeline.store_to_build import BaseDirectory
from statecore.repository.manifest import ChangelogEnd, StoreSnapshot
from statecore.words import some_of

Key = tuple[str, str]
"""Task and store."""

DAMAGED = "files of it are damaged or gone"
"""So begins the reason why a snapshot is refused that nobody could fetch; it speaks against no older one."""

DIRECTORY = "the state directory"
"""In place of a snapshot's id: what lies below is a store of the application's state directory."""


@dataclass(frozen=True)
class Base:
    """A store below the runs.

    Attributes:
        name: the id of its snapshot, or :data:`DIRECTORY`.
        ends: how far it has come, by partition of its changelog.
        segments: its databases: ids of segments, ``None`` for the one of a store without segments; none where it is
            empty.
        stream_time: greatest time of a row in ms where rows expire; -1 where they do not, or where nobody knows it.
        snapshot: it, where it is of a snapshot.
        databases: the directories of its databases, by segment, where it is of the state directory.
    """

    name: str
    ends: Mapping[TopicPartition, BaseEnd]
    segments: frozenset[int | None]
    stream_time: int = -1
    snapshot: StoreSnapshot | None = None
    databases: Mapping[int | None, str] = field(default_factory=dict)

    @property
    def is_here(self) -> bool:
        """Whether it is of the state directory."""
        return self.snapshot is None

    @property
    def bases(self) -> tuple[BaseDirectory, ...]:
        """Its databases, as they lie in the state directory."""
        starts = {part: end.end for part, end in self.ends.items()}
        return tuple(
            BaseDirectory(segment, self.databases[segment], starts)
            for segment in sorted(self.databases, key=segment_order)
        )

    @property
    def below(self) -> Below:
        """Where deletes have something to hide."""
        return Below(segments=self.segments)

    def within(self, horizon_ms: int | None) -> Base:
        """The parent, behind whose ends deletes were at some time kept for no longer than that, where it is known."""
        if horizon_ms is None:
            return self
        ends = {
            part: end if end.horizon_ms is None else replace(end, horizon_ms=min(end.horizon_ms, horizon_ms))
            for part, end in self.ends.items()
        }
        return replace(self, ends=ends)

    @staticmethod
    def of_snapshot(name: str, store: StoreSnapshot, cut_ms: int | None) -> Base:
        """A store of a snapshot.

        Args:
            name: the snapshot's id.
            store: the store.
            cut_ms: when nothing lay behind its ends, in ms since the epoch; ``None`` where nobody knows it.
        """
        horizon_ms = store.horizon_ms
        ends = {end.topic_partition: base_end(end, cut_ms, horizon_ms) for end in store.changelogs}
        segments = frozenset(one.segment for one in store.databases)
        stream_time = store.stream_time
        if stream_time is None:  # which is of the newest segment at least
            stream_time = max((segment or 0 for segment in segments), default=0) * (store.segment_interval_ms or 0)
        return Base(name, ends, segments, stream_time, store)


def base_end(end: ChangelogEnd, cut_ms: int | None, horizon_ms: int | None) -> BaseEnd:
    """What a snapshot says of one of a store's ends: read at a moment, when deletes were kept for that time."""
    return BaseEnd(end.topic_partition, end.topic_id, end.end, end.leader_epoch, cut_ms, horizon_ms)


@dataclass(frozen=True)
class Refused:
    """A parent that could not be used.

    Attributes:
        task: the task.
        store: the store.
        parent: the parent's name.
        why: the reason.
        missed_deletes: whether all that speaks against it is that deletes may be missing above it.
        is_passing: whether it speaks against the plan alone: the next one tells whether the log still has the parent.
        code: the code of the reason; taken from that where it has one. A frozen plan keeps it, and the values.
        values: its values.
    """

    task: str
    store: str
    parent: str
    why: str
    missed_deletes: bool = False
    is_passing: bool = False
    code: str = ""
    values: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        """Take code and values of the reason, which is text alone in a document."""
        if isinstance(self.why, Reason):
            object.__setattr__(self, "code", self.why.code)
            object.__setattr__(self, "values", self.why.context)

    @property
    def reason(self) -> Reason:
        """The reason, with its code and its values."""
        return Reason(self.why, self.code, **self.values)

    def to_json(self) -> dict[str, Any]:
        """As one of the ``problems`` of an error."""
        about = {"what": str(self), "task": self.task, "store": self.store, "base": self.parent}
        return {**self.reason.to_json(), **about}

    @property
    def key(self) -> Key:
        """Task and store."""
        return self.task, self.store

    def __str__(self) -> str:
        return f"Store {self.store} of task {self.task} is not advanced from {self.parent}: {self.why}."


SHOWN = 20
"""Lines that an operator reads at most of what was refused; a program finds all of it in the plan."""

_NUMBERED = re.compile(r"[\w,.-]*[0-9][\w,.-]*")
"""A word with a number in it: a partition, an offset, an age, a snapshot."""


def grouped(refused: Iterable[Refused]) -> tuple[str, ...]:
    """Refused parents in words, a line for each store and reason, whatever its partitions and snapshots; at most
    :data:`SHOWN` of them.
    """
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
    tasks, parents = (tuple(dict.fromkeys(names)) for names in zip(*((o.task, o.parent) for o in group), strict=True))
    likewise = "; the others likewise" if any(one.why != first.why for one in group) else ""
    of = "task" if len(tasks) == 1 else "tasks"
    upon = some_of(parents, 3)
    return f"Store {first.store} of {of} {some_of(tasks, 3)} is not advanced from {upon}: {first.why}{likewise}."


class BaseCandidates(Protocol):
    """Who knows parents."""

    def of(self, key: Key) -> Iterator[Base | Refused]:
        """The parents that a store may have, the best first, and between them what is refused without a look at its
        topics.
        """


class Younger(NamedTuple):
    """Candidates of which those of some stores have to be young: what is not advanced grows old.

    Attributes:
        candidates: all of them.
        stores: the stores.
        since_ms: when nothing lay behind their ends at the earliest, in ms since the epoch.
    """

    candidates: BaseCandidates
    stores: Collection[Key]
    since_ms: int

    def of(self, key: Key) -> Iterator[Base | Refused]:
        """See :class:`Candidates`."""
        for found in self.candidates.of(key):
            if (
                key not in self.stores
                or isinstance(found, Refused)
                or all((end.read_at_ms or 0) >= self.since_ms for end in found.ends.values())
            ):
                yield found


class ChosenBases(NamedTuple):
    """The parents of a plan.

    Attributes:
        parents: of each store that has one.
        refused: what was refused on the way, in the order it was looked at.
        dearer: what is sound, and would take more work than to read the whole changelog.
    """

    parents: dict[Key, Base]
    refused: tuple[Refused, ...]
    dearer: tuple[Refused, ...] = ()


Cost = Callable[[Base | None, Mapping[TopicPartition, LogOffsets]], float]
"""What it costs to go on from a parent, or from nothing, where the changelog of the store is like that, with the end
at which it is read to as ``log_end``."""

NO_PARENTS = ChosenBases({}, ())
"""Every log is read whole."""


def choose(
    stores: Mapping[Key, frozenset[TopicPartition]],
    candidates: BaseCandidates,
    topics: Mapping[str, TopicDescription],
    logs: Mapping[TopicPartition, LogOffsets],
    ends: Mapping[TopicPartition, int],
    epoch_ends: Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, int | None]],
    cost: Cost | None = None,
) -> ChosenBases:
    """The first candidate of each store that nothing speaks against before its tail is read; or the cheapest.

    Args:
        stores: the partitions of the changelog of each store.
        candidates: who knows the parents.
        topics: the changelogs.
        logs: their offsets.
        ends: where a read of each stops.
        epoch_ends: asks where leader epochs end in the logs as they are now (:meth:`Cluster.epoch_ends`).
        cost: what it costs to go on from a parent, or from nothing. With it all candidates are looked at, up to the
            first one of a snapshot, and the cheapest is taken; it may be none. Without it the first one is.
    """
    parents: dict[Key, Base] = {}
    refused: list[Refused] = []
    dearer: list[Refused] = []
    pending = {key: candidates.of(key) for key in stores}
    while pending:
        looked: dict[Key, Base] = {}
        for key, left in list(pending.items()):
            found = next(left, None)
            if found is None:
                del pending[key]
            elif isinstance(found, Refused):
                refused.append(found)
            else:
                looked[key] = found
        told = epoch_ends_of((end for parent in looked.values() for end in parent.ends.values()), epoch_ends)
        for key, parent in looked.items():
            why = _why_refused(parent, stores[key], topics, logs, ends, told)
            if why is not None:
                refused.append(Refused(*key, parent.name, why))
                continue
            its_logs = {part: replace(logs[part], log_end=ends[part]) for part in stores[key]}
            if cost is None or cost(parent, its_logs) <= cost(parents.get(key), its_logs):
                parents[key] = parent
            else:
                dearer.append(
                    Refused(*key, parent.name, Reason("to read the whole changelog is less work", "not-cheapest"))
                )
            if cost is None or not parent.is_here:
                del pending[key]
    return ChosenBases(parents, tuple(refused), tuple(dearer))


def epoch_ends_of(
    ends: Iterable[BaseEnd],
    epoch_ends: Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, int | None]],
) -> dict[tuple[TopicPartition, int], int | None]:
    """Where the leader epochs of some ends end in the logs, by partition and epoch, as far as brokers tell it.

    Args:
        ends: how far parents have come.
        epoch_ends: asks where leader epochs end in the logs as they are now (:meth:`Cluster.epoch_ends`).
    """
    told: dict[tuple[TopicPartition, int], int | None] = {}
    left = {(end.topic_partition, end.leader_epoch) for end in ends if end.leader_epoch >= 0}
    while left:  # a request has one epoch of each partition, and stores that share a changelog may have several
        now = dict(left)
        told |= {(part, now[part]): end for part, end in epoch_ends(now).items()}
        left -= now.items()
    return told


def _why_refused(
    parent: Base,
    partitions: frozenset[TopicPartition],
    topics: Mapping[str, TopicDescription],
    logs: Mapping[TopicPartition, LogOffsets],
    ends: Mapping[TopicPartition, int],
    epoch_ends: Mapping[tuple[TopicPartition, int], int | None],
) -> Reason | None:
    if parent.ends.keys() != partitions:
        there, now = (", ".join(map(str, sorted(some))) or "no partition" for some in (parent.ends, partitions))
        return Reason(
            f"it has offsets of {there}, and the store those of {now}",
            "partitions-differ",
            found=sorted(map(str, parent.ends)),
            expected=sorted(map(str, partitions)),
        )
    for part, end in sorted(parent.ends.items()):
        found = refusal(end, topics[part.topic], logs[part], epoch_ends.get((part, end.leader_epoch)))
        if found is not None:
            return found
        if end.end > ends[part]:
            return Reason(
                f"it has {part} up to {end.end}, and what is read of that ends at {ends[part]} now: an open "
                "transaction, or the group's committed offset, lies before the end of what was read then",
                "end-beyond-read",
                topic=part.topic,
                partition=part.partition,
                end=end.end,
                read_end=ends[part],
            )
    return None
