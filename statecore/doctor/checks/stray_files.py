"""Checks around the stores: foreign files, permissions, modification times, interrupted jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from statecore.doctor.checks.context import CheckContext, store_finding
from statecore.doctor.checks.custom import has_custom_store
from statecore.doctor.finding_catalog import Repair, Severity
from statecore.doctor.findings import Finding
from statecore.doctor.inspection import StoreView, TaskView
from statecore.formats.checkpoint import store_checkpoint_file
from statecore.formats.integers import INT32_MAX
from statecore.formats.releases import LOCK_FILE, PLAIN_PARENT, PROCESS_FILE
from statecore.formats.task_id import TaskId
from statecore.spec.units import format_duration
from statecore.statedir.state_directory import WORK_DIRECTORY
from statecore.statedir.store_places import StorePlace
from statecore.words import number_of, shortened_list


def check_stray_files(task: TaskView, stores: Sequence[StoreView], context: CheckContext) -> list[Finding]:
    """Findings of one task outside its stores, or of the application's own directory (task ``""``)."""
    found = []
    name = task.task or "the application's directory"
    oldest = context.cleanup_max_age_ms
    if task.task and oldest is not None and 0 <= oldest < context.now_ms - task.modified_ms:
        age = format_duration((context.now_ms - task.modified_ms) // 60_000 * 60_000)
        what = (
            f"{name} was changed {age} ago, and state.cleanup.dir.max.age.ms is {format_duration(oldest)}: the next "
            "start deletes it"
        )
        evidence: dict[str, Any] = {"modified_ms": task.modified_ms, "limit_ms": oldest}
        found.append(
            Finding("cleaning-deletes", what, Severity.WARNING, task.task, "", "", None, evidence, Repair.TOUCH)
        )
    foreign = [] if has_custom_store(context.spec, task.task) else [*task.foreign]
    for store in stores:
        for one in () if store.in_use else store.databases:
            foreign += [f"{store.store}/{one.name}/{file}" if store.segmented else f"{store.store}/{file}"
                        for file in one.foreign]  # fmt: skip
    if foreign:
        what = f"{name} has {number_of(len(foreign), 'file')} of other tools: {shortened_list(foreign, 5)}"
        evidence = {"files": foreign}
        found.append(Finding("foreign-file", what, Severity.NOTE, task.task, "", "", None, evidence, Repair.MOVE_ASIDE))
    found += [_wrong_type(task, one, what) for one, what in task.wrong_types.items()]
    if task.unparsable:
        what = (
            f"{shortened_list(task.unparsable, 5)}: a number of a task is at most {INT32_MAX}, and every start of the "
            "application fails"
        )
        evidence = {"files": [*task.unparsable]}
        found.append(Finding("task-name-invalid", what, Severity.ERROR, evidence=evidence))
    if task.unusable:
        path, why = task.unusable[0]
        more = f", and {number_of(len(task.unusable) - 1, 'more file')}" if len(task.unusable) > 1 else ""
        what = f"{path} {why}{more}"
        evidence = {"paths": [one for one, _ in task.unusable[:100]], "count": len(task.unusable)}
        found.append(Finding("rights", what, Severity.ERROR, task.task, "", "", None, evidence, Repair.GIVE))
    return found


_CREATED = frozenset({LOCK_FILE, PROCESS_FILE})
_MOVE_AWAY = "Move it away while the application is stopped: Kafka Streams creates the file."
_RESTORE_TASK = (
    "Move it away while the application is stopped; then restore the stores of {task} (statecore restore), or let "
    "Kafka Streams restore them."
)


def _wrong_type(task: TaskView, name: str, what: str) -> Finding:
    """What stands in the place of a directory with stores, or of a file that is locked or read."""
    if task.task:
        text = (
            f"{task.task}/{name} is {what}, and not the directory of {'stores' if name == PLAIN_PARENT else 'a store'}"
        )
        repair, remedy, owner = Repair.MOVE_ASIDE, "", task.task
    elif name in _CREATED:
        text, repair, remedy, owner = f"{name} is {what}, and not a file", None, _MOVE_AWAY, ""
    else:
        text, repair, owner = f"{name} is {what}, and not the directory of {name}", None, name
        remedy = _RESTORE_TASK.format(task=name)
    store = name.removeprefix(f"{PLAIN_PARENT}/") if task.task and name != PLAIN_PARENT else ""
    text += ": every start of the application fails" + (", or never ends" if what == "a named pipe" else "")
    evidence = {"files": [name]}
    return Finding(
        "wrong-file-type", text, Severity.ERROR, owner, store, evidence=evidence, repair=repair, own_remedy=remedy
    )


def check_unsupported_store(store: StoreView, task: TaskView) -> list[Finding]:
    """A store that is kept in files other than RocksDB's."""
    if not store.foreign:
        return []
    if store.declared is None and TaskId.match(store.store) is not None:
        what = (
            f"is a directory named like a task within {store.task}, with {shortened_list([*store.foreign], 5)}: Kafka "
            f"Streams opens none of it, and restores the stores that {store.task} lacks"
        )
        has_stores = any(name != store.store for name in task.store_names)
        severity = Severity.WARNING if has_stores else Severity.ERROR  # then it is a copy
        return [store_finding(store, "task-misplaced", severity, what, files=[*store.foreign])]
    what = (
        f"has no RocksDB database, but {number_of(len(store.foreign), 'file')}: {shortened_list([*store.foreign], 5)}"
    )
    if store.outside:
        text = ", ".join(f"{offset} of {partition}" for partition, offset in sorted(store.outside.items()))
        what += f"; {store_checkpoint_file(store.store)} says {text}"
    return [store_finding(store, "store-unread", Severity.NOTE, what, files=[*store.foreign])]


def check_ignored(places: Sequence[StorePlace]) -> list[Finding]:
    """Notes about databases where Kafka Streams looks for no store of their name: leftovers of another kind, copies."""
    return [
        Finding(
            "store-undeclared",
            f"{place.name} in {place.task} is not the place of the store {place.store}, and Kafka Streams ignores it",
            Severity.NOTE,
            place.task,
            place.store,
            own_remedy="If the kind in the spec is right, nothing has to be done, and the directory may be moved away.",
            evidence={IGNORED: place.name},
        )
        for place in places
        if place.databases
    ]


IGNORED = "ignored"
"""Evidence of such a note: the directory."""


def check_interrupted_jobs(journal: str, left: Sequence[str]) -> list[Finding]:
    """Interrupted jobs of this library."""
    if journal:
        what = f"a placement was interrupted (request {journal}): {WORK_DIRECTORY} has its journal and the directories"
        return [Finding("work-unfinished", what, Severity.WARNING, evidence={"request_id": journal, "left": [*left]})]
    if left:
        what = f"{WORK_DIRECTORY} has leftovers of interrupted jobs: {shortened_list([*left], 5)}"
        return [Finding("work-unfinished", what, Severity.WARNING, evidence={"left": [*left]})]
    return []
