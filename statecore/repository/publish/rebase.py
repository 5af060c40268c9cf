"""Combines the task manifest of a job with the newest snapshot, where that is not the one the job began with.

All functions are pure: from task manifests they make the one to publish. A publication calls them again each time that
another job was first (:meth:`statecore.repository.publish.publication.Publication.publish`).

A job that **advances** stores decides store by store. *Base* is the store in the snapshot that was the newest when the
job was planned, and the *tail* is what the job appended to its runs::

    the newest snapshot has                     what is published of the store
    the store as in the base                    what the job built
    as much of the changelog as the job         that of the newest snapshot
      has read, or more
    the base's ends, and other runs             its runs, and the tail appended to them
      (compacted, or rebuilt)
    less than the job has read, which built     what the job built
      the store whole, without a base
    less than the job has read, as a tail       what the job built
      appended to the same base
    anything else                               nothing: the job is fenced

A job that **rebuilds** stores publishes what it has built of them. It is fenced where the newest snapshot has more,
because that may have a base which was not to be used.

A **compaction** decides database by database: where the runs that it has merged are still adjacent, its run replaces
them; other databases stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from statecore.errors import Fenced
from statecore.formats.topic_partition import TopicPartition, is_same_topic
from statecore.images.model import Run, segment_order
from statecore.repository.identity import store_identity
from statecore.repository.manifest import StoredDatabase, StoredRun, StoreSnapshot, TaskManifest

Tail = dict[int | None, list[StoredRun]]  # The runs that were appended to those of a base, by segment


class Compaction(NamedTuple):
    """Runs of one database that were merged."""

    store: str
    segment: int | None  # the database's segment; None where the store has none
    inputs: tuple[Run, ...]  # adjacent runs, in the order they are applied
    output: StoredRun | None  # the merged run, with all their offsets; None where it would be empty
    is_lowest: bool = False  # whether deletes were left out because no rows were below: then none may be there now


def rebase_advance(mine: TaskManifest, theirs: TaskManifest, base: TaskManifest | None) -> TaskManifest | None:
    """The task manifest to publish if others published the task too; ``None`` where ``theirs`` has all of ``mine``."""
    there = {store.store: store for store in theirs.stores}
    below = {store.store: store for store in base.stores} if base is not None else {}
    stores = [_advanced(mine.task, one, there.get(one.store), below.get(one.store)) for one in mine.stores]
    if all(store == there.get(store.store) for store in stores):
        return None
    return TaskManifest(mine.task, tuple(stores))


def rebase_rebuild(mine: TaskManifest, theirs: TaskManifest, begun: TaskManifest | None) -> TaskManifest:
    """The task manifest of a job that read whole changelogs, unless others published what it does not replace.

    ``begun`` is the task in the snapshot that was the newest when the job began. What has read more is refused later.
    """
    there = {store.store: store for store in theirs.stores}
    before = {store.store: store for store in begun.stores} if begun is not None else {}
    for one in mine.stores:
        other = there.get(one.store)
        if other is not None and other != before.get(one.store):
            _refuse_other_store(mine.task, one, other)
    return mine


def rebase_compaction(compactions: Iterable[Compaction], theirs: TaskManifest) -> TaskManifest | None:
    """The task manifest with a task's compactions, of the stores that changed; ``None`` where none fits any more."""
    by_store: dict[str, list[Compaction]] = {}
    for compaction in compactions:
        by_store.setdefault(compaction.store, []).append(compaction)
    stores = [(store, _compacted(store, by_store.get(store.store, ()))) for store in theirs.stores]
    changed = tuple(new for store, new in stores if new is not store)
    return TaskManifest(theirs.task, changed) if changed else None


