"""The journal of a placement: written before the first directory is swapped, read by the recovery after a crash.

``<application>/.statecore/journal.json`` exists from "everything is assembled and durable" to "everything is verified
and swept"; then it becomes ``placed.json``, the record of the last placement, by which a retry of the same request sees
that its work is done.

A task's new and old directory are distinguished by inode, which a rename keeps. So no step has to be recorded as done:
the directories on disk *are* the state::

    {"version": 4, "request_id": ..., "attempt": ..., "state": "swapping" | "verified", "keeps": false,
     "plan_id": ..., "tasks": [
       {"task": "0_0", "new_inode": 77, "files": {"rocksdb/s/000009.sst": 1234, ...},
        "old_inode": 42 | null, "old_fingerprint": "9f..." | null,
        "stores": [{"store": "s", "directory": "rocksdb/s", "offsets": [["t", 0, 99]], "bytes": 1234,
                     "identity": "c0ffee...", "checkpoint": ""}]}]}

Version 3 had no ``plan_id``, version 2 no ``keeps``. Version 1 supported stores of one partition only, and had
``"changelog": ["t", 0], "offset": 99`` instead. All are still read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from statecore.documents import DocumentType, Fields
from statecore.errors import Corrupted, Invalid
from statecore.filesystem import read_regular, write_durably
from statecore.formats.topic_partition import TopicPartition
from statecore.statedir.file_trees import inode
from statecore.statedir.store_on_disk import read_database
from statecore.statedir.work_directory import JOURNAL, RECORD
from statecore.stores.rocksdb.directory import identity_of

VERIFIED_JOURNAL = "verified.json"
"""In the staging directory: the verified form of the journal. Written before the swap, so that a full disk cannot stop
the job after it.
"""

SWAPPING = "swapping"
"""Directories may be in either place; the old ones are still needed."""

VERIFIED = "verified"
"""Every new directory is in place and verified; only sweeping is left."""


@dataclass(frozen=True)
class PlacedStore:
    """One database that a placement puts in place.

    Attributes:
        directory: the database, relative to the task's directory.
        offsets: content of its ``offsets`` family: changelog partition → last applied offset, -4 for a store created
            empty; of a global store partition of the source topic → next offset.
        bytes: bytes on disk.
        identity: content of RocksDB's ``IDENTITY`` file, which survives every opening of the database.
        checkpoint: name of the checkpoint file with the same offsets, for a store whose offset Kafka Streams does not
            read from the database; else empty.
    """

    store: str
    directory: str
    offsets: Mapping[TopicPartition, int]
    bytes: int
    identity: str
    checkpoint: str = ""


@dataclass(frozen=True)
class JournalTask:
    """One task directory of a placement.

    Attributes:
        new_inode: inode of the new directory.
        files: its contents: relative path → size.
        old_inode: inode of the directory it replaces, or ``None``.
        old_fingerprint: fingerprint of that directory when the journal was written, or ``None``.
        stores: the databases that were restored or created.
    """

    task: str
    new_inode: int
    files: dict[str, int]
    old_inode: int | None
    old_fingerprint: str | None
    stores: tuple[PlacedStore, ...]


@dataclass(frozen=True)
class Journal:
    """A placement that is in progress, or the last one.

    Attributes:
        attempt: name of the staging directory in the work directory.
        state: ``swapping`` or ``verified``.
        earlier: tasks that an earlier attempt of the same request had placed.
        keeps: whether replaced directories are kept for a while.
        plan_id: the plan of the request that is placed; empty if it has none. A fetch and a restore may share a request
            id, but not a plan.
    """

    request_id: str
    attempt: str
    state: str
    tasks: tuple[JournalTask, ...]
    earlier: tuple[JournalTask, ...] = ()
    keeps: bool = False
    plan_id: str = ""

    def placed(self, task: str, live: Path, request_id: str, plan_id: str = "") -> tuple[PlacedStore, ...]:
        """Databases that this placement put into ``live`` for that plan of a request, if all are there and whole."""
        if (request_id, plan_id) != (self.request_id, self.plan_id):
            return ()
        for entry in (*self.tasks, *self.earlier):
            if entry.task == task and inode(live) == entry.new_inode:
                # An inode can be reused by a later directory; the identities of databases cannot.
                same = all(identity_of(live / store.directory) == store.identity for store in entry.stores)
                whole = same and not any(_is_damaged(live / store.directory) for store in entry.stores)
                return entry.stores if whole else ()
        return ()

    def verified(self, tasks: tuple[JournalTask, ...]) -> Journal:
        """This journal, verified, with the tasks that were placed."""
        return replace(self, state=VERIFIED, tasks=tasks)

    def write(self, work_path: Path, name: str = JOURNAL) -> None:
        """Write the journal, or another file of that form, durably and atomically."""
        write_durably(work_path / name, _DOCUMENT.encode(self))


def _is_damaged(database: Path) -> bool:
    if not (database / "CURRENT").is_file():
        return True
    return isinstance(read_database(database, manifests=True).damage, Corrupted)


def read_journal(work_path: Path) -> Journal | None:
    """The journal of an unfinished placement, or ``None``. Raises ``Invalid`` if it is torn or of another version."""
    return _read(work_path / JOURNAL)


def read_record(work_path: Path) -> Journal | None:
    """The record of the last finished placement, or ``None``."""
    return _read(work_path / RECORD)


def _read(path: Path) -> Journal | None:
    try:
        return _DOCUMENT.decode(read_regular(path))
    except FileNotFoundError:
        return None
    except Invalid as error:
        raise Invalid(
            f"{path} is not readable: {error.what}", code=error.code, action=error.action, path=str(path)
        ) from error


def _form(journal: Journal) -> Fields:
    return {**vars(journal), **{name: [_task_form(task) for task in getattr(journal, name)] for name in _TASKS}}


def _task_form(task: JournalTask) -> Fields:
    return {**vars(task), "stores": [_store_form(store) for store in task.stores]}


def _store_form(store: PlacedStore) -> Fields:
    return {**vars(store), "offsets": [[*partition, offset] for partition, offset in store.offsets.items()]}


def _lifted(fields: Fields) -> Fields:
    return _with_stores(
        fields, lambda store: {**store, "offsets": {(t, p): offset for t, p, offset in store["offsets"]}}
    )


def _of_version_1(fields: Fields) -> Fields:
    """Version 1 had one partition and offset per store."""

    def renamed(store: Fields) -> Fields:
        kept = {name: value for name, value in store.items() if name not in ("changelog", "offset")}
        return {**kept, "offsets": [[*store["changelog"], store["offset"]]]} if "changelog" in store else kept

    return _with_stores(fields, renamed)


def _with_stores(fields: Fields, change: Callable[[Fields], Fields]) -> Fields:
    def changed(task: Fields) -> Fields:
        return {**task, "stores": [change(store) for store in task["stores"]]}

    return {**fields, **{name: [changed(task) for task in fields[name]] for name in _TASKS if name in fields}}


_TASKS = ("tasks", "earlier")
_DOCUMENT = DocumentType(
    "journal",
    4,
    Journal,
    "Finish with the release that wrote it; or, if no placement can be in progress, delete the file.",
    older={1: _of_version_1, 2: dict, 3: dict},
    form=_form,
    lift=_lifted,
)
