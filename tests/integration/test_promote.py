"""Standby tasks take the place of what was lost: Kafka Streams restores what is missing, and answers as before."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import Fenced, Invalid
from statecore.spec.reader import parse_spec
from statecore.statedir.database_state import read_database_state
from statecore.statedir.file_trees import fingerprint
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.store_places import store_places
from tests.harness import topics
from tests.harness.broker import Broker
from tests.harness.command import statecore_here
from tests.harness.feeds import EVENTS, SOURCE, Portion
from tests.harness.fleet import NEWEST, Fleet, VersionedApplication
from tests.harness.fleet_kinds import SMALL, SPARSE_WINDOWS
from tests.harness.flushing import flush
from tests.harness.kinds import KindsApplication
from tests.harness.shop_application import Shop

pytestmark = [pytest.mark.integration]

VERSION = NEWEST
OLDER = "4.2.0"
VERSIONED = {"versioned-key-value"}


def _feed(base: int, partitions: int) -> list[Portion]:
    return [(role, records) for role, records in SMALL.feed(base, partitions) if role in (EVENTS, SOURCE)]


KINDS = KindsApplication(
    "handed",
    tuple(case for case in SMALL.cases if not case.is_global and not case.store.startswith("grace")),
    _feed,
    SMALL.properties,
)
"""Stores of every shape; grace buffers are another test's."""


