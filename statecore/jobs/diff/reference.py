"""Provides the reference of a diff as a state directory, an existing or a temporary one.

::

    --with-state-dir   the existing directory
    --with-snapshot    fetched into a scratch directory (jobs/fetch/run.py)
    --with-changelog   built there from the changelogs, up to the offsets of the compared stores
                       (jobs/restore/run.py, Until)
"""

from __future__ import annotations

import os
import shutil
import socket
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from statecore.changelog.delete_retention import current_retention_ms
from statecore.errors import NotFound, StatecoreError
from statecore.formats.kinds import StoreKind
from statecore.formats.releases import GLOBAL
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.bases.base import Key
from statecore.jobs.context import JobContext
from statecore.jobs.diff.request import DiffRequest
from statecore.jobs.engine import Engine
from statecore.jobs.fetch.request import FetchRequest
from statecore.jobs.fetch.run import run_fetch
from statecore.jobs.fetch.select import recorded_spec
from statecore.jobs.request_fields import VersionedStart
from statecore.jobs.restore.planned_restore import Until
from statecore.jobs.restore.request import NOTHING, RestoreRequest
from statecore.jobs.restore.run import run_restore
from statecore.repository.layout import NEWEST
from statecore.spec.model import ApplicationSpec, ProcessingGuarantee
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.stopped_store_offsets import StoppedStoreOffsets, are_known
from statecore.statedir.store_places import application_directory, declared_at
from statecore.system_errors import system_error
from statecore.words import shortened_list


