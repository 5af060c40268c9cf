"""``WriteBufferStore``: staging of writes, query views and atomic commit, shared by all stores.

A store keeps committed rows somewhere (RocksDB, memory, a file) and staged ones in
:class:`~statecore.stores.sorted_rows.SortedRows`. Every ordered read, query view and iterator consists of two snapshots
taken at the same time::

    staged rows   as of then       (none under READ_COMMITTED)
        over
    an Instant    committed rows, offsets and position of one commit

so that commits, aborts and writes do not affect running reads: ``commit`` starts a new write buffer and leaves the old
one to the snapshots that still read it.

One lock guards all of it, held for a chunk of rows and for the publishing of a commit (not its preparation), and for a
put while the staged rows are being read. A reader-writer lock would gain nothing: rocksdict holds the GIL in all those
calls.

A signal handler may raise between any two steps of a commit. So the commit is one step that either happened or not
(``_publish``), ``_published`` tells which, and ``_settle`` draws the consequences: at the end of the commit or, if that
was interrupted, before the next operation.
"""

from __future__ import annotations

import threading
import weakref
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from statecore.choices import enum_value
from statecore.errors import Invalid
from statecore.formats.offsets import checked_offsets
from statecore.formats.position import Position, copy_position, merge_position, validated_position
from statecore.formats.topic_partition import TopicPartition
from statecore.isolation import IsolationLevel
from statecore.stores import rows as row_limits
from statecore.stores.base import StateStore, commit_requested
from statecore.stores.query import QueryView
from statecore.stores.rows import Row, check_key, check_row, check_rows
from statecore.stores.settings import StoreSettings
from statecore.stores.sorted_rows import SortedRows
from statecore.stores.transaction import Running
from statecore.stores.views import UNSTAGED, CommittedView, Unstaged, View

_PUT_AT_ONCE = 1024


class Pending(NamedTuple):
    """The content of a commit."""

    staged: SortedRows
    # the offsets, None to remove one; partitions that are not named keep theirs
    offsets: Mapping[TopicPartition, int | None]
    forget: bool  # whether all offsets and the position are removed
    position: Position  # the new position
    moved: bool  # whether the position has changed


