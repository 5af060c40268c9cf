"""Whether a store of a snapshot fits the application's current declaration.

What can differ, and what would go wrong if the store were placed all the same::

    kind                    Kafka Streams reads rows of another format
    task                    it looks for the store elsewhere: subtopologies were renumbered
    changelog               offsets of another topic do not apply
    segment interval        it looks for the rows in segments of other names
    a longer retention      rows that the application still answers with have expired in the snapshot
    exactly-once            what was read uncommitted may have rows of aborted transactions

A shorter retention does no harm, because Kafka Streams lets the older rows expire; nor does giving up exactly-once. For
a store placed without data only kind, task and changelog are compared. What a spec leaves undecided (``?``) matches
anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from statecore.formats.kinds import StoreKind
from statecore.isolation import IsolationLevel
from statecore.repository.manifest import StoreSnapshot
from statecore.spec.model import (
    NO_CHANGELOG,
    UNKNOWN_CHANGELOG,
    ApplicationSpec,
    StoreSpec,
    retention_of,
    segment_interval_of,
    task_of,
)
from statecore.spec.units import format_duration

GUARANTEE = "processing guarantee"  # The difference where a store of exactly-once may have rows of aborted transactions


class Difference(NamedTuple):
    """A difference between a store and its declaration: ``what`` (``kind``), as the snapshot has it, as declared."""

    what: str
    found: str
    declared: str


def differences(task: str, store: StoreSnapshot, spec: ApplicationSpec, *, empty: bool) -> tuple[Difference, ...]:
    """What keeps a store of a snapshot from being usable; empty for a store that is not declared."""
    declared = spec.store(store.store)
    if declared is None:
        return ()
    found = _of_name(task, store, declared)
    return tuple(found if empty else (*found, *_of_rows(store, declared, spec)))


def _of_name(task: str, store: StoreSnapshot, declared: StoreSpec) -> Iterator[Difference]:
    if declared.kind not in (store.kind, StoreKind.UNKNOWN):
        yield Difference("kind", store.kind.value, declared.kind.value)
    first = store.changelogs[0]
    wanted = task_of(declared, first.partition)
    if wanted != task:
        yield Difference("task", task, wanted)
    if declared.changelog not in (first.topic, UNKNOWN_CHANGELOG):
        none = "none: it is not logged, and nothing would be restored"
        yield Difference("changelog", first.topic, none if declared.changelog == NO_CHANGELOG else declared.changelog)


def _of_rows(store: StoreSnapshot, declared: StoreSpec, spec: ApplicationSpec) -> Iterator[Difference]:
    interval, retention = segment_interval_of(declared), retention_of(declared)
    if None not in (store.segment_interval_ms, interval) and store.segment_interval_ms != interval:
        yield Difference("segment interval", _duration(store.segment_interval_ms), _duration(interval))
    if store.retention_ms is not None and retention is not None and store.retention_ms < retention:
        yield Difference("retention", _duration(store.retention_ms), _duration(retention))
    if spec.processing_guarantee.is_exactly_once and store.isolation == IsolationLevel.READ_UNCOMMITTED:
        yield Difference(GUARANTEE, "at_least_once (read_uncommitted)", spec.processing_guarantee.value)


def _duration(milliseconds: int | None) -> str:
    return "" if milliseconds is None else format_duration(milliseconds)
