"""A collection of garbage: what an earlier one has listed is deleted, then what is garbage now is listed.

::

    check    whether the head is the newest; one that was put back ends the run (reverted_head.py)
    raise    the head's collection number, by a swap; at most once in ``min_age``
    read     what this head reaches; if a snapshot cannot be read, the run ends here
    delete   what each list of this head's epoch names that is old enough, and then the list
    list     what the head does not reach, and what was put before the collection before this one

So nothing is deleted by the run that finds it, a fetch that began before has ``min_age`` to end, and a job that began
two collections ago is refused when it publishes, and uploads again (:mod:`statecore.repository.maintenance.garbage`). A
killed run leaves its list, which the next one goes on with. Times are the object store's; a wrong one changes only how
long garbage stays.

In a replica only the deletion is done: its number is that of the primary, and copies put the lists
(:mod:`statecore.repository.maintenance.copier`).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path

from statecore.errors import Capacity, Fenced, NotFound, Retryable
from statecore.faults import NO_FAULTS, FaultPoints
from statecore.objectstore.base import Blob
from statecore.progress import NullProgress, Progress
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.head import Head
from statecore.repository.incoming_file import scratch_directory
from statecore.repository.layout import printable
from statecore.repository.maintenance.found_manifests import readable_manifest
from statecore.repository.maintenance.garbage import (
    OF_JOBS,
    GarbageRule,
    ListedGarbage,
    NameSet,
    names_of_snapshot,
    reachable_names,
    read_lists,
    write_list,
)
from statecore.repository.maintenance.retention_record import record_head
from statecore.repository.maintenance.reverted_head import check_not_reverted, lost_pins
from statecore.repository.repository import check_descriptor_unchanged

MIN_AGE_MS = 24 * 3_600_000
UNUSED_MS = 7 * 24 * 3_600_000  # Age at which plans and staging of jobs are garbage; a retry after that begins anew
VERSIONS_STAY = (
    "the bucket keeps versions: what is deleted is hidden, and its bytes stay until a lifecycle rule expires "
    "noncurrent versions"
)
"""What an operator has to know of :attr:`CollectionReport.keeps_versions`."""
_DELETED_TOGETHER = 1000


@dataclass
class Amount:
    """Blobs and their bytes."""

    blobs: int = 0
    bytes: int = 0

    def add(self, size: int) -> None:
        self.blobs += 1
        self.bytes += size


@dataclass
class CollectionReport:
    """Result of a collection, or of its plan."""

    repository: str
    application_id: str
    snapshots: int  # that the head names
    applied: bool
    deleted: Amount = field(default_factory=Amount)  # deleted now; of a plan, what would be
    listed: Amount = field(default_factory=Amount)  # newly found garbage, which a later run deletes
    waiting: Amount = field(default_factory=Amount)  # in lists that are not old enough
    young: Amount = field(default_factory=Amount)  # not reached, and too young to be garbage
    needed: Amount = field(default_factory=Amount)  # what the head reaches, and the head
    unknown: list[str] = field(default_factory=list)  # names that this release does not make; left alone
    leftovers: Amount = field(default_factory=Amount)  # of killed writers, in the whole repository: deleted now
    collection: int = 0  # the head's collection number
    is_replica: bool = False  # of which copies list the garbage
    lists: list[str] = field(default_factory=list)  # of a plan, the names of the lists whose blobs would be deleted
    keeps_versions: bool = False  # the bucket has versioning: what is deleted is hidden, and its bytes stay


class Collector:
    """Collects the garbage of one application; with ``lists`` it deletes of that what these name alone."""

    def __init__(
        self,
        app_repository: ApplicationRepository,
        *,
        min_age_ms: int = MIN_AGE_MS,
        unused_ms: int = UNUSED_MS,
        lists: Collection[str] | None = None,
        progress: Progress | None = None,
        faults: FaultPoints = NO_FAULTS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._app_repository, self._min_age_ms, self._unused_ms = app_repository, min_age_ms, unused_ms
        self._lists = lists
        self._progress, self._faults, self._clock = progress or NullProgress(), faults, clock

    def plan(self) -> CollectionReport:
        """What :meth:`run` would do. Nothing is changed."""
        return self._collect(apply=False)

    def run(self) -> CollectionReport:
        """Collect. Raises ``Corrupted`` if something that a snapshot needs cannot be read: nothing is deleted then."""
        return self._collect(apply=True)

    def _collect(self, *, apply: bool) -> CollectionReport:
        freed, leftovers = Amount(), Amount()
        try:
            report = self._collected(leftovers, apply=apply)
        except Capacity:
            freed = self._freed() if apply else freed
            if not freed.blobs:
                raise
            report = self._collected(leftovers, apply=apply)
        report.deleted.blobs += freed.blobs
        report.deleted.bytes += freed.bytes
        return report

    def _freed(self) -> Amount:
        """Delete what is listed and old enough by this machine's clock: a full disk has no room for a new head."""
        head, now_ms, found = self._app_repository.reread_head().head, int(self._clock() * 1000), Amount()
        reachable = NameSet(reachable_names(self._app_repository, head))
        with scratch_directory("statecore-garbage-") as directory:
            self._delete_lists(head, reachable, now_ms, found, directory, apply=True)
        return found

    def _delete_lists(
        self, head: Head, reachable: NameSet, now_ms: int, deleted: Amount, directory: Path, *, apply: bool
    ) -> tuple[list[ListedGarbage], list[ListedGarbage]]:
        """Delete what lists that are old enough name; the lists that wait, and those of a plan that would not."""
        waiting, planned = [], []
        used: set[str] | None = None
        for listed in read_lists(self._app_repository, directory):
            if listed.header.epoch != head.epoch:
                self._delete([listed.blob.name], apply=apply)  # void: the head was recreated since
            elif not self._is_due(listed, now_ms):
                waiting.append(listed)
            else:
                used = self._used_again(now_ms) if used is None else used
                self._delete_listed(listed, reachable, used, deleted, apply=apply)
                planned += [] if apply else [listed]
        return waiting, planned

    def _is_due(self, listed: ListedGarbage, now_ms: int) -> bool:
        is_old = now_ms - listed.blob.modified * 1000 >= self._min_age_ms
        return is_old and (self._lists is None or listed.blob.name in self._lists)

    def _collected(self, leftovers: Amount, *, apply: bool) -> CollectionReport:
        app_repository = self._app_repository
        head = app_repository.head()
        manifests = check_not_reverted(app_repository, head)
        if apply:
            check_descriptor_unchanged(app_repository.repository)
            head.needs.check_writable(f"The head of {app_repository.application_id}")
        for size in app_repository.blobs.delete_leftovers(self._clock() - self._min_age_ms / 1000, apply=apply):
            leftovers.add(size)  # first, because a full disk may have no room for anything else
        if apply and not app_repository.repository.is_replica:
            record_head(app_repository)
        now_ms = self._store_time_ms() if apply else int(self._clock() * 1000)
        head = self._raised(head, now_ms) if apply else self._next(head, now_ms)
        self._progress.phase("read snapshots", len(head.snapshots), "snapshots")
        pinned = self._names_of_lost_pins(head, manifests)
        reachable = NameSet(chain(reachable_names(app_repository, head, self._progress.advance), pinned))
        self._progress.done()
        report = CollectionReport(
            app_repository.url,
            app_repository.application_id,
            snapshots=len(head.snapshots),
            applied=apply,
            leftovers=leftovers,
            collection=head.collection,
            is_replica=app_repository.repository.is_replica,
            keeps_versions=app_repository.blobs.keeps_versions(),
        )
        with scratch_directory("statecore-garbage-") as directory:
            waiting, planned = self._delete_lists(head, reachable, now_ms, report.deleted, directory, apply=apply)
            report.lists = [one.blob.name for one in planned]
            for listed in waiting:
                for _, size in listed.garbage:
                    report.waiting.add(size)
            rule = GarbageRule(head, manifests, now_ms, self._unused_ms)
            self._list(rule, reachable, [*waiting, *planned], report, directory, apply=apply)
        return report

    def _names_of_lost_pins(self, head: Head, manifests: Collection[str]) -> Iterator[str]:
        for snapshot in lost_pins(self._app_repository, head, manifests):
            manifest = readable_manifest(self._app_repository, self._app_repository.names.manifest(snapshot))
            if manifest is not None:
                yield from names_of_snapshot(self._app_repository, manifest, set())

    def _store_time_ms(self) -> int:
        """The object store's time; also shows that this process may write and delete."""
        name = f"{self._app_repository.names.staging('collection')}/{uuid.uuid4().hex}"
        blobs = self._app_repository.blobs
        blobs.put_if_absent(name, b"")
        try:
            return int(blobs.head(name).modified * 1000)
        except NotFound as error:
            raise Retryable(
                f"The blob {name} was put, and could not be found then.",
                code="object-store-inconsistent",
                action="Check the object store and which processes write to it, then try again.",
                blob=name,
            ) from error
        finally:
            blobs.delete(name)

    def _delete_listed(
        self, listed: ListedGarbage, reachable: NameSet, used: set[str], deleted: Amount, *, apply: bool
    ) -> None:
        """Delete what a list names, unless the head was recreated, which may reach some of it."""
        self._progress.phase("delete" if apply else "read garbage", unit="blobs")
        garbage = listed.garbage
        while together := list(islice(garbage, _DELETED_TOGETHER)):
            if apply:
                self._refuse_another_epoch(listed)
            # Nothing is reachable, and all names are of this library; it is compared only to be sure.
            dead = [
                (name, size)
                for name, size in together
                if self._app_repository.names.kind_of(name) and name not in reachable and name not in used
            ]
            self._delete([name for name, _ in dead], apply=apply)
            for _, size in dead:
                deleted.add(size)
            self._progress.advance(len(together))
            self._faults.reach("collection.during-deletion")
        self._delete([listed.blob.name], apply=apply)
        self._progress.done()

    def _used_again(self, now_ms: int) -> set[str]:
        """Files of jobs that were written again since they were listed: a request may have an earlier one's id."""
        names, blobs = self._app_repository.names, self._app_repository.blobs
        files = (blob for prefix in (names.requests, names.stagings) for blob in blobs.list(prefix))
        return {blob.name for blob in files if now_ms - blob.modified * 1000 <= self._unused_ms}

    def _refuse_another_epoch(self, listed: ListedGarbage) -> None:
        if self._app_repository.reread_head().head.epoch != listed.header.epoch:
            raise Fenced(
                f"The head of {self._app_repository.application_id} was recreated while its garbage was deleted.",
                code="head-recreated",
                action="Run it again.",
                application_id=self._app_repository.application_id,
                repository=self._app_repository.url,
            )

    def _delete(self, names: Sequence[str], *, apply: bool) -> None:
        if apply:
            self._app_repository.blobs.delete_all(names)

    def _next(self, head: Head, now_ms: int) -> Head:
        """The head with the next collection number, if it is time; a time in the future is that of a wrong clock."""
        is_early = 0 <= now_ms - head.collection_began_ms < self._min_age_ms
        if is_early or self._app_repository.repository.is_replica:
            return head
        return replace(head, generation=head.generation + 1, collection=head.collection + 1, collection_began_ms=now_ms)

    def _raised(self, head: Head, now_ms: int) -> Head:
        """Raise the collection number, if it is time; the head that has it."""
        raised = self._app_repository.change_head(lambda now: self._next(now, now_ms), "nothing was deleted")
        if raised.collection != head.collection:
            self._faults.reach("collection.after-head")
        return raised

    def _list(
        self,
        rule: GarbageRule,
        reachable: NameSet,
        known: Sequence[ListedGarbage],
        report: CollectionReport,
        directory: Path,
        *,
        apply: bool,
    ) -> None:
        """Put a list of what is garbage now, and in no other list."""
        names = NameSet(name for listed in known for name, _ in listed.garbage)
        self._progress.phase("list", unit="blobs")
        found = self._garbage(rule, reachable, names, report)
        name, path = write_list(self._app_repository, rule.head, found, directory)
        self._progress.done()
        if apply and report.listed.blobs:
            self._app_repository.blobs.put_if_absent(name, path)
            self._faults.reach("collection.after-list")

    def _garbage(
        self, rule: GarbageRule, reachable: NameSet, known: NameSet, report: CollectionReport
    ) -> Iterator[Blob]:
        """Garbage that no list has yet; counts what stays."""
        app_repository = self._app_repository
        names = app_repository.names
        for blob in app_repository.blobs.list(names.root):
            self._progress.advance()
            kind = names.kind_of(blob.name)
            if blob.name in reachable or blob.name in names.records:
                report.needed.add(blob.size)
            elif not kind:
                report.unknown.append(printable(blob.name))
            elif kind == "garbage" or blob.name in known:
                continue
            elif (kind in OF_JOBS or not report.is_replica) and rule.is_garbage(blob, kind):
                report.listed.add(blob.size)
                yield blob
            else:
                report.young.add(blob.size)
