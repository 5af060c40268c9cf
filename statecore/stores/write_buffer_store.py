"""Staging, views and commit: what is the same for every store that publishes its writes at once.

A store of this library keeps committed rows somewhere (RocksDB, memory, a file) and staged ones in
:class:`~statecore.stores.sorted_rows.SortedRows`. Every read by key order, every query view and every iterator is made
of two snapshots taken in one instant::

    staged rows   as they were     (none under READ_COMMITTED)
        over
    an Instant    committed rows, offsets and position of one commit

so that commits, aborts and writes do not move what is being read: ``commit`` begins new staged rows and leaves the old
ones to the snapshots that still read them.

One lock guards all of it, held for a chunk of rows and the publishing of a commit (not its preparation), and for a put
while somebody reads the staged rows. A lock for readers and one for writers would gain nothing here: rocksdict holds
the interpreter's lock in all those calls.

A signal handler may raise between any two steps of a commit. So the commit is one step that either happened or not
(``_publish``), whether it happened can be asked afterwards (``_published``), and everything else follows from the
answer: in ``_settle``, at the end of the commit or, when that was interrupted, before whatever comes next.
"""

from __future__ import annotations

import threading
import weakref
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from statecore.choices import chosen
from statecore.errors import Invalid
from statecore.formats.offsets import checked_offsets
from statecore.formats.position import Position, copy_position, merge_position, seen_record
from statecore.formats.topic_partition import TopicPartition
from statecore.isolation import IsolationLevel
from statecore.stores import rows as row_limits
from statecore.stores.base import StateStore, commit_requested
from statecore.stores.query import QueryView
from statecore.stores.rows import Row, check_key, check_row, check_rows
from statecore.stores.settings import StoreSettings
from statecore.stores.sorted_rows import SortedRows
from statecore.stores.transaction import Running
from statecore.stores.views import UNSTAGED, Instant, Unstaged, View

_PUT_AT_ONCE = 1024


class Pending(NamedTuple):
    """What a commit is to publish.

    Attributes:
        staged: the rows.
        offsets: the offsets, ``None`` for one to be forgotten; partitions that are not named keep theirs.
        forget: whether all offsets and the position are forgotten.
        position: the position as it is to be.
        moved: whether that is another one than before.
    """

    staged: SortedRows
    offsets: Mapping[TopicPartition, int | None]
    forget: bool
    position: Position
    moved: bool