@dataclass(frozen=True)
class Reference:
    """The directory that a state directory is compared with.

    Attributes:
        words: description for people.
        spec: the declared application, if known.
        only: stores to compare, by task and name; ``None`` for all of both sides.
        left_out: stores that are not compared, and why.
        notes: notes for the operator.
        scratch: directory for files shared by workers and driver; ``None`` if no reference was built.
    """

    directory: StateDirectory
    words: str
    spec: ApplicationSpec | None
    only: frozenset[Key] | None = None
    left_out: Mapping[Key, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    scratch: Path | None = None


class References:
    """Provides the reference of a request; builds it with ``engine`` if necessary."""

    def __init__(
        self,
        context: JobContext[DiffRequest],
        directory: StateDirectory,
        engine: Engine,
    ) -> None:
        self._context, self._request, self._spec = context, context.request, context.declared
        self._directory, self._engine, self._progress = directory, engine, context.progress

    @contextmanager
    def of(self, standings: Mapping[Key, StoppedStoreOffsets]) -> Iterator[Reference]:
        """The reference, as a context manager; what was built for it is deleted at the end."""
        request = self._request
        if request.with_state_dir is not None:
            directory = application_directory(Path(request.with_state_dir), self._directory.application_id)
            yield Reference(directory, f"the state directory {directory.path}", self._spec)
            return
        with scratch(Path(request.scratch_dir or request.state_dir)) as where:
            temporary = StateDirectory(where, self._directory.application_id)
            if request.with_changelog:
                yield self._of_changelogs(temporary, standings)
            else:
                yield self._of_snapshot(temporary, standings)

    def _of_snapshot(self, temporary: StateDirectory, standings: Mapping[Key, StoppedStoreOffsets]) -> Reference:
        request, repository = self._request, self._context.repository
        head = repository.head()
        named = request.with_snapshot
        entry = head.snapshots[0] if named == NEWEST else head.entry(named or "")
        if entry is None:
            raise NotFound(
                f"{temporary.application_id} has no snapshot {named} in {repository.url}.",
                code="snapshot-not-found",
                action=f"Name an existing one (statecore repo snapshots), or {NEWEST}.",
                snapshot=named,
            )
        manifest = repository.manifest(entry).value
        spec = self._spec or recorded_spec(manifest)
        in_snapshot, in_directory = (
            {reference.task for reference in manifest.task_manifests},
            {task for task, _ in standings},
        )
        asked = set(request.tasks) or in_directory
        notes = []
        if lacking := sorted(in_snapshot - in_directory - set(request.tasks)):
            notes.append(f"Not compared, because the directory lacks these tasks: {shortened_list(lacking, 10)}.")
        words = f"the snapshot {entry.snapshot} in {repository.url}"
        if not asked & in_snapshot:
            return Reference(temporary, words, spec, notes=tuple(notes), scratch=temporary.state_dir)
        fetch = FetchRequest(
            repository=repository.url,
            application_id=temporary.application_id,
            state_dir=str(temporary.state_dir),
            tasks=tuple(sorted(asked & in_snapshot)),
            snapshot=entry.snapshot,
            versioned=VersionedStart.LATEST,
            memory_budget=request.memory_budget,
        )
        report = run_fetch(fetch, self._progress)
        left = {
            (one.task, one.store): "the snapshot has no rows of it: Kafka Streams restores it"
            for one in report.stores
            if one.restored_by_kafka_streams
        }
        return Reference(temporary, words, spec, left_out=left, notes=tuple(notes), scratch=temporary.state_dir)

    def _of_changelogs(self, temporary: StateDirectory, standings: Mapping[Key, StoppedStoreOffsets]) -> Reference:
        request, spec = self._request, self._spec
        assert spec is not None  # the request has one
        missing = {key: StoppedStoreOffsets() for key in self._missing_stores(spec, standings)}
        left = {key: why for key in standings if (why := _why_not(spec, key))}
        stores = {key: standing for key, standing in {**standings, **missing}.items() if key not in left}
        words = f"the changelogs on {spec.bootstrap_servers}"
        if not stores:
            return Reference(temporary, words, spec, frozenset(), left, scratch=temporary.state_dir)
        ends: dict[TopicPartition, int] = {}
        for (task, _), standing in stores.items():
            for part, offset in standing.offsets.items() if are_known(standing.offsets) else ():
                ends[part] = max(ends.get(part, 0), offset + (task != GLOBAL))
        notes = tuple(self._notes(spec, stores))
        restore = RestoreRequest(
            spec=request.spec,
            spec_path=request.spec_path,
            state_dir=str(temporary.state_dir),
            stores=tuple(sorted({store for _, store in stores})),
            start_from=NOTHING,
            versioned=VersionedStart.LATEST,
            memory_budget=request.memory_budget,
            transaction_wait=request.transaction_wait,
            timeout=request.timeout,
        )
        run_restore(restore, self._engine, self._progress, until=Until(frozenset(stores), ends))
        return Reference(temporary, words, spec, frozenset(stores), left, notes, temporary.state_dir)

    def _missing_stores(self, spec: ApplicationSpec, standings: Mapping[Key, StoppedStoreOffsets]) -> Iterator[Key]:
        """Declared stores of existing tasks that the directory lacks."""
        request = self._request
        for task in self._directory.every_task():
            for store in spec.stores_of(task):
                key = task, store.name
                is_meant = not request.stores or store.name in request.stores
                is_meant &= not request.tasks or task in request.tasks
                if is_meant and key not in standings and not _why_not(spec, key):
                    yield key

    def _notes(self, spec: ApplicationSpec, stores: Mapping[Key, StoppedStoreOffsets]) -> Iterator[str]:
        """Limits of a comparison with the changelogs."""
        changelogs = {key: found.changelog for key in stores if (found := declared_at(spec, *key)) is not None}
        offsets = {
            key: {part: at for part, at in standing.offsets.items() if part.topic == changelogs[key]}
            for key, standing in stores.items()
        }
        with self._context.cluster() as cluster:
            topics = cluster.describe_topics(sorted(set(changelogs.values())))
            logs = cluster.log_offsets(part for part_offsets in offsets.values() for part in part_offsets)
        # Under exactly-once a commit marker follows the last record.
        slack = 1 if spec.processing_guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2 else 0
        tails = []
        for (task, store), part_offsets in sorted(offsets.items()):
            name = f"Store {store} of task {task}"
            if not are_known(part_offsets):
                yield f"{name} has no offset: it is compared with its whole changelog."
                continue
            for part, offset in part_offsets.items():
                end, log = offset + (task != GLOBAL), logs[part]
                if end > log.log_end:
                    yield f"{name} ends before offset {end} of {part}, and the log at {log.log_end}: another topic?"
                elif end < log.log_start:
                    yield f"{name} ends before offset {end} of {part}, and the log starts at {log.log_start}."
                elif end + slack < log.log_end and current_retention_ms(topics[part.topic]) is not None:
                    tails.append(f"{part} from {end} to {log.log_end}")
        if tails:
            yield (
                f"Changelogs have records after the stores: {shortened_list(tails, 10)}. Rows that were overwritten or "
                "deleted there may have been compacted away before: these count as extra."
            )


def _why_not(spec: ApplicationSpec, key: Key) -> str:
    """Why a store cannot be compared with a changelog; empty if it can."""
    declared = declared_at(spec, *key)
    if declared is None:
        return f"{spec.source} does not declare it"
    if not declared.is_logged:
        return "the application does not log it"
    if declared.kind is StoreKind.CUSTOM:
        return "it is a custom store"
    if declared.is_undecided or not declared.kind.can_be_built:
        return f"{spec.source} does not declare its kind, or its changelog"
    if declared.is_filled_by_processor:
        return "the application fills it through its own processor"
    return ""


_PREFIX = ".statecore-diff"
_MODE = 0o700


@contextmanager
def scratch(below: Path) -> Iterator[Path]:
    """A directory of this process below ``below``, as a context manager."""
    _sweep(below)
    path = below / f"{_PREFIX}.{socket.gethostname()}.{os.getpid()}.{uuid.uuid4().hex[:8]}"
    try:
        path.mkdir(mode=_MODE)
    except OSError as error:
        raise _unusable(below, error) from error
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _sweep(below: Path) -> None:
    """Delete directories of dead processes of this machine."""
    for path in below.glob(f"{_PREFIX}.{socket.gethostname()}.*.*"):
        process = path.name.split(".")[-2]
        if process.isdigit() and not _is_alive(int(process)):
            shutil.rmtree(path, ignore_errors=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _unusable(below: Path, error: OSError) -> StatecoreError:
    return system_error(
        error,
        f"No directory can be created in {below}",
        action="Name a writable directory with enough space for the stores (--scratch-dir).",
        path=str(below),
    )
