"""What is seen of a task's directory: kinds where they matter, and what cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from statecore.conversion.inspection import InspectionTarget, StoreInspection, TaskInspection, inspect_task
from statecore.errors import Invalid
from statecore.formats.kinds import StoreKind
from statecore.formats.rows.buffered import BufferedRecord, BufferKey
from statecore.spec.model import ApplicationSpec
from statecore.statedir.file_trees import fingerprint
from tests.golden.directories import unpacked
from tests.harness.damage_cases import AT_LEAST_ONCE, DAMAGES
from tests.harness.damage_functions import cut_manifest
from tests.harness.encode_buffered import encode_buffered
from tests.harness.raising import raises
from tests.unit.conversion.tasks import Task, declared, golden_task
from tests.unit.doctor.stored import offsets, write_database, write_golden

DOWN = InspectionTarget(moves=True, sst_format=6)
KIND = StoreKind


def look(path: Path, application_id: str = "app", spec: ApplicationSpec | None = None) -> TaskInspection:
    before = fingerprint(path)
    seen = inspect_task(path.name, path, application_id, spec, DOWN)
    assert fingerprint(path) == before
    return seen


def store(case: str, base: Path, kind: StoreKind | None = None) -> StoreInspection:
    made = write_golden(base, case)
    application_id = made["changelog"].removesuffix(f"-{made['store']}-changelog")
    spec = None if kind is None else declared(application_id, {made["store"]: (kind, made["changelog"])})
    (seen,) = look(base / made["task"], application_id, spec).stores
    return seen


@pytest.mark.parametrize(
    ("case", "kind", "target"),
    [
        ("headers-key-value", KIND.HEADERS_KEY_VALUE, KIND.TIMESTAMPED_KEY_VALUE),
        ("headers-window", KIND.HEADERS_WINDOW, KIND.TIMESTAMPED_WINDOW),
        ("headers-window-of-join", KIND.HEADERS_WINDOW, KIND.JOIN_WINDOW),
        ("headers-session", KIND.HEADERS_SESSION, KIND.SESSION),
        ("headers-emit-final-session", KIND.HEADERS_EMIT_FINAL_SESSION, KIND.EMIT_FINAL_SESSION),
        ("grace-buffer", KIND.GRACE_BUFFER, None),
    ],
)
def test_rows_tell_what_a_conversion_depends_on(
    case: str, kind: StoreKind, target: StoreKind | None, tmp_path: Path
) -> None:
    seen = store(case, tmp_path)
    assert (seen.kind, seen.target) == (kind, target)
    assert all(one.converted_rows is not None and not one.converted_rows.misfits for one in seen.databases if target)


def test_a_grace_buffer_that_kafka_streams_has_restored_is_one(tmp_path: Path) -> None:
    value = encode_buffered(BufferedRecord(b"v", 1_700_000_000_000, 3, "left", 0)) + bytes(8)
    key = BufferKey(b"k4", 1_700_000_000_000, 108).to_bytes()
    moved = key[:1] + key[-12:-4] + key[:-12] + key[-4:]
    write_database(tmp_path / "0_0" / "late-Buffer" / "late-Buffer.0", {"default": [(moved, value)]})
    (seen,) = look(tmp_path / "0_0").stores
    assert seen.kind is KIND.GRACE_BUFFER


def test_only_a_spec_decides_whether_an_emit_final_aggregation_slides(tmp_path: Path) -> None:
    seen = store("headers-emit-final-window", tmp_path / "1")
    assert (seen.kind, seen.target) == (KIND.UNKNOWN, None)
    assert set(seen.possible_kinds.split(" or ")) >= {"headers-emit-final-sliding-window", "headers-emit-final-window"}
    for kind in (KIND.HEADERS_EMIT_FINAL_WINDOW, KIND.EMIT_FINAL_WINDOW):
        declared_so = store("headers-emit-final-window", tmp_path / kind, kind)
        assert (declared_so.kind, declared_so.target) == (KIND.HEADERS_EMIT_FINAL_WINDOW, KIND.EMIT_FINAL_WINDOW)


def test_a_database_without_current_or_with_a_truncated_manifest_is_broken(tmp_path: Path) -> None:
    task = golden_task(tmp_path, "4.2")
    (task.path / "rocksdb" / "plain" / "CURRENT").unlink()
    manifest = next((task.path / "rocksdb" / "stamped").glob("MANIFEST-*"))
    manifest.write_bytes(b"not a manifest")
    seen = {one.store: one.damage for one in look(task.path, task.application_id).stores}
    assert "no CURRENT" in seen["plain"]
    assert seen["stamped"]
    assert len(task.plan("4.3").refused) == 2
    assert len(task.plan("3.9").refused) == 2


CUT = {
    name: "4.2" if one.directory == AT_LEAST_ONCE else "4.4"
    for name, one in DAMAGES.items()
    if "manifest-truncated" in one.findings and not one.needs
}
"""Damage to MANIFESTs → a release that its directory is not of."""


@pytest.mark.parametrize("name", CUT)
def test_a_database_whose_manifest_lost_its_end_is_refused(name: str, tmp_path: Path) -> None:
    damage = DAMAGES[name]
    application = unpacked(damage.directory, tmp_path)
    task = Task(application / damage.task, application.name)
    assert not task.plan(CUT[name]).refused
    damage.inflict(application)
    assert [one.code for one in task.plan(CUT[name]).refused] == ["database-damaged"]


def test_a_lost_flush_of_an_older_release_is_refused_in_both_directions(tmp_path: Path) -> None:
    task = golden_task(tmp_path, "4.2")
    assert not task.plan("3.9").refused
    cut_manifest(task.path / "rocksdb" / "plain", all_files=True)
    assert [one.code for one in task.plan("3.9").refused] == ["database-damaged"]
    assert [one.code for one in task.plan("4.3").refused] == ["database-damaged"]


def test_a_store_of_the_application_s_own_making_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "0_0" / "own").mkdir(parents=True)
    (tmp_path / "0_0" / "own" / "index").write_bytes(b"what only the application reads")
    (tmp_path / "0_0" / "windows").mkdir()
    own, windows = look(tmp_path / "0_0").stores
    assert (own.foreign, windows.foreign) == (True, False)
    assert own.segmented
    assert not own.databases


def test_changelogs_are_named_by_the_spec_else_as_kafka_streams_names_them(tmp_path: Path) -> None:
    for task in ("0_1", "global"):
        write_database(tmp_path / task / "rocksdb" / "a", {"default": [(b"k", b"v")], "offsets": offsets("t", 1, 5)})
    spec = declared("app", {"a": (KIND.KEY_VALUE, "table")}, {"a": (KIND.KEY_VALUE, "prices")})
    for task, named, with_spec in (("0_1", "app-a-changelog", "table"), ("global", "", "prices")):
        (found,) = inspect_task(task, tmp_path / task, "app", None, DOWN).stores
        (told,) = inspect_task(task, tmp_path / task, "app", spec, DOWN).stores
        assert (found.changelog, told.changelog) == (named, with_spec)


def test_a_spec_of_another_application_is_refused(tmp_path: Path) -> None:
    task = golden_task(tmp_path, "4.2", spec=declared("other"))
    with raises(Invalid, "spec-application-mismatch", application_id="old420"):
        task.plan("4.3")