class Handing:
    """An application, its standby tasks in another directory, and the commands."""

    def __init__(self, world: VersionedApplication, scratch: Path) -> None:
        self.world, self.warm, self.spec = world, scratch / "warm", scratch / "stores.yaml"

    def write_spec(self) -> None:
        """When the topology is known."""
        self.spec.write_text(json.dumps(self.world.spec()))

    def follow(self) -> None:
        """One round of the standby, which closes the copy."""
        done = statecore_here("standby", "--spec", self.spec, "--state-dir", self.warm, "--once")
        assert done.returncode == 0, done.stderr

    @contextmanager
    def followed(self) -> Iterator[None]:
        """A standby that runs, and has been round once; it closes the copy at the end of the block."""
        command = [sys.executable, "-m", "statecore.cli.main", "standby", "--spec", str(self.spec), "--state-dir"]
        command += [str(self.warm), "--interval", "200ms", "--json"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as service:
            assert service.stderr is not None
            try:
                assert next(service.stderr).startswith("Following ")
                assert next(service.stderr).startswith("round 1: lag")
                yield
            finally:
                service.send_signal(signal.SIGTERM)
                service.communicate(timeout=240)
        assert service.returncode == 0

    def promote(self, *more: str) -> tuple[int, dict[str, Any]]:
        """Exit code, and the report or the error."""
        words = ["--spec", self.spec, "--standby-dir", self.warm, "--state-dir", self.world.state_dir, "--json", *more]
        done = statecore_here("promote", *words)
        return done.returncode, json.loads(done.stdout)

    def offsets(self) -> dict[tuple[str, int], int]:
        """How far the copy is, by store and partition; the lowest of its segments."""
        found: dict[tuple[str, int], int] = {}
        for place in store_places(StateDirectory(self.warm, self.world.application_id)):
            for database in place.databases:
                for at, offset in read_database_state(database).offsets.items():
                    key = place.store, at.partition
                    found[key] = min(offset, found.get(key, offset))
        return found

    def counts(self, behind: Mapping[tuple[str, int], int]) -> dict[str, int]:
        """How many records the changelog of each store has behind these offsets, over all partitions."""
        changelogs = {store.name: store.changelog for store in parse_spec(self.world.spec()).stores}
        found: dict[str, int] = {}
        for store, partition in behind:
            records = topics.read(self.world.servers, changelogs[store], partition)
            later = [one for one in records if one.offset is not None and one.offset > behind[store, partition]]
            found[store] = found.get(store, 0) + len(later)
        return found


@pytest.mark.parametrize(
    ("guarantee", "how"), [("exactly_once_v2", "killed"), pytest.param("at_least_once", "lost", marks=pytest.mark.full)]
)
def test_kafka_streams_restores_only_the_tail_after_a_promoted_copy(
    fleet: Fleet, tmp_path: Path, guarantee: str, how: str
) -> None:
    world = fleet.application(f"handed-{uuid.uuid4().hex[:8]}", tmp_path / "state", guarantee, KINDS)
    handing = Handing(world, tmp_path)
    first, second, third = world.portions()
    running = world.start(VERSION)
    world.feed([*first, *second])
    handing.write_spec()
    with handing.followed():
        code, error = handing.promote("--apply")
        assert (code, str(handing.warm) in json.dumps(error)) == (Fenced.exit_code, True)
    copied = handing.offsets()
    world.feed(third)
    code, error = handing.promote("--apply")
    assert (code, str(world.directory) in json.dumps(error)) == (Fenced.exit_code, True)
    before = world.answers(running)
    if how == "killed":
        assert flush(running)  # what is on disk is further than the copy, and says that it was not closed
        fleet.kill(VERSION)
    else:
        world.close()
        shutil.rmtree(world.directory)
    whole, tail = handing.counts(dict.fromkeys(copied, -1)), handing.counts(copied)
    assert all(0 < tail[store] < whole[store] for store in tail.keys() - VERSIONED)
    assert {store for store in tail if tail[store] == whole[store]} == VERSIONED  # the copy does not follow it

    code, report = handing.promote("--apply")

    assert (code, {one["verdict"] for one in report["tasks"]}) == (0, {"promoted"})
    said = "is created empty" if how == "killed" else "restores versioned-key-value from the start"
    noted = [one["task"] for one in report["tasks"] if any(said in note for note in one["notes"])]
    assert noted == [one["task"] for one in report["tasks"] if "key-value" in one["stores"]]  # of the same tasks
    assert len(noted) == world.partitions
    with world.on(VERSION) as running:
        assert world.restored(running) == tail
        assert world.answers(running) == before


@pytest.mark.full
def test_an_older_release_restores_the_tail_after_a_promoted_and_migrated_copy(fleet: Fleet, tmp_path: Path) -> None:
    world = fleet.application(f"older-{uuid.uuid4().hex[:8]}", tmp_path / "state", "exactly_once_v2", KINDS)
    handing = Handing(world, tmp_path)
    first, second, third = world.portions()
    with world.on(OLDER) as running:
        world.feed([*first, *second])
        handing.write_spec()
        handing.follow()
        copied = handing.offsets()
        world.feed(third)
        before = world.answers(running)
    tail = handing.counts(copied)
    fingerprints = {path.name: fingerprint(path) for path in world.directory.glob("*_*")}
    code, report = handing.promote("--apply")  # it is there, and further
    assert (code, {one["verdict"] for one in report["tasks"]}) == (0, {"kept"})
    assert {path.name: fingerprint(path) for path in world.directory.glob("*_*")} == fingerprints

    for checkpoint in world.directory.glob("*_*/.checkpoint"):
        checkpoint.unlink()  # as after a kill: Kafka Streams would wipe every task
    code, report = handing.promote("--apply")
    assert (code, {one["verdict"] for one in report["tasks"]}) == (Invalid.exit_code, {"refused"})
    assert {one["code"] for one in report["tasks"]} == {"release-too-old"}

    shutil.rmtree(world.directory)
    assert handing.promote("--apply")[0] == 0
    where = ["--application-id", world.application_id, "--state-dir", world.state_dir, "--spec", handing.spec]
    done = statecore_here("migrate", *where, "--to", "4.2", "--apply")
    assert done.returncode == 0, done.stdout + done.stderr
    with world.on(OLDER) as running:
        assert world.restored(running) == tail
        assert world.answers(running) == before


@pytest.mark.full
def test_a_grace_buffer_is_promoted_only_at_the_end_of_its_changelog(fleet: Fleet, tmp_path: Path) -> None:
    world = fleet.application(f"graced-{uuid.uuid4().hex[:8]}", tmp_path / "state", "at_least_once", SPARSE_WINDOWS)
    handing = Handing(world, tmp_path)
    first, second, third = world.portions()
    with world.on(VERSION) as running:
        world.feed(first)
        handing.write_spec()
        handing.follow()
        world.feed([*second, *third])
        before = world.answers(running)
    shutil.rmtree(world.directory)

    code, report = handing.promote("--apply")
    graced = [one for one in report["tasks"] if one["code"] == "grace-buffer-behind"]
    assert (code, len(graced)) == (Invalid.exit_code, world.partitions)
    assert {one["verdict"] for one in graced} == {"refused"}
    assert not any((world.directory / one["task"]).exists() for one in graced)

    handing.follow()
    code, report = handing.promote("--apply")
    assert code == 0
    with world.on(VERSION) as running:
        assert world.restored(running).keys() == {"grace-table"}
        assert world.answers(running) == before


def test_a_copy_of_a_topic_that_was_created_again_is_refused_and_what_is_there_stays(
    broker: Broker, tmp_path: Path
) -> None:
    shop = Shop(broker.bootstrap_servers, tmp_path, has_global=False, partitions=1)
    spec, warm, live = tmp_path / "stores.yaml", tmp_path / "warm", tmp_path / "live"
    spec.write_text(json.dumps(shop.spec))
    shop.write(100)
    assert statecore_here("standby", "--spec", spec, "--state-dir", warm, "--once").returncode == 0
    words = ["promote", "--spec", spec, "--standby-dir", warm, "--state-dir", live, "--json"]
    topics.delete(shop.servers, shop.changelog("clicks"))
    topics.create(shop.servers, shop.changelog("clicks"), 1)
    shop.write(200)
    for more in ([], ["--apply"]):
        done = statecore_here(*words, *more)
        (task,) = json.loads(done.stdout)["tasks"]
        assert (done.returncode, task["verdict"]) == (Invalid.exit_code, "refused")
        assert task["code"] == "standby-store-stale"
        assert "clicks" in task["why"]
        assert not (live / shop.application_id / "0_0").exists()
    done = statecore_here(*words, "--offline")
    assert (done.returncode, json.loads(done.stdout)["tasks"][0]["verdict"]) == (0, "promoted")
