"""The journal of a placement: written before the first directory is swapped, read by whoever comes after a crash.

``<application>/.statecore/journal.json`` exists exactly while a placement is between "everything is assembled and
durable" and "everything is verified and swept"; then it becomes ``placed.json``, the record of the last placement, by
which a retry of the same request sees that its work is done.

A task's new and old directory are told apart by inode, which a rename keeps, so that no step has to be written down as
done: what stands where *is* the state::

    {"version": 3, "request_id": ..., "attempt": ..., "state": "swapping" | "verified", "keeps": false, "tasks": [
       {"task": "0_0", "new_inode": 77, "files": {"rocksdb/s/000009.sst": 1234, ...},
        "old_inode": 42 | null, "old_fingerprint": "9f..." | null,
        "stores": [{"store": "s", "directory": "rocksdb/s", "offsets": [["t", 0, 99]], "bytes": 1234,
                     "identity": "c0ffee...", "checkpoint": ""}]}]}

Version 2 had no ``keeps``. Version 1, which knew stores of one partition only, had ``"changelog": ["t", 0],
"offset": 99`` instead. Both are read too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from statecore.documents import DocumentType, Fields
from statecore.errors import Invalid
from statecore.filesystem import write_durably
from statecore.formats.topic_partition import TopicPartition
from statecore.statedir.file_trees import inode
from statecore.statedir.work_directory import JOURNAL, RECORD

MARK = "verified.json"
"""In the staging directory: what the journal becomes when all went well. Written before it, because after the first
swap a full disk must not be in the way."""

SWAPPING = "swapping"
"""Directories may be in either place; the old ones are still needed."""

VERIFIED = "verified"
"""Every new directory is in place and was verified; only sweeping is left."""


@dataclass(frozen=True)
class PlacedStore:
    """One database that a placement puts in place.

    Attributes:
        store: the store's name.
        directory: the database, relative to the task's directory.
        offsets: what its ``offsets`` family says: changelog partition → last applied offset, -4 for a store created
            empty; of a global store partition of the source topic → next offset.
        bytes: bytes on disk.
        identity: what RocksDB's ``IDENTITY`` file says; it survives every opening of the database.
        checkpoint: the file in the task's directory that says the same offsets, for a store whose offset Kafka Streams
            does not read from the database; else empty.
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
        task: the task.
        new_inode: the inode of the directory that is to be put in place.
        files: everything in it: relative path → size.
        old_inode: the inode of the directory it replaces, or ``None``.
        old_fingerprint: the fingerprint of that one when the journal was written, or ``None``.
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
    """A placement that is under way, or was the last one.

    Attributes:
        request_id: the request it belongs to.
        attempt: name of the directory in the work directory where everything is assembled.
        state: ``swapping`` or ``verified``.
        tasks: the task directories.
        earlier: those that an earlier attempt of the same request had placed already.
        keeps: whether the directories that are replaced are kept for a while.
    """

    request_id: str
    attempt: str
    state: str
    tasks: tuple[JournalTask, ...]
    earlier: tuple[JournalTask, ...] = ()
    keeps: bool = False

    def placed(self, task: str, live: Path, request_id: str) -> tuple[PlacedStore, ...]:
        """What this record's placement put into ``live``, if it was made for that request and still stands there."""
        for entry in (*self.tasks, *self.earlier):
            if entry.task == task and request_id == self.request_id and inode(live) == entry.new_inode:
                # An inode may be given again to a directory made later; the databases' own names may not.
                same = all(identity_of(live / store.directory) == store.identity for store in entry.stores)
                return entry.stores if same else ()
        return ()

    def verified(self, tasks: tuple[JournalTask, ...]) -> Journal:
        """The same placement when these of its tasks have come to a good end."""
        return replace(self, state=VERIFIED, tasks=tasks)

    def write(self, work_path: Path, name: str = JOURNAL) -> None:
        """Make this the journal, or another file of that name: durable, complete or not at all."""
        write_durably(work_path / name, _DOCUMENT.encode(self))


def identity_of(database: Path) -> str:
    """The name RocksDB gave a database when it was made; empty when there is none."""
    try:
        return (database / "IDENTITY").read_text(errors="replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return ""


def read_journal(work_path: Path) -> Journal | None:
    """The journal of a placement that did not come to its end, or ``None``.

    Raises:
        Invalid: it is torn, of another shape, or of another version.
    """
    return _read(work_path / JOURNAL)


def read_record(work_path: Path) -> Journal | None:
    """The record of the last placement that came to its end, or ``None``."""
    return _read(work_path / RECORD)


def _read(path: Path) -> Journal | None:
    try:
        return _DOCUMENT.decode(path.read_bytes())
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
    """It named the one partition of a store and its offset apart."""

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
    3,
    Journal,
    "Finish with the release that wrote it; or, when no placement can be under way, delete the file.",
    older={1: _of_version_1, 2: dict},
    form=_form,
    lift=_lifted,
)
