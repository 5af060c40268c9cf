"""Snapshots of a repository as bases: the newest first, then older ones with other ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from statecore.errors import Corrupted, Reason
from statecore.jobs.bases.base import Base, Key, Refused
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.compatibility import differences
from statecore.repository.head import SnapshotEntry
from statecore.repository.manifest import Manifest, StoreSnapshot, TaskManifest
from statecore.repository.publish.cluster_check import is_of_other_cluster
from statecore.spec.model import ApplicationSpec

_TRIED = 5
"""Most snapshots that are tried for a store.

Each costs two requests, and older ones mostly lack what the newest lacks.
"""


class SnapshotBases:
    """The stores of valid snapshots; see :class:`statecore.jobs.bases.base.BaseCandidates`."""

    def __init__(
        self,
        repository: ApplicationRepository,
        spec: ApplicationSpec,
        entries: Sequence[SnapshotEntry],
        newest: Manifest | None,
        task_manifests: Mapping[str, TaskManifest],
        refused: Mapping[tuple[Key, str], Reason],
        newer: Sequence[SnapshotEntry] = (),
        cluster_id: str = "",
    ) -> None:
        self._repository, self._spec, self._refused = repository, spec, refused
        self._entries, self._newer, self._cluster_id = entries, newer, cluster_id
        self._delete_retention: dict[str, dict[str, int]] = {}
        self._manifests: dict[str, Manifest | Corrupted] = {}
        self._task_manifests: dict[tuple[str, str], TaskManifest | Corrupted | None] = {}
        if newest is not None:
            self._manifests[newest.snapshot] = newest
            for reference in newest.task_manifests:
                self._task_manifests[newest.snapshot, reference.task] = task_manifests[reference.task]

    def has(self, snapshot: str) -> bool:
        """Whether a snapshot is named by the head, and so is valid."""
        return any(one.snapshot == snapshot for one in self._entries)

    def named(self, key: Key, snapshot: str) -> Base | None:
        """The store of the snapshot that a frozen plan names; ``None`` if it is not valid any more, or unreadable."""
        entry = next((one for one in self._entries if one.snapshot == snapshot), None)
        found = None if entry is None else self._store(entry, key)
        return self._base(entry, key, found) if entry is not None and isinstance(found, StoreSnapshot) else None

    def task(self, snapshot: str, task: str) -> TaskManifest | None:
        """A task of a snapshot; ``None`` if it has none, is not valid any more, or cannot be read."""
        entry = next((one for one in self._entries if one.snapshot == snapshot), None)
        found = None if entry is None else self._task_manifest(entry, task)
        return found if isinstance(found, TaskManifest) else None

    def of(self, key: Key) -> Iterator[Base | Refused]:
        seen = set()
        refused: list[Base] = []
        for entry in self._entries[:_TRIED]:
            found = self._store(entry, key)
            if found is None:
                continue
            if isinstance(found, Corrupted):
                yield Refused(*key, entry.snapshot, Reason(found.what, found.code, **found.context))
                continue
            ends = (tuple((end.topic_partition, end.topic_id, end.end) for end in found.changelogs), found.kind)
            if ends in seen:  # refused for the same reason as the other
                continue
            seen.add(ends)
            base = self._base(entry, key, found)
            if (why := self._why_not(entry, key, found)) is not None:
                yield Refused(*key, entry.snapshot, why)
            elif (why := self._refused.get((key, entry.snapshot))) is not None:
                if why.code != "base-damaged":  # older snapshots may be intact
                    refused.append(base)
                yield Refused(*key, entry.snapshot, why)
            elif (better := next((one for one in refused if _has_all_of(base, one)), None)) is not None:
                yield Refused(
                    *key,
                    entry.snapshot,
                    Reason(
                        f"it is refused for the same reason as {better.name}", "same-as-newer", snapshot=better.name
                    ),
                )
            else:
                yield base

    def _base(self, entry: SnapshotEntry, key: Key, store: StoreSnapshot) -> Base:
        """A store of a snapshot, with the shortest delete retention that it and newer snapshots recorded."""
        if entry.snapshot not in self._delete_retention:
            newer = [*self._newer, *self._entries[: self._entries.index(entry)]]
            self._delete_retention[entry.snapshot] = delete_retention_since(newer, self._manifest)
        seen = self._delete_retention[entry.snapshot].get(key[0])
        return Base.of_snapshot(entry.snapshot, store, store.read_at_ms).within(seen)

    def _why_not(self, entry: SnapshotEntry, key: Key, store: StoreSnapshot) -> Reason | None:
        """Why a store cannot be a base, whatever its topics are."""
        manifest = self._manifest(entry)
        if is_of_other_cluster(manifest, self._cluster_id):
            return Reason(
                f"the snapshot is of the cluster {manifest.cluster_id}, and these brokers are of {self._cluster_id}",
                "cluster-changed",
                expected=manifest.cluster_id,
                found=self._cluster_id,
            )
        if store.restored_by_kafka_streams:
            return Reason("it is empty, because Kafka Streams restores it", "base-empty")
        different = differences(key[0], store, self._spec, empty=False)
        if different:
            one = different[0]
            return Reason(
                f"its {one.what} is {one.found} in the snapshot, but {one.declared} in the spec",
                "snapshot-spec-mismatch",
                field=one.what,
                found=str(one.found),
                expected=str(one.declared),
            )
        return None

    def _store(self, entry: SnapshotEntry, key: Key) -> StoreSnapshot | Corrupted | None:
        task_manifest = self._task_manifest(entry, key[0])
        if task_manifest is None or isinstance(task_manifest, Corrupted):
            return task_manifest
        return next((store for store in task_manifest.stores if store.store == key[1]), None)

    def _task_manifest(self, entry: SnapshotEntry, task: str) -> TaskManifest | Corrupted | None:
        where = entry.snapshot, task
        if where not in self._task_manifests:
            try:
                manifest = self._manifest(entry)
                reference = manifest.reference(task)
                self._task_manifests[where] = (
                    None if reference is None else self._repository.task_manifests([reference])[task].manifest
                )
            except Corrupted as error:
                self._task_manifests[where] = error
        return self._task_manifests[where]

    def _manifest(self, entry: SnapshotEntry) -> Manifest:
        if entry.snapshot not in self._manifests:
            try:
                self._manifests[entry.snapshot] = self._repository.manifest(entry).value
            except Corrupted as error:
                self._manifests[entry.snapshot] = error
        found = self._manifests[entry.snapshot]
        if isinstance(found, Corrupted):
            raise found
        return found


def _has_all_of(base: Base, refused: Base) -> bool:
    """Whether the refusal of one base's tail applies to another base: its tail is longer, and it is not younger."""
    return all(
        part in refused.ends
        and end.end <= refused.ends[part].end
        and (end.read_at_ms or 0) <= (refused.ends[part].read_at_ms or 0)
        for part, end in base.ends.items()
    )


def delete_retention_since(
    newer: Iterable[SnapshotEntry], manifest: Callable[[SnapshotEntry], Manifest]
) -> dict[str, int]:
    """Shortest delete retention by task that newer snapshots recorded; it applies to the tail of an older one, too."""
    found: dict[str, int] = {}
    for entry in newer:
        try:
            task_manifests = manifest(entry).task_manifests
        except Corrupted:
            continue
        for one in task_manifests:
            if one.delete_retention_ms is not None:
                found[one.task] = min(one.delete_retention_ms, found.get(one.task, one.delete_retention_ms))
    return found
