"""A store that keeps rows on disk and no offsets, as a program may write one: its offsets are kept beside it."""

from __future__ import annotations

import fcntl
import pickle
from pathlib import Path
from typing import IO, Any

from statecore.errors import Fenced
from statecore.filesystem import write_durably
from statecore.formats.topic_partition import TopicPartition
from statecore.stores.in_memory import InMemoryStore
from statecore.stores.settings import StoreSettings
from statecore.stores.write_buffer_store import Pending


class RowsInFile(InMemoryStore):
    """Rows in memory and in a file, which every commit replaces."""

    persistent = True
    manages_offsets = False

    def __init__(self, path: Path, settings: StoreSettings | None = None) -> None:
        super().__init__(str(path), settings)
        self._path = path
        self._lock_file: IO[bytes] | None = None

    def open(self) -> None:
        if self.is_open:
            return
        lock_file = self._path.with_name(self._path.name + ".lock").open("wb")
        try:
            fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock_file.close()
            raise Fenced("It is open elsewhere.", code="store-open", action="Stop the process that has it.") from error
        self._lock_file = lock_file
        super().open()
        for key, value in self._stored().items():
            self._rows.put(key, value)

    def close(self) -> None:
        super().close()
        if self._lock_file is not None:
            self._lock_file.close()
            self._lock_file = None

    def committed_offset(self, partition: TopicPartition) -> int | None:
        self._before_read()
        return None

    def _stored(self) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = pickle.loads(self._path.read_bytes()) if self._path.exists() else {}
        return found

    def _prepare(self, pending: Pending) -> Any:
        rows = {**self._stored(), **dict(pending.staged.items())}
        data = pickle.dumps({key: value for key, value in rows.items() if value is not None})
        return data, self._inode(), super()._prepare(pending._replace(offsets={}))

    def _publish(self, prepared: Any) -> None:
        write_durably(self._path, prepared[0])
        super()._publish(prepared[-1])

    def _published(self, prepared: Any) -> bool:
        if self._inode() == prepared[1]:  # the commit is exactly the atomic rename
            return False
        super()._publish(prepared[-1])
        return True

    def _inode(self) -> tuple[int, int] | None:
        if not self._path.exists():
            return None
        found = self._path.stat()
        return found.st_ino, found.st_mtime_ns