class WriteBufferStore(StateStore):
    """A store that stages writes in memory; subclasses keep the committed rows."""

    def __init__(self, name: str, settings: StoreSettings) -> None:
        self._name = name
        self._settings = settings
        self._lock = threading.RLock()
        self._staged = SortedRows()
        self._seen: Position = {}
        self._committed_position: Position = {}
        self._undecided: tuple[Any, Position, int] | None = None
        self._commits = 0
        self._read_ready = False  # open, no transaction, no interrupted commit: reads skip the check
        self._write_ready = False  # the same, and open for writing: writes skip the check too
        self._views: weakref.WeakSet[View] = weakref.WeakSet()

    @abstractmethod
    def _read(self, key: bytes) -> bytes | None:
        """The committed row of a key; the store is open."""

    def _read_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The committed rows of many keys; the store is open."""
        return [self._read(key) for key in keys]

    @abstractmethod
    def _instant(self) -> CommittedView:
        """The current committed rows; the store is open, and no commit runs meanwhile."""

    def _rows_instant(self) -> CommittedView:
        """An instant that only needs cursors."""
        return self._instant()

    @abstractmethod
    def _prepare(self, pending: Pending) -> Any:
        """Build the input of :meth:`_publish`, without visible changes; readers continue meanwhile."""

    @abstractmethod
    def _publish(self, prepared: Any) -> None:
        """Make the commit atomically; no reads run meanwhile."""

    @abstractmethod
    def _published(self, prepared: Any) -> bool:
        """Whether :meth:`_publish`, interrupted anywhere, made the commit; completes it. May be interrupted itself."""

    def _check_open(self) -> None:
        if not self.is_open:
            raise Invalid(
                f"The store at {self._name} is not open.",
                code="store-not-open",
                action="Open it first.",
                store_path=self._name,
            )

    def _check_writable(self) -> None:
        self._check_open()

    def _before_read(self) -> None:
        """Check that the store is open, and resolve an interrupted commit or a lost transaction."""
        self._check_open()
        if self._undecided is not None or self._running is not None:
            with self._lock:  # a concurrent query does the same
                self._settle()
                if self._running is not None and self._running.lost and not self._running.joined:
                    self._drop()
                self._read_ready = self.is_open and self._running is None  # metrics may read it while closed
        else:
            self._read_ready = True

    def _before_write(self) -> None:
        self._check_writable()
        self._before_read()
        running = self._running
        if running is None:
            self._write_ready = True
        elif not running.writing:
            self._refuse_lost()
            running.joined = True

    def _refuse_lost(self) -> None:
        if self._running is not None and self._running.lost:
            raise Invalid(
                f"The transaction of the store at {self._name} was garbage-collected without commit or abort, after "
                "writes to the store itself.",
                code="transaction-lost",
                action="Call abort() of the store and write again; keep a reference to a transaction until its commit.",
                store_path=self._name,
            )

    def get(self, key: bytes) -> bytes | None:
        """The row of a key, or ``None``; includes uncommitted writes."""
        if not self._read_ready:
            self._before_read()
        if type(key) is not bytes:
            check_key(key)
        staged = self._staged.values.get(key, UNSTAGED)
        return self._read(key) if isinstance(staged, Unstaged) else staged

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The rows of many keys; includes uncommitted writes."""
        self._before_read()
        for key in keys:
            check_key(key)
        if not len(self._staged):
            return self._read_many(keys)
        found: list[bytes | None] = []
        missing: list[int] = []
        for at, key in enumerate(keys):
            value = self._staged.get(key, UNSTAGED)
            if isinstance(value, Unstaged):
                missing.append(at)
                value = None
            found.append(value)
        for at, value in zip(missing, self._read_many([keys[at] for at in missing]), strict=True):
            found[at] = value
        return found

    def scan(self, lower: bytes | None, upper: bytes | None, *, reverse: bool = False) -> Iterator[Row]:
        """Staged and committed rows, merged, as of now; see :meth:`ReadableRows.scan`."""
        with self._lock:
            self._before_read()
            staged = self._staged.snapshot() if len(self._staged) else None
            view = View(self._name, self._lock, self._rows_instant(), staged)
            self._views.add(view)
            return view.scan(lower, upper, reverse=reverse)

    def put(self, key: bytes, value: bytes | None) -> None:
        """Stage the row of a key; ``None`` deletes it."""
        if not self._write_ready:
            self._before_write()
        if (
            type(key) is not bytes
            or (value is not None and type(value) is not bytes)
            or len(key) + (0 if value is None else len(value)) > row_limits.MAX_ROW_BYTES
        ):
            check_row(key, value)
        staged = self._staged
        if not staged.watched:
            staged.put(key, value)  # safe without the lock: see SortedRows.put
            return
        with self._lock:
            staged.put(key, value)

    def put_all(self, rows: Iterable[tuple[bytes, bytes | None]]) -> None:
        """:meth:`put` for many rows; rows in a list or tuple are checked first, and staged together."""
        if not isinstance(rows, list | tuple):  # a generator may read rows that it has just written
            put = self.put
            for key, value in rows:
                put(key, value)
            return
        self._before_write()
        check_rows(rows)
        for at in range(0, len(rows), _PUT_AT_ONCE):
            with self._lock:  # briefly: queries wait for it
                self._staged.put_all(rows[at : at + _PUT_AT_ONCE])

    def commit(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Publish staged rows, offsets and position atomically; see :meth:`StateStore.commit`."""
        self._commit(checked_offsets(offsets), forget=False)

    def forget_offsets(self) -> None:
        """Publish staged rows, and remove offsets and position; see :meth:`StateStore.forget_offsets`."""
        self._commit({}, forget=True)

    def _commit(self, offsets: Mapping[TopicPartition, int | None], *, forget: bool) -> None:
        if not self._write_ready:
            self._check_writable()
            self._before_read()
            self._refuse_lost()
        committed = self._committed_position
        position = committed
        if forget:
            position = {}
        elif self._seen:
            position = copy_position(committed)
            merge_position(position, self._seen)
        number = self._commits
        try:
            moved = position is not committed and position != committed
            prepared = self._prepare(Pending(self._staged, offsets, forget, position, moved))
            with self._lock:
                self._write_ready = self._read_ready = False
                self._undecided = prepared, position, number + 1
                self._publish(prepared)
                self._settle()
                self._write_ready = self._read_ready = True
        except BaseException as error:
            with self._lock:
                self._settle()
            done = "was published" if self._commits > number else "was not published; its writes are still staged"
            error.add_note(f"The commit of the store at {self._name} {done}.")
            raise

    def _settle(self) -> None:
        """Resolve an interrupted commit: find out whether it happened, and update the state; the lock is held."""
        if self._undecided is None:
            return
        prepared, position, number = self._undecided
        if self._published(prepared):
            self._end_transaction()
            seen: Position = {}  # faster than Position()
            staged = SortedRows()
            self._staged = staged
            self._seen = seen
            self._committed_position = position
            self._commits = number
            self._undecided = None
        else:
            self._undecided = None

    def abort(self) -> None:
        """Drop staged rows and position updates."""
        self._before_read()
        self._drop()

    def _drop(self) -> None:
        seen: Position = {}
        staged = SortedRows()
        with self._lock:
            self._staged = staged
            self._seen = seen
        self._end_transaction()

    @property
    def commit_number(self) -> int:
        """Number of published commits; see :attr:`StateStore.commit_number`."""
        if self._undecided is not None:
            with self._lock:
                self._settle()
        return self._commits

    @property
    def uncommitted_bytes(self) -> int:
        """Approximate memory of staged rows, in bytes."""
        if self._undecided is not None or self._running is not None:
            self._before_read()
        return self._staged.memory_bytes

    @property
    def commit_requested(self) -> bool:
        """Whether staged rows have reached ``uncommitted_max_bytes``."""
        return commit_requested((self,), self._settings.uncommitted_max_bytes)

    @property
    def position(self) -> Position:
        """The committed position merged with later updates; a copy."""
        self._before_read()
        position = copy_position(self._committed_position)
        merge_position(position, self._seen)
        return position

    def update_position(self, topic: str, partition: int, offset: int) -> None:
        self._check_writable()
        self._before_read()
        topic, partition, offset = validated_position(topic, partition, offset)
        seen = self._seen.setdefault(topic, {})
        if offset > seen.get(partition, -1):
            seen[partition] = offset

    def query_view(self, isolation: IsolationLevel = IsolationLevel.READ_COMMITTED) -> QueryView:
        if type(isolation) is not IsolationLevel:
            isolation = enum_value(IsolationLevel, isolation, "isolation")
        with self._lock:
            self._before_read()
            staged = None
            if isolation is IsolationLevel.READ_UNCOMMITTED and len(self._staged):
                staged = self._staged.snapshot()
            view = View(self._name, self._lock, self._instant(), staged)
            self._views.add(view)
            return view

    def _begin_transaction(self, running: Running) -> None:
        with self._lock:
            super()._begin_transaction(running)
            self._write_ready = self._read_ready = False

    def _forget(self, position: Position) -> None:
        """Reset to an empty write buffer at this committed position."""
        self._staged = SortedRows()
        self._committed_position = position
        self._seen = {}
        self._undecided = None

    def _end_reads(self) -> None:
        """End the transaction, and close every view with its iterators; the lock is held."""
        self._write_ready = self._read_ready = False
        self._end_transaction()
        self._staged = SortedRows()
        self._seen = {}
        self._undecided = None
        for view in list(self._views):
            view.close()

    def _disown_reads(self) -> None:
        """In a forked child: close views without touching them; a thread of the parent may hold the lock."""
        self._write_ready = self._read_ready = False
        self._lock = threading.RLock()
        for view in self._views:
            view.disown()
