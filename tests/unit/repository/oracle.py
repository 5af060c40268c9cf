"""What must hold of every snapshot of the simulation (:mod:`tests.unit.repository.simulation`)."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.head import HEAD, Head, SnapshotEntry
from statecore.repository.identity import store_identity
from statecore.repository.layout import Layout
from statecore.repository.manifest import (
    MANIFEST,
    TASK_MANIFEST,
    StoredRun,
    StoreSnapshot,
    TaskManifest,
    verified_content,
)
from statecore.repository.retention import retained_entries
from tests.unit.repository.requested import Key, Request
from tests.unit.repository.snapshots import content_of


class Broken(AssertionError):
    """An invariant does not hold."""


@dataclass
class Oracle:
    """Looks at every head, and what it names.

    Attributes:
        content: content of a blob by its name; ``None`` where there is none.
        names: how it is called there.
        met: what happened, and how often.
        asked: the requests, by name.
        grown: since when the log of each store has had which end.
        heads: all that were.
        task_manifests: those of every snapshot that a head has named, by task.
        trace: hash of all that the pointers have ever been.
    """

    content: Callable[[str], bytes | None]
    names: Layout
    met: Counter[str]
    asked: dict[str, Request]
    grown: Mapping[Key, Sequence[tuple[float, int]]]
    heads: list[Head] = field(default_factory=list)
    task_manifests: dict[str, dict[str, TaskManifest]] = field(default_factory=dict)
    trace: str = ""

    def __post_init__(self) -> None:
        self._named: dict[str, set[str]] = {}  # blobs that each snapshot needs
        self._counts: set[str] = set()  # blobs that the head needs
        self._cuts: dict[str, dict[str, int | None]] = {}
        self._gone: set[tuple[Key, int]] = set()  # compactions that count have left nothing of a store up to an offset

    def swapped(self, content: bytes) -> None:
        """Look at a new head."""
        self.trace = sha256(self.trace.encode() + content).hexdigest()
        head = HEAD.decode(content)
        before = self.heads[-1] if self.heads else None
        known = before.snapshots if before else ()
        requests = [entry.request_id for entry in head.snapshots]
        if len(set(requests)) < len(requests):
            raise Broken(f"two snapshots of one request: {requests}")
        if before is not None and head.generation <= before.generation:
            raise Broken(f"generation {head.generation} after {before.generation}")
        self.heads.append(head)
        if before is not None and head.collection < before.collection:
            raise Broken(f"collection {head.collection} after {before.collection}")
        if before is not None and head.keep != before.keep:
            if head.snapshots != tuple(one for one in known if one in head.snapshots) or head.newest != before.newest:
                raise Broken("what was forgotten is not what was left out")
            self.met["forgotten"] += 1
        elif head.snapshots != known:
            self._look_at_snapshots(head, before, known)
        self._counts = set().union(*(self._named[entry.snapshot] for entry in head.snapshots))

    def _look_at_snapshots(self, head: Head, before: Head | None, known: Sequence[SnapshotEntry]) -> None:
        if head.snapshots != known and before is not None and head.epoch > before.epoch:
            if not set(head.snapshots) < set(known):
                raise Broken("a repair has named what did not count")
            self.met["repaired"] += 1
            return
        if head.snapshots != retained_entries((head.snapshots[0], *known), head.keep):
            raise Broken(f"a snapshot was lost: {[entry.snapshot for entry in (*known, *head.snapshots)]}")
        self._gone |= self.asked[head.snapshots[0].request_id].gone
        self._named[head.snapshots[0].snapshot] = set(self.whole(head.snapshots[0]))
        self._compare(head.snapshots[0], known[0] if known else None)

    def whole(self, entry: SnapshotEntry) -> dict[str, str]:
        """All blobs that a snapshot needs, after they were compared with their hashes."""
        name = self.names.manifest(entry.snapshot)
        named: dict[str, str] = {}
        manifest = MANIFEST.decode(self._piece(named, name, 0, None, entry.sha256))
        task_manifests = {}
        for one in manifest.task_manifests:
            content = self._piece(named, one.extent.blob, one.extent.start, one.extent.bytes, one.sha256)
            task_manifests[one.task] = TASK_MANIFEST.decode(zlib.decompress(content))
            for store in task_manifests[one.task].stores:
                for digest, extent in store.extents:
                    self._piece(named, extent.blob, extent.start, extent.bytes, digest)
                self._refuse_gaps(one.task, store)
            task_manifests[one.task] = task_manifests[one.task].as_of(one.read_at_ms)
        self.task_manifests[entry.snapshot] = task_manifests
        self._cuts[entry.snapshot] = {one.task: one.read_at_ms for one in manifest.task_manifests}
        return named

    def _piece(self, named: dict[str, str], name: str, start: int, size: int | None, digest: str) -> bytes:
        whole = self.content(name)
        if whole is None:
            raise Broken(f"a head names {name}, which is not there")
        content = whole[start : None if size is None else start + size]
        if sha256(content).hexdigest() != digest:
            raise Broken(f"a head names {name}, which is not what it says")
        named[name] = digest
        return content

    def _compare(self, newest: SnapshotEntry, before: SnapshotEntry | None) -> None:
        request = self.asked[newest.request_id]
        there, before_ = self.task_manifests[newest.snapshot], self.task_manifests[before.snapshot] if before else {}
        now, then = ends_in(there), ends_in(before_)
        runs_now, runs_then = spans_in(there), spans_in(before_)
        for key in {**then, **now}:
            if now.get(key, 0) < then.get(key, 0) and key not in request.refused:
                raise Broken(f"{key} goes back from {then[key]} to {now.get(key)}")
            if key not in request.stores and runs_now.get(key) != runs_then.get(key):
                raise Broken(f"{key} was not touched, and goes from {runs_then.get(key)} to {runs_now.get(key)}")
            rebuilt = request.kind == "rebuild" and key[0] in {task for task, _ in request.stores}
            more = {of for of in now.keys() - then.keys() if of[0] == key[0]}  # of which less may be known
            cut, cut_then = self._cut(newest, key), self._cut(before, key)
            self.met["cut"] += runs_now.get(key) == runs_then.get(key) and cut > cut_then > 0
            if cut < cut_then and not rebuilt and not more:
                raise Broken(f"nobody knows any more that nothing lay behind {key} at {cut_then}")
            if now.get(key, 0) < max((end for since, end in self.grown[key] if since <= cut), default=0):
                raise Broken(f"{key} ends at {now.get(key)}, and something lay behind it at {cut}")
        if request.kind == "compaction":
            if now != then:
                raise Broken(f"{request.name} has compacted {then} to {now}")
        elif any(now.get(key, 0) < end for key, end in request.least.items() if key not in request.refused):
            raise Broken(f"{request.name} has published {now}, and was asked for {request.least}")

    def _cut(self, entry: SnapshotEntry | None, key: Key) -> int:
        """At which moment nothing lay behind a task, as far as a snapshot knows."""
        known = self._cuts[entry.snapshot].get(key[0]) if entry is not None else None
        return known or 0

    def deleted(self, name: str) -> None:
        """Make sure that no blob goes that counts."""
        if name in self._counts:
            raise Broken(f"{name} was deleted, and counts")
        self.met["deleted"] += 1

    def fetch(self, app_repository: ApplicationRepository, entry: SnapshotEntry) -> None:
        """Read a snapshot as everybody does, and compare it with what was published.

        Raises:
            Corrupted: a file is not what its hash says.
        """
        read = app_repository.task_manifests(app_repository.manifest(entry).value.task_manifests)
        if {task: one.manifest for task, one in read.items()} != self.task_manifests[entry.snapshot]:
            raise Broken(f"{entry.snapshot} was read as something else")
        for one in read.values():
            for store in one.manifest.stores:
                for digest, extent in store.extents:
                    verified_content(app_repository.read(extent, "A file"), digest, "A file", "Look.")

    def _refuse_gaps(self, task: str, store: StoreSnapshot) -> None:
        """Make sure that a store has every offset once, in order, and that its runs are what their offsets say.

        Where a compaction has left nothing of the first ones, these lie in no run.
        """
        runs = runs_of(store)
        start = runs[0].run.start if runs else store.changelogs[0].end
        at = start if ((task, store.store), start) in self._gone else 0
        for stored in runs:
            if stored.run.start != at:
                raise Broken(f"store {store.store} of task {task} goes on at {stored.run.start} behind {at}")
            at = stored.run.end
            if stored.run.sha256 != sha256(content_of(task, store.store, stored.run.start, at)).hexdigest():
                raise Broken(f"a run of store {store.store} of task {task} up to {at} is another one")
        if at != store.changelogs[0].end:
            raise Broken(f"store {store.store} of task {task} says that it ends at {store.changelogs[0].end}, not {at}")
        if store.identity != store_identity(store.kind, store.databases, store.offsets):
            raise Broken(f"store {store.store} of task {task} has the identity of another one")


def runs_of(store: StoreSnapshot) -> tuple[StoredRun, ...]:
    """The runs of a store, which has one database, or none."""
    return store.databases[0].runs if store.databases else ()


def ends_in(task_manifests: Mapping[str, TaskManifest]) -> dict[Key, int]:
    """Where each store ends."""
    return {
        (task, store.store): store.changelogs[0].end
        for task, task_manifest in task_manifests.items()
        for store in task_manifest.stores
    }


def spans_in(task_manifests: Mapping[str, TaskManifest]) -> dict[Key, list[tuple[int, int]]]:
    """The offsets of the runs of each store, which has one database, or none."""
    return {
        (task, store.store): [(stored.run.start, stored.run.end) for stored in runs_of(store)]
        for task, task_manifest in task_manifests.items()
        for store in task_manifest.stores
    }
