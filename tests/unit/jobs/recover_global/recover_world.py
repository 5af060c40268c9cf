"""The directory of an application with two global stores, whose topics are scripted."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.recover_global.request import RecoverGlobalRequest
from statecore.jobs.recover_global.run import run_recover_global
from statecore.jobs.repair.report import RepairReport
from statecore.stores.rocksdb.store import RocksDBStore
from tests.unit.changelog.scripted import ScriptedBrokers
from tests.unit.doctor.stored import offsets, write_database
from tests.unit.global_stores.global_world import log

TRUTH = {b"a": b"1", b"b": b"2"}


class RecoverWorld:
    """An application's directory with two global stores, and the cluster of their topics."""

    def __init__(self, directory: Path, guarantee: str, application_id: str = "app") -> None:
        self.application_id = application_id
        self.brokers = ScriptedBrokers()
        self.state_dir, self.guarantee = directory / "state", guarantee
        for topic in ("prices", "rates"):
            self.brokers.add(topic, [log(TRUTH)])
            self.write(topic, {"default": list(TRUTH.items()), "offsets": offsets(topic, 0, 2)})

    @property
    def path(self) -> Path:
        return self.state_dir / self.application_id / "global"

    def database(self, topic: str) -> Path:
        return self.path / "rocksdb" / f"{topic}-store"

    def write(self, topic: str, families: Mapping[str, Any]) -> None:
        write_database(self.database(topic), families)

    def damage(self, topic: str, offset: int, **families: Any) -> None:
        """Writes the store with another offset."""
        shutil.rmtree(self.database(topic))
        self.write(topic, {"default": [(b"old", b"x")], "offsets": offsets(topic, 0, offset, **families)})

    @property
    def spec(self) -> Path:
        spec = self.state_dir / "stores.yaml"
        spec.write_text(
            f"application_id: {self.application_id}\nbootstrap_servers: {self.brokers.address}\n"
            f"processing_guarantee: {self.guarantee}\nglobal_stores:\n"
            "  prices-store: {kind: key-value, topic: prices}\n  rates-store: {kind: key-value, topic: rates}\n"
        )
        return spec

    def outdate(self) -> None:
        """Both stores as Kafka Streams 4.2 leaves them, one past its topic's end: no repair is known for that."""
        for topic in ("prices", "rates"):
            shutil.rmtree(self.database(topic))
            self.write(topic, {"default": list(TRUTH.items())})
        (self.path / ".checkpoint").write_text("0\n2\nprices 0 9\nrates 0 2\n")

    def recover(self, **asked: Any) -> RepairReport:
        faults = {"faults": asked.pop("faults")} if "faults" in asked else {}
        request = RecoverGlobalRequest(spec_path=str(self.spec), state_dir=str(self.state_dir), **asked)
        return run_recover_global(request, InProcessEngine(), **faults)

    def rows(self, topic: str) -> dict[bytes, bytes]:
        with RocksDBStore(self.database(topic), StoreKind.KEY_VALUE, read_only=True) as store:
            assert store.committed_offsets() == {TopicPartition(topic, 0): 2}
            return dict(store.all())
