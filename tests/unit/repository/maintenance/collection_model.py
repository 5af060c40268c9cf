"""Every interleaving of writers, a collector, a repair, copies and late deletes, on an abstract repository.

The protocol that it models is that of ``docs/repository-format.md`` (Collection); the names there and here are the
same. A state is immutable; each actor's step is one atomic request to the object store, so the search visits all that
can happen with these actors. It is small on purpose: a protocol that loses something usually loses it among few.

A state is wrong if the head names a snapshot whose manifest, or one of whose blobs, is gone; also that of a replica.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple


class Blob(NamedTuple):
    """A blob's name: what it contains, and the collection number that it was put under."""

    content: str
    collection: int


class Manifest(NamedTuple):
    snapshot: str
    epoch: int
    generation: int
    names: frozenset[Blob]

    @property
    def order(self) -> tuple[int, int]:
        return self.epoch, self.generation


class Head(NamedTuple):
    epoch: int
    generation: int
    collection: int
    snapshots: tuple[str, ...]

    @property
    def order(self) -> tuple[int, int]:
        return self.epoch, self.generation


class Garbage(NamedTuple):
    """A list of garbage: what the head of this epoch will never reach again."""

    epoch: int
    generation: int
    named: tuple[str, ...]
    manifests: frozenset[str]
    blobs: frozenset[Blob]

    def excludes(self, manifest: Manifest) -> bool:
        """Whether no head can ever name a manifest, which may be put even after the list."""
        return manifest.order <= (self.epoch, self.generation) and manifest.snapshot not in self.named


@dataclass(frozen=True)
class State:
    head: Head | None
    blobs: frozenset[Blob]
    manifests: frozenset[Manifest]
    garbage: frozenset[Garbage] = frozenset()
    late: frozenset[Blob | str] = frozenset()
    actors: tuple[tuple, ...] = ()  # type: ignore[type-arg]
    disasters: int = 0
    replica: State | None = None

    def manifest(self, snapshot: str) -> Manifest | None:
        return next((one for one in self.manifests if one.snapshot == snapshot), None)

    def reachable(self, head: Head) -> frozenset[Blob]:
        """Blobs that a head reaches."""
        found = [self.manifest(snapshot) for snapshot in head.snapshots]
        return frozenset().union(*(one.names for one in found if one is not None))

    @property
    def is_broken(self) -> bool:
        if self.replica is not None and self.replica.is_broken:
            return True
        if self.head is None:
            return False
        manifests = [self.manifest(snapshot) for snapshot in self.head.snapshots]
        return any(one is None or not one.names <= self.blobs for one in manifests)


@dataclass(frozen=True)
class Rules:
    """The protocol; each ``False`` is a mutant, which has to break something."""

    writers_check_names: bool = True
    blobs_of_the_last_collection_stay: bool = True
    checks_head_before_deleting: bool = True
    repair_reads_garbage: bool = True
    repair_jumps: bool = True
    manifests_in_flight_stay: bool = True
    replicas_keep_what_the_source_has: bool = True
    lists_are_deleted_by_hand_at_rest: bool = True


def steps(state: State, rules: Rules) -> Iterator[State]:
    """All states that follow."""
    for at, actor in enumerate(state.actors):
        for changed, then in _ACTORS[actor[0]](state, actor, rules):
            yield replace(changed, actors=(*state.actors[:at], then, *state.actors[at + 1 :]))
    for one in state.late:
        yield replace(_without(state, one), late=state.late - {one})
    if state.replica is not None:
        for one in state.replica.late:
            yield replace(state, replica=replace(_without(state.replica, one), late=state.replica.late - {one}))
    if state.disasters and state.head is not None:
        yield replace(state, head=None, disasters=state.disasters - 1)


def _without(state: State, one: Blob | str) -> State:
    if isinstance(one, Blob):
        return replace(state, blobs=state.blobs - {one})
    return replace(state, manifests=frozenset(each for each in state.manifests if each.snapshot != one))


Steps = Iterator[tuple[State, tuple]]  # type: ignore[type-arg]


