"""Directories of Kafka Streams 4.2 with which 4.2 does not start or answers wrongly: after a repair it does neither."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from statecore.formats.checkpoint import decode_checkpoint, encode_checkpoint
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.repair.report import RepairOutcome
from tests.harness import damage_functions
from tests.harness.case_selection import one_of
from tests.harness.command import examined, worse_than_notes
from tests.harness.feeds import EVENTS
from tests.harness.fleet import GUARANTEES, NEWEST, Fleet, VersionedApplication
from tests.harness.fleet_kinds import SMALL
from tests.harness.flushing import flush
from tests.harness.kinds import GLOBALS, KindsApplication
from tests.harness.queries import Row
from tests.harness.repairing import repair
from tests.harness.streams import StreamsFailed

pytestmark = pytest.mark.integration


@pytest.mark.full
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_stray_entry_of_a_global_checkpoint_file_ends_every_start_of_4_2(
    fleet: Fleet, application_id: str, state_dir: Path, tmp_path: Path, guarantee: str
) -> None:
    """``checkpoint-stray``, of a global table that the application has no more."""
    world = fleet.application(application_id, state_dir, guarantee, GLOBALS, 1)
    with world.on("4.2") as running:
        world.feed_all()
        right = world.answers(running)
    file = world.directory / "global" / ".checkpoint"
    said = decode_checkpoint(file.read_bytes(), str(file))
    file.write_bytes(encode_checkpoint({**said, TopicPartition(f"{application_id}-gone", 0): 3}))
    spec = world.write_spec(tmp_path / "stores.yaml")

    repaired = tmp_path / "repaired"
    shutil.copytree(state_dir, repaired)
    with pytest.raises(StreamsFailed), world.on("4.2"):
        pass
    assert file.exists(), "and so the next start fails as well"

    for release, code, severity in (("4.2", 21, "error"), (NEWEST, 20, "warning")):
        returned, findings = examined(repaired, spec, "--to", release)
        worse = [(one["code"], one["severity"]) for one in worse_than_notes(findings)]
        assert (returned, worse) == (code, [("checkpoint-stray", severity)])
    report = repair(application_id, repaired, spec)
    assert (report.outcome, report.remaining) == (RepairOutcome.REPAIRED, ())
    world.state_dir = repaired
    assert decode_checkpoint((world.directory / "global" / ".checkpoint").read_bytes(), "it") == said
    for release in ("4.2", NEWEST):
        with world.on(release) as running:
            assert world.answers(running) == right
            assert world.restored(running) == {}


PLAIN, WINDOWS = "key-value", "timestamped-window"
STORES = KindsApplication(
    "gone",
    tuple(case for case in SMALL.cases if case.store in (PLAIN, WINDOWS)),
    lambda base, partitions: [one for one in SMALL.feed(base, partitions) if one[0] == EVENTS],
    SMALL.properties,
)
Place = tuple[str, int | None]


def _opened(world: VersionedApplication, release: str) -> tuple[dict[Place, list[Row]], set[Place]]:
    """What a release answers, and the stores of which it has restored something."""
    with world.on(release) as running:
        answers = dict(world.answers(running))
        return answers, {place for place, records in running.restored_records().items() if records}


def _unknown(file: Path, changelog: str) -> None:
    """Write -4 in the place of the offset of a store, as a person would."""
    said = decode_checkpoint(file.read_bytes(), str(file))
    file.write_bytes(encode_checkpoint({part: -4 if part.topic == changelog else at for part, at in said.items()}))


@pytest.mark.parametrize("guarantee", one_of([*reversed(GUARANTEES)]))
def test_what_is_gone_while_checkpoint_keeps_its_offset_is_missing_without_a_word(
    fleet: Fleet, application_id: str, state_dir: Path, tmp_path: Path, guarantee: str
) -> None:
    """``checkpoint-stray`` and ``manifest-truncated``."""
    world = fleet.application(application_id, state_dir, guarantee, STORES, 3)
    with world.on("4.2") as running:
        world.feed_all()
        right = world.answers(running)
    spec = world.write_spec(tmp_path / "stores.yaml")
    shutil.rmtree(world.directory / "0_0/rocksdb" / PLAIN)
    damage_functions.cut_manifest(world.directory / "0_1/rocksdb" / PLAIN, all_files=True, between=True)
    for segment in damage_functions.segments_of(world.directory, WINDOWS, "0_2"):
        shutil.rmtree(segment)
    for copy in ("newer", "repaired"):
        shutil.copytree(state_dir, tmp_path / copy)

    damaged = {(PLAIN, 0), (PLAIN, 1), (WINDOWS, 2)}
    answers, restored = _opened(world, "4.2")
    assert ({place for place in right if answers[place] != right[place]}, restored) == (damaged, set())
    world.state_dir = tmp_path / "newer"
    answers, restored = _opened(world, NEWEST)
    assert {place for place in right if answers[place] != right[place]} == {(PLAIN, 0), (PLAIN, 1)}
    assert restored == {
        place for place in right if place[1] == 2 and (guarantee == "exactly_once_v2" or place in damaged)
    }

    _, findings = examined(tmp_path / "repaired", spec, "--to", "4.2")
    losses = {(one["code"], one["task"], one["store"]) for one in findings if one["severity"] == "loss"}
    assert losses == {
        ("checkpoint-stray", "0_0", PLAIN),
        ("manifest-truncated", "0_1", PLAIN),
        ("rows-differ", "0_1", PLAIN),
        ("checkpoint-stray", "0_2", WINDOWS),
    }
    world.state_dir = tmp_path / "repaired"
    report = repair(application_id, world.state_dir, spec)
    assert [(one.task, one.codes) for one in report.repaired] == [("0_0", ("checkpoint-stray",))]
    assert report.rebuilt == ()
    shutil.rmtree(world.directory / "0_1/rocksdb" / PLAIN)
    _unknown(world.directory / "0_1/.checkpoint", f"{application_id}-{PLAIN}-changelog")
    _unknown(world.directory / "0_2/.checkpoint", f"{application_id}-{WINDOWS}-changelog")
    answers, restored = _opened(world, "4.2")
    assert answers == right
    assert restored == damaged | ({(WINDOWS, 0)} if guarantee == "exactly_once_v2" else set())


@pytest.mark.full
def test_rows_that_are_older_than_their_checkpoint_file_are_found_and_those_of_a_killed_process_are_not(
    fleet: Fleet, application_id: str, state_dir: Path, tmp_path: Path
) -> None:
    """``rows-differ``: a backup was copied back by ``cp -r backup/0_1/* 0_1/``, which leaves ``.checkpoint`` out."""
    world = fleet.application(application_id, state_dir, "at_least_once", STORES, 2)
    first, second, third = world.portions()
    with world.on("4.2"):
        world.feed(first)
    spec, backup, killed = tmp_path / "stores.yaml", tmp_path / "backup", tmp_path / "killed"
    world.write_spec(spec)
    shutil.copytree(world.directory, backup)
    running = world.start("4.2")
    world.feed(second)
    flush(running)
    world.feed(third)
    fleet.kill("4.2")
    shutil.copytree(state_dir, killed)
    with world.on("4.2") as running:
        right = world.answers(running)
    assert not [one for one in examined(state_dir, spec)[1] if one["severity"] == "loss"]
    assert not [one for one in examined(killed, spec)[1] if one["severity"] == "loss"]

    for path in (world.directory / "0_1").glob("[!.]*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.copytree(backup / "0_1", world.directory / "0_1", dirs_exist_ok=True, ignore=shutil.ignore_patterns(".*"))
    returned, findings = examined(state_dir, spec)
    assert (returned, {(one["code"], one["task"], one["store"]) for one in worse_than_notes(findings)}) == (
        22,
        {("rows-differ", "0_1", PLAIN), ("rows-differ", "0_1", WINDOWS)},
    )
    answers, restored = _opened(world, NEWEST)
    assert ({place for place in right if answers[place] != right[place]}, restored) == (
        {(PLAIN, 1), (WINDOWS, 1)},
        set(),
    )
