"""Diagnoses a state directory: everything that it shows by itself, or with a spec, as findings with remedies.

Nothing in the directory is changed, even while the application runs. What is normal then (open stores, different flush
times) is not reported. A damaged database hides no finding of others.
"""

from __future__ import annotations

import re
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from statecore.discover.contradicted_kinds import find_contradictions
from statecore.doctor.checks.context import CheckContext
from statecore.doctor.checks.custom import check_custom_store
from statecore.doctor.checks.damage import check_damage, check_grace_buffer
from statecore.doctor.checks.declared import (
    check_declarations,
    check_empty_tasks,
    check_kind,
    check_tasks_of_no_subtopology,
    check_transactional,
    check_undeclared_tasks,
)
from statecore.doctor.checks.families import check_families
from statecore.doctor.checks.offset_files import check_store_files, check_task_files
from statecore.doctor.checks.offsets import check_offsets, check_unlogged
from statecore.doctor.checks.releases import check_half_migrated, check_releases, is_opened
from statecore.doctor.checks.segments import check_segments
from statecore.doctor.checks.stray_files import (
    check_ignored,
    check_interrupted_jobs,
    check_stray_files,
    check_unsupported_store,
)
from statecore.doctor.database_inspection import InspectionDepth
from statecore.doctor.finding_catalog import Severity
from statecore.doctor.findings import Finding, Undecided
from statecore.doctor.inspection import Inspection, StoreView, TaskView, holder_json
from statecore.doctor.inspection_reader import DirectoryReading, read_inspection
from statecore.formats.integers import INT32_MAX
from statecore.formats.kinds import StoreKind
from statecore.formats.releases import CURRENT, GLOBAL, Release
from statecore.formats.task_id import TaskId
from statecore.progress import Progress
from statecore.spec.model import ApplicationSpec, ProcessingGuarantee
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.store_places import guarantee_of
from statecore.stores.lock_holder import Holder

DOCUMENT_VERSION = 1
"""Version of :meth:`Diagnosis.to_json`."""

Topics = Callable[[Inspection], tuple[Sequence[Finding], Sequence[str]]]
"""Asks the brokers about an inspected directory: findings, and a sentence for each question left undecided."""


@dataclass(frozen=True)
class Coverage:
    """What a diagnosis covered.

    Attributes:
        tasks: number of tasks, ``global`` included.
        stores: number of stores, each counted once over all its tasks.
        scanned: whether every row was read and its checksum verified.
    """

    tasks: int
    stores: int
    databases: int
    bytes: int
    scanned: bool
    brokers: bool
    declared: bool


@dataclass(frozen=True)
class Diagnosis:
    """Result of a diagnosis of one directory.

    Attributes:
        holder: the process that has the directory in use, or ``None``.
        guarantee: the application's, or ``None`` if unknown; findings then have the worse severity of both.
        release: release of Kafka Streams that will open the directory.
        findings: the worst first.
        undecided: sentences about what the brokers could not tell.
        transactional: whether that release runs with transactional state stores.
    """

    application_id: str
    path: Path
    holder: Holder | None
    guarantee: ProcessingGuarantee | None
    release: str
    findings: tuple[Finding, ...]
    coverage: Coverage
    undecided: tuple[str, ...] = ()
    stores: tuple[StoreView, ...] = ()
    transactional: bool = False

    @property
    def exit_code(self) -> int:
        """Exit code of the worst finding: 0 without findings, or with notes only."""
        return max((one.severity.exit_code for one in self.findings), default=0)

    @property
    def counts(self) -> dict[Severity, int]:
        """Number of findings of each severity, the worst first."""
        return {
            severity: sum(one.severity is severity for one in self.findings) for severity in reversed(list(Severity))
        }

    @property
    def undecided_stores(self) -> int:
        """Number of stores of tasks of which the brokers could not tell something."""
        return len({store for one in self.undecided if isinstance(one, Undecided) for store in one.stores})

    def to_json(self) -> dict[str, Any]:
        return {
            "version": DOCUMENT_VERSION,
            "application_id": self.application_id,
            "path": str(self.path),
            "lock": holder_json(self.holder),
            "processing_guarantee": None if self.guarantee is None else str(self.guarantee),
            "release": self.release,
            "transactional_state_stores": self.transactional,
            "looked_at": dict(vars(self.coverage)),
            "counts": {severity.value: count for severity, count in self.counts.items()},
            "findings": [one.to_json() for one in self.findings],
            "undecided": list(self.undecided),
            "exit_code": self.exit_code,
        }


