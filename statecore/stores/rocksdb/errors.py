"""Translates errors of RocksDB into this library's error kinds; rocksdict raises plain ``Exception`` with RocksDB's
text.

The text begins with the name of RocksDB's status (``Status::ToString``): ``Corruption``, ``IO error``, ``Invalid
argument`` and so on. **Only certain damage is** :class:`Corrupted`, because a supervisor that follows its action wipes
the store: a status ``Corruption`` that only the bytes can explain, or a missing file that the database names, in a
directory that exists. An unknown error is :class:`Retryable`: running the same again is harmless.

**Features that this build of RocksDB lacks are no damage.** RocksDB reports a block with a compression that it was
built without as ``Corruption``, although the block's checksum was right. That and all other unsupported options are
:class:`Invalid` with the code ``not-readable-here``.
"""

from __future__ import annotations

import re
from pathlib import Path

from statecore.errors import (
    NOT_READABLE_HERE,
    Capacity,
    Corrupted,
    Fenced,
    Invalid,
    NotFound,
    Retryable,
    StatecoreError,
)
from statecore.filesystem import READ_ONLY_ACTION
from statecore.stores.fd_paths import FOLLOWING
from statecore.stores.rocksdb import file_limits

_LOCKED = ("Resource temporarily unavailable", "lock hold by current process", "No locks available")
_TOO_MANY_FILES = "Too many open files"
_AGAIN = "run this again; close and reopen a store that is still open, which is at its last commit"
STOP_THE_OTHER = "Stop the process that has this store open, then run this again."
_SAFE = "the database is not known to be damaged, so keep it"

_LACKING = re.compile(
    r"Corrupted compressed block contents: (?:Zlib|Xpress)\b"  # it links none of them
    r"|Unable to uncompress blob"  # after its checksum
    r"|Unsupported compression (?:method|type)|Compression type \w+ is not linked"
    r"|Bad table magic number: expected 9863518390377041911, found (?:9386102602707473764|5707214027437839288"
    r"|10549552181905815667|9336093115987514074)\b"  # plain and cuckoo tables, now and once
    r"|does not match existing comparator"
    r"|[Mm]erge[ _]operator"
    r"|more levels than options\.num_levels"
)
"""Errors of an intact database that needs something this RocksDB was built or opened without."""

_BLAMED = re.compile(r"\s+The file \S+ may be corrupted(?=\.|$)")
"""RocksDB blames the MANIFEST for any failure while it opens a database."""

_DATA_FILE = re.compile(r"\b\d+\.(?:sst|blob|log)\b")

KEEP_UNREADABLE = (
    "Keep the database, unless its SST files were deleted: its application reads it with RocksDB options "
    "(rocksdb.config.setter), one of which statecore does not support. See docs/rocksdb-options.md."
)

_REASONS: tuple[tuple[tuple[str, ...], type[StatecoreError], str, str], ...] = (
    (("No space left", "Disk quota exceeded"), Capacity, "no-space", f"Free disk space and {_AGAIN}."),
    (("File too large",), Capacity, "file-too-large", f"Free disk space and {_AGAIN}."),
    (
        ("Cannot allocate memory",),
        Capacity,
        "out-of-memory",
        f"Raise this process's memory limit and {_AGAIN}; the database is intact.",
    ),
    (("Read-only file system",), Invalid, "read-only-file-system", READ_ONLY_ACTION),
    (
        ("Permission denied", "Operation not permitted"),
        Invalid,
        "permission-denied",
        "Give this user read and write access to the directory.",
    ),
    (("File name too long",), Invalid, "system-refused", "Give a shorter path."),
    (("Not a directory", "Too many levels of symbolic links"), Invalid, "system-refused", "Name a directory."),
    (
        ("Column families not opened",),
        Invalid,
        "kind-mismatch",
        "Check the kind that the store was opened with; the database is of another kind.",
    ),
    (
        ("Input/output error", "Stale file handle", "Transport endpoint"),
        Retryable,
        "disk-failed",
        f"Check the kernel log (dmesg): the disk or its connection failed. Repair it and {_AGAIN}.",
    ),
)
"""Texts of the system or RocksDB, under any status, with their meaning."""

_MISSING = re.compile(r"No such file or directory|\(os error 2\)")
_NAMED = re.compile(r"((?:MANIFEST-\d+|\d+\.(?:sst|blob)))\b")  # Files that a database names and cannot do without

_STATUSES: tuple[tuple[tuple[str, ...], type[StatecoreError], str, str], ...] = (
    (("Corruption:",), Corrupted, "database-damaged", "Rebuild the store from its changelog."),
    (
        ("Invalid argument:", "Not implemented:", "Not supported"),
        Invalid,
        "rocksdb-refused",
        "Check the arguments, and the kind that the store was opened with.",
    ),
)


def translate(path: Path, doing: str, error: Exception) -> StatecoreError:
    """The error for an exception on the database at ``path``; ``doing`` names the operation, to begin a sentence."""
    text = str(error).rstrip("\n").rstrip(".")  # some messages of RocksDB end with a line end
    following = FOLLOWING.search(text)
    kind, code, action = _meaning(path if following is None else Path(following[0]), text)
    if _LACKING.search(text) or _DATA_FILE.search(text):
        text = _BLAMED.sub("", text)
    what = f"{doing} {path} failed: {FOLLOWING.sub(lambda _: str(path), text)}."
    if _LACKING.search(text):
        return not_readable_here(what, path)
    return kind(what, code=code, action=action, store_path=str(path))


def not_readable_here(what: str, path: Path) -> Invalid:
    """The error for an intact database that this library cannot read; ``what`` is a sentence."""
    text = f"{what.rstrip('.')} ({NOT_READABLE_HERE})."
    return Invalid(text, code=NOT_READABLE_HERE, action=KEEP_UNREADABLE, store_path=str(path))


def _meaning(path: Path, text: str) -> tuple[type[StatecoreError], str, str]:
    if any(locked in text for locked in _LOCKED) and "lock" in text.lower():
        return Fenced, "store-open", STOP_THE_OTHER
    if _TOO_MANY_FILES in text:
        return (Capacity, "too-many-open-files", f"{file_limits.advice()}. Then {_AGAIN}; the database is intact.")
    for texts, kind, code, action in _REASONS:
        if any(known in text for known in texts):
            return kind, code, action
    if _MISSING.search(text):
        return _missing(path, text)
    for texts, kind, code, action in _STATUSES:
        if text.startswith(texts):
            return kind, code, action
    return Retryable, "rocksdb-failed", f"Run this again; {_SAFE}. Report the text if it comes back."


def _missing(path: Path, text: str) -> tuple[type[StatecoreError], str, str]:
    """What a missing file means, after checking again: another process may create and delete files meanwhile."""
    try:
        directory = path.is_dir() and path.stat().st_nlink > 0  # no links: deleted while open
        absent = [name for name in _NAMED.findall(text) if not (path / name).is_file()]  # a pipe has no rows either
    except OSError:
        return Retryable, "rocksdb-failed", f"Run this again; {_SAFE}."
    if not directory:
        return (NotFound, "database-not-found", "Check the path, or find out what removed the directory.")
    if absent:
        return Corrupted, "database-damaged", "Rebuild the store from its changelog."
    return Retryable, "database-files-changed", f"Run this again: files changed meanwhile; {_SAFE}."
