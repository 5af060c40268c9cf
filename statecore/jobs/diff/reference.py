"""What a state directory is held against, as a state directory: another one, or one that is made for it and goes again.

::

    --with-state-dir   as it lies
    --with-snapshot    fetched into a scratch directory (jobs/fetch/run.py)
    --with-changelog   built there from the changelogs, up to the offsets of the stores that are looked at
                       (jobs/restore/run.py, Until)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from statecore.changelog.cluster import Cluster
from statecore.changelog.horizon import horizon_ms
from statecore.errors import NotFound
from statecore.formats.kinds import StoreKind
from statecore.formats.releases import GLOBAL
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.bases.base import Key
from statecore.jobs.diff.request import LATEST, DiffRequest
from statecore.jobs.diff.scratch_dir import scratch
from statecore.jobs.engine import Engine
from statecore.jobs.fetch.request import FetchRequest
from statecore.jobs.fetch.run import run_fetch
from statecore.jobs.restore.plan_with_bases import Until
from statecore.jobs.restore.request import NOTHING, RestoreRequest
from statecore.jobs.restore.run import run_restore
from statecore.jobs.versioned_start import VersionedStart
from statecore.progress import Progress
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.manifest import Manifest
from statecore.spec.model import ApplicationSpec, ProcessingGuarantee
from statecore.spec.reader import parse_spec
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.store_offsets import Standing, known
from statecore.statedir.store_places import application_directory, declared_at
from statecore.words import some_of

_NOBODY = "nobody:1"
"""In place of brokers: a snapshot does not say how Kafka is reached."""


@dataclass(frozen=True)
class Reference:
    """What a state directory is held against.

    Attributes:
        directory: it.
        words: what it is.
        spec: the application as it is declared, as far as anybody says it.
        only: the stores that are compared, by task and name; ``None`` for all of both sides.
        left_out: stores that are not compared, and why.
        notes: what an operator should know.
        scratch: where files that workers and driver share may lie; ``None`` where nothing was made.
    """

    directory: StateDirectory
    words: str
    spec: ApplicationSpec | None
    only: frozenset[Key] | None = None
    left_out: Mapping[Key, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    scratch: Path | None = None


class References:
    """Makes what a request asks for.

    Args:
        request: it.
        spec: the application as it is declared; ``None`` where no spec was given.
        directory: the directory that is looked at.
        engine: who builds.
        progress: told how far it is.
    """

    def __init__(
        self,
        request: DiffRequest,
        spec: ApplicationSpec | None,
        directory: StateDirectory,
        engine: Engine,
        progress: Progress,
    ) -> None:
        self._request, self._spec, self._directory = request, spec, directory
        self._engine, self._progress = engine, progress

    @contextmanager
    def of(self, standings: Mapping[Key, Standing]) -> Iterator[Reference]:
        """The reference, until the block ends; what was made for it goes then.

        Args:
            standings: the stores that are looked at, by task and name, and how far they have come.

        Raises:
            NotFound: there is no such directory, snapshot or topic.
            Invalid, Retryable, Corrupted, Capacity: see :func:`run_fetch` and :func:`run_restore`.
        """
        request = self._request
        if request.with_state_dir is not None:
            directory = application_directory(Path(request.with_state_dir), self._directory.application_id)
            yield Reference(directory, f"the state directory {directory.path}", self._spec)
            return
        with scratch(Path(request.scratch_dir or request.state_dir)) as where:
            made = StateDirectory(where, self._directory.application_id)
            if request.with_changelog:
                yield self._of_changelogs(made, standings)
            else:
                yield self._of_snapshot(made, standings)

    def _of_snapshot(self, made: StateDirectory, standings: Mapping[Key, Standing]) -> Reference:
        request = self._request
        shelf = ApplicationRepository.at(request.repository or "", made.application_id)
        head = shelf.head()
        named = request.with_snapshot
        entry = head.snapshots[0] if named == LATEST else head.entry(named or "")
        if entry is None:
            raise NotFound(
                f"{made.application_id} has no snapshot {named} in {shelf.url}.",
                code="snapshot-not-found",
                action=f"Name one of those that count (statecore snapshots), or {LATEST}.",
                snapshot=named,
            )
        manifest = shelf.manifest(entry).value
        spec = self._spec or _declared(manifest)
        there, here = {part.task for part in manifest.parts}, {task for task, _ in standings}
        asked = set(request.tasks) or here
        notes = []
        if lacking := sorted(there - here - set(request.tasks)):
            notes.append(f"The snapshot has tasks that the directory has not: {some_of(lacking, 10)}. Not compared.")
        words = f"the snapshot {entry.snapshot} in {shelf.url}"
        if not asked & there:
            return Reference(made, words, spec, notes=tuple(notes), scratch=made.state_dir)
        fetch = FetchRequest(
            repository=shelf.url,
            application_id=made.application_id,
            state_dir=str(made.state_dir),
            tasks=tuple(sorted(asked & there)),
            snapshot=entry.snapshot,
            versioned=VersionedStart.LATEST,
            memory_budget=request.memory_budget,
        )
        report = run_fetch(fetch, self._progress)
        left = {
            (one.task, one.store): "the snapshot has nothing of it: it is left to Kafka Streams to restore"
            for one in report.stores
            if one.left_to_restore
        }
        return Reference(made, words, spec, left_out=left, notes=tuple(notes), scratch=made.state_dir)

    def _of_changelogs(self, made: StateDirectory, standings: Mapping[Key, Standing]) -> Reference:
        request, spec = self._request, self._spec
        assert spec is not None  # the request has one
        lost = {key: Standing() for key in self._lost(spec, standings)}
        left = {key: why for key in standings if (why := _why_not(spec, key))}
        stores = {key: standing for key, standing in {**standings, **lost}.items() if key not in left}
        words = f"the changelogs on {spec.bootstrap_servers}"
        if not stores:
            return Reference(made, words, spec, frozenset(), left, scratch=made.state_dir)
        ends: dict[TopicPartition, int] = {}
        for (task, _), standing in stores.items():
            for part, offset in standing.offsets.items() if known(standing.offsets) else ():
                ends[part] = max(ends.get(part, 0), offset + (task != GLOBAL))
        notes = tuple(self._notes(spec, stores))
        restore = RestoreRequest(
            spec=request.spec,
            spec_path=request.spec_path,
            state_dir=str(made.state_dir),
            stores=tuple(sorted({store for _, store in stores})),
            start_from=NOTHING,
            versioned=VersionedStart.LATEST,
            memory_budget=request.memory_budget,
            transaction_wait=request.transaction_wait,
            timeout=request.timeout,
        )
        run_restore(restore, self._engine, self._progress, until=Until(frozenset(stores), ends))
        return Reference(made, words, spec, frozenset(stores), left, notes, made.state_dir)

    def _lost(self, spec: ApplicationSpec, standings: Mapping[Key, Standing]) -> Iterator[Key]:
        """Stores that a task has by its declaration and the directory has not."""
        request = self._request
        for task in self._directory.every_task():
            for store in spec.stores_of(task):
                key = task, store.name
                is_meant = not request.stores or store.name in request.stores
                is_meant &= not request.tasks or task in request.tasks
                if is_meant and key not in standings and not _why_not(spec, key):
                    yield key

    def _notes(self, spec: ApplicationSpec, stores: Mapping[Key, Standing]) -> Iterator[str]:
        """What the logs cannot tell of these stores."""
        changelogs = {key: found.changelog for key in stores if (found := declared_at(spec, *key)) is not None}
        offsets = {
            key: {part: at for part, at in standing.offsets.items() if part.topic == changelogs[key]}
            for key, standing in stores.items()
        }
        with Cluster(spec.bootstrap_servers, spec.kafka, timeout=self._request.timeout) as cluster:
            topics = cluster.describe_topics(sorted(set(changelogs.values())))
            logs = cluster.log_offsets(part for said in offsets.values() for part in said)
        # Under exactly-once a commit marker lies behind the last record.
        slack = 1 if spec.processing_guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2 else 0
        tails = []
        for (task, store), said in sorted(offsets.items()):
            name = f"Store {store} of task {task}"
            if not known(said):
                yield f"{name} has no offset here: it is held against all of its changelog."
                continue
            for part, offset in said.items():
                end, log = offset + (task != GLOBAL), logs[part]
                if end > log.log_end:
                    yield f"{name} ends before offset {end} of {part}, and the log at {log.log_end}: another topic?"
                elif end < log.log_start:
                    yield f"{name} ends before offset {end} of {part}, and the log begins at {log.log_start}."
                elif end + slack < log.log_end and horizon_ms(topics[part.topic]) is not None:
                    tails.append(f"{part} from {end} to {log.log_end}")
        if tails:
            yield (
                f"Changelogs go on behind the stores: {some_of(tails, 10)}. Rows that were written again or deleted "
                "there may have been compacted away before: these count as extra."
            )


def _why_not(spec: ApplicationSpec, key: Key) -> str:
    """Why no changelog tells the rows of a store; empty where one does."""
    declared = declared_at(spec, *key)
    if declared is None:
        return f"{spec.source} does not declare it"
    if not declared.is_logged:
        return "the application does not log it"
    if declared.kind is StoreKind.CUSTOM:
        return "it is of the application's own class"
    if declared.is_undecided or not declared.kind.can_be_built:
        return f"{spec.source} does not say its kind, or its changelog"
    if declared.is_filled_by_processor:
        return "the application fills it through a processor of its own"
    return ""


def _declared(manifest: Manifest) -> ApplicationSpec:
    declared = parse_spec({**manifest.spec, "bootstrap_servers": _NOBODY}, f"<snapshot {manifest.snapshot}>")
    return replace(declared, bootstrap_servers="")