def diagnose_directory(
    directory: StateDirectory,
    *,
    spec: ApplicationSpec | None = None,
    guarantee: ProcessingGuarantee | None = None,
    tasks: Sequence[str] = (),
    stores: Sequence[str] = (),
    scan: bool = False,
    release: Release | None = None,
    cleanup_max_age_ms: int | None = None,
    topics: Topics | None = None,
    progress: Progress | None = None,
    is_locked: bool = False,
) -> Diagnosis:
    guarantee = guarantee_of(spec, guarantee)
    depth = InspectionDepth(count=scan, formats=release is not None)
    reading = read_inspection(
        directory, spec=spec, tasks=tasks, stores=stores, depth=depth, progress=progress, is_locked=is_locked
    )
    opened_by = release or CURRENT
    context = CheckContext(
        directory.application_id, guarantee, opened_by, spec, cleanup_max_age_ms, reading.read_at_ms,
        reading.transactional and opened_by.transactional_stores,
    )  # fmt: skip
    seen, beyond = run_checks(reading, context)
    found = [*beyond, *(one for store in seen for one in store.findings)]
    if spec is not None:
        found = _with_contradictions(directory, spec, seen, stores, found)
    undecided: Sequence[str] = ()
    if topics is not None:
        opened = tuple(store for store in seen if not _is_in_memory(store))
        more, undecided = topics(_inspection(reading, opened, beyond, estimated=not scan))
        found = _with_topics(found, more)
    return Diagnosis(
        directory.application_id,
        directory.path,
        reading.holder,
        guarantee,
        context.release.name,
        tuple(sorted(found, key=_sort_key)),
        _coverage(reading, scanned=scan, brokers=topics is not None),
        tuple(undecided),
        tuple(seen),
        context.transactional,
    )


def _with_topics(found: Sequence[Finding], more: Sequence[Finding]) -> list[Finding]:
    """The findings of a directory and those by its topics, which may say the same, or refute one.

    A global store may have an offset of a partition that its topic lacks: then those below it may be lacking, too.
    """
    counts = {
        (one.store, one.evidence["topic"]): int(one.evidence["partitions"])
        for one in more
        if one.code == "partition-unknown" and one.task == GLOBAL
    }

    def is_refuted(one: Finding) -> bool:
        lacking = [name.rpartition("-") for name in one.evidence.get("partitions", ())]
        return (
            (one.code, one.task) == ("offset-missing", GLOBAL)
            and bool(lacking)
            and all(int(number) >= counts.get((one.store, topic), INT32_MAX) for topic, _, number in lacking)
        )

    told = {(one.task, one.store) for one in found if one.code == "grace-buffer-miskeyed"}
    again = [one for one in more if one.code == "grace-buffer-miskeyed" and (one.task, one.store) in told]
    return [*(one for one in found if not is_refuted(one)), *(one for one in more if one not in again)]


_MOVE_LEFTOVER = "Correct the spec. If it is right, move the directory away while the application is stopped."

_OF_THE_WRONG_KIND = frozenset({"kind-mismatch", "offset-missing", "store-unread"})
"""Other findings of a store that was inspected as the wrong kind."""


def _with_contradictions(
    directory: StateDirectory,
    spec: ApplicationSpec,
    seen: Sequence[StoreView],
    stores: Sequence[str],
    found: list[Finding],
) -> list[Finding]:
    """Add findings for custom stores that are declared as another kind, and the reverse; without a repair."""
    tasks = {store.task for store in seen}
    contradictions = {
        (task, one.store): one
        for one in find_contradictions(directory, spec, tasks, by_content=False)
        if one.is_of_another_class and (not stores or one.store in stores)
        for task in one.tasks
    }
    kept = [one for one in found if (one.task, one.store) not in contradictions or one.code not in _OF_THE_WRONG_KIND]
    return kept + [
        Finding(
            "kind-mismatch",
            f"{store} is declared as {one.declared}, but {one.why}: correct the spec, or move a leftover away",
            # A leftover directory of a store that is now in memory is harmless.
            Severity.WARNING if one.declared is StoreKind.IN_MEMORY else Severity.LOSS,
            task,
            store,
            evidence={"declared": str(one.declared)},
            own_remedy=_MOVE_LEFTOVER,
        )
        for (task, store), one in sorted(contradictions.items())
    ]