def _advanced(
    task: str, mine: StoreSnapshot, theirs: StoreSnapshot | None, base: StoreSnapshot | None
) -> StoreSnapshot:
    if theirs is None:
        if base is not None:
            raise _fenced(task, mine, "a snapshot without the store", "store-removed")
        return mine
    tail = None if base is None else _tail(mine, base)
    if base is not None and theirs.identity == base.identity:
        return mine if tail is None else _rebased(theirs, mine, base, tail)
    _refuse_other_store(task, mine, theirs)
    if not _is_ahead(mine, theirs):
        return theirs
    if base is not None and tail is not None and _ends_of(theirs) == _ends_of(base):
        return _rebased(theirs, mine, base, tail)
    has_same_base = base is not None and _tail(theirs, base) is not None
    if (tail is None or has_same_base) and not _is_ahead(theirs, mine):
        return mine
    raise _fenced(task, mine, "the store up to other offsets than this job began and ended with", "offsets-changed")


def _refuse_other_store(task: str, mine: StoreSnapshot, theirs: StoreSnapshot) -> None:
    """Refuse to combine stores of other topics, or of other declarations."""
    if _compatibility_of(theirs) != _compatibility_of(mine) or not _are_of_the_same_topics(theirs, mine):
        raise _fenced(task, mine, "the store of another topic, or as another spec declares it,", "store-changed")


def _tail(mine: StoreSnapshot, base: StoreSnapshot) -> Tail | None:
    """Runs appended to a base; ``None`` where a store is not based on it."""
    if (
        mine.kind.is_versioned
        or _compatibility_of(mine) != _compatibility_of(base)
        or not _are_of_the_same_topics(mine, base)
    ):
        return None
    ends = _ends_of(base)
    below = base.by_segment
    tail: Tail = {}
    for database in mine.databases:
        lower = below.get(database.segment, StoredDatabase(database.segment, ()))
        names = [_name(stored.run) for stored in lower.runs]
        if [_name(stored.run) for stored in database.runs if _name(stored.run) in names] != names:
            return None
        if {file.sha256 for file in database.base} != {file.sha256 for file in lower.base}:
            return None
        new = [stored for stored in database.runs if _name(stored.run) not in names]
        if any(stored.run.start < _end_of(stored.run, ends) for stored in new):
            return None
        tail[database.segment] = new
    return tail


def _rebased(theirs: StoreSnapshot, mine: StoreSnapshot, base: StoreSnapshot, tail: Tail) -> StoreSnapshot:
    """A tail appended to the runs of another store that ends where the base does."""
    if theirs.databases == base.databases:
        return mine
    known, there, made = base.by_segment, theirs.by_segment, mine.by_segment
    databases = []
    for segment in sorted(there.keys() | made.keys(), key=segment_order):
        if (segment in known and segment not in made) or any(_has_expired(one, segment) for one in (theirs, mine)):
            continue  # expired, or gone in one of the two
        if segment in known and segment not in there and not tail[segment]:
            continue  # a compaction left nothing of it; else the tail is all that it has now
        lower = there.get(segment, StoredDatabase(segment, ()))
        if segment not in made:
            databases.append(lower)
            continue
        standing = known.get(segment, StoredDatabase(segment, ())).runs
        databases.append(replace(lower, runs=_joined(lower.runs, tail[segment], made[segment].runs, len(standing))))
    times = [one.stream_time for one in (theirs, mine) if one.stream_time is not None]
    store = _with_databases(replace(mine, stream_time=max(times) if len(times) == 2 else None), databases)
    unlike = (known.keys() ^ there.keys()) & made.keys() - {None}  # segments that may have expired below the tail
    if {one.segment for one in databases} == made.keys() and not unlike:
        return store
    return replace(store, rows=None, bytes=None, digest=None)


def _has_expired(store: StoreSnapshot, segment: int | None) -> bool:
    """Whether a segment has expired by a store's stream time."""
    of = store.segmentation
    if segment is None or of is None:
        return False
    seen = store.stream_time
    if seen is None:  # at least the time of the newest segment
        seen = max((database.segment or 0 for database in store.databases), default=0) * of.interval_ms
    return segment < of.first_live(seen)


