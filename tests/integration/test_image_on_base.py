"""Real Kafka Streams opens images that were built on what it had left itself, of the changelog's tail alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from statecore.changelog.cluster import Cluster
from statecore.changelog.model import IsolationLevel, OffsetRange
from statecore.changelog.reader import ChangelogReader, ReaderOptions
from statecore.filesystem import file_sha256
from statecore.formats.kinds import StoreKind
from statecore.formats.rocksdb_log import read_manifest
from statecore.formats.topic_partition import TopicPartition
from statecore.images.image import build_image
from statecore.images.linked_bases import ImageBase, ImageBases
from statecore.images.model import BaseDatabases
from statecore.spec.model import ProcessingGuarantee
from statecore.statedir.database_state import read_database_state
from statecore.statedir.placement import apply_placement
from statecore.statedir.placement_plan import plan_placement
from statecore.statedir.placement_stores import StoreImage
from statecore.statedir.state_directory import StateDirectory
from tests.harness import topics
from tests.harness.broker import Broker
from tests.harness.streams import StreamsJvm
from tests.harness.tables import KINDS, PARTITIONS, World
from tests.harness.verify_image import verify_image
from tests.unit.images.changelog import CuttingRunBuilder

pytestmark = pytest.mark.integration

TASKS = {f"0_{partition}": partition for partition in range(PARTITIONS)}


def sst_files(path: Path, *, data_only: bool = False) -> dict[str, tuple[int, str]]:
    """The SST files of a database with inode and hash; or those of its rows, without the offsets."""
    named = read_manifest((path / (path / "CURRENT").read_text().strip()).read_bytes()).files.values()
    files = [path / f"{file.number:06d}.sst" for file in named if not data_only or file.family != "offsets"]
    return {file.name: (file.stat().st_ino, file_sha256(file)) for file in files}


def test_kafka_streams_resumes_from_an_advanced_directory_and_rewrites_nothing(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path, tmp_path: Path
) -> None:
    world = World(broker, streams_jvm, application_id, state_dir, "exactly_once_v2")
    world.feed()
    world.live()
    shutil.copytree(state_dir / application_id, tmp_path / "base")
    world.feed(rounds=4, keys=120)
    before = world.live()
    world.lose()

    cluster = Cluster(world.servers, {}, timeout=300)
    images, linked, tails = [], {}, 0
    for task, partition in TASKS.items():
        for store, kind in KINDS.items():
            changelog = TopicPartition(f"{application_id}-{store}-changelog", partition)
            base = tmp_path / "base" / task / "rocksdb" / store
            start = read_database_state(base).offsets[changelog] + 1
            end = topics.end_offset(world.servers, changelog.topic, partition)
            at = tmp_path / f"{task}.{store}"
            (at / "runs").mkdir(parents=True)
            # One batch a run, so that there are more than Kafka Streams leaves alone.
            builder = CuttingRunBuilder(
                StoreKind(kind),
                at / "runs",
                base=BaseDatabases.ALL,
                start=start,
                memory_budget=1,
            )
            reader = ChangelogReader(cluster, ReaderOptions())
            for batch in reader.read(OffsetRange(*changelog, start, end), IsolationLevel.READ_COMMITTED):
                for first in range(0, batch.num_rows, 60):
                    builder.add(batch.slice(first, 60))
            runs = builder.finish(end)
            tails += len(runs)
            files = sst_files(base)
            bases = ImageBases({None: ImageBase(base)}, {changelog: start})
            build_image(at / "image", StoreKind(kind), runs, {changelog: end - 1}, bases=bases)
            assert sst_files(base) == files
            assert files.items() <= sst_files(at / "image").items()
            assert verify_image(at / "image", StoreKind(kind), [changelog]).rows
            linked[task, store] = sst_files(at / "image", data_only=True)
            assert linked[task, store].keys() & files.keys()
            images.append(StoreImage(task, store, StoreKind(kind), changelog, at / "image", {changelog: end - 1}))
    cluster.close()
    assert tails > 3 * len(images)

    directory = StateDirectory(state_dir, application_id)
    with directory.lock():
        guarantee = ProcessingGuarantee("exactly_once_v2")
        apply_placement(plan_placement(directory, images, siblings=[], guarantee=guarantee, request_id="one"))
    with world.application() as running:
        assert sum(running.restored_records().values()) == 0
        assert world.answers(running) == before
        for (task, store), files in linked.items():
            there = sst_files(state_dir / application_id / task / "rocksdb" / store)
            assert files.items() <= there.items()
