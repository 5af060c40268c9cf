"""Executes repairs in a copy of a task's directory; the live directory is never changed.

SST files of the copy are links to the live ones; no repair here writes to any of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

from statecore.conversion import plan_conversion
from statecore.conversion.execute import convert, verify_conversion
from statecore.doctor.checks.context import CheckContext
from statecore.doctor.finding_catalog import Repair
from statecore.doctor.repair_plan import RepairAction
from statecore.errors import Invalid, StatecoreError
from statecore.filesystem import break_hard_link, remove_durably, sync_file
from statecore.formats.checkpoint import encode_checkpoint
from statecore.formats.offsets import OFFSET_UNKNOWN, STATUS_CLOSED, STATUS_KEY, encode_int64, offset_key
from statecore.formats.releases import CHECKPOINT_FILE, CURRENT, OFFSETS_COLUMN_FAMILY
from statecore.formats.task_id import TaskId
from statecore.formats.topic_partition import TopicPartition
from statecore.statedir.database_state import create_database
from statecore.statedir.file_ownership import unusable_files, unwritable
from statecore.statedir.file_trees import remove_tree
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.store_on_disk import StoreOnDisk, read_store
from statecore.statedir.store_places import changelog_at, declared_at
from statecore.statedir.task_layout import StoreDirectory, databases_of
from statecore.stores.legacy_offsets import read_offsets
from statecore.stores.rocksdb.writes import ChangedDatabase


def apply_repairs(
    copy: Path, actions: Sequence[RepairAction], context: CheckContext, directory: StateDirectory
) -> None:
    for one in actions:
        if one.repair is Repair.GIVE:
            _fix_permissions(copy, directory)
        else:
            _REPAIRS[one.repair](copy, one, context)


def why_not_repairable(directory: StateDirectory, tasks: Iterable[str]) -> str:
    """Why this process cannot copy and replace one of these tasks' directories, with its name; empty if it can."""
    for task in tasks:
        path = directory.task_path(task)
        closed, access = unwritable([path]), "change"
        if closed is None:
            files = (Path(above, name) for above, _, names in os.walk(path) for name in names)
            closed, access = next((one for one in files if not os.access(one, os.R_OK)), None), "read"
        if closed is not None:
            return f"{task} cannot be repaired, because this user (uid {os.geteuid()}) may not {access} {closed}"
    return ""


def _merge_checkpoint(copy: Path, one: RepairAction, context: CheckContext) -> None:
    """Move offsets of ``.checkpoint`` into the stores that have none, and delete the file."""
    _drop_entries(copy / CHECKPOINT_FILE, one.names)
    guarantee = None if context.guarantee is None else context.is_exactly_once
    plan = plan_conversion(
        one.task, copy, CURRENT, application_id=context.application_id, spec=context.spec, exactly_once=guarantee
    )
    if plan.refused or plan.left:
        raise Invalid(
            f"The task {one.task} cannot be repaired ({one.repair.value}): {'; '.join((*plan.refused, *plan.left))}.",
            code="repair-impossible",
            action="Follow these reasons, or rebuild its stores (statecore restore --replace). Nothing was changed.",
            task=one.task,
        )
    convert(plan, copy)
    verify_conversion(plan, copy)


def _take_entries_out(copy: Path, one: RepairAction, _: CheckContext) -> None:
    _drop_entries(copy / CHECKPOINT_FILE, one.names)


def _drop_entries(file: Path, names: Collection[str]) -> None:
    if not names:
        return
    kept = {part: at for part, at in read_offsets(file).items() if str(part) not in names}
    if kept:
        file.write_bytes(encode_checkpoint(kept))
    else:
        remove_durably(file)


def _lower_offsets(copy: Path, one: RepairAction, _: CheckContext) -> None:
    """Set all segments to the smallest offset, so that records an older segment lacks are restored in every segment."""
    store = _read(copy, one)
    lowest = store.smallest_offsets
    if not lowest or any(database.state.offsets.keys() != lowest.keys() for database in store.databases):
        raise _impossible(one, "its segments do not all have an offset", "Rebuild it (statecore restore --replace).")
    for database in store.databases:
        if database.state.offsets != lowest:
            _write(database.path, {offset_key(partition): encode_int64(offset) for partition, offset in lowest.items()})


