"""The global stores of a process, which recover by themselves where Kafka Streams ends in ERROR (KIP-406).

::

    directory = StateDirectory(state_dir, "my-app")
    tables = [GlobalTable("rates", StoreKind.TIMESTAMPED_KEY_VALUE, "rates-topic")]
    with directory.lock(), Cluster(servers) as cluster, GlobalStores(directory, tables, cluster) as stores:
        stores.start()                                   a thread of its own; or call poll() in a loop
        with stores.query_view("rates") as rates:
            rates.get(b"EUR")

All partitions of a topic are in one database of ``<application>/global/``, with the next offset of each, as in Kafka
Streams. The states of a store::

    CREATED ──▶ RESTORING ──▶ RUNNING ──▶ (invalid offset) RESTORING ──▶ RUNNING ──▶ CLOSED
                    └────────────┴──▶ ERROR, where it cannot recover

in full in :mod:`.state`. Stores are independent: one is rebuilt while the others follow their topics and serve.
"""

from __future__ import annotations

import statecore.extras.pipeline

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Self

from statecore.changelog.cluster import Cluster
from statecore.errors import Invalid, NotFound, Retryable, StatecoreError
from statecore.faults import NO_FAULTS, FaultPoints
from statecore.formats.releases import CHECKPOINT_FILE, CURRENT
from statecore.global_stores.backups import GlobalBackups
from statecore.global_stores.settings import GlobalSettings, GlobalTable
from statecore.global_stores.state import GlobalState, ListenerQueue, StateListener, state_of_all
from statecore.global_stores.store import GlobalContext, GlobalStore
from statecore.global_stores.topic_ids import TopicIds
from statecore.global_stores.views import GlobalView
from statecore.metrics import NO_METRICS, Metrics
from statecore.statedir.state_directory import StateDirectory

_LOG = logging.getLogger(__name__)