def _writer(state: State, actor: tuple, rules: Rules) -> Steps:  # type: ignore[type-arg]
    """``("writer", phase, name, contents, ...)``; a writer that is refused ends."""
    _, phase, name, contents, *rest = actor
    head = state.head
    if phase == "begin" and head is not None:
        yield state, ("writer", "put", name, contents, head.epoch, head.collection, frozenset())
    elif phase == "put":
        epoch, number, put = rest
        blob = Blob(sorted(contents - {one.content for one in put})[0], number)
        put = put | {blob}
        then = "put" if len(put) < len(contents) else "read"
        yield replace(state, blobs=state.blobs | {blob}), ("writer", then, name, contents, epoch, number, put)
    elif phase == "read":
        epoch, number, put = rest
        if head is None or head.epoch != epoch:
            yield state, ("writer", "fenced", name, contents)
            return
        allowed = state.reachable(head)
        if rules.writers_check_names and any(
            one.collection < head.collection - 1 and one not in allowed for one in put
        ):
            yield state, ("writer", "too late", name, contents)
            return
        yield state, ("writer", "manifest", name, contents, head, number, put)
    elif phase == "manifest":
        read, number, put = rest
        manifest = Manifest(f"{name}{read.generation + 1}", read.epoch, read.generation + 1, put)
        yield (
            replace(state, manifests=state.manifests | {manifest}),
            ("writer", "swap", name, contents, read, number, put, manifest.snapshot),
        )
    elif phase == "swap":
        read, number, put, snapshot = rest
        if state.head == read:
            kept = (snapshot, *read.snapshots)[:2]  # older ones are left out
            yield (
                replace(state, head=read._replace(generation=read.generation + 1, snapshots=kept)),
                ("writer", "done", name, contents),
            )
        else:
            yield state, ("writer", "read", name, contents, read.epoch, number, put)


def _collector(state: State, actor: tuple, rules: Rules) -> Steps:  # type: ignore[type-arg]  # noqa: C901
    """``("collector", phase, runs, ...)``: each run deletes what an earlier one has listed, then lists."""
    _, phase, runs, *rest = actor
    head = state.head
    if phase == "begin" and runs and head is not None:
        yield state, ("collector", "look", runs, head)
    elif phase == "look":
        (read,) = rest
        listed = [one for one in state.garbage if one.epoch == read.epoch]
        void = state.garbage - set(listed)
        if listed:
            first = min(listed, key=lambda one: one.generation)
            phase = "check" if rules.checks_head_before_deleting else "delete"
            yield replace(state, garbage=state.garbage - void), ("collector", phase, runs, read, first)
        else:
            yield replace(state, garbage=state.garbage - void), ("collector", "raise", runs, read)
    elif phase == "check":
        read, garbage = rest
        if head is None or head.epoch != garbage.epoch:
            yield state, ("collector", "begin", runs - 1)
        else:
            yield state, ("collector", "delete", runs, head, garbage)
    elif phase == "delete":
        read, garbage = rest
        manifests = sorted(one for one in garbage.manifests if state.manifest(one) is not None)
        blobs = sorted(garbage.blobs & state.blobs)
        order: list[Blob | str] = [*manifests, *blobs]
        if not order:
            yield replace(state, garbage=state.garbage - {garbage}), ("collector", "raise", runs, read)
            return
        one = order[0]
        yield _without(state, one), actor
        if len(state.late) < 1:  # no answer came: the request may arrive at any time, and this run ends
            yield replace(state, late=state.late | {one}), ("collector", "begin", runs - 1)
    elif phase == "raise":
        (read,) = rest
        if state.head == read:
            raised = read._replace(generation=read.generation + 1, collection=read.collection + 1)
            yield replace(state, head=raised), ("collector", "list", runs, raised)
        else:
            yield state, ("collector", "begin", runs - 1)
    elif phase == "list":
        (read,) = rest
        below = read.collection - 1 if rules.blobs_of_the_last_collection_stay else read.collection
        reachable = state.reachable(read)
        blobs = frozenset(one for one in state.blobs if one.collection < below and one not in reachable)
        manifests = frozenset(
            one.snapshot
            for one in state.manifests
            if one.snapshot not in read.snapshots and (one.order <= read.order or not rules.manifests_in_flight_stay)
        )
        yield state, ("collector", "put", runs, read, Garbage(*read.order, read.snapshots, manifests, blobs))
    elif phase == "put":
        _, garbage = rest
        there = state.garbage | {garbage} if garbage.manifests or garbage.blobs else state.garbage
        yield replace(state, garbage=there), ("collector", "begin", runs - 1)