def _sort_key(finding: Finding) -> tuple[int, str, str, tuple[object, ...], str]:
    """Sort key: the worst first; within a code by store, and tasks in their order."""
    task = TaskId.match(finding.task)
    order = () if task is None else task.order
    return -finding.severity.rank, finding.code, finding.store, order, finding.segment


def _coverage(reading: DirectoryReading, *, scanned: bool, brokers: bool) -> Coverage:
    databases = [one for store in reading.stores for one in store.databases]
    return Coverage(
        len({store.task for store in reading.stores}),
        len({store.store for store in reading.stores}),
        len(databases),
        sum(one.bytes for one in databases),
        scanned,
        brokers,
        reading.spec is not None,
    )


def run_checks(reading: DirectoryReading, context: CheckContext) -> tuple[tuple[StoreView, ...], list[Finding]]:
    """The inspected stores, each with its findings, and the findings beyond single stores."""
    beyond: list[Finding] = []
    by_task: dict[str, list[StoreView]] = {}
    for store in reading.stores:
        by_task.setdefault(store.task, []).append(store)
    store_counts = Counter(place.task for place in reading.places)
    for name, task in reading.tasks.items():
        of_task = by_task.get(name, [])
        stores = [one for one in of_task if one.kind is not StoreKind.CUSTOM and _not_opened(one, of_task) is None]
        if name in reading.whole_tasks and (stores or reading.holder is None):
            beyond += [*check_task_files(task, stores, context), *check_half_migrated(task, stores, context)]
        if name in reading.whole_tasks or not name:
            beyond += check_stray_files(task, stores, context)
    if reading.spec is not None:
        beyond += check_transactional(reading.spec, reading.stores, context)
    if reading.spec is not None:
        empty_tasks = [task for task in reading.tasks if task not in ("", GLOBAL) and not store_counts[task]]
        declared = check_empty_tasks(reading.spec, empty_tasks)
        if reading.is_complete:
            declared += check_declarations(reading.spec, reading.places, empty_tasks, context)
            if reading.holder is None:  # what is here did not keep a running application from starting
                failing = check_undeclared_tasks(reading.spec, reading.tasks, context)
                named = {one.task for one in failing}
                declared = [*failing, *(one for one in declared if one.task not in named)]
        beyond += [one for one in declared if not _is_transient(one, reading)]
    elif reading.is_complete and reading.holder is None:
        beyond += check_tasks_of_no_subtopology(reading.places, reading.tasks, context)
    beyond += check_ignored(reading.ignored)
    beyond += check_interrupted_jobs(reading.journal, reading.job_leftovers)
    wiped = {one.task for one in beyond if one.code == "store-absent" and one.severity is Severity.ERROR}
    ignored = {
        (one.task, one.store): found
        for one in reading.stores
        if (found := _not_opened(one, by_task[one.task])) is not None
    }
    opened = [one for one in reading.stores if (one.task, one.store) not in ignored]
    wiped |= {store.task for store in opened if context.is_wiped(store, reading.tasks[store.task])}
    if any(context.is_every_task_wiped(store, reading.tasks[store.task]) for store in opened):
        wiped |= reading.tasks.keys() - {"", GLOBAL}
    unopened = {store.task for store in opened if not is_opened(store, context)}
    wiped_first = {name for name in wiped - unopened if not _fails_start(reading.tasks[name])}
    of_stores = [
        ignored[store.task, store.store]
        if (store.task, store.store) in ignored
        else _of_store(store, reading.tasks[store.task], context, is_wiped=store.task in wiped_first)
        for store in reading.stores
    ]
    without_changelog = check_unlogged([one for one in reading.stores if not _is_in_memory(one)], wiped)
    of_unlogged = {(one.task, one.store): one for one in without_changelog}
    checked_stores = tuple(
        replace(store, findings=(*found, *_as_list(of_unlogged.get((store.task, store.store)))))
        for store, found in zip(reading.stores, of_stores, strict=True)
    )
    return checked_stores, beyond


def _fails_start(task: TaskView) -> bool:
    """Whether a file of a task ends every start before the task is wiped."""
    return bool(task.wrong_types) or any(
        one.unreadable and one.last_offsets is None for one in (task.checkpoint, *task.stores.values())
    )


