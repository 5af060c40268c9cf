"""Summarizes a migration report for people: combines what is the same in many tasks.

Used by ``statecore migrate``, and by the logs and the page of the Dag ``migrate_checkpoints``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from statecore.jobs.migrate.report import MigratedStep, MigratedStore, MigratedTask, MigrateReport

BESIDE = "files beside the stores"
"""Stands for the store name of changes to files beside the stores."""

_NUMBER = r"(?<![\w.,-])\d+(?:,\d{3})*(?![\w-]|[.,]\d)"
"""A number that is not part of a name or a release."""


@dataclass(frozen=True)
class CombinedChange:
    """A change or message shared by several tasks.

    Attributes:
        what: description, with placeholders where numbers differ; empty if nothing is changed.
        store: the changed store; empty if none.
        kind: the store's kind; empty if unknown, or without a store.
    """

    tasks: tuple[str, ...]
    what: str
    store: str = ""
    kind: str = ""


def done(report: MigrateReport) -> list[CombinedChange]:
    """Changes of each store and of files beside the stores; includes stores without changes."""
    stores: dict[tuple[str, str, tuple[tuple[str, bool], ...]], tuple[list[str], list[MigratedStore]]] = {}
    beside: dict[tuple[str, ...], list[str]] = {}
    for task in report.tasks:
        for store in task.stores:
            steps = tuple((step.text, _is_unknown(step)) for step in store.steps)
            key = (store.store, store.kind.strip("?"), steps)
            tasks, same = stores.setdefault(key, ([], []))
            tasks.append(task.task)
            same.append(store)
        if task.steps:
            beside.setdefault(task.steps, []).append(task.task)
    return [
        *(CombinedChange(tuple(tasks), _steps(same), name, kind) for (name, kind, _), (tasks, same) in stores.items()),
        *(CombinedChange(tuple(tasks), "; ".join(steps)) for steps, tasks in beside.items()),
    ]


def _steps(stores: Sequence[MigratedStore]) -> str:
    of_each = zip(*(store.steps for store in stores), strict=True)
    return "; ".join(_step(steps) for steps in of_each)


def _step(steps: Sequence[MigratedStep]) -> str:
    """Description of a step, with the rows of all tasks; the report has the offsets."""
    one, rows = steps[0], sum(step.rows for step in steps)
    offset = ""
    if one.offsets:
        offset = "-4, an unknown offset" if _is_unknown(one) else "its offset"
        offset = "its offsets" if len(one.offsets) > 1 else offset
    return " ".join(filter(None, [f"{rows:,}" if rows else "", one.text, offset]))


def _is_unknown(step: MigratedStep) -> bool:
    return any(offset < 0 for offset in step.offsets.values())


def left(report: MigrateReport) -> list[CombinedChange]:
    """Why things are not changed, and what the application will do with them."""
    return _combined(report, lambda task: task.left)


def notes(report: MigrateReport) -> list[CombinedChange]:
    return _combined(report, lambda task: task.notes)


def refused(report: MigrateReport) -> list[CombinedChange]:
    return _combined(report, lambda task: task.refused)


def _combined(report: MigrateReport, of: Callable[[MigratedTask], Iterable[str]]) -> list[CombinedChange]:
    """Combine sentences that differ only in numbers and in the partition of the task."""
    found: dict[tuple[str, ...], tuple[list[str], list[list[str]]]] = {}
    for task in report.tasks:
        for sentence in of(task):
            pieces = _pieces(sentence, task.task)
            tasks, same = found.setdefault(tuple(pieces[::2]), ([], []))
            tasks.append(task.task)
            same.append(pieces)
    return [CombinedChange(tuple(dict.fromkeys(tasks)), _common(same)) for tasks, same in found.values()]


def _pieces(sentence: str, task: str) -> list[str]:
    """Split a sentence at its numbers and at the name and partition of its task, which get the odd indexes."""
    own = [_NUMBER, rf"(?<![\w-]){re.escape(task)}(?!\w)"]
    partition = task.rpartition("_")[2]
    if partition.isdigit():
        own.append(rf"(?<=\w-){partition}(?![\w-])")
    return re.split(f"({'|'.join(own)})", sentence)


def _common(several: Sequence[Sequence[str]]) -> str:
    return "".join(pieces[0] if len(set(pieces)) == 1 else "…" for pieces in zip(*several, strict=True))