def _repair(state: State, actor: tuple, rules: Rules) -> Steps:  # type: ignore[type-arg]
    """``("repair", phase, ...)``: makes a lost head anew, from the manifests that no list of garbage excludes."""
    _, phase, *rest = actor
    if phase == "begin" and state.head is None:
        yield state, ("repair", "manifests", state.garbage if rules.repair_reads_garbage else frozenset())
    elif phase == "manifests":
        (listed,) = rest
        yield state, ("repair", "verify", listed, state.manifests)
    elif phase == "verify":
        listed, manifests = rest
        usable = [one for one in manifests if not any(garbage.excludes(one) for garbage in listed)]
        usable.sort(key=lambda one: one.order, reverse=True)
        whole = tuple(one.snapshot for one in usable if one.names <= state.blobs)[:2]
        numbers = [one.collection for manifest in manifests for one in manifest.names]
        numbers += [one.collection for garbage in listed for one in garbage.blobs]
        epoch, generation = (max((one.order[at] for one in manifests), default=0) + 1 for at in (0, 1))
        jump = 1000 if rules.repair_jumps else 1  # above numbers of which nothing is left, too
        yield state, ("repair", "swap", Head(epoch, generation, max(numbers, default=0) + jump, whole))
    elif phase == "swap":
        yield (
            (state, ("repair", "begin"))
            if state.head is not None
            else (
                replace(state, head=rest[0]),
                ("repair", "done"),
            )
        )


def _operator(state: State, actor: tuple, rules: Rules) -> Steps:  # type: ignore[type-arg]
    """``("operator", phase)``: deletes a damaged list of garbage where the head is missing and no collector at work."""
    is_at_rest = not state.late and all(one[1] == "begin" for one in state.actors if one[0] == "collector")
    may = is_at_rest or not rules.lists_are_deleted_by_hand_at_rest
    if actor[1] == "begin" and state.head is None and state.garbage and may:
        yield replace(state, garbage=frozenset()), ("operator", "done")


def _forgetter(state: State, actor: tuple, rules: Rules) -> Steps:  # type: ignore[type-arg]
    """``("forget", phase, ...)``: one swap without all snapshots but the newest."""
    _, phase, *rest = actor
    if phase == "begin" and state.head is not None and len(state.head.snapshots) > 1:
        yield state, ("forget", "swap", state.head)
    elif phase == "swap" and state.head == rest[0]:
        kept = state.head.snapshots[:1]
        yield (
            replace(state, head=rest[0]._replace(generation=rest[0].generation + 1, snapshots=kept)),
            ("forget", "done"),
        )
    elif phase == "swap":
        yield state, ("forget", "begin")


