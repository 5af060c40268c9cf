"""Cache files of machine code, trusted only if no other user could have changed them.

Locations, in this order: ``NUMBA_CACHE_DIR``; ``__pycache__`` beside the source; ``XDG_CACHE_HOME/statecore`` or
``~/.cache/statecore``. Cached code is executed, so a file is used only if this user or root owns it and its directory,
and nobody else can write to either. Directories are created private, whatever the umask.

File format::

    8 bytes   magic "SCKERNL2"
    32 bytes  SHA-256 of what follows: a truncated or damaged file is recompiled, never executed
    4 bytes   length of the table (big endian)
    table     JSON {function name: [symbol name, [parameter names]]}
    rest      one relocatable object file
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import stat
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

USER_CACHE = "statecore"
"""Directory in the user's cache (``XDG_CACHE_HOME``, ``~/.cache``), with mode 0700."""

Table = dict[str, tuple[str, tuple[str, ...]]]
"""Symbol and parameter names of each kernel."""

_MAGIC = b"SCKERNL2"
_log = logging.getLogger(__name__)
_warned: set[str] = set()


class Cache:
    """The cached machine code of one library.

    Args:
        source: the file of its source module.
        name: the cache file's name, which includes a hash of everything that it depends on.
    """

    def __init__(self, source: Path, name: str) -> None:
        self._source, self._name = source, name

    def find(self) -> tuple[Table, bytes] | None:
        """Machine code cached by an earlier process, if it can be trusted."""
        for directory in self._directories():
            cached = _read(directory / self._name)
            if cached is not None:
                return cached
        return None

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Lock, so that one process compiles and others wait for its file; without a cache directory each compiles for
        itself.
        """
        for directory in self._directories():
            if _unusable_because(directory) is not None:
                continue
            try:
                lock = (directory / f".{self._name}.lock").open("w")
            except OSError:
                continue
            with lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield
            return
        yield

    def keep(self, table: Table, code: bytes) -> Path | None:
        """Write machine code to the first usable directory; warn once, with the remedy, about unusable ones.

        Returns:
            The file; ``None`` if no directory is usable, so that every process compiles for itself.
        """
        refused: list[str] = []
        for directory in self._directories():
            why = _unusable_because(directory)
            if why is None:
                try:
                    path = _write(directory / self._name, table, code)
                except OSError as error:
                    why = f"cannot be written ({error.strerror})"
                else:
                    chosen = _configured_directory()
                    if chosen is not None and directory != chosen:
                        _warn_once(
                            f"Compiled kernels are cached in {directory} instead of the directory that NUMBA_CACHE_DIR "
                            f"names: {refused[0]}. Give that to this user alone (chown {os.getuid()} {chosen}; "
                            f"chmod 700 {chosen}), or name another."
                        )
                    return path
            refused.append(f"{directory} {why}")
        _warn_once(
            "Compiled kernels cannot be cached, so every process recompiles them, which takes up to a minute: "
            f"{'; '.join(refused) or 'no directory is known'}. Set NUMBA_CACHE_DIR to a writable directory that "
            "belongs to this user alone (mkdir -m 700)."
        )
        return None

    def _directories(self) -> Iterator[Path]:
        chosen = _configured_directory()
        if chosen is not None:
            yield chosen
        yield self._source.parent / "__pycache__"
        home = os.environ.get("XDG_CACHE_HOME") or (str(Path.home() / ".cache") if os.environ.get("HOME") else "")
        if home:
            yield Path(home) / USER_CACHE


def _configured_directory() -> Path | None:
    named = os.environ.get("NUMBA_CACHE_DIR")
    return Path(named) if named else None


def _warn_once(sentence: str) -> None:
    if sentence not in _warned:
        _warned.add(sentence)
        _log.warning("%s", sentence)


def _unusable_because(directory: Path) -> str | None:
    """Create a directory if missing; return why it cannot have machine code, ``None`` if it can."""
    try:
        _make_private(directory)
        info = directory.stat()
    except OSError as error:
        return f"cannot be created ({error.strerror})"
    if not stat.S_ISDIR(info.st_mode):
        return "is not a directory"
    return _distrust(info)


def _make_private(directory: Path) -> None:
    """Create a cache directory that only this user can write, whatever the umask: with 002 it would never be used.

    ``__pycache__`` is created as by Python, readable for all: an installation by root serves every user. The user's own
    cache is made private again if an earlier release let others write to it.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    try:
        directory.mkdir(mode=0o755 if directory.name == "__pycache__" else 0o700)
    except FileExistsError:
        if directory.name == USER_CACHE and directory.stat().st_uid == os.getuid() and _distrust(directory.stat()):
            directory.chmod(0o700)


def _distrust(info: os.stat_result) -> str | None:
    """Why users other than this one and root may have changed a file or directory; ``None`` if they cannot."""
    if info.st_uid not in (os.getuid(), 0):
        return f"belongs to the user {info.st_uid}"
    if info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"can be written by others (mode {stat.S_IMODE(info.st_mode):04o})"
    return None


def _read(path: Path) -> tuple[Table, bytes] | None:
    try:
        if _distrust(path.parent.stat()):
            return None
        with path.open("rb") as file:
            if _distrust(os.fstat(file.fileno())):
                return None
            data = file.read()
    except OSError:
        return None
    if data[:8] != _MAGIC or hashlib.sha256(data[40:]).digest() != data[8:40]:
        return None
    (length,) = struct.unpack_from(">I", data, 40)
    named = json.loads(data[44 : 44 + length])
    return {name: (symbol, tuple(parameters)) for name, (symbol, parameters) in named.items()}, data[44 + length :]


def _write(path: Path, table: Table, code: bytes) -> Path:
    names = json.dumps(table).encode()
    body = struct.pack(">I", len(names)) + names + code
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".kernel-")
    try:
        with os.fdopen(handle, "wb") as out:
            os.fchmod(handle, 0o644)  # an installation by root serves every user
            out.write(_MAGIC + hashlib.sha256(body).digest() + body)
        return Path(temporary).replace(path)  # several processes may do this at once; each writes the same bytes
    except OSError:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise
