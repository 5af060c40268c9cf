"""An application that runs an older release gets no databases of this one, and how it has a copy all the same."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from statecore.formats.checkpoint import encode_checkpoint
from statecore.formats.kinds import StoreKind
from statecore.formats.releases import CURRENT
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.fields.catalog import TargetRelease
from statecore.jobs.migrate.request import MigrateRequest
from statecore.jobs.migrate.run import run_migrate
from statecore.standby.promote.report import PromoteOutcome, PromoteReport, PromoteVerdict
from statecore.standby.promote.request import PromoteRequest
from statecore.standby.promote.run import run_promote
from statecore.statedir.database_state import create_database, read_database_state
from statecore.statedir.file_trees import fingerprint
from statecore.statedir.state_directory import StateDirectory
from tests.golden.directories import golden_directories, unpacked
from tests.harness.case_selection import one_of
from tests.unit.standby.promote.promoting import World, killed, verdicts

OLDER = ["4.2.0-exactly-once-clean", "4.2.0-at-least-once-clean", "3.9.1-exactly-once-clean"]
KINDS = {
    "key-value": StoreKind.KEY_VALUE,
    "timestamped-key-value": StoreKind.TIMESTAMPED_KEY_VALUE,
    "session": StoreKind.SESSION,
    "timestamped-window": StoreKind.TIMESTAMPED_WINDOW,
}


class Older:
    """A directory that an older release of Kafka Streams has left, and standby tasks that are further in each store."""

    def __init__(self, root: Path, name: str, *, has_versioned: bool = False) -> None:
        golden = golden_directories()[name]
        unpacked(name, root / "live")
        self.live, self.warm = StateDirectory(root / "live", name), StateDirectory(root / "warm", name)
        said = yaml.safe_load(golden.stores_yaml())
        said["subtopologies"] = {"0": said["subtopologies"]["0"]}
        stores = said["subtopologies"]["0"]["stores"]
        if not has_versioned:  # a placement refuses one that it would keep beside the others
            stores.pop("versioned-key-value")
        self.spec = root / "stores.yaml"
        self.spec.write_text(yaml.safe_dump(said))
        for task in ("0_0", "0_1"):
            if not has_versioned:
                shutil.rmtree(self.live.task_path(task) / "rocksdb" / "versioned-key-value")
            for store, kind in KINDS.items():
                plain = self.warm.task_path(task) / "rocksdb" / store
                path = self.warm.task_path(task) / store / f"{store}.0" if kind.is_segmented else plain
                path.parent.mkdir(parents=True, exist_ok=True)
                create_database(path, kind, {TopicPartition(f"{name}-{store}-changelog", int(task[-1])): 500})

    def promote(self) -> PromoteReport:
        return run_promote(
            PromoteRequest(
                spec_path=str(self.spec),
                standby_dir=str(self.warm.state_dir),
                state_dir=str(self.live.state_dir),
                apply=True,
                offline=True,
            )
        )

    def migrate(self, to: str) -> None:
        run_migrate(
            MigrateRequest(
                application_id=self.live.application_id,
                state_dir=str(self.live.state_dir),
                spec_path=str(self.spec),
                to=TargetRelease(to),
                apply=True,
            ),
            InProcessEngine(),
        )

    def has_offsets(self) -> set[bool]:
        """Whether the databases of the application have the family that 4.2 and older do not open."""
        found = (read_database_state(file.parent) for file in self.live.path.glob("*_*/**/CURRENT"))
        return {"offsets" in state.column_families for state in found}


@pytest.mark.parametrize("name", one_of(OLDER))
def test_what_an_older_release_has_left_gets_no_databases_of_this_one(tmp_path: Path, name: str) -> None:
    world = Older(tmp_path, name)
    before = {task: fingerprint(world.live.task_path(task)) for task in ("0_0", "0_1")}
    report = world.promote()
    assert (report.outcome, set(verdicts(report).values())) == (PromoteOutcome.UNCHANGED, {PromoteVerdict.REFUSED})
    assert {task.code for task in report.tasks} == {"release-too-old"}
    assert all(f"statecore migrate --to {CURRENT.name}" in task.why for task in report.tasks)
    assert {task: fingerprint(world.live.task_path(task)) for task in before} == before


def test_a_task_that_is_not_there_is_refused_where_all_others_are_of_an_older_release(tmp_path: Path) -> None:
    world = Older(tmp_path, OLDER[0])
    shutil.rmtree(world.live.task_path("0_1"))
    assert verdicts(world.promote()) == {"0_0": PromoteVerdict.REFUSED, "0_1": PromoteVerdict.REFUSED}
    assert not world.live.task_path("0_1").exists()


def test_a_copy_migrated_up_promoted_and_migrated_down_serves_an_older_release(tmp_path: Path) -> None:
    world = Older(tmp_path, OLDER[0], has_versioned=True)
    world.migrate("4.3")
    assert set(verdicts(world.promote()).values()) == {PromoteVerdict.PROMOTED}
    assert world.has_offsets() == {True}
    world.migrate("4.2")
    assert world.has_offsets() == {False}
    files = [(world.live.task_path(task) / ".checkpoint").read_text() for task in ("0_0", "0_1")]
    assert [text.count(" 500\n") for text in files] == [len(KINDS)] * 2


def test_one_task_opened_by_this_release_decides_for_missing_ones(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.store(world.live, "totals", 9)
    world.store(world.warm, "totals", 9, task="0_1")
    assert verdicts(world.promote()) == {"0_1": PromoteVerdict.PROMOTED}


def test_a_grace_buffer_that_was_killed_is_no_reason_to_call_a_task_older(tmp_path: Path) -> None:
    world = World(tmp_path, "at_least_once")
    path = world.store(world.live, "late", 3)
    killed(path, "GRACE_BUFFER")
    world.store(world.warm, "late", 9)
    (world.live.task_path("0_0") / ".checkpoint_late").write_bytes(encode_checkpoint({world.changelog("late"): 4}))
    assert verdicts(world.promote()) == {"0_0": PromoteVerdict.PROMOTED}


def test_a_damaged_store_of_another_task_decides_no_release(tmp_path: Path) -> None:
    world = World(tmp_path)
    path = world.store(world.live, "totals", 9)
    next(path.glob("MANIFEST-*")).write_bytes(b"nonsense")
    world.store(world.warm, "totals", 9, task="0_1")
    assert verdicts(world.promote()) == {"0_1": PromoteVerdict.PROMOTED}


def test_an_application_of_which_this_release_has_opened_one_task_gets_those_that_are_not_there(tmp_path: Path) -> None:
    """It was upgraded, and has not started all of its tasks yet."""
    world = Older(tmp_path, OLDER[0])
    shutil.rmtree(world.live.task_path("0_1"))
    shutil.copytree(world.warm.task_path("0_1"), world.live.task_path("0_1"))
    shutil.copytree(world.warm.task_path("0_0"), world.warm.task_path("0_2"))
    for store, kind in KINDS.items():
        path = world.warm.task_path("0_2") / (f"{store}/{store}.0" if kind.is_segmented else f"rocksdb/{store}")
        shutil.rmtree(path)
        changelog = TopicPartition(f"{world.live.application_id}-{store}-changelog", 2)
        create_database(path, kind, {changelog: 500})
    found = verdicts(world.promote())
    assert (found["0_0"], found["0_2"]) == (PromoteVerdict.REFUSED, PromoteVerdict.PROMOTED)
