"""Whether the segments of a store agree, and whether it has one."""

from __future__ import annotations

from collections.abc import Sequence

from statecore.doctor.checks.context import CheckContext, of_store
from statecore.doctor.finding_catalog import Repair, Severity
from statecore.doctor.findings import Finding
from statecore.doctor.views import DatabaseView, StoreView
from statecore.formats.offsets import OFFSET_UNKNOWN, STATUS_CLOSED
from statecore.formats.task_id import TaskId


def segments(store: StoreView, how: CheckContext) -> list[Finding]:
    """What is wrong among the segments of one store of one task; nothing while it is in use."""
    if not store.segmented or store.in_use:
        return []
    if not store.databases:
        return _without(store, how)
    # A grace buffer has one segment, and its offset elsewhere.
    return _disagreeing(store, how) if store.kind.manages_offsets else []


def _without(store: StoreView, how: CheckContext) -> list[Finding]:
    if store.foreign or store.outside:  # none of RocksDB's; or its offset is kept beside it
        return []
    if not store.logged or not how.release.offsets_inside:  # 4.2 and older keep the offset beside it
        return []
    what = "has no segment, so nowhere to keep an offset: "
    if how.transactional:
        what += "every start restores it from the start of its changelog"
    else:
        what += "under exactly-once every start wipes its task"
    severity = how.without_offset(Severity.NOTE)
    return [of_store(store, "segment-missing", severity, what, repair=Repair.CREATE_SEGMENT)]


def _disagreeing(store: StoreView, how: CheckContext) -> list[Finding]:
    """Segments of one store at different offsets: Kafka Streams goes by the newest, and older ones miss updates.

    A segment that was made and never flushed has no offset. That is harmless where nothing was flushed since the last
    close, because the others are at one offset then, and all that came later is restored. Transactional stores have no
    status that says so, but a close flushes every segment: where one has no offset, what was flushed since the others
    were opened was flushed before a kill.
    """
    found = []
    flushed_since = any(one.offsets and _is_flushed_since_close(one, how) for one in store.databases)
    own = TaskId.parse(store.task).partition  # offsets of other partitions are a finding of their own
    partitions = {part for one in store.databases for part in one.offsets if own in (None, part.partition)}
    for partition in sorted(partitions):
        at: dict[int, list[str]] = {}
        lacking = []
        for one in store.databases:
            offset = one.offsets.get(partition)
            if offset is not None and offset != OFFSET_UNKNOWN:
                at.setdefault(offset, []).append(one.name)
            elif own is not None and one.offsets:
                continue
            elif offset is None and not one.broken and one.has_offsets_family and flushed_since:
                lacking.append(one.name)
        if len(at) < 2 and not (at and lacking):
            continue
        said = ", ".join(f"{offset:,} in {_names(names)}" for offset, names in sorted(at.items()))
        said += f", none in {_names(lacking)}" if lacking else ""
        open_ = any(one.status not in (None, STATUS_CLOSED) for one in store.databases)
        severity = how.severity(Severity.LOSS, Severity.ERROR if open_ else Severity.LOSS)
        found.append(
            of_store(
                store,
                "segments-disagree",
                severity,
                f"its segments disagree about {partition}: {said}; Kafka Streams goes by the newest segment, so "
                "the others may miss updates for ever: restore it",
                partition=partition,
                repair=Repair.LOWER_OFFSETS if how.is_at_least_once and not lacking else Repair.REBUILD,
                offsets={str(offset): names for offset, names in sorted(at.items())},
                without=lacking,
            )
        )
    return found


def _is_flushed_since_close(one: DatabaseView, how: CheckContext) -> bool:
    if one.status is None or how.transactional:
        return one.flushed
    return one.status != STATUS_CLOSED


def _names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
