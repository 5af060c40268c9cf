"""The directory of an application that is down, and standby tasks beside it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from statecore.changelog.model import LogOffsets, TopicDescription
from statecore.formats.checkpoint import encode_checkpoint
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.topic_partition import TopicPartition
from statecore.standby.promote.changelog_check import Ask
from statecore.standby.promote.report import PromoteReport, PromoteVerdict
from statecore.standby.promote.request import PromoteRequest
from statecore.standby.promote.run import run_promote
from statecore.statedir.database_state import create_database, read_database_state
from statecore.statedir.state_directory import StateDirectory, store_directory
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.tasks.changelog_ends import ChangelogEnd
from statecore.tasks.standby_store import StandbyStoreSpec

APPLICATION = "orders"


SPEC = """
application_id: orders
bootstrap_servers: localhost:9092
processing_guarantee: {guarantee}
subtopologies:
  "0":
    stores:
      totals: {{kind: key-value}}
      clicks: {{kind: window, retention: 1h}}
      notes:  {{kind: key-value, changelog: none}}
      late:   {{kind: grace-buffer}}
"""


KINDS = {"totals": StoreKind.KEY_VALUE, "clicks": StoreKind.WINDOW, "late": StoreKind.GRACE_BUFFER}


class World:
    """The directory of an application that is down, and standby tasks beside it."""

    def __init__(self, root: Path, guarantee: str = "exactly_once_v2") -> None:
        self.live = StateDirectory(root / "live", APPLICATION)
        self.warm = StateDirectory(root / "warm", APPLICATION)
        self.spec = root / "stores.yaml"
        self.spec.write_text(SPEC.format(guarantee=guarantee))
        for directory in (self.live, self.warm):
            directory.path.mkdir(parents=True)

    def store(
        self, directory: StateDirectory, store: str, offset: int, *, task: str = "0_0", start: int = 0, rows: str = ""
    ) -> Path:
        """A store that was closed at an offset, with one row that says whose it is."""
        kind = KINDS[store]
        path = directory.task_path(task) / store_directory(store, kind)
        if kind.is_segmented:
            path /= f"{store}.{start}"
        path.parent.mkdir(parents=True, exist_ok=True)
        with RocksDBStore(path, kind, create_if_missing=True) as opened:
            opened.put(b"key", (rows or f"{directory.state_dir.name} at {offset}").encode())
            opened.commit({self.changelog(store, task): offset})
        if kind is StoreKind.GRACE_BUFFER:
            file = directory.task_path(task) / f".checkpoint_{store}"
            file.write_bytes(encode_checkpoint({self.changelog(store, task): offset}))
        return path

    def changelog(self, store: str, task: str = "0_0") -> TopicPartition:
        return TopicPartition(f"{APPLICATION}-{store}-changelog", int(task[-1]))

    def row(self, store: str, *, task: str = "0_0", start: int = 0) -> str:
        kind = KINDS[store]
        path = self.live.task_path(task) / store_directory(store, kind)
        with RocksDBStore(path / f"{store}.{start}" if kind.is_segmented else path, kind, read_only=True) as opened:
            return (opened.get(b"key") or b"").decode()

    def request(self, **asked: Any) -> PromoteRequest:
        return PromoteRequest(
            **{
                "spec_path": str(self.spec),
                "standby_dir": str(self.warm.state_dir),
                "state_dir": str(self.live.state_dir),
                "apply": True,
                "offline": True,
                **asked,
            }
        )

    def promote(self, ask: Ask | None = None, **asked: Any) -> PromoteReport:
        return run_promote(self.request(**asked), ask=ask)


def verdicts(report: PromoteReport) -> Mapping[str, PromoteVerdict]:
    return {one.task: one.verdict for one in report.tasks}


def ends(logs: Mapping[TopicPartition, int]) -> Ask:
    """Brokers whose changelogs end at these offsets."""

    def ask(stores: Collection[StandbyStoreSpec], epochs: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, Any]:
        def end(at: TopicPartition) -> ChangelogEnd:
            log_end = logs.get(at, 0)
            topic = TopicDescription(at.topic, "a" * 32, 2, {"cleanup.policy": "compact"})
            return ChangelogEnd(log_end, LogOffsets(0, log_end, log_end, 0), topic, None, 0)

        return {one.changelog: end(one.changelog) for one in stores}

    return ask


def where(partition: TopicPartition) -> dict[str, Any]:
    return {"topic": partition.topic, "partition": partition.partition}


def killed(path: Path, kind: str = "KEY_VALUE") -> None:
    """Leave a store as a process leaves it that is killed after it had opened it."""
    opens = "import os; from statecore import RocksDBStore, StoreKind\n"
    opens += f"RocksDBStore({str(path)!r}, StoreKind.{kind}).open(); os._exit(0)"
    subprocess.run([sys.executable, "-c", opens], check=True)
    assert read_database_state(path).status == 1


PRICES = TopicPartition(f"{APPLICATION}-prices-changelog", 0)


VERSIONED = SPEC + "      prices: {{kind: versioned-key-value, retention: 1h}}\n"


def with_prices(tmp_path: Path, guarantee: str = "exactly_once_v2") -> World:
    """A world with a versioned store, which a standby makes empty and does not follow."""
    world = World(tmp_path, guarantee)
    world.spec.write_text(VERSIONED.format(guarantee=guarantee))
    for task in ("0_0", "0_1"):
        world.store(world.warm, "totals", 9, task=task)
        empty = world.warm.task_path(task) / "rocksdb" / "prices"
        create_database(
            empty, StoreKind.VERSIONED_KEY_VALUE, {TopicPartition(PRICES.topic, int(task[-1])): OFFSET_UNKNOWN}
        )
    return world


def prices(world: World, offset: int | None) -> Path:
    """The application's own versioned store, with a row."""
    path = world.live.task_path("0_0") / "rocksdb" / "prices"
    path.parent.mkdir(parents=True, exist_ok=True)
    with RocksDBStore(path, StoreKind.VERSIONED_KEY_VALUE, create=True) as store:
        store.put(bytes(7) + b"key", b"versions")
        store.commit({} if offset is None else {PRICES: offset})
    return path


def price_rows(world: World) -> list[tuple[bytes, bytes]]:
    path = world.live.task_path("0_0") / "rocksdb" / "prices"
    with RocksDBStore(path, StoreKind.VERSIONED_KEY_VALUE, read_only=True) as store:
        return list(store.all())
