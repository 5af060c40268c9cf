"""What a migration does, put together for people: what is the same in many tasks is said once.

It serves whoever prints a report (``statecore migrate``, the logs and the page of the Dag ``migrate_checkpoints``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from statecore.jobs.migrate.report import MigratedStep, MigratedStore, MigratedTask, MigrateReport

BESIDE = "files beside the stores"
"""What stands for the name of a store where something is done to files beside them."""

_NUMBER = r"(?<![\w.,-])\d+(?:,\d{3})*(?![\w-]|[.,]\d)"
"""A number that is no part of a name or of a release."""


@dataclass(frozen=True)
class Together:
    """What is the same in several tasks.

    Attributes:
        tasks: those.
        what: it, in words; where numbers differ, what stands for all of them. Empty where nothing is done.
        store: the store that it is done to; empty where it is none.
        kind: the store's kind; empty where it is not known, or of no store.
    """

    tasks: tuple[str, ...]
    what: str
    store: str = ""
    kind: str = ""


def done(report: MigrateReport) -> list[Together]:
    """What is done to each store, and to the files beside them; stores to which nothing is done are among them."""
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
        *(Together(tuple(tasks), _steps(same), name, kind) for (name, kind, _), (tasks, same) in stores.items()),
        *(Together(tuple(tasks), "; ".join(steps)) for steps, tasks in beside.items()),
    ]


def _steps(stores: Sequence[MigratedStore]) -> str:
    of_each = zip(*(store.steps for store in stores), strict=True)
    return "; ".join(_step(steps) for steps in of_each)


def _step(steps: Sequence[MigratedStep]) -> str:
    """A step in words, with the rows of all tasks. Which offsets it is about, is in the report."""
    one, rows = steps[0], sum(step.rows for step in steps)
    offset = ""
    if one.offsets:
        offset = "-4, an offset that is not known" if _is_unknown(one) else "its offset"
        offset = "its offsets" if len(one.offsets) > 1 else offset
    return " ".join(filter(None, [f"{rows:,}" if rows else "", one.text, offset]))


def _is_unknown(step: MigratedStep) -> bool:
    return any(offset < 0 for offset in step.offsets.values())


def left(report: MigrateReport) -> list[Together]:
    """Why something stays as it is, and what the application will do about it."""
    return _put_together(report, lambda task: task.left)


def notes(report: MigrateReport) -> list[Together]:
    """What an operator should know."""
    return _put_together(report, lambda task: task.notes)


def refused(report: MigrateReport) -> list[Together]:
    """Why tasks cannot be migrated."""
    return _put_together(report, lambda task: task.refused)


def _put_together(report: MigrateReport, of: Callable[[MigratedTask], Iterable[str]]) -> list[Together]:
    """Sentences that differ in nothing but numbers, and in the partition of the task, as one."""
    found: dict[tuple[str, ...], tuple[list[str], list[list[str]]]] = {}
    for task in report.tasks:
        for sentence in of(task):
            pieces = _pieces(sentence, task.task)
            tasks, same = found.setdefault(tuple(pieces[::2]), ([], []))
            tasks.append(task.task)
            same.append(pieces)
    return [Together(tuple(dict.fromkeys(tasks)), _common(same)) for tasks, same in found.values()]


def _pieces(sentence: str, task: str) -> list[str]:
    """A sentence cut at its numbers and at the name and the partition of its task, which stand at the odd places."""
    own = [_NUMBER, rf"(?<![\w-]){re.escape(task)}(?!\w)"]
    partition = task.rpartition("_")[2]
    if partition.isdigit():
        own.append(rf"(?<=\w-){partition}(?![\w-])")
    return re.split(f"({'|'.join(own)})", sentence)


def _common(several: Sequence[Sequence[str]]) -> str:
    return "".join(pieces[0] if len(set(pieces)) == 1 else "…" for pieces in zip(*several, strict=True))