def _copier(state: State, actor: tuple, rules: Rules) -> Steps:  # type: ignore[type-arg]  # noqa: C901
    """``("copier", phase, runs, ...)``: each run copies what a head reaches, and lists what the source has deleted."""
    _, phase, runs, *rest = actor
    replica = state.replica
    assert replica is not None
    if phase == "begin" and runs and state.head is not None:
        yield state, ("copier", "list", runs, state.head)
    elif phase == "list":
        (head,) = rest
        reached = {state.manifest(snapshot) for snapshot in head.snapshots}
        if None in reached:
            yield state, ("copier", "begin", runs - 1)
            return
        wanted = frozenset(reached) | state.reachable(head)
        yield state, ("copier", "compare", runs, head, wanted, replica.blobs | replica.manifests)
    elif phase == "compare":
        head, wanted, there = rest
        here = state.blobs | state.manifests if rules.replicas_keep_what_the_source_has else frozenset()
        yield state, ("copier", "put", runs, head, wanted - there, there - wanted - here)
    elif phase == "put":
        head, missing, gone = rest
        if not missing:
            yield state, ("copier", "read", runs, head, gone)
            return
        one = min(missing, key=repr)
        if one not in state.blobs | state.manifests:
            yield state, ("copier", "begin", runs - 1)
            return
        kind = "blobs" if isinstance(one, Blob) else "manifests"
        changed = replace(replica, **{kind: getattr(replica, kind) | {one}})
        yield replace(state, replica=changed), ("copier", "put", runs, head, missing - {one}, gone)
    elif phase == "read":
        head, gone = rest
        if replica.head is not None and replica.head.order > head.order:
            yield state, ("copier", "begin", runs - 1)
        else:
            yield state, ("copier", "swap", runs, head, gone, replica.head)
    elif phase == "swap":
        head, gone, expected = rest
        if replica.head == expected:
            yield replace(state, replica=replace(replica, head=head)), ("copier", "tell", runs, head, gone)
        else:
            yield state, ("copier", "read", runs, head, gone)
    elif phase == "tell":
        head, gone = rest
        blobs = frozenset(one for one in gone if isinstance(one, Blob) and one.collection < head.collection - 1)
        manifests = frozenset(one.snapshot for one in gone if isinstance(one, Manifest) and one.order <= head.order)
        listed = {Garbage(*head.order, head.snapshots, manifests, blobs)} if blobs or manifests else set()
        yield replace(state, replica=replace(replica, garbage=replica.garbage | listed)), ("copier", "begin", runs - 1)


def _pruner(state: State, actor: tuple, rules: Rules) -> Steps:  # type: ignore[type-arg]
    """``("pruner", phase, runs, ...)``: a collector of the replica, which only deletes."""
    _, phase, runs, *_ = actor
    assert state.replica is not None
    if phase == "raise":
        yield state, ("pruner", "begin", runs - 1)
        return
    for changed, then in _collector(state.replica, actor, rules):
        yield replace(state, replica=changed), ("pruner", *then[1:])


_ACTORS = {
    "writer": _writer,
    "collector": _collector,
    "repair": _repair,
    "operator": _operator,
    "forget": _forgetter,
    "copier": _copier,
    "pruner": _pruner,
}


class Found(NamedTuple):
    """Result of a search: how many states, and the first wrong one."""

    states: int
    broken: State | None


def search(state: State, rules: Rules = Rules(), most: int = 3_000_000) -> Found:  # it is frozen
    """Visit all states that can follow, breadth first, until one is wrong."""
    seen, front = {state}, [state]
    while front:
        following = []
        for one in front:
            for then in steps(one, rules):
                if then in seen:
                    continue
                if then.is_broken:
                    return Found(len(seen), then)
                seen.add(then)
                following.append(then)
                if len(seen) > most:
                    raise RuntimeError(f"more than {most:,} states")
        front = following
    return Found(len(seen), None)


def beginning(*actors: tuple, collection: int = 0, disasters: int = 0) -> State:  # type: ignore[type-arg]
    """A repository with two snapshots and a blob that no snapshot names."""
    old, new = Blob("old", 0), Blob("new", 0)
    manifests = frozenset({Manifest("a", 1, 1, frozenset({old})), Manifest("b", 1, 2, frozenset({old, new}))})
    head = Head(1, 2, collection, ("b", "a"))
    return State(head, frozenset({old, new, Blob("left", 0)}), manifests, actors=actors, disasters=disasters)


def writer(name: str, contents: Collection[str]) -> tuple:  # type: ignore[type-arg]
    return ("writer", "begin", name, frozenset(contents))


def collector(runs: int) -> tuple:  # type: ignore[type-arg]
    return ("collector", "begin", runs)


def copied(state: State, *, runs: int = 2) -> State:
    """The same with a replica, which has all that the head reaches."""
    replica = State(state.head, state.reachable(state.head or Head(0, 0, 0, ())), state.manifests)
    return replace(state, replica=replica, actors=(*state.actors, ("copier", "begin", runs), ("pruner", "begin", 1)))


REPAIR = ("repair", "begin")
OPERATOR = ("operator", "begin")
FORGET = ("forget", "begin")