def _joined(
    lower: Sequence[StoredRun], tail: Sequence[StoredRun], made: Sequence[StoredRun], standing: int
) -> tuple[StoredRun, ...]:
    """Runs followed by a tail, with partitions in the order that the job has put them in."""
    if list(made[standing:]) == list(tail):
        return (*lower, *tail)
    places: dict[TopicPartition | None, int] = {}
    for stored in (*made, *lower):
        places.setdefault(stored.run.origin.changelog, len(places))
    return tuple(sorted((*lower, *tail), key=lambda stored: places[stored.run.origin.changelog]))


def _compacted(store: StoreSnapshot, compactions: Iterable[Compaction]) -> StoreSnapshot:
    databases = store.by_segment
    changed = False
    for compaction in compactions:
        database = databases.get(compaction.segment)
        at = None if database is None else _index_of(database.runs, compaction.inputs)
        if database is None or at is None or (compaction.is_lowest and (at > 0 or database.base)):
            continue
        made = () if compaction.output is None else (compaction.output,)
        runs = (*database.runs[:at], *made, *database.runs[at + len(compaction.inputs) :])
        databases[compaction.segment] = replace(database, runs=runs)
        changed = True
    return _with_databases(store, [one for one in databases.values() if one.runs or one.base]) if changed else store


def _index_of(runs: Sequence[StoredRun], inputs: Sequence[Run]) -> int | None:
    """Index of adjacent runs among others; ``None`` where they are not adjacent there."""
    wanted, names = [_name(run) for run in inputs], [_name(stored.run) for stored in runs]
    for at in range(len(names) - len(wanted) + 1 if wanted else 0):
        if names[at : at + len(wanted)] == wanted:
            return at
    return None


def _with_databases(store: StoreSnapshot, databases: Sequence[StoredDatabase]) -> StoreSnapshot:
    """The store with other databases, and the identity that follows."""
    segment = None
    if store.kind.is_segmented:
        segment = max(store.stream_time or 0, 0) // store.segment_interval_ms if store.segment_interval_ms else 0
    identity = store_identity(store.kind, databases, store.offsets, segment)
    return replace(store, identity=identity, databases=tuple(databases))


def _name(run: Run) -> tuple[str, int, int]:
    return run.sha256, run.start, run.end


def _compatibility_of(store: StoreSnapshot) -> tuple[object, ...]:
    """What two stores must have in common for their rows to be combined."""
    return store.kind, store.isolation, store.layout, store.retention_ms, store.segment_interval_ms


def _ends_of(store: StoreSnapshot) -> dict[TopicPartition, int]:
    return {one.topic_partition: one.end for one in store.changelogs}


def _end_of(run: Run, ends: dict[TopicPartition, int]) -> int:
    """Where the store ends in the partition of a run; for a run of unknown partition, the highest end."""
    highest = max(ends.values(), default=0)
    return highest if run.origin.changelog is None else ends.get(run.origin.changelog, highest)


def _are_of_the_same_topics(one: StoreSnapshot, other: StoreSnapshot) -> bool:
    """Whether two stores are of the same partitions; a topic whose id is unknown is taken for the same."""
    ids = {end.topic_partition: end.topic_id for end in other.changelogs}
    return ids.keys() == {end.topic_partition for end in one.changelogs} and all(
        is_same_topic(end.topic_id, ids[end.topic_partition]) for end in one.changelogs
    )


def _is_ahead(one: StoreSnapshot, other: StoreSnapshot) -> bool:
    """Whether a store ends later in any partition."""
    ends = _ends_of(other)
    return any(end.end > ends[end.topic_partition] for end in one.changelogs)


def _fenced(task: str, store: StoreSnapshot, what: str, reason: str) -> Fenced:
    return Fenced(
        f"Nothing was published: another job has published {what} since (store {store.store} of task {task}).",
        code="publication-conflict",
        action="Start a new job (under a new request id): it continues from the newest snapshot.",
        reason=reason,
        task=task,
        store=store.store,
    )
