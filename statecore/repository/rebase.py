"""What becomes of a part that a job has made, where the newest snapshot is not the one that the job began with.

Both functions are pure: from parts they make the part that is to be published, and a publication asks them anew each
time that somebody else was first (:meth:`statecore.repository.publication.Publication.publish`).

A job that **advances** stores decides store by store. *Parent* is the store in the snapshot that was the newest when
the job was planned, and the *tail* is what the job put above its runs::

    the newest snapshot has                     what is published of the store
    the store as the parent has it              what the job made
    as much of the changelog as the job         that of the newest snapshot
      has made, or more
    the parent's ends, and other runs: those    its runs, and the tail above them
      of a fold, or put anew
    less than the job has made, which is all    what the job made
      its own and stands on no parent
    anything else                               nothing: the job is fenced

A **fold** decides database by database: where the runs that it has merged still stand side by side, its run takes their
place; other databases stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from statecore.errors import Fenced
from statecore.formats.segments import first_live_segment
from statecore.formats.topic_partition import TopicPartition
from statecore.images.model import Run, segment_order
from statecore.repository.identity import store_identity
from statecore.repository.manifest import StoredDatabase, StoredRun, StoreSnapshot, TaskManifest

Tail = dict[int | None, list[StoredRun]]
"""The runs that were put above those of a parent, by segment."""


class Compaction(NamedTuple):
    """Runs of one database that were merged.

    Attributes:
        store: the store.
        segment: the segment that the database is; ``None`` where the store has none.
        inputs: the runs, side by side, in the order they are applied.
        output: what they have become, with all their offsets; ``None`` where nothing was left of them.
        is_lowest: whether deletes were left out, because nothing lay below: then nothing may lie there now.
    """

    store: str
    segment: int | None
    inputs: tuple[Run, ...]
    output: StoredRun | None
    is_lowest: bool = False


def advanced(mine: TaskManifest, theirs: TaskManifest, parent: TaskManifest | None) -> TaskManifest | None:
    """The part to publish where others may have published the task as well.

    Args:
        mine: what a job has made: stores that it has advanced, or made from nothing.
        theirs: the task in the newest snapshot.
        parent: the task in the snapshot that was the newest when the job was planned, with all of its stores, also
            those that the job has refused to build on; ``None`` where that had no such task.

    Returns:
        The part, with every store of ``mine``; ``None`` where ``theirs`` has all of it.

    Raises:
        Fenced: what others have published and what the job has made do not fit together.
    """
    there = {store.store: store for store in theirs.stores}
    below = {store.store: store for store in parent.stores} if parent is not None else {}
    stores = [_advanced(mine.task, one, there.get(one.store), below.get(one.store)) for one in mine.stores]
    if all(store == there.get(store.store) for store in stores):
        return None
    return TaskManifest(mine.task, tuple(stores))


def folded(folds: Iterable[Compaction], theirs: TaskManifest) -> TaskManifest | None:
    """The part to publish for folds of a task, whatever the newest snapshot has of it.

    What a store holds and where it ends stay as they are.

    Args:
        folds: what was merged.
        theirs: the task in the newest snapshot.

    Returns:
        The part, with the stores that are others now; ``None`` where no fold fits any more.
    """
    by_store: dict[str, list[Compaction]] = {}
    for fold in folds:
        by_store.setdefault(fold.store, []).append(fold)
    stores = [(store, _folded(store, by_store.get(store.store, ()))) for store in theirs.stores]
    changed = tuple(new for store, new in stores if new is not store)
    return TaskManifest(theirs.task, changed) if changed else None


def _advanced(
    task: str, mine: StoreSnapshot, theirs: StoreSnapshot | None, parent: StoreSnapshot | None
) -> StoreSnapshot:
    if theirs is None:
        if parent is not None:
            raise _fenced(task, mine, "a snapshot without the store", "store-removed")
        return mine
    tail = None if parent is None else _tail(mine, parent)
    if parent is not None and theirs.identity == parent.identity:
        return mine if tail is None else _above(theirs, mine, parent, tail)
    if _terms(theirs) != _terms(mine) or not _are_of_the_same_topics(theirs, mine):
        raise _fenced(task, mine, "the store of another topic, or as another spec declares it,", "store-changed")
    if not _is_ahead(mine, theirs):
        return theirs
    if parent is not None and tail is not None and _ends(theirs) == _ends(parent):
        return _above(theirs, mine, parent, tail)
    if tail is None and not _is_ahead(theirs, mine):
        return mine
    raise _fenced(task, mine, "the store up to other offsets than this job began and ended with", "offsets-changed")


def _tail(mine: StoreSnapshot, parent: StoreSnapshot) -> Tail | None:
    """What lies above a parent; ``None`` where a store does not stand on it."""
    if mine.kind.is_versioned or _terms(mine) != _terms(parent) or not _are_of_the_same_topics(mine, parent):
        return None
    ends = _ends(parent)
    below = {database.segment: database for database in parent.databases}
    tail: Tail = {}
    for database in mine.databases:
        under = below.get(database.segment, StoredDatabase(database.segment, ()))
        names = [_name(stored.run) for stored in under.runs]
        if [_name(stored.run) for stored in database.runs if _name(stored.run) in names] != names:
            return None
        if {file.sha256 for file in database.base} != {file.sha256 for file in under.base}:
            return None
        new = [stored for stored in database.runs if _name(stored.run) not in names]
        if any(stored.run.start < _end_of(stored.run, ends) for stored in new):
            return None
        tail[database.segment] = new
    return tail


def _above(theirs: StoreSnapshot, mine: StoreSnapshot, parent: StoreSnapshot, tail: Tail) -> StoreSnapshot:
    """A tail above the runs of another store that ends where the parent does."""
    if theirs.databases == parent.databases:
        return mine
    known = {database.segment: database for database in parent.databases}
    there = {database.segment: database for database in theirs.databases}
    made = {database.segment: database for database in mine.databases}
    databases = []
    for segment in sorted(there.keys() | made.keys(), key=segment_order):
        if (segment in known and segment not in made) or any(_has_expired(one, segment) for one in (theirs, mine)):
            continue  # as one of the two has found
        if segment in known and segment not in there and not tail[segment]:
            continue  # a fold has left nothing of it; else the tail is all that there is now
        under = there.get(segment, StoredDatabase(segment, ()))
        if segment not in made:
            databases.append(under)
            continue
        standing = known.get(segment, StoredDatabase(segment, ())).runs
        databases.append(replace(under, runs=_joined(under.runs, tail[segment], made[segment].runs, len(standing))))
    times = [one.stream_time for one in (theirs, mine) if one.stream_time is not None]
    store = _with(replace(mine, stream_time=max(times) if len(times) == 2 else None), databases)
    unlike = (known.keys() ^ there.keys()) & made.keys() - {None}  # which may have expired below the tail
    if {one.segment for one in databases} == made.keys() and not unlike:
        return store
    return replace(store, rows=None, bytes=None, digest=None)


def _has_expired(store: StoreSnapshot, segment: int | None) -> bool:
    """Whether a store has seen so late a time that it keeps a segment no more."""
    if segment is None or store.retention_ms is None or not store.segment_interval_ms:
        return False
    seen = store.stream_time
    if seen is None:  # the time of the newest segment at least
        seen = max((database.segment or 0 for database in store.databases), default=0) * store.segment_interval_ms
    return segment < first_live_segment(seen, store.retention_ms, store.segment_interval_ms)


def _joined(
    under: Sequence[StoredRun], tail: Sequence[StoredRun], made: Sequence[StoredRun], standing: int
) -> tuple[StoredRun, ...]:
    """Runs with a tail above them, in the order that whoever made the tail has put his own in."""
    if list(made[standing:]) == list(tail):
        return (*under, *tail)
    places: dict[TopicPartition | None, int] = {}
    for stored in (*made, *under):
        places.setdefault(stored.run.origin.changelog, len(places))
    return tuple(sorted((*under, *tail), key=lambda stored: places[stored.run.origin.changelog]))


def _folded(store: StoreSnapshot, folds: Iterable[Compaction]) -> StoreSnapshot:
    databases = {database.segment: database for database in store.databases}
    changed = False
    for fold in folds:
        database = databases.get(fold.segment)
        at = None if database is None else _place(database.runs, fold.inputs)
        if database is None or at is None or (fold.is_lowest and (at > 0 or database.base)):
            continue
        made = () if fold.output is None else (fold.output,)
        runs = (*database.runs[:at], *made, *database.runs[at + len(fold.inputs) :])
        databases[fold.segment] = replace(database, runs=runs)
        changed = True
    return _with(store, [one for one in databases.values() if one.runs or one.base]) if changed else store


def _place(runs: Sequence[StoredRun], inputs: Sequence[Run]) -> int | None:
    """Where some runs stand side by side among others; ``None`` where they do not."""
    wanted, names = [_name(run) for run in inputs], [_name(stored.run) for stored in runs]
    for at in range(len(names) - len(wanted) + 1 if wanted else 0):
        if names[at : at + len(wanted)] == wanted:
            return at
    return None


def _with(store: StoreSnapshot, databases: Sequence[StoredDatabase]) -> StoreSnapshot:
    """A store of other databases."""
    segment = None
    if store.kind.is_segmented:
        segment = max(store.stream_time or 0, 0) // store.segment_interval_ms if store.segment_interval_ms else 0
    identity = store_identity(store.kind, databases, store.offsets, segment)
    return replace(store, identity=identity, databases=tuple(databases))


def _name(run: Run) -> tuple[str, int, int]:
    return run.sha256, run.start, run.end


def _terms(store: StoreSnapshot) -> tuple[object, ...]:
    """What rows of two stores must have in common to lie above one another."""
    return store.kind, store.isolation, store.layout, store.retention_ms, store.segment_interval_ms


def _ends(store: StoreSnapshot) -> dict[TopicPartition, int]:
    return {one.topic_partition: one.end for one in store.changelogs}


def _end_of(run: Run, ends: dict[TopicPartition, int]) -> int:
    """Where the store ends in the partition of a run; of a run that does not say which, in all of them."""
    highest = max(ends.values(), default=0)
    return highest if run.origin.changelog is None else ends.get(run.origin.changelog, highest)


def _are_of_the_same_topics(one: StoreSnapshot, other: StoreSnapshot) -> bool:
    """Whether two stores are of the same partitions; a topic whose id nobody asked for is taken for the same."""
    ids = {end.topic_partition: end.topic_id for end in other.changelogs}
    return ids.keys() == {end.topic_partition for end in one.changelogs} and all(
        "" in (end.topic_id, ids[end.topic_partition]) or end.topic_id == ids[end.topic_partition]
        for end in one.changelogs
    )


def _is_ahead(one: StoreSnapshot, other: StoreSnapshot) -> bool:
    """Whether a store has come further in any partition."""
    ends = _ends(other)
    return any(end.end > ends[end.topic_partition] for end in one.changelogs)


def _fenced(task: str, store: StoreSnapshot, what: str, reason: str) -> Fenced:
    return Fenced(
        f"Nothing was published: another job has published {what} meanwhile (store {store.store} of task {task}).",
        code="publication-conflict",
        action="Start a new job (under a new request id): it goes on from the newest snapshot.",
        reason=reason,
        task=task,
        store=store.store,
    )
