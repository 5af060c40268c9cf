"""``FileStore``: all rows in one file, without offsets; for small state, and as an example of a store without RocksDB.

Opening reads the rows into memory; every commit rewrites the whole file (temporary file, fsync, rename). Its caller
keeps the offset beside it, as Kafka Streams does for such stores; after a crash that offset may be older than the rows,
never newer. All integers are big-endian::

    53 43 52 4f 57 53 00 01                 magic, version 1
    int32 length, key, int32 length, value  for each row, in key order
    ff ff ff ff                             no more rows
    uint32                                  CRC-32 of all bytes before it
"""

from __future__ import annotations

import fcntl
import os
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from statecore.errors import Corrupted, Fenced
from statecore.filesystem import FILE_MODE, AnyPath, validated_path, write_durably
from statecore.formats.topic_partition import TopicPartition, as_topic_partition
from statecore.stores.in_memory import InMemoryStore
from statecore.stores.rocksdb.errors import translate
from statecore.stores.settings import StoreSettings
from statecore.stores.write_buffer_store import Pending

_MAGIC = b"SCROWS\x00\x01"
_INT32 = struct.Struct(">i")
_CRC = struct.Struct(">I")
_END = _INT32.pack(-1)


class FileStore(InMemoryStore):
    """Rows in memory and in one file; empty if the file does not exist.

    Args:
        path: the file; its directory exists. ``<path>.lock`` beside it is locked while the store is open.
        settings: the limit of staged bytes; every commit is synced, whatever ``durability`` says.

    Raises:
        Invalid: the path is not UTF-8.
    """

    def __init__(self, path: AnyPath, settings: StoreSettings | None = None) -> None:
        self._path = validated_path(path)
        super().__init__(str(self._path), settings)
        self._lock_file: int | None = None
        self._locked_by = 0

    @property
    def persistent(self) -> bool:
        """True."""
        return True

    @property
    def manages_offsets(self) -> bool:
        """False: its caller keeps them."""
        return False

    def open(self) -> None:
        """Read the file.

        Raises:
            Fenced: another process, or another store of this one, has it open.
            Invalid: missing permissions.
            Corrupted: the file is damaged.
        """
        if self.is_open:
            return
        try:
            self._path = self._path.resolve()  # else the lock would be on a link, which the first commit replaces
            self._lock_file = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._locked_by = os.getpid()
            data = self._path.read_bytes() if self._path.exists() else _encode({})
            self._begin(_decode(data, self._path))
        except BlockingIOError as error:
            self._unlock()
            raise Fenced(
                f"The store at {self._path} is open elsewhere.",
                code="store-open",
                action="Stop the process that has this store open, then run this again.",
                store_path=str(self._path),
            ) from error
        except (OSError, RuntimeError) as error:  # RuntimeError: circular links
            self._unlock()
            raise translate(self._path, "Opening", error) from error
        except BaseException:
            self._unlock()
            raise

    def close(self) -> None:
        """Release rows and file; drop uncommitted writes."""
        super().close()
        self._unlock()

    def committed_offset(self, partition: TopicPartition) -> int | None:
        as_topic_partition(partition)
        self._check_open()
        return None

    def _prepare(self, pending: Pending) -> Any:
        rows = {**dict(self._rows.items()), **dict(pending.staged.items())}
        data = _encode({key: value for key, value in rows.items() if value is not None})
        return data, self._file_now(), super()._prepare(pending._replace(offsets={}))

    def _publish(self, prepared: Any) -> None:
        data, _, rows = prepared
        try:
            write_durably(self._path, data)
        except OSError as error:
            raise translate(self._path, "Writing", error) from error
        super()._publish(rows)

    def _published(self, prepared: Any) -> bool:
        _, before, rows = prepared
        if self._file_now() == before:  # the commit is exactly the atomic rename
            return False
        super()._publish(rows)
        return True

    def _file_now(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_ctime_ns

    def _unlock(self) -> None:
        if self._lock_file is not None:
            if os.getpid() == self._locked_by:  # a forked child must not release its parent's lock
                fcntl.flock(self._lock_file, fcntl.LOCK_UN)
            os.close(self._lock_file)
            self._lock_file = None


def _encode(rows: Mapping[bytes, bytes]) -> bytes:
    parts = [_MAGIC]
    for key in sorted(rows):
        parts += [_INT32.pack(len(key)), key, _INT32.pack(len(rows[key])), rows[key]]
    data = b"".join([*parts, _END])
    return data + _CRC.pack(zlib.crc32(data))


def _decode(data: bytes, path: Path) -> dict[bytes, bytes]:
    """The rows of a file; after a correct checksum every length in it is trusted."""
    body, crc = data[: -_CRC.size], data[-_CRC.size :]
    if not body.startswith(_MAGIC) or not body.endswith(_END) or _CRC.pack(zlib.crc32(body)) != crc:
        raise Corrupted(
            f"{path} is not a complete row file of version 1.",
            code="database-damaged",
            action="Remove it and its offset file, and restore the store from its changelog.",
            store_path=str(path),
        )
    rows: dict[bytes, bytes] = {}
    at = len(_MAGIC)
    while (length := _INT32.unpack_from(body, at)[0]) >= 0:
        key = body[at + 4 : at + 4 + length]
        at += 4 + length
        (length,) = _INT32.unpack_from(body, at)
        rows[key] = body[at + 4 : at + 4 + length]
        at += 4 + length
    return rows