class GlobalStores:
    """The global stores of a process that holds the application's lock; a context manager."""

    def __init__(
        self,
        directory: StateDirectory,
        tables: Sequence[GlobalTable],
        cluster: Cluster,
        settings: GlobalSettings | None = None,
        *,
        listener: StateListener | None = None,
        metrics: Metrics = NO_METRICS,
        faults: FaultPoints = NO_FAULTS,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._directory, self._tables, self._cluster = directory, tuple(tables), cluster
        self._settings = settings or GlobalSettings()
        self._metrics, self._faults, self._clock = metrics, faults, clock
        self._backups = GlobalBackups(directory, now, faults)
        self._listener_queue = ListenerQueue(listener)
        self._stores: dict[str, GlobalStore] = {}
        self._polling = threading.Lock()
        self._starting = threading.Lock()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._closed = False
        twice = sorted({one.name for one in self._tables if [two.name for two in self._tables].count(one.name) > 1})
        if twice:
            raise Invalid(
                f"Global stores are declared twice: {', '.join(twice)}.",
                code="store-duplicated",
                action="Declare each store once.",
                stores=twice,
            )

    @property
    def state(self) -> GlobalState:
        """The state of all: ``ERROR`` or ``RESTORING`` where one of the stores is."""
        if self._closed:
            return GlobalState.CLOSED
        if not self._stores:
            return GlobalState.CREATED if self._tables else GlobalState.RUNNING
        return state_of_all(store.state for store in self._stores.values())

    @property
    def stores(self) -> Mapping[str, GlobalStore]:
        """Each store by name: its state, lag, offsets, recoveries and error."""
        return self._stores

    def open(self) -> None:
        """Open what is on the disk, and ask once for the topics; later polls ask brokers that did not answer."""
        if self._stores or self._closed:
            raise Invalid(
                "Global stores are opened once.", code="stores-opened-already", action="Make another GlobalStores."
            )
        self._directory.check_locked()
        self._refuse_older()
        self._backups.sweep()
        context = GlobalContext(
            self._directory,
            self._cluster,
            self._settings,
            TopicIds(self._directory, self._faults),
            self._backups,
            self._on_change,
            self._metrics,
            self._faults,
            self._clock,
        )
        stores = {table.name: GlobalStore(table, context) for table in self._tables}
        try:
            for store in stores.values():
                store.open()
            for store in stores.values():
                store.check_topic()
        except BaseException:
            for store in stores.values():
                _closed_quietly(store)
            self._listener_queue.deliver()
            raise
        self._stores = stores
        self._listener_queue.deliver()

    def poll(self) -> int:
        """Run one round of every store that is due: ask for its logs, and apply a bounded number of records.

        A store whose brokers do not answer delays this for the time-outs of cluster and settings, once in each pause.

        Returns:
            Records that were applied.
        """
        try:
            with self._polling:
                if self._closed:
                    return 0
                self._backups.sweep()
                return sum(store.poll() for store in self._stores.values())
        finally:
            self._listener_queue.deliver()

    def start(self) -> None:
        """Poll on a thread of its own until :meth:`close`; opens the stores first where that was not done."""
        if not self._stores:
            self.open()
        with self._starting:
            if self._thread is None and not self._stop.is_set():
                name = f"{self._directory.application_id}-GlobalStreamThread"
                self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._thread.start()

    def wait(self, state: GlobalState = GlobalState.RUNNING, timeout: float | None = None) -> bool:
        """Wait for a state of all stores, or ``ERROR`` or ``CLOSED``, where a thread polls; whether it was reached."""
        ends = (state, GlobalState.ERROR, GlobalState.CLOSED)
        with self._changed:
            self._changed.wait_for(lambda: self.state in ends, timeout)
        return self.state is state

    def query_view(self, store: str, *, stale: bool = False) -> GlobalView:
        """A view of a store at its last commit, for any thread; close it afterwards.

        A view stays readable while the store is set aside and rebuilt.
        """
        found = self._stores.get(store)
        if found is None:
            if store in {table.name for table in self._tables}:
                raise Invalid(
                    f"The global store {store} is not open.",
                    code="store-not-open",
                    action="Open it first.",
                    store=store,
                )
            raise NotFound(
                f"There is no global store {store} here.",
                code="store-not-found",
                action=f"Ask for one of {', '.join(table.name for table in self._tables)}.",
                store=store,
            )
        return found.query_view(stale=stale)

    def close(self) -> None:
        """Stop the thread and close all stores; Kafka Streams continues from the directory."""
        with self._starting:
            self._stop.set()
            thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        failures: list[StatecoreError] = []
        with self._polling:
            self._closed = True
            for store in self._stores.values():
                try:
                    store.close()
                except StatecoreError as error:
                    failures.append(error)
        with self._changed:
            self._changed.notify_all()
        self._listener_queue.deliver()
        if failures:
            raise failures[0]

    def __enter__(self) -> Self:
        if not self._stores:
            self.open()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                applied = self.poll()
            except Exception as error:
                _LOG.exception("Following the global stores failed.")
                failure = Retryable(
                    f"Following the global stores failed: {type(error).__name__}: {error}.",
                    code="background-thread-failed",
                    action="Start again; report it if it happens twice.",
                )
                for store in self._stores.values():
                    store.fail(failure)
                self._listener_queue.deliver()
                return
            if not applied:
                self._stop.wait(self._settings.poll_interval)

    def _on_change(self, store: str, state: GlobalState, before: GlobalState) -> None:
        _LOG.info("Global store %s: %s -> %s", store, before, state)
        self._listener_queue.enqueue(store, state, before)
        with self._changed:
            self._changed.notify_all()

    def _refuse_older(self) -> None:
        file = self._directory.global_path / CHECKPOINT_FILE
        if file.exists():
            raise Invalid(
                f"{file} has offsets of the global stores, as Kafka Streams 4.2 and older keep them; later ones "
                "import them and delete the file.",
                code="migration-required",
                action=f"Run statecore migrate --to {CURRENT.name} on the directory, then start again.",
                path=str(file),
            )


def _closed_quietly(store: GlobalStore) -> None:
    try:
        store.close()
    except StatecoreError as error:
        _LOG.warning("A global store could not be closed: %s", error)
