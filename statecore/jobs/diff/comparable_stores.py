"""Which stores can be compared with their changelogs, and notes on how far."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from statecore.changelog.delete_retention import current_retention_ms
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import next_offset
from statecore.formats.releases import GLOBAL
from statecore.jobs.bases.base import Key
from statecore.jobs.context import JobContext
from statecore.jobs.diff.reference import StoreOffsets
from statecore.jobs.diff.request import DiffRequest
from statecore.spec.model import ApplicationSpec
from statecore.statedir.stopped_store_offsets import StoppedStoreOffsets, are_known
from statecore.statedir.store_places import declared_at
from statecore.words import shortened_list


def comparable_stores(
    request: DiffRequest, spec: ApplicationSpec, offsets: StoreOffsets, tasks: Iterable[str]
) -> tuple[dict[Key, StoppedStoreOffsets], dict[Key, str]]:
    """Stores that can be compared, also declared ones that the directory's ``tasks`` lack; and why others cannot."""
    missing = {key: StoppedStoreOffsets() for key in _missing_stores(request, spec, offsets, tasks)}
    left = {key: why for key in offsets if (why := _why_not(spec, key))}
    return {key: one for key, one in {**offsets, **missing}.items() if key not in left}, left


def _missing_stores(
    request: DiffRequest, spec: ApplicationSpec, offsets: StoreOffsets, tasks: Iterable[str]
) -> Iterator[Key]:
    """Declared stores of existing tasks that the directory lacks."""
    for task in tasks:
        for store in spec.stores_of(task):
            key = task, store.name
            is_meant = not request.stores or store.name in request.stores
            is_meant &= not request.tasks or task in request.tasks
            if is_meant and key not in offsets and not _why_not(spec, key):
                yield key


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


def comparison_notes(context: JobContext[DiffRequest], spec: ApplicationSpec, stores: StoreOffsets) -> Iterator[str]:
    """How far the stores can be compared, as notes for the operator."""
    changelogs = {key: found.changelog for key in stores if (found := declared_at(spec, *key)) is not None}
    offsets = {
        key: {part: at for part, at in one.offsets.items() if part.topic == changelogs[key]}
        for key, one in stores.items()
    }
    with context.cluster() as cluster:
        topics = cluster.describe_topics(sorted(set(changelogs.values())))
        logs = cluster.log_offsets(part for part_offsets in offsets.values() for part in part_offsets)
    # Under exactly-once a commit marker follows the last record.
    slack = 1 if spec.processing_guarantee.is_exactly_once else 0
    tails = []
    for (task, store), part_offsets in sorted(offsets.items()):
        name = f"Store {store} of task {task}"
        if not are_known(part_offsets):
            yield f"{name} has no offset: it is compared with its whole changelog."
            continue
        for part, offset in part_offsets.items():
            end, log = next_offset(offset, is_global=task == GLOBAL), logs[part]
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