def _is_transient(finding: Finding, reading: DirectoryReading) -> bool:
    """Whether a running process creates this directory just now, or deletes it with its task."""
    if finding.code != "store-absent":
        return False
    of_task = [one for one in reading.stores if one.task == finding.task] or reading.stores
    return reading.holder is not None or any(one.in_use for one in of_task)


def _as_list(finding: Finding | None) -> list[Finding]:
    return [] if finding is None else [finding]


def _is_in_memory(store: StoreView) -> bool:
    """Whether a store is declared in memory: Kafka Streams does not open what was left of it on disk."""
    return store.declared is not None and store.declared.kind is StoreKind.IN_MEMORY


def _not_opened(store: StoreView, of_task: Sequence[StoreView]) -> list[Finding] | None:
    """The findings of a directory that Kafka Streams does not open; ``None`` for one that it opens."""
    if _is_in_memory(store):
        what = "is declared as in-memory, so Kafka Streams ignores its directory"
        found = Finding("kind-mismatch", what, Severity.WARNING, store.task, store.store, own_remedy=_MOVE_LEFTOVER)
        return [found] if store.databases else []
    copy = _backup(store, of_task)
    return None if copy is None else [copy]


_BACKUP = re.compile(r"(?P<store>.+?)(?:[._-](?:bak|backup|old|orig|save|copy)\d*|~)")


def _backup(store: StoreView, of_task: Sequence[StoreView]) -> Finding | None:
    """A note about a copy that was left beside its store, and that Kafka Streams ignores; ``None`` for another store.

    It is named as backups are, not declared, and has no offset but those of the store that it is named after.
    """
    named = _BACKUP.fullmatch(store.store)
    if named is None or store.declared is not None:
        return None
    original = next((one for one in of_task if one.store == named["store"] and one.segmented == store.segmented), None)
    if original is None or store.offsets.keys() - original.offsets.keys():
        return None
    what = f"is a copy of the store {original.store}, and Kafka Streams ignores it"
    return Finding("store-undeclared", what, Severity.NOTE, store.task, store.store)


def _of_store(store: StoreView, task: TaskView, context: CheckContext, *, is_wiped: bool) -> list[Finding]:
    if store.kind is StoreKind.CUSTOM:
        return check_custom_store(store, task, context)
    checks: tuple[Callable[[], list[Finding]], ...] = (
        lambda: check_kind(store),
        lambda: check_damage(store, task, context),
        lambda: check_grace_buffer(store, is_wiped=is_wiped),
        lambda: check_segments(store, task, context),
        lambda: check_families(store),
        lambda: check_releases(store, task, context),
        lambda: check_offsets(store, task, context),
        lambda: check_store_files(store, task),
        lambda: check_unsupported_store(store, task),
    )
    return [one for check in checks for one in _run(check, store)]


def _run(check: Callable[[], list[Finding]], store: StoreView) -> list[Finding]:
    """The findings of one check; a finding of its own if it fails, which hides none of the others."""
    try:
        return check()
    except Exception as error:
        what = f"could not be checked completely: {type(error).__name__}: {error}"
        trace = traceback.format_exc()
        return [Finding("check-failed", what, Severity.ERROR, store.task, store.store, evidence={"trace": trace})]


def inspect(
    directory: StateDirectory,
    *,
    spec: ApplicationSpec | None = None,
    tasks: Sequence[str] = (),
    stores: Sequence[str] = (),
    estimate: bool = False,
) -> Inspection:
    reading = read_inspection(
        directory, spec=spec, tasks=tasks, stores=stores, depth=InspectionDepth(count=not estimate)
    )
    guarantee = None if spec is None else spec.processing_guarantee
    context = CheckContext(
        directory.application_id, guarantee, spec=spec, now_ms=reading.read_at_ms, transactional=reading.transactional
    )
    seen, beyond = run_checks(reading, context)
    return _inspection(reading, seen, beyond, estimated=estimate)


def _inspection(
    reading: DirectoryReading, stores: tuple[StoreView, ...], beyond: Sequence[Finding], *, estimated: bool
) -> Inspection:
    directory = reading.directory
    return Inspection(
        directory.application_id,
        directory.path,
        reading.holder,
        estimated,
        stores,
        reading.offset_files,
        tuple(beyond),
        reading.whole_tasks,
    )
