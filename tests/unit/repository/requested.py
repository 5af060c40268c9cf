"""What the simulation (:mod:`tests.unit.repository.simulation`) asks for, and what a try is to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from statecore.repository.head import SnapshotEntry
from statecore.repository.manifest import TaskManifest

Key = tuple[str, str]
"""A task and a store."""


@dataclass
class Request:
    """What somebody asked for: some stores, up to ends that the first try has frozen.

    Attributes:
        name: its id.
        kind: one of ``KINDS``.
        stores: what of the application.
        whole: whether that is all of it.
        spans: the runs of a rebuild; ``None`` for one of each 50 offsets.
        ends: where the stores of those runs end.
        refused: stores that a rebuild may take back.
        rebases: whether a rebuild goes beside what others have published of its tasks.
        plan: what the next try does.
        least: the least ends of all plans.
        gone: stores of which its compactions have left nothing up to an offset.
        tries: how many were begun.
        running: how many are at work.
        told: the snapshot that it was told of.
        is_over: whether it has ended.
    """

    name: str
    kind: str
    stores: tuple[Key, ...]
    whole: bool
    spans: dict[Key, list[tuple[int, int]]] | None = None
    ends: dict[Key, int] = field(default_factory=dict)
    refused: frozenset[Key] = frozenset()
    rebases: bool = False
    plan: Plan | None = None
    least: dict[Key, int] = field(default_factory=dict)
    gone: set[tuple[Key, int]] = field(default_factory=set)
    tries: int = 0
    running: int = 0
    told: str | None = None
    is_over: bool = False


@dataclass(frozen=True)
class Plan:
    """What a try is to do.

    Attributes:
        ends: how far each store goes.
        bases: the tasks of the snapshot that was the newest then.
        compactions: which runs of each store become one: the first of them, and the one behind the last.
        read_at_ms: when the ends were those of the logs; 0 where they never were.
    """

    ends: dict[Key, int]
    bases: dict[str, TaskManifest]
    compactions: dict[Key, tuple[int, int]]
    read_at_ms: int


def entry_of(request: Request, entries: Iterable[SnapshotEntry]) -> SnapshotEntry | None:
    return next((entry for entry in entries if entry.request_id == request.name), None)
