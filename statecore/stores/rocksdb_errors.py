"""What RocksDB says, as the error kinds of this library: rocksdict raises plain ``Exception`` with RocksDB's text."""

from __future__ import annotations

from pathlib import Path

from statecore.errors import Capacity, Corrupted, Fenced, Invalid, StatecoreError
from statecore.stores import open_files
from statecore.stores.files import MOUNT_FOR_WRITING

_LOCKED = ("Resource temporarily unavailable", "lock hold by current process", "No locks available")
_FULL = ("No space left", "Disk quota exceeded", "File too large")
_TOO_MANY_FILES = "Too many open files"
_LIMITED = ("Cannot allocate memory",)
_AGAIN = "run this again; a store that is still open has to be closed and opened first, and stands at its last commit"
_READ_ONLY = "Read-only file system"
_DENIED = ("Permission denied", "Operation not permitted")
_OTHER_KIND = ("does not match existing comparator", "Column families not opened", "merge_operator")


def translate(path: Path, doing: str, error: Exception) -> StatecoreError:
    """The error to raise for what RocksDB said about the database at ``path`` while ``doing`` something.

    After a write that failed, RocksDB takes no other until the database was closed and opened again.
    """
    said = str(error)
    what = f"{doing} {path} failed: {said}."
    if any(text in said for text in _LOCKED) and "lock" in said.lower():
        return Fenced(
            what, action="Stop the process that has this store open, then run this again.", store_path=str(path)
        )
    if any(text in said for text in _FULL):
        return Capacity(what, action=f"Free disk space and {_AGAIN}.", store_path=str(path))
    if _TOO_MANY_FILES in said:
        return Capacity(
            what,
            action=f"{open_files.advice()}. Then {_AGAIN}; nothing is wrong with the database.",
            store_path=str(path),
        )
    if any(text in said for text in _LIMITED):
        return Capacity(
            what,
            action=f"Raise this process's limit of memory and {_AGAIN}; nothing is wrong with the database.",
            store_path=str(path),
        )
    if _READ_ONLY in said:
        return Invalid(what, action=MOUNT_FOR_WRITING, store_path=str(path))
    if any(text in said for text in _DENIED):
        return Invalid(what, action="Give this user read and write access to the directory.", store_path=str(path))
    if any(text in said for text in _OTHER_KIND):
        return Invalid(
            what,
            action="Check the store's kind in the spec; the database was written by something else.",
            store_path=str(path),
        )
    return Corrupted(what, action="Rebuild the store from its changelog or a snapshot.", store_path=str(path))
