"""Mends what a look at a task's directory found, in a copy of it: the live directory is never changed.

SST files of the copy are links to the live ones; no repair here writes to any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from statecore.errors import Invalid, StatecoreError
from statecore.filesystem import remove_durably
from statecore.formats.offsets import (
    OFFSET_UNKNOWN,
    STATUS_CLOSED,
    STATUS_KEY,
    encode_int64,
    offset_key,
)
from statecore.formats.releases import CURRENT, OFFSETS_COLUMN_FAMILY
from statecore.formats.topic_partition import TopicPartition
from statecore.maintenance.catalogue import Repair
from statecore.maintenance.checks.circumstances import Circumstances
from statecore.maintenance.conversion import plan_conversion
from statecore.maintenance.converting import convert, verify_conversion
from statecore.maintenance.repairs import Mending
from statecore.placement.contents import databases_of
from statecore.placement.database_state import create_database, read_database_state
from statecore.placement.state_directory import partition_of
from statecore.spec.reader import default_changelog
from statecore.stores.rocksdb_changes import ChangedDatabase


def mend(copy: Path, mendings: Sequence[Mending], how: Circumstances) -> None:
    """Do all repairs of one task.

    Args:
        copy: of the task's directory.
        mendings: what is done to it.
        how: the application, its guarantee, and what is declared of it.

    Raises:
        Invalid: what was found is not there any more, or a repair lacks something.
        StatecoreError: a database could not be changed; the copy is of no use.
    """
    for one in mendings:
        _REPAIRS[one.repair](copy, one, how)


def _merge_checkpoint(copy: Path, one: Mending, how: Circumstances) -> None:
    """Stores that have no offset take that of ``.checkpoint``, those that have one keep it, and the file goes."""
    guarantee = None if how.guarantee is None else how.is_exactly_once
    plan = plan_conversion(
        one.task, copy, CURRENT, application_id=how.application_id, spec=how.spec, exactly_once=guarantee
    )
    if plan.refused or plan.left:
        raise Invalid(
            f"The task {one.task} cannot be mended ({one.repair.value}): {'; '.join((*plan.refused, *plan.left))}.",
            action="Do what is said, or rebuild its stores (statecore restore --replace). Nothing was changed.",
            task=one.task,
        )
    convert(plan, copy)
    verify_conversion(plan, copy)


def _lower_offsets(copy: Path, one: Mending, _: Circumstances) -> None:
    """All segments say the smallest offset of all: what an older segment lacks is restored then, in every segment."""
    databases = databases_of(copy / one.directory)
    said = {database: read_database_state(database).offsets for database in databases}
    partitions = {partition for offsets in said.values() for partition in offsets}
    if not partitions or any(offsets.keys() != partitions for offsets in said.values()):
        raise _unfit(one, "its segments do not all have an offset", "Rebuild it (statecore restore --replace).")
    lowest = {partition: min(offsets[partition] for offsets in said.values()) for partition in partitions}
    for database, offsets in said.items():
        if offsets != lowest:
            _put(database, {offset_key(partition): encode_int64(offset) for partition, offset in lowest.items()})


def _create_segment(copy: Path, one: Mending, how: Circumstances) -> None:
    """The segment of time 0 with an unknown offset: the store is restored from the start, and nothing is wiped."""
    where = copy / one.directory
    changelog = _changelog(one, how)
    if databases_of(where):
        return
    if one.kind is None or changelog is None:
        raise _unfit(one, "its kind or its changelog is not known", "Name the spec (--spec).")
    create_database(where / f"{one.store}.0", one.kind, {changelog: OFFSET_UNKNOWN})


def _changelog(one: Mending, how: Circumstances) -> TopicPartition | None:
    """The changelog partition of a store, as declared, else as Kafka Streams names it."""
    partition = partition_of(one.task)
    if one.changelog is not None or partition is None:
        return one.changelog
    topology = one.task.rpartition("/")[0][2:-2] or None
    declared = None if how.spec is None else how.spec.store(one.store)
    topic = default_changelog(how.application_id, one.store, topology) if declared is None else declared.changelog
    return TopicPartition(topic, partition)


def _set_status(copy: Path, one: Mending, _: Circumstances) -> None:
    for database in databases_of(copy / one.directory):
        if read_database_state(database).status != STATUS_CLOSED:
            _put(database, {STATUS_KEY: encode_int64(STATUS_CLOSED)})


def _move_aside(copy: Path, one: Mending, _: Circumstances) -> None:
    """The files were kept elsewhere before; see :meth:`statecore.placement.exchange.Exchange.keep`."""
    for name in one.names:
        remove_durably(copy / name)


def _drop_family(copy: Path, one: Mending, _: Circumstances) -> None:
    for database in databases_of(copy / one.directory):
        with ChangedDatabase(database, CURRENT.sst_format) as changed:
            for name in one.names:
                changed.drop(name)


def _by_copying(copy: Path, one: Mending, _: Circumstances) -> None:
    """The copy has the owner, the modes and the time that it must have already."""


def _put(database: Path, rows: Mapping[bytes, bytes]) -> None:
    with ChangedDatabase(database, CURRENT.sst_format) as changed:
        changed.put(OFFSETS_COLUMN_FAMILY, rows)


def _unfit(one: Mending, why: str, action: str) -> StatecoreError:
    return Invalid(
        f"The store {one.store} in task {one.task} cannot be mended ({one.repair.value}): {why}.",
        action=f"{action} Nothing was changed.",
        task=one.task,
        store=one.store,
    )


_REPAIRS: Mapping[Repair, Callable[[Path, Mending, Circumstances], None]] = {
    Repair.MERGE_CHECKPOINT: _merge_checkpoint,
    Repair.LOWER_OFFSETS: _lower_offsets,
    Repair.CREATE_SEGMENT: _create_segment,
    Repair.SET_STATUS: _set_status,
    Repair.MOVE_ASIDE: _move_aside,
    Repair.DROP_FAMILY: _drop_family,
    Repair.GIVE: _by_copying,
    Repair.TOUCH: _by_copying,
}
"""What each repair does; rebuilding is another job's."""
