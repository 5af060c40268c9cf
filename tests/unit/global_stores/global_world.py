"""A global store over a scripted topic, whose log a test truncates, deletes and writes again."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from statecore.changelog.cluster import Cluster
from statecore.faults import NO_FAULTS, FaultPoints
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.global_stores.manager import GlobalStores
from statecore.global_stores.settings import GlobalSettings, GlobalTable
from statecore.global_stores.state import GlobalState
from statecore.statedir.state_directory import StateDirectory
from statecore.stores.rocksdb.store import RocksDBStore
from tests.harness.manual_clock import ManualClock
from tests.unit.changelog.build import Record, batch
from tests.unit.changelog.scripted import Part, ScriptedBrokers

TOPIC, STORE = "rates", "rates-store"
KIND = StoreKind.KEY_VALUE
Rows = dict[bytes, bytes]


def log(rows: Mapping[bytes, bytes | None], start: int = 0, **values: Any) -> Part:
    """A partition that holds these records from an offset on, a batch each."""
    batches = [batch([Record(start + at, 1, key, value)]) for at, (key, value) in enumerate(rows.items())]
    return Part(batches, **{"log_start": start, "log_end": start + len(rows), **values})


class World:
    """An application's directory and the cluster of its global topic."""

    def __init__(self, directory: Path) -> None:
        self.state_dir = directory
        self.brokers = ScriptedBrokers()
        self.time = ManualClock(1000.0)
        self.now = time.time()  # as that of processes which a test starts
        self.topic = self.brokers.add(TOPIC, [log({b"a": b"1", b"b": b"2"}), log({b"c": b"3"})])

    @property
    def application(self) -> Path:
        return self.state_dir / "app"

    @property
    def live(self) -> Path:
        return self.application / "global" / "rocksdb" / STORE

    def recreate(self, *parts: Part) -> None:
        self.topic = self.brokers.add(TOPIC, parts, topic_id=uuid.uuid4())

    @contextmanager
    def stores(
        self, faults: FaultPoints = NO_FAULTS, table: GlobalTable | None = None, **settings: Any
    ) -> Iterator[GlobalStores]:
        """The stores, open, the application's lock held."""
        timeout = settings.pop("timeout", 5.0)
        quick = {"retry_backoff": 1.0, "stall_timeout": 2.0, "metadata_interval": 0.0, **settings}
        directory = StateDirectory(self.state_dir, "app")
        with ExitStack() as stack:
            stack.enter_context(directory.lock())
            cluster = stack.enter_context(Cluster(self.brokers.address, {"reconnect_backoff_ms": 0}, timeout=timeout))
            made = GlobalStores(
                directory,
                [table or GlobalTable(STORE, KIND, TOPIC)],
                cluster,
                GlobalSettings(**quick),
                faults=faults,
                clock=self.time,
                now=lambda: self.now,
            )
            yield stack.enter_context(made)

    def write(self, rows: Rows, offsets: Mapping[int, int], *, exactly_once: bool = False) -> None:
        """A store in ``global/`` with these rows and next offsets, closed."""
        self.live.parent.mkdir(parents=True, exist_ok=True)
        with RocksDBStore(self.live, KIND, create=True, exactly_once=exactly_once) as store:
            store.put_all(rows.items())
            store.commit({TopicPartition(TOPIC, at): offset for at, offset in offsets.items()})

    def on_disk(self) -> tuple[Rows, dict[int, int]]:
        """Rows and next offsets of the store in ``global/``."""
        with RocksDBStore(self.live, KIND, read_only=True) as store:
            return dict(store.all()), {at.partition: offset for at, offset in store.committed_offsets().items()}

    def kept(self) -> list[Rows]:
        """Rows of each store that is kept of those before, the oldest first."""
        found = []
        for path in sorted(self.kept_paths()):
            with RocksDBStore(path, KIND, read_only=True) as store:
                found.append(dict(store.all()))
        return found

    def kept_paths(self) -> list[Path]:
        """Where they lie."""
        return list(self.application.glob(f".statecore/stale/global@*/rocksdb/{STORE}"))

    def left(self) -> set[str]:
        """What is left in the work directory of building and setting aside."""
        work = self.application / ".statecore"
        return {
            f"{path.parent.name}/{path.name}" for path in work.glob("global-*/*") if not path.name.endswith("@runs")
        }


def rows(stores: GlobalStores, *, stale: bool = False) -> Rows:
    """What a query sees."""
    with stores.query_view(STORE, stale=stale) as view:
        return dict(view.all())


def poll_until(stores: GlobalStores, reached: Callable[[], bool], most: int = 50) -> None:
    """Polls until something is so."""
    for _ in range(most):
        if reached():
            return
        stores.poll()
    raise AssertionError("polled in vain")


def poll_until_running(stores: GlobalStores) -> None:
    poll_until(stores, lambda: stores.state is GlobalState.RUNNING)


def recreated(world: World) -> None:
    world.recreate(log({b"x": b"7", b"z": b"9"}), log({b"c": b"8"}))


def fewer_partitions(world: World) -> None:
    del world.topic.parts[1]
