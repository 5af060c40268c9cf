"""Stores of which nothing is left but their offset, in a file that is believed."""

from __future__ import annotations

import shutil

import pytest

from statecore.doctor.finding_catalog import Repair
from statecore.doctor.repair_plan import plan_repairs
from statecore.formats.checkpoint import decode_checkpoint
from statecore.formats.releases import RELEASES
from tests.golden.directories import names as golden_names
from tests.golden.directories import unpacked
from tests.harness.case_selection import one_of
from tests.harness.damage_cases import BUFFER, BUFFER_TASK, STAMPED, WINDOWS
from tests.harness.damage_functions import PLAIN, offsets_of, segments_of, write_checkpoint
from tests.harness.fleet import NEWEST as NEWEST_RELEASE
from tests.unit.doctor.golden import examined, worse

OLDER = [name for release in ("3.9", "4.2") for name in golden_names(moment="clean", release=release)]
NEWEST = golden_names(moment="clean", release=NEWEST_RELEASE)


def removed(path):
    shutil.rmtree(path)


def emptied(path):
    for file in path.iterdir():
        file.unlink()


def begun(path):
    """As a process leaves it that was killed before it had made a database."""
    for file in path.iterdir():
        if file.name not in ("LOG", "LOCK", "IDENTITY"):
            file.unlink()


def losses(seen):
    strays = [one for one in worse(seen) if one[0] == "checkpoint-stray"]
    return {(code, task, store) for code, severity, task, store in strays if severity == "loss"}


@pytest.mark.parametrize("lose", one_of([removed, emptied, begun]))
@pytest.mark.parametrize("name", one_of(OLDER))
@pytest.mark.parametrize("release", ["own", NEWEST_RELEASE])
def test_a_store_that_is_gone_while_checkpoint_has_its_offset_is_a_loss(tmp_path, name, lose, release):
    application = unpacked(name, tmp_path)
    lose(application / "0_0" / "rocksdb" / PLAIN)
    release = RELEASES[name[:3] if release == "own" else release]
    file = application / "0_0/.checkpoint"
    (entry,) = [one for one in decode_checkpoint(file.read_bytes(), "it") if one.topic == f"{name}-{PLAIN}-changelog"]
    for declared in (True, False):
        seen = examined(application, name, declared=declared, release=release)
        known = declared or lose is not removed
        assert losses(seen) == {("checkpoint-stray", "0_0", PLAIN if known else "")}
        (one,) = [one for one in seen.findings if one.code == "checkpoint-stray"]
        assert str(entry) in one.evidence["entries"]
        assert "restores nothing" in one.what
    with_spec = examined(application, name, declared=True)
    plan = plan_repairs(with_spec.findings, with_spec.stores)
    assert [(one.repair, one.names) for one in plan.actions["0_0"]] == [(Repair.DROP_ENTRIES, (str(entry),))]
    assert not plan.rebuilds, "4.2 would not open it any more"


@pytest.mark.parametrize("name", OLDER)
def test_a_store_that_is_gone_and_of_which_the_file_says_minus_4_is_restored(tmp_path, name):
    application = unpacked(name, tmp_path)
    removed(application / "0_0" / "rocksdb" / PLAIN)
    file = application / "0_0/.checkpoint"
    said = decode_checkpoint(file.read_bytes(), "it")
    own = f"{name}-{PLAIN}-changelog"
    write_checkpoint(file, {str(part): -4 if part.topic == own else offset for part, offset in said.items()})
    assert "checkpoint-stray" not in {code for code, *_ in worse(examined(application, name, declared=True))}


@pytest.mark.parametrize("name", OLDER)
def test_windows_without_a_segment_are_lost_to_a_release_that_keeps_no_offsets_inside(tmp_path, name):
    application = unpacked(name, tmp_path)
    for segment in segments_of(application, WINDOWS, "0_0"):
        shutil.rmtree(segment)
    own = examined(application, name, declared=True, release=RELEASES[name[:3]])
    assert losses(own) == {("checkpoint-stray", "0_0", WINDOWS)}
    newest = examined(application, name, declared=True)
    assert losses(newest) == set()
    assert ("checkpoint-stray", "warning", "0_0", WINDOWS) in worse(newest)


@pytest.mark.parametrize("name", NEWEST)
@pytest.mark.parametrize("lose", [removed, lambda path: shutil.rmtree(path / f"{BUFFER}.0")])
def test_a_buffer_that_is_gone_while_its_own_file_is_left_is_a_loss(tmp_path, name, lose):
    application = unpacked(name, tmp_path)
    lose(application / BUFFER_TASK / BUFFER)
    for declared in (True, False):
        seen = examined(application, name, declared=declared)
        assert losses(seen) == {("checkpoint-stray", BUFFER_TASK, BUFFER)}
        (rebuilt,) = plan_repairs(seen.findings, seen.stores).rebuilds
        assert (rebuilt.stores, rebuilt.tasks) == ((BUFFER,), (BUFFER_TASK,))


@pytest.mark.parametrize("name", one_of(NEWEST))
def test_a_file_that_no_start_reads_for_a_store_is_no_reason_to_trust_it(tmp_path, name):
    application = unpacked(name, tmp_path)
    database = application / "0_0/rocksdb" / PLAIN
    write_checkpoint(application / f"0_0/.checkpoint_{PLAIN}", offsets_of(database))
    removed(database)
    assert losses(examined(application, name, declared=True)) == set()


@pytest.mark.parametrize("name", NEWEST)
def test_beside_stores_with_offsets_of_their_own_the_file_goes_and_the_store_is_rebuilt(tmp_path, name):
    application = unpacked(name, tmp_path)
    said = {}
    for store in (PLAIN, STAMPED):
        said |= offsets_of(application / "0_0/rocksdb" / store)
    write_checkpoint(application / "0_0/.checkpoint", said)
    removed(application / "0_0/rocksdb" / PLAIN)
    seen = examined(application, name, declared=True)
    assert losses(seen) == {("checkpoint-stray", "0_0", PLAIN)}
    plan = plan_repairs(seen.findings, seen.stores)
    assert [(one.repair, one.names) for one in plan.actions["0_0"]] == [(Repair.MOVE_ASIDE, (".checkpoint",))]
    assert [(one.stores, one.tasks) for one in plan.rebuilds] == [((PLAIN,), ("0_0",))]


def test_an_entry_of_a_store_that_is_not_declared_is_dropped_by_kafka_streams(tmp_path):
    name = golden_names(moment="clean", release="4.2")[0]
    application = unpacked(name, tmp_path)
    file = application / "0_0/.checkpoint"
    said = {str(part): offset for part, offset in decode_checkpoint(file.read_bytes(), "it").items()}
    write_checkpoint(file, {**said, f"{name}-removed-changelog-0": 17})
    assert losses(examined(application, name)) == {("checkpoint-stray", "0_0", "")}
    assert losses(examined(application, name, declared=True)) == set()
