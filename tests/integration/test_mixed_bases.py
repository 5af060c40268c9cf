"""A task of which one store is based on the directory and another on a snapshot gets the whole tail of both."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from statecore.jobs.backup.request import BackupRequest
from statecore.jobs.backup.run import run_backup
from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.restore.request import RestoreRequest
from statecore.jobs.restore.run import run_restore
from statecore.repository.repository import create_repository
from tests.harness import directory, topics
from tests.harness.broker import Broker
from tests.harness.modes import AT_LEAST_ONCE, EXACTLY_ONCE
from tests.harness.mounts import disk
from tests.harness.streams import StreamsJvm
from tests.harness.tables import World
from tests.harness.topics import Record

pytestmark = pytest.mark.integration

STORES = ("left", "right")
Rows = dict[tuple[str, str], list[tuple[bytes, bytes]]]


def rows(state_dir: Path, application_id: str) -> Rows:
    found = directory.read_application(state_dir / application_id)
    return {key: sorted(families["default"]) for key, families in found.items()}


@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, pytest.param(AT_LEAST_ONCE, marks=pytest.mark.full)])
@pytest.mark.parametrize("read_only", [False, True], ids=["writable", "read-only"])
def test_every_row_is_that_of_a_restore_of_whole_changelogs(
    broker: Broker, application_id: str, tmp_path: Path, guarantee: str, read_only: bool
) -> None:
    """The repository is only read: of such a task nothing is published."""
    servers = broker.bootstrap_servers
    for store in STORES:
        topics.create(servers, f"{application_id}-{store}-changelog", 2, topics.UNCLEANED)
        old = [Record(b"key-%d" % (n % 500), b"old-%d" % n, n % 2) for n in range(2_000)]
        topics.produce(servers, f"{application_id}-{store}-changelog", old)
    spec = {
        "application_id": application_id,
        "bootstrap_servers": servers,
        "processing_guarantee": guarantee,
        "subtopologies": {"0": {"stores": {store: {"kind": "key-value"} for store in STORES}}},
    }
    with disk(tmp_path / "disk", "64m") as mounted:
        url = (mounted.path / "repository").as_uri()
        create_repository(url)
        whole, state_dir = tmp_path / "whole", tmp_path / "state"
        run_restore(RestoreRequest(spec=spec, repository=url, start_from="none"), InProcessEngine())
        run_restore(RestoreRequest(spec=spec, state_dir=str(state_dir), start_from="none"), InProcessEngine())
        for store in STORES:
            tail = [Record(b"key-%d" % n, None if n % 3 == 0 else b"new", n % 2) for n in range(300, 700)]
            topics.produce(servers, f"{application_id}-{store}-changelog", tail)
        for task in ("0_0", "0_1"):
            shutil.rmtree(state_dir / application_id / task / "rocksdb" / "right")
        if read_only:
            mounted.remount("ro")
        run_restore(RestoreRequest(spec=spec, state_dir=str(state_dir), repository=url), InProcessEngine())
    run_restore(RestoreRequest(spec=spec, state_dir=str(whole), start_from="none"), InProcessEngine())
    assert rows(state_dir, application_id) == rows(whole, application_id)


def test_kafka_streams_restores_nothing_and_answers_as_before(
    broker: Broker, streams_jvm: StreamsJvm, application_id: str, state_dir: Path, tmp_path: Path
) -> None:
    world = World(broker, streams_jvm, application_id, state_dir, EXACTLY_ONCE)
    world.feed(rounds=60)
    world.live()
    url = (tmp_path / "repository").as_uri()
    create_repository(url)
    run_backup(BackupRequest(spec=world.spec(), state_dir=str(state_dir), repository=url))
    world.feed(rounds=2, keys=300)
    answers = world.live()
    for task in ("0_0", "0_1"):
        shutil.rmtree(state_dir / application_id / task / "rocksdb" / "stamped")
    run_restore(world.request(repository=url), InProcessEngine())
    assert world.reopen() == (answers, 0)
