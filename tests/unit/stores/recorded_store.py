"""A small persistent store in one file, with or without its own offsets, that notes the order of what happens to it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path

from statecore.errors import Corrupted, Invalid
from statecore.formats.position import Position, merge_position
from statecore.formats.topic_partition import TopicPartition
from statecore.isolation import IsolationLevel
from statecore.stores.base import StateStore
from statecore.stores.query import QueryView
from statecore.stores.rows import Row


class RecordedStore(StateStore):
    """Rows (and offsets, when it manages them) in a JSON file that every commit replaces.

    ``happened`` gets ``open``, ``commit``, ``flush`` and ``close`` as they happen; ``failing`` names one that fails.
    """

    def __init__(self, file: Path, *, manages_offsets: bool) -> None:
        self.file = file
        self.happened: list[str] = []
        self.failing: str | None = None
        self._manages = manages_offsets
        self._open = False
        self._rows: dict[str, str] = {}
        self._offsets: dict[str, int] = {}
        self._stored_position: Position = {}
        self._position: Position = {}
        self._staged: dict[str, str | None] = {}

    @property
    def is_open(self) -> bool:
        return self._open

    @property
    def persistent(self) -> bool:
        return True

    @property
    def manages_offsets(self) -> bool:
        return self._manages

    @property
    def position(self) -> Position:
        return deepcopy(self._position)

    def update_position(self, topic: str, partition: int, offset: int) -> None:
        merge_position(self._position, {topic: {partition: offset}})

    def open(self) -> None:
        if self._open:
            return
        self._happen("open")
        if self.file.exists():
            rows, offsets, position = json.loads(self.file.read_text())
            self._rows, self._offsets = rows, offsets
            self._stored_position = {topic: {int(p): o for p, o in seen.items()} for topic, seen in position.items()}
        self._position = deepcopy(self._stored_position)
        self._open = True

    def close(self) -> None:
        if self._open:
            self._open = False
            self._staged = {}
            self._happen("close")

    def commit(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        self._commit({**self._offsets, **{str(at): offset for at, offset in offsets.items()}})

    def forget_offsets(self) -> None:
        self._commit({}, forget=True)

    def _commit(self, offsets: Mapping[str, int | None], *, forget: bool = False) -> None:
        self._happen("commit")
        if forget:
            self._position = {}
        rows = {key: value for key, value in {**self._rows, **self._staged}.items() if value is not None}
        if self._manages:
            self._offsets = {at: offset for at, offset in offsets.items() if offset is not None}
            self._stored_position = deepcopy(self._position)
        self._rows, self._staged = rows, {}
        self.file.write_text(json.dumps([self._rows, self._offsets, self._stored_position]))

    def abort(self) -> None:
        self._staged = {}
        self._position = deepcopy(self._stored_position)

    def committed_offset(self, partition: TopicPartition) -> int | None:
        return self._offsets.get(str(partition))

    def flush(self) -> None:
        self._happen("flush")

    def get(self, key: bytes) -> bytes | None:
        value = {**self._rows, **self._staged}.get(key.hex())
        return None if value is None else bytes.fromhex(value)

    def put(self, key: bytes, value: bytes | None) -> None:
        self._staged[key.hex()] = None if value is None else value.hex()

    def scan(self, lower: bytes | None, upper: bytes | None, *, reverse: bool = False) -> Iterator[Row]:
        keys = sorted({**self._rows, **self._staged}, reverse=reverse)
        rows = ((bytes.fromhex(key), self.get(bytes.fromhex(key))) for key in keys)
        wanted = [row for row in rows if (lower is None or row[0] >= lower) and (upper is None or row[0] < upper)]
        return iter([(key, value) for key, value in wanted if value is not None])

    def approximate_num_entries(self) -> int:
        return len(self._rows)

    @property
    def uncommitted_bytes(self) -> int:
        return sum(len(key) // 2 for key in self._staged)

    @property
    def commit_requested(self) -> bool:
        return False

    def query_view(self, isolation: IsolationLevel = IsolationLevel.READ_COMMITTED) -> QueryView:
        if not self._open:
            raise Invalid("It is not open.", code="test-error", action="Open it.")
        return _View(self)

    def _happen(self, what: str) -> None:
        if self.failing == what:
            raise Corrupted(f"{what} failed.", code="test-error", action="Rebuild it.")
        self.happened.append(what)


class _View(QueryView):
    def __init__(self, store: RecordedStore) -> None:
        self._rows = {bytes.fromhex(key): bytes.fromhex(value) for key, value in store._rows.items()}
        self._position = deepcopy(store._stored_position)

    @property
    def position(self) -> Position:
        return self._position

    def committed_offset(self, partition: TopicPartition) -> int | None:
        return None

    def get(self, key: bytes) -> bytes | None:
        return self._rows.get(key)

    def scan(self, lower: bytes | None, upper: bytes | None, *, reverse: bool = False) -> Iterator[Row]:
        return iter(sorted(self._rows.items(), reverse=reverse))

    def close(self) -> None:
        self._rows = {}