class WriteBufferStore(StateStore):
    """A store that stages writes in memory; subclasses keep the committed rows.

    Args:
        name: what messages call it: its path, or its name.
        settings: durability and limit of staged bytes.
    """

    def __init__(self, name: str, settings: StoreSettings) -> None:
        self._name = name
        self._settings = settings
        self._lock = threading.RLock()
        self._staged = SortedRows()
        self._seen: Position = {}
        self._committed_position: Position = {}
        self._undecided: tuple[Any, Position, int] | None = None
        self._commits = 0
        self._settled = False  # open, no transaction, nothing undecided: a read need not ask
        self._unhindered = False  # the same, and open for writing: nor need a write
        self._views: weakref.WeakSet[View] = weakref.WeakSet()

    @abstractmethod
    def _read(self, key: bytes) -> bytes | None:
        """The committed row of a key; the store is open."""

    def _read_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The committed rows of many keys; the store is open."""
        return [self._read(key) for key in keys]

    @abstractmethod
    def _instant(self) -> Instant:
        """The committed rows of this moment; the store is open and nobody commits meanwhile."""

    def _rows_instant(self) -> Instant:
        """An instant that is asked for nothing but cursors."""
        return self._instant()

    @abstractmethod
    def _prepare(self, pending: Pending) -> Any:
        """What :meth:`_publish` needs; readers go on meanwhile. Changes nothing that anybody can see."""

    @abstractmethod
    def _publish(self, prepared: Any) -> None:
        """Make the commit, all or nothing; nobody reads meanwhile."""

    @abstractmethod
    def _published(self, prepared: Any) -> bool:
        """Whether :meth:`_publish`, which may have been interrupted anywhere, made that commit.

        Whatever of it is left to be done is done now, so that it may be interrupted, and called, once more.
        """

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
        """See that the store is open, and that what is staged is what the writer would say it is."""
        self._check_open()
        if self._undecided is not None or self._running is not None:
            with self._lock:  # a query that comes now does the same
                self._settle()
                if self._running is not None and self._running.lost and not self._running.joined:
                    self._drop()
                self._settled = self.is_open and self._running is None  # who measures may ask while it is closed
        else:
            self._settled = True

    def _before_write(self) -> None:
        self._check_writable()
        self._before_read()
        running = self._running
        if running is None:
            self._unhindered = True
        elif not running.writing:
            self._refuse_lost()
            running.joined = True

    def _refuse_lost(self) -> None:
        if self._running is not None and self._running.lost:
            raise Invalid(
                f"The transaction of the store at {self._name} was lost, and other writes with it.",
                code="transaction-lost",
                action="Call abort() of the store and write them again; hold a transaction until it is committed.",
                store_path=self._name,
            )

    def get(self, key: bytes) -> bytes | None:
        """The row of a key, or ``None``; writes that are not committed yet are seen."""
        if not self._settled:
            self._before_read()
        if type(key) is not bytes:
            check_key(key)
        staged = self._staged.values.get(key, UNSTAGED)
        return self._read(key) if isinstance(staged, Unstaged) else staged

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The rows of many keys; writes that are not committed yet are seen."""
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
        """Staged and committed rows of this moment, merged; see :meth:`ReadableRows.scan`."""
        with self._lock:
            self._before_read()
            staged = self._staged.snapshot() if len(self._staged) else None
            view = View(self._name, self._lock, self._rows_instant(), staged)
            self._views.add(view)
            return view.scan(lower, upper, reverse=reverse)

    def put(self, key: bytes, value: bytes | None) -> None:
        """Stage the row of a key; ``None`` deletes it with the next commit."""
        if not self._unhindered:
            self._before_write()
        if (
            type(key) is not bytes
            or (value is not None and type(value) is not bytes)
            or len(key) + (0 if value is None else len(value)) > row_limits.MAX_ROW_BYTES
        ):
            check_row(key, value)
        staged = self._staged
        if not staged.watched:
            staged.put(key, value)  # safe without the lock: see there
            return
        with self._lock:
            staged.put(key, value)

    def put_all(self, rows: Iterable[tuple[bytes, bytes | None]]) -> None:
        """:meth:`put` for each of the rows; those of a list or tuple are looked at first, and staged together."""
        if not isinstance(rows, list | tuple):  # it may read what it wrote before
            put = self.put
            for key, value in rows:
                put(key, value)
            return
        self._before_write()
        check_rows(rows)
        for at in range(0, len(rows), _PUT_AT_ONCE):
            with self._lock:  # not for long: queries wait for it
                self._staged.put_all(rows[at : at + _PUT_AT_ONCE])

    def commit(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Publish staged rows, offsets and position as one; see :meth:`StateStore.commit`."""
        self._commit(checked_offsets(offsets), forget=False)

    def forget_offsets(self) -> None:
        """Publish staged rows, and forget offsets and position; see :meth:`StateStore.forget_offsets`."""
        self._commit({}, forget=True)

    def _commit(self, offsets: Mapping[TopicPartition, int | None], *, forget: bool) -> None:
        if not self._unhindered:
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
                self._unhindered = self._settled = False
                self._undecided = prepared, position, number + 1
                self._publish(prepared)
                self._settle()
                self._unhindered = self._settled = True
        except BaseException as error:
            with self._lock:
                self._settle()
            done = "was published" if self._commits > number else "was not published; its writes are still staged"
            error.add_note(f"The commit of the store at {self._name} {done}.")
            raise

    def _settle(self) -> None:
        """Find out whether the commit that is undecided has happened, and draw the consequences; the lock is held."""
        if self._undecided is None:
            return
        prepared, position, number = self._undecided
        if self._published(prepared):
            self._end_transaction()
            seen: Position = {}  # not Position(), which takes longer
            staged = SortedRows()
            self._staged = staged
            self._seen = seen
            self._committed_position = position
            self._commits = number
            self._undecided = None
        else:
            self._undecided = None

    def abort(self) -> None:
        """Drop staged rows and updates of the position."""
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
        """How many commits were published; see :attr:`StateStore.commit_number`."""
        if self._undecided is not None:
            with self._lock:
                self._settle()
        return self._commits

    @property
    def uncommitted_bytes(self) -> int:
        """Memory of staged rows, about, in bytes."""
        if self._undecided is not None or self._running is not None:
            self._before_read()
        return self._staged.memory_bytes

    @property
    def commit_requested(self) -> bool:
        """Whether staged rows have reached ``uncommitted_max_bytes``."""
        return commit_requested((self,), self._settings.uncommitted_max_bytes)

    @property
    def position(self) -> Position:
        """The committed position, with what was seen since; a copy."""
        self._before_read()
        position = copy_position(self._committed_position)
        merge_position(position, self._seen)
        return position

    def update_position(self, topic: str, partition: int, offset: int) -> None:
        """Note that a record was seen; see :meth:`StateStore.update_position`."""
        self._check_writable()
        self._before_read()
        topic, partition, offset = seen_record(topic, partition, offset)
        seen = self._seen.setdefault(topic, {})
        if offset > seen.get(partition, -1):
            seen[partition] = offset

    def query_view(self, isolation: IsolationLevel = IsolationLevel.READ_COMMITTED) -> QueryView:
        """The store at this instant; see :meth:`StateStore.query_view`."""
        if type(isolation) is not IsolationLevel:
            isolation = chosen(IsolationLevel, isolation, "isolation")
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
            self._unhindered = self._settled = False

    def _forget(self, position: Position) -> None:
        """Begin with nothing staged, at this committed position."""
        self._staged = SortedRows()
        self._committed_position = position
        self._seen = {}
        self._undecided = None

    def _end_reads(self) -> None:
        """End the transaction, and close every view with its iterators; the lock is held."""
        self._unhindered = self._settled = False
        self._end_transaction()
        self._staged = SortedRows()
        self._seen = {}
        self._undecided = None
        for view in list(self._views):
            view.close()

    def _disown_reads(self) -> None:
        """In a forked child: close every view without touching it; a thread that is not here may hold the lock."""
        self._unhindered = self._settled = False
        self._lock = threading.RLock()
        for view in self._views:
            view.disown()
