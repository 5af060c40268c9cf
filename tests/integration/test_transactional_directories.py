"""What doctor and migrate make of transactional stores (KIP-892), compared with what Kafka Streams does with them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from pathlib import Path

import pytest

from statecore.doctor.diagnosis import Diagnosis, diagnose_directory
from statecore.doctor.finding_catalog import Severity
from statecore.spec.reader import parse_spec
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.store_places import store_places
from tests.harness import topics
from tests.harness.case_selection import one_of
from tests.harness.crashes import DISAGREEING, PARTITION, segments_in_disagreement
from tests.harness.damage_functions import change_offsets, database_of, segments_of
from tests.harness.fleet import GUARANTEES, Fleet, Moment, VersionedApplication
from tests.harness.fleet_kinds import SMALL
from tests.harness.modes import transactional
from tests.integration.test_migrate_versions import converted

pytestmark = [pytest.mark.integration]

RELEASE = "4.4"
TRANSACTIONAL = transactional(SMALL)
BUFFER = "grace-Buffer"
ALOS, EOS = GUARANTEES
KILLED = ((EOS, Moment.FLUSHED), (EOS, Moment.FIRST_RUN), (EOS, Moment.AFTER_CLOSE), (ALOS, Moment.FLUSHED))


def application(fleet: Fleet, base: Path, guarantee: str, name: str) -> VersionedApplication:
    return fleet.application(f"{name}-{uuid.uuid4().hex[:8]}", base / name / guarantee, guarantee, TRANSACTIONAL)


def diagnosed(world: VersionedApplication, *, transactional: bool = True) -> Diagnosis:
    spec = parse_spec({**world.spec(), "transactional_state_stores": transactional})
    return diagnose_directory(StateDirectory(world.state_dir, world.application_id), spec=spec)


def worse(diagnosis: Diagnosis) -> set[tuple[str, str]]:
    """Code and store of what is more than a note."""
    return {(one.code, one.store) for one in diagnosis.findings if one.severity is not Severity.NOTE}


def identities(world: VersionedApplication) -> dict[str, str]:
    """What RocksDB called each database when it was made: another one in its place has another name."""
    found = {}
    for place in store_places(StateDirectory(world.state_dir, world.application_id)):
        for database in place.databases:
            found[str(database.relative_to(world.directory))] = (database / "IDENTITY").read_text()
    return found


def records(world: VersionedApplication) -> dict[str, int]:
    """How many records each store on disk is made of."""
    found = {}
    for case in world.kinds.cases:
        if case.kind != "in-memory":
            topic = world.inputs[case.source] if case.source else f"{world.application_id}-{case.store}-changelog"
            found[case.store] = sum(len(topics.read(world.servers, topic, p)) for p in range(world.partitions))
    return found


def kept(world: VersionedApplication, before: Mapping[str, str]) -> bool:
    """Whether every database is still the one that it was."""
    return identities(world).items() >= before.items()


@pytest.mark.parametrize(("guarantee", "moment"), one_of([*KILLED]))
def test_what_is_found_of_a_killed_application_is_what_its_next_start_does(
    fleet: Fleet, tmp_path: Path, guarantee: str, moment: Moment
) -> None:
    world = application(fleet, tmp_path, guarantee, moment.value)
    told = world.live(RELEASE, moment)
    fleet.kill(RELEASE)
    found = diagnosed(world)
    from_start = {one.store for one in found.findings if one.code == "offset-missing"}
    everything, before = records(world), identities(world)
    if moment is Moment.FIRST_RUN:
        assert from_start == everything.keys()
    else:  # the file with the buffer's offset is deleted when it is opened
        assert from_start == ({BUFFER} if guarantee == EOS else set())
    assert {one.code for one in found.findings} <= {"offset-missing", "checkpoint-behind"}
    assert Severity.ERROR not in found.counts or not found.counts[Severity.ERROR]  # no task is wiped
    with world.on(RELEASE) as running:
        restored = world.restored(running)
        assert kept(world, before)
        assert world.answers(running) == told
    whole = {store for store in everything if restored.get(store) == everything[store]}
    assert whole == from_start
    assert worse(diagnosed(world)) <= {("grace-buffer-miskeyed", BUFFER)}


@pytest.mark.parametrize("guarantee", one_of([EOS, ALOS]))
def test_a_killed_application_is_converted_and_only_its_tail_is_restored(
    fleet: Fleet, tmp_path: Path, guarantee: str
) -> None:
    """Exactly-once, too: without transactional stores such a directory is refused."""
    world = application(fleet, tmp_path, guarantee, "older")
    told = world.live(RELEASE, Moment.FLUSHED)
    fleet.kill(RELEASE)
    everything, before = records(world), identities(world)
    spec = parse_spec(world.spec())
    assert all(plan.is_empty for plan in converted(world, "4.3", spec))
    converted(world, "4.2", spec)
    assert kept(world, before)
    world.kinds = SMALL
    with world.on("4.2") as running:
        restored = world.restored(running)
        assert kept(world, before)
        assert world.answers(running) == told
    assert restored
    assert all(restored[store] < everything[store] for store in restored)


@pytest.mark.full
def test_a_store_without_its_offset_costs_its_own_restore_and_no_wipe(fleet: Fleet, tmp_path: Path) -> None:
    world = application(fleet, tmp_path, EOS, "damaged")
    world.live(RELEASE, Moment.CLEAN)
    assert worse(diagnosed(world)) == set()
    change_offsets(database_of(world.directory, "key-value"), lambda _: None)
    for segment in segments_of(world.directory, "session", "0_1"):
        change_offsets(segment, lambda _: None)
    for path in sorted((world.directory / "0_0/timestamped-window").glob("**/*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    found = {(one.code, one.task, one.store): one.severity for one in diagnosed(world).findings}
    assert found == {
        ("offset-missing", "0_0", "key-value"): Severity.LOSS,
        ("offset-missing", "0_1", "session"): Severity.LOSS,
        ("segment-missing", "0_0", "timestamped-window"): Severity.NOTE,
    }
    without = {(one.code, one.store): one.severity for one in diagnosed(world, transactional=False).findings}
    assert without.pop(("transactional-undeclared", "")) is Severity.WARNING
    assert set(without.values()) == {Severity.ERROR}
    before = identities(world)
    with world.on(RELEASE) as running:
        restored = {key for key, count in running.restored_records().items() if count and key[0] != "in-memory"}
        assert restored == {("key-value", 0), ("session", 1), ("timestamped-window", 0)}
        assert kept(world, before)


@pytest.mark.full
def test_segments_in_disagreement_are_a_silent_loss_under_exactly_once_too(fleet: Fleet, tmp_path: Path) -> None:
    world = application(fleet, tmp_path, EOS, "disagree")
    told = segments_in_disagreement(world, RELEASE)
    fleet.kill(RELEASE)
    (one,) = [one for one in diagnosed(world).findings if one.code == "segments-disagree"]
    assert (one.severity, one.task, one.store) == (Severity.LOSS, f"0_{PARTITION}", DISAGREEING)
    before = identities(world)
    with world.on(RELEASE) as running:
        after = world.answers(running)
        assert kept(world, before)
    assert [key for key in told if after[key] != told[key]] == [(DISAGREEING, PARTITION)]


@pytest.mark.full
def test_a_stale_status_keeps_a_transactional_application_from_starting(fleet: Fleet, tmp_path: Path) -> None:
    """The store is the first of its task: nothing is marked as corrupted, so the task is revived and never wiped."""
    world = application(fleet, tmp_path, EOS, "stale")
    world.kinds = SMALL
    world.live(RELEASE, Moment.FLUSHED)
    fleet.kill(RELEASE)
    world.kinds = TRANSACTIONAL
    found = {one.severity for one in diagnosed(world).findings if one.code == "store-not-closed"}
    assert found == {Severity.ERROR}
    before = identities(world)
    running = world.application(RELEASE)
    running.launch()
    log, of_table = running.jvm.log_file, "Tasks [2_0] are corrupted"
    deadline = time.monotonic() + 120
    while log.read_text().count(of_table) < 4 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert log.read_text().count(of_table) >= 4
    assert running.state != "RUNNING"
    fleet.kill(RELEASE)
    table = "2_0/rocksdb/source-table"
    assert identities(world)[table] == before[table]
