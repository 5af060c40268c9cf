"""Which files have rows that were flushed after ``.checkpoint`` was written, by the MANIFEST and by their times."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from statecore.doctor.diagnosis import diagnose_directory
from statecore.doctor.finding_catalog import Repair, Severity
from statecore.doctor.repair_plan import plan_repairs
from statecore.formats.kinds import StoreKind
from statecore.formats.rocksdb_log import LiveFile, read_manifest
from statecore.spec.model import ProcessingGuarantee
from statecore.statedir.flush_times import is_late, read_flushes
from statecore.statedir.state_directory import StateDirectory
from statecore.stores.rocksdb.directory import current_manifest
from statecore.stores.rocksdb.store import RocksDBStore
from tests.golden.directories import unpacked
from tests.harness.damage_cases import DAMAGES, OLDER
from tests.harness.damage_functions import PLAIN, TASK
from tests.unit.conversion.tasks import golden_task

SECOND = 1_000_000_000
WRITTEN = 1000 * SECOND + 400_000_000
"""When ``.checkpoint`` was."""


def sst(flushed_at: int, *, compacted: bool = False) -> LiveFile:
    return LiveFile(7, "default", 0, 1000, b"", b"", flushed_at, not compacted)


@pytest.mark.parametrize(
    ("file", "written_ns", "late"),
    [
        (sst(1003), 1003 * SECOND, True),
        (sst(1000), WRITTEN + 1, True),
        (sst(1000), WRITTEN, False),  # a close: the flush comes first
        (sst(999), WRITTEN - 1, False),
        (sst(998, compacted=True), WRITTEN + 5 * SECOND, False),  # a compaction of what was there
        (sst(1000, compacted=True), WRITTEN + 4_000_000, False),  # one that the flush of a close began
        (sst(1001, compacted=True), WRITTEN + 5 * SECOND, True),
        (sst(500), WRITTEN + 5 * SECOND, False),  # a copy without its times, copied after the file
        (sst(1500), WRITTEN, False),  # all files have one time
        (sst(1005), WRITTEN - SECOND, False),  # the clock of the file server is behind
        (sst(1005, compacted=True), WRITTEN + 4_000_000, False),  # so, and a compaction that a close began
        (sst(1005), WRITTEN + 1, True),
    ],
)
def test_a_file_is_late_if_both_clocks_agree(file: LiveFile, written_ns: int, late: bool) -> None:
    assert is_late(file, written_ns, WRITTEN) is late


def test_times_truncated_to_seconds_are_compared_so() -> None:
    assert not is_late(sst(1000), 1000 * SECOND + 200_000_000, 1000 * SECOND)
    assert is_late(sst(1001), 1001 * SECOND, 1000 * SECOND)


@pytest.fixture
def task(tmp_path: Path) -> Path:
    """A task of 4.2, with files as old as its MANIFESTs say, and a ``.checkpoint`` of just after."""
    path = golden_task(tmp_path, "4.2").path
    newest = 0
    for current in path.glob("**/CURRENT"):
        for number, file in read_manifest(current_manifest(current.parent)[1]).files.items():
            os.utime(current.parent / f"{number:06d}.sst", (file.flushed_at, file.flushed_at))
            newest = max(newest, file.flushed_at)
    os.utime(path / ".checkpoint", (newest, newest))
    return path


def look(path: Path, earlier_s: int = 0) -> tuple[list[str], bool]:
    """The late files, and whether times are kept."""
    written_ns = (path / ".checkpoint").stat().st_mtime_ns - earlier_s * SECOND
    found = read_flushes([current.parent for current in path.glob("**/CURRENT")], path, written_ns)
    return sorted(found.late), found.unmodified == found.flushed > 0


def test_what_was_flushed_before_a_file_that_is_not_late_is_not_either(tmp_path: Path) -> None:
    """The clock of the host was set back between the two."""
    path = tmp_path / "db"
    with RocksDBStore(path, StoreKind.KEY_VALUE, create=True) as store:
        for key in (b"a", b"b"):
            store.put(key, b"1")
            store.commit({})
            store.flush()
    files = read_manifest(current_manifest(path)[1]).files
    first, second = sorted(number for number, file in files.items() if file.family == "default")
    began = files[first].flushed_at
    for number, age in ((first, 0), (second, 3600)):
        os.utime(path / f"{number:06d}.sst", (began - age, began - age))
    assert not read_flushes([path], tmp_path, (began - 1800) * SECOND).late
    assert not read_flushes([path], tmp_path, (began - 3600) * SECOND).late  # at the very time of the flush
    os.utime(path / f"{second:06d}.sst", (began, began))
    assert len(read_flushes([path], tmp_path, (began - 1800) * SECOND).late) == 2


def test_files_are_named_as_they_lie_in_the_task(task: Path) -> None:
    assert look(task) == ([], True)
    assert look(task, earlier_s=60) == (["rocksdb/plain/000008.sst", "rocksdb/stamped/000010.sst"], True)


def test_a_copy_with_its_times_or_links_gives_the_same_flush_time(task: Path, tmp_path: Path) -> None:
    shutil.copytree(task, tmp_path / "copied")
    shutil.copytree(task, tmp_path / "linked", copy_function=os.link)
    for name in ("copied", "linked"):
        assert look(tmp_path / name, earlier_s=60) == look(task, earlier_s=60)


def test_a_copy_without_its_times_gives_no_flush_time(task: Path, tmp_path: Path) -> None:
    shutil.copytree(task, tmp_path / "copied", copy_function=shutil.copy)
    assert look(tmp_path / "copied", earlier_s=60) == ([], False)


def test_what_cannot_be_read_is_no_evidence(task: Path) -> None:
    manifest = next((task / "rocksdb" / "plain").glob("MANIFEST-*"))
    manifest.write_bytes(b"\xff" * 100)
    (task / "rocksdb" / "stamped" / "000010.sst").unlink()
    assert look(task, earlier_s=60) == ([], False)


@pytest.mark.parametrize(
    ("guarantee", "severity", "repair"),
    [
        (None, Severity.LOSS, Repair.REBUILD),
        (ProcessingGuarantee.EXACTLY_ONCE_V2, Severity.LOSS, Repair.REBUILD),
        (ProcessingGuarantee.AT_LEAST_ONCE, Severity.WARNING, None),
    ],
)
def test_the_doctor_says_what_it_costs_and_all_stores_of_the_task_are_rebuilt(
    tmp_path: Path, guarantee: ProcessingGuarantee | None, severity: Severity, repair: Repair | None
) -> None:
    application = unpacked(OLDER, tmp_path)
    DAMAGES["rows-after-checkpoint"].inflict(application)
    for file in (application / TASK / "rocksdb" / PLAIN).glob("*.sst"):
        os.utime(file, (1_600_000_000, 1_600_000_000))  # one store is as it was
    diagnosis = diagnose_directory(StateDirectory(tmp_path, application.name), guarantee=guarantee, tasks=[TASK])
    found = {one.store: one for one in diagnosis.findings if one.code == "rows-after-checkpoint"}
    assert len(found) > 3
    assert {one.repair for one in found.values()} == {repair}
    late = {store for store, one in found.items() if one.evidence["files"]}
    assert {found[store].severity for store in late} == {severity}
    beside = found.keys() - late
    assert beside == (set() if repair is None else {PLAIN})
    assert {found[store].severity for store in beside} <= {Severity.WARNING}
    rebuilt = {store for one in plan_repairs(diagnosis.findings, diagnosis.stores).rebuilds for store in one.stores}
    assert rebuilt == (found.keys() if repair else set())