def _create_segment(copy: Path, one: RepairAction, context: CheckContext) -> None:
    """Create the segment of time 0 with an unknown offset, so that the store is restored and no task is wiped."""
    where = copy / one.directory
    changelog = _changelog(one, context)
    if databases_of(where):
        return
    if one.kind is None or changelog is None:
        raise _impossible(one, "its kind or its changelog is not known", "Declare it in the spec (--spec).")
    create_database(where / f"{one.store}.0", one.kind, {changelog: OFFSET_UNKNOWN})


def _changelog(one: RepairAction, context: CheckContext) -> TopicPartition | None:
    """The changelog partition of a store, declared or by Kafka Streams' naming; ``None`` if undecided."""
    partition = TaskId.parse(one.task).partition
    if one.changelog is not None or partition is None:
        return one.changelog
    declared = declared_at(context.spec, one.task, one.store)
    if declared is not None and declared.is_undecided:
        return None
    return TopicPartition(changelog_at(context.application_id, one.task, one.store, declared), partition)


def _set_status(copy: Path, one: RepairAction, _: CheckContext) -> None:
    for database in _read(copy, one).databases:
        if database.state.status != STATUS_CLOSED:
            _write(database.path, {STATUS_KEY: encode_int64(STATUS_CLOSED)})


def _move_aside(copy: Path, one: RepairAction, _: CheckContext) -> None:
    """Delete files; the replaced task keeps them."""
    for name in one.names:
        remove_tree(copy / name)
        if (copy / name).parent.is_dir():
            sync_file((copy / name).parent)


def _drop_family(copy: Path, one: RepairAction, _: CheckContext) -> None:
    for database in databases_of(copy / one.directory):
        with ChangedDatabase(database, CURRENT.sst_format) as changed:
            for name in one.names:
                changed.drop(name)


def _touch(copy: Path, one: RepairAction, _: CheckContext) -> None:
    """Nothing to do: copying has updated the time."""


def _fix_permissions(copy: Path, directory: StateDirectory) -> None:
    """Fix modes, and owners of files that are still linked; copied files have the right owner already."""
    for name, _ in unusable_files(directory.path, copy):
        path = directory.path / name
        if path.is_file() and path.lstat().st_nlink > 1:
            break_hard_link(path)  # the live file stays as it is until the swap
        directory.ownership.apply(path)


def _read(copy: Path, one: RepairAction) -> StoreOnDisk:
    return read_store(StoreDirectory(one.store, copy / one.directory, segmented=True), manifests=True).checked()


def _write(database: Path, rows: Mapping[bytes, bytes]) -> None:
    with ChangedDatabase(database, CURRENT.sst_format) as changed:
        changed.put(OFFSETS_COLUMN_FAMILY, rows)


def _impossible(one: RepairAction, why: str, action: str) -> StatecoreError:
    return Invalid(
        f"The store {one.store} in task {one.task} cannot be repaired ({one.repair.value}): {why}.",
        code="repair-impossible",
        action=f"{action} Nothing was changed.",
        task=one.task,
        store=one.store,
    )


_REPAIRS: Mapping[Repair, Callable[[Path, RepairAction, CheckContext], None]] = {
    Repair.MERGE_CHECKPOINT: _merge_checkpoint,
    Repair.LOWER_OFFSETS: _lower_offsets,
    Repair.CREATE_SEGMENT: _create_segment,
    Repair.SET_STATUS: _set_status,
    Repair.MOVE_ASIDE: _move_aside,
    Repair.DROP_ENTRIES: _take_entries_out,
    Repair.DROP_FAMILY: _drop_family,
    Repair.TOUCH: _touch,
}
"""The function of each repair, except for the one that needs the owner, and for rebuilds."""
