"""A publication keeps the tasks of the newest snapshot that its job has not built, and the application still has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statecore.errors import Invalid
from statecore.faults import FaultInjected, InjectedFault
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.backup.request import BackupRequest
from statecore.jobs.backup.run import run_backup
from statecore.jobs.checkpoint.request import CheckpointRequest
from statecore.jobs.checkpoint.run import run_checkpoint
from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.fetch.request import FetchRequest
from statecore.jobs.fetch.run import run_fetch
from statecore.jobs.restore.request import RestoreRequest
from statecore.jobs.restore.run import run_restore
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.repository import create_repository
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.store_on_disk import read_store
from tests.harness import topics
from tests.harness.broker import Broker
from tests.harness.raising import raises
from tests.harness.small_application import small_application
from tests.harness.topics import Record

pytestmark = pytest.mark.integration


def newest_tasks(url: str, application_id: str) -> list[str]:
    repository = ApplicationRepository.open(url, application_id)
    return [one.task for one in repository.manifest(repository.head().snapshots[0]).value.task_manifests]


def repository_in(tmp_path: Path) -> str:
    url = (tmp_path / "repository").as_uri()
    create_repository(url)
    return url


def write_more(broker: Broker, application_id: str) -> None:
    topic = f"{application_id}-by-id-changelog"
    topics.produce(broker.bootstrap_servers, topic, [Record(b"key-1", b"new", 1)] * 3)


def test_a_restore_keeps_tasks_that_are_at_the_end_of_their_changelogs(
    broker: Broker, application_id: str, tmp_path: Path
) -> None:
    spec, url, state_dir = small_application(broker, application_id), repository_in(tmp_path), str(tmp_path / "state")
    run_restore(RestoreRequest(spec=spec, repository=url, start_from="none"), InProcessEngine())
    run_restore(RestoreRequest(spec=spec, state_dir=state_dir, partitions=(0,), start_from="none"), InProcessEngine())
    write_more(broker, application_id)
    run_restore(RestoreRequest(spec=spec, state_dir=state_dir, repository=url), InProcessEngine())
    assert newest_tasks(url, application_id) == ["0_0", "0_1"]
    fetched = run_fetch(FetchRequest(repository=url, application_id=application_id, state_dir=str(tmp_path / "other")))
    assert {one.task for one in fetched.stores} == {"0_0", "0_1"}


@pytest.mark.parametrize("verb", ["checkpoint", "restore"])
def test_a_global_store_that_a_processor_fills_stays_as_a_backup_published_it(
    broker: Broker, application_id: str, tmp_path: Path, verb: str
) -> None:
    spec, url, state_dir = small_application(broker, application_id), repository_in(tmp_path), str(tmp_path / "state")
    topic = f"{application_id}-all"
    topics.create(broker.bootstrap_servers, topic, 1, topics.UNCLEANED)
    topics.produce(broker.bootstrap_servers, topic, [Record(b"%d" % n, b"g") for n in range(100)])

    def declared(**more: Any) -> dict[str, Any]:
        return {**spec, "global_stores": {"everywhere": {"kind": "key-value", "topic": topic, **more}}}

    run_restore(RestoreRequest(spec=declared(), state_dir=state_dir, start_from="none"), InProcessEngine())
    filled = declared(reprocess=True)
    run_backup(BackupRequest(spec=filled, state_dir=state_dir, repository=url))
    write_more(broker, application_id)
    if verb == "checkpoint":
        run_checkpoint(CheckpointRequest(spec=filled, repository=url), InProcessEngine())
    else:
        run_restore(RestoreRequest(spec=filled, repository=url), InProcessEngine())
    assert newest_tasks(url, application_id) == ["0_0", "0_1", "global"]


@pytest.mark.parametrize("replace", [False, True])
def test_a_restore_does_not_take_what_a_fetch_of_the_same_request_id_has_placed_for_its_own(
    broker: Broker, application_id: str, tmp_path: Path, replace: bool
) -> None:
    spec, url, state_dir = small_application(broker, application_id), repository_in(tmp_path), tmp_path / "state"
    run_restore(RestoreRequest(spec=spec, repository=url, start_from="none"), InProcessEngine())
    topic = f"{application_id}-by-id-changelog"
    topics.produce(broker.bootstrap_servers, topic, [Record(b"key-%d" % n, None, n % 2) for n in range(100)])
    request = RestoreRequest(spec=spec, state_dir=str(state_dir), start_from="none", request_id="same", replace=replace)
    with pytest.raises(FaultInjected):
        run_restore(request, InProcessEngine(), faults=InjectedFault("placement.start"))
    run_fetch(FetchRequest(repository=url, application_id=application_id, state_dir=str(state_dir), request_id="same"))
    if not replace:
        with raises(Invalid, "placement-refused"):
            run_restore(request, InProcessEngine())
        return
    run_restore(request, InProcessEngine())
    stores = StateDirectory(state_dir, application_id).stores("0_1")
    assert [read_store(one).smallest_offsets for one in stores] == [{TopicPartition(topic, 1): 2549}]
