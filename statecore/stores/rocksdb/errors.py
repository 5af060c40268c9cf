"""What RocksDB says, as the error kinds of this library: rocksdict raises plain ``Exception`` with RocksDB's text.

The text begins with the name of RocksDB's status (``Status::ToString``): ``Corruption``, ``IO error``, ``Invalid
argument`` and so on. **Only what is understood to be damage is** :class:`Corrupted`: a supervisor that obeys its action
wipes the store. That is a status ``Corruption`` for which nothing but the bytes can be the reason, and a file that the
database names and that is not there although its directory is. What is not understood is :class:`Retryable`: to run the
same again harms nothing.

**What this build of RocksDB lacks is no damage.** RocksDB calls a block of a compression that it was built without
``Corruption``, after the block's checksum was right. That and all other options that an application may set and this
library does not have are :class:`Invalid` with the code ``not-readable-here``.
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
from statecore.filesystem import MOUNT_FOR_WRITING
from statecore.stores.rocksdb import file_limits
from statecore.stores.rocksdb.fd_paths import FOLLOWING

_LOCKED = ("Resource temporarily unavailable", "lock hold by current process", "No locks available")
_TOO_MANY_FILES = "Too many open files"
_AGAIN = "run this again; a store that is still open has to be closed and opened first, and stands at its last commit"
STOP_THE_OTHER = "Stop the process that has this store open, then run this again."
_SAFE = "nothing says that the database is damaged, so keep it"

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
"""What RocksDB says of a database that is sound, and that has something that it was built or opened without here."""

_BLAMED = re.compile(r"\s+The file \S+ may be corrupted(?=\.|$)")
"""RocksDB blames the MANIFEST for whatever it fails with while it opens a database."""

KEEP_UNREADABLE = (
    "Keep the database, unless its SST files were deleted: its application reads it with the RocksDB options that it "
    "sets (rocksdb.config.setter), and statecore lacks one of them. docs/rocksdb-options.md says what can be done."
)

_REASONS: tuple[tuple[tuple[str, ...], type[StatecoreError], str, str], ...] = (
    (("No space left", "Disk quota exceeded"), Capacity, "no-space", f"Free disk space and {_AGAIN}."),
    (("File too large",), Capacity, "file-too-large", f"Free disk space and {_AGAIN}."),
    (
        ("Cannot allocate memory",),
        Capacity,
        "out-of-memory",
        f"Raise this process's limit of memory and {_AGAIN}; nothing is wrong with the database.",
    ),
    (("Read-only file system",), Invalid, "read-only-file-system", MOUNT_FOR_WRITING),
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
        "Check the kind that the store was opened as; the database was written by something else.",
    ),
    (
        ("Input/output error", "Stale file handle", "Transport endpoint"),
        Retryable,
        "disk-failed",
        f"Look at the kernel's log (dmesg): the disk or its connection failed. Mend that and {_AGAIN}.",
    ),
)
"""What the system or RocksDB says, whatever the status it is wrapped in, and what it means."""

_MISSING = re.compile(r"No such file or directory|\(os error 2\)")
_NAMED = re.compile(r"((?:MANIFEST-\d+|\d+\.(?:sst|blob)))\b")
"""Files that a database names and cannot do without."""

_STATUSES: tuple[tuple[tuple[str, ...], type[StatecoreError], str, str], ...] = (
    (("Corruption:",), Corrupted, "database-damaged", "Rebuild the store from its changelog."),
    (
        ("Invalid argument:", "Not implemented:", "Not supported"),
        Invalid,
        "rocksdb-refused",
        "Check what was asked for, and the kind that the store was opened as.",
    ),
)


def translate(path: Path, doing: str, error: Exception) -> StatecoreError:
    """The error to raise for what RocksDB or the system said about the database at ``path`` while ``doing`` something.

    After a write that failed, RocksDB takes no other until the database was closed and opened again.
    """
    said = str(error).rstrip(".")
    following = FOLLOWING.search(said)
    kind, code, action = _meaning(path if following is None else Path(following[0]), said)
    what = f"{doing} {path} failed: {FOLLOWING.sub(lambda _: str(path), said)}."
    if _LACKING.search(said):
        return not_readable_here(_BLAMED.sub("", what), path)
    return kind(what, code=code, action=action, store_path=str(path))


def not_readable_here(what: str, path: Path) -> Invalid:
    """The error for a database that is sound and that this library cannot read.

    Args:
        what: what happened, a sentence.
        path: the database.
    """
    said = f"{what.rstrip('.')} ({NOT_READABLE_HERE})."
    return Invalid(said, code=NOT_READABLE_HERE, action=KEEP_UNREADABLE, store_path=str(path))


def _meaning(path: Path, said: str) -> tuple[type[StatecoreError], str, str]:
    """The kind, the code and the action."""
    if any(text in said for text in _LOCKED) and "lock" in said.lower():
        return Fenced, "store-open", STOP_THE_OTHER
    if _TOO_MANY_FILES in said:
        return (
            Capacity,
            "too-many-open-files",
            f"{file_limits.advice()}. Then {_AGAIN}; nothing is wrong with the database.",
        )
    for texts, kind, code, action in _REASONS:
        if any(text in said for text in texts):
            return kind, code, action
    if _MISSING.search(said):
        return _missing(path, said)
    for texts, kind, code, action in _STATUSES:
        if said.startswith(texts):
            return kind, code, action
    return Retryable, "rocksdb-failed", f"Run this again; {_SAFE}. Report the text if it comes back."


def _missing(path: Path, said: str) -> tuple[type[StatecoreError], str, str]:
    """What a missing file means, once one has looked again: files come and go while somebody else is at work."""
    try:
        directory = path.is_dir() and path.stat().st_nlink > 0  # none: it was deleted while it was open
        absent = [name for name in _NAMED.findall(said) if not (path / name).exists()]
    except OSError:
        return Retryable, "rocksdb-failed", f"Run this again; {_SAFE}."
    if not directory:
        return (
            NotFound,
            "database-not-found",
            "Find out who removed it, or check the path; nothing else is known to be wrong.",
        )
    if absent:
        return Corrupted, "database-damaged", "Rebuild the store from its changelog."
    return Retryable, "database-files-changed", f"Run this again: files came or went meanwhile; {_SAFE}."
