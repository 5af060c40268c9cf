"""Stores and tasks of the spec compared with those of the directory."""

from __future__ import annotations

import shutil

import pytest

from statecore.doctor.finding_catalog import Repair
from statecore.formats.releases import RELEASES
from statecore.spec.reader import read_spec
from tests.unit.doctor.diagnosing import ERROR, LOSS, NOTE, SPEC, WARNING, codes, diagnose, plain, running, window


def test_the_spec_is_held_against_the_directory(tmp_path):
    plain(tmp_path)
    plain(tmp_path, task="0_1", store="only")
    plain(tmp_path, task="5_0", store="far")
    stores = "s: {kind: timestamped-key-value}, gone: {kind: key-value}, far: {kind: key-value}"
    spec = read_spec(SPEC.format(guarantee="exactly_once_v2", stores=stores))
    found = diagnose(tmp_path, spec=spec).findings
    assert {(one.code, one.task, one.store) for one in found} == {
        ("kind-mismatch", "0_0", "s"),
        ("store-absent", "0_0", "gone"),
        ("store-absent", "0_1", "gone"),
        ("store-absent", "0_1", "s"),
        ("store-absent", "0_0", "far"),
        ("store-absent", "0_1", "far"),
        ("store-undeclared", "", "only"),
        ("task-undeclared", "5_0", ""),
    }
    assert codes(tmp_path, spec=spec, tasks=["0_0"]) == {"kind-mismatch": LOSS}


@pytest.mark.parametrize("with_globals", [True, False])
def test_a_task_of_no_subtopology_ends_a_start_with_global_stores(tmp_path, with_globals):
    plain(tmp_path)
    plain(tmp_path, task="7_0")
    plain(tmp_path, task="8_0", store="unknown")
    (tmp_path / "app/9_0/rocksdb").mkdir(parents=True)
    (tmp_path / "app/10_0").mkdir()
    (tmp_path / "app/10_0/.lock").touch()
    text = SPEC.format(guarantee="at_least_once", stores="s: {kind: key-value}")
    spec = read_spec(text + "global_stores: {g: {kind: key-value, topic: g}}\n" * with_globals)

    def found(**how):
        of_tasks = [one for one in diagnose(tmp_path, spec=spec, **how).findings if one.code == "task-undeclared"]
        return [(one.task, one.severity) for one in of_tasks]

    ignored = [("7_0", WARNING)]
    failing = [("7_0", ERROR), ("8_0", ERROR), ("9_0", ERROR)] if with_globals else ignored
    assert found() == failing
    assert found(release=RELEASES["4.2"]) == ignored
    with running(tmp_path):
        assert found() == ignored


def test_a_directory_of_global_stores_says_that_the_topology_has_some(tmp_path):
    plain(tmp_path)
    plain(tmp_path, task="7_0")
    spec = read_spec(SPEC.format(guarantee="at_least_once", stores="s: {kind: key-value}"))
    plain(tmp_path, task="global", store="g", offset=None)
    assert codes(tmp_path, spec=spec)["task-undeclared"] is ERROR


@pytest.mark.parametrize("with_globals", [True, False])
def test_without_a_spec_a_store_of_two_subtopologies_shows_the_wrong_task(tmp_path, with_globals):
    for task in ("2_0", "2_1", "9_2", "3_0"):
        plain(tmp_path, task=task, store="of three" if task == "3_0" else "s")
    assert (tmp_path / "app/2_1").is_dir()
    if with_globals:
        plain(tmp_path, task="global", store="g", offset=None)

    def found(**how):
        of_tasks = [one for one in diagnose(tmp_path, **how).findings if one.code == "task-undeclared"]
        return [(one.task, one.severity, one.repair) for one in of_tasks]

    assert found() == [("9_2", ERROR if with_globals else WARNING, None)]
    assert found(release=RELEASES["4.2"]) == [("9_2", WARNING, None)]
    plain(tmp_path, task="9_2", store="its own")  # what the store of its former name left
    assert found() == []


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_a_custom_store_is_reported_only_without_an_offset(tmp_path, guarantee):
    task = plain(tmp_path).parent.parent
    for name in ("mine/rows", "mine/mine.60000/rows", "mine.db", "elsewhere/rows", "other"):
        (task / name).parent.mkdir(parents=True, exist_ok=True)
        (task / name).write_text("rows")
    (task / ".checkpoint_mine").write_text("0\n1\napp-mine-changelog 0 7\n")
    stores = "s: {kind: key-value}, mine: {kind: custom}"
    spec = read_spec(SPEC.format(guarantee=guarantee, stores=stores))
    assert codes(tmp_path, spec=spec) == {"store-unread": NOTE}, "of the directory that is of no store's name"
    (task / ".checkpoint_mine").unlink()
    (one,) = (one for one in diagnose(tmp_path, spec=spec).findings if one.store == "mine")
    assert (one.code, one.repair) == ("offset-missing", None)
    assert one.severity is (ERROR if guarantee == "exactly_once_v2" else WARNING)


def test_a_store_of_tasks_that_are_not_here_is_nothing_to_rebuild_here(tmp_path):
    plain(tmp_path)
    spec = read_spec(
        "application_id: app\nbootstrap_servers: localhost:1\nprocessing_guarantee: exactly_once_v2\nsubtopologies:\n"
        "  0: {stores: {s: {kind: key-value}}}\n  1: {stores: {elsewhere: {kind: key-value}}}\n"
    )
    (one,) = diagnose(tmp_path, spec=spec).findings
    assert (one.code, one.store, one.severity, one.repair) == ("store-absent", "elsewhere", NOTE, None)


def test_an_undecided_kind_is_reported_once_and_never_as_missing(tmp_path):
    plain(tmp_path)
    many = ", ".join(f"m{number}: {{kind: '?'}}" for number in range(7))
    stores = f"s: {{kind: key-value}}, t: {{kind: key-value}}, {many}, n: {{kind: in-memory}}"
    spec = read_spec(SPEC.format(guarantee="exactly_once_v2", stores=stores), source="stores.yaml")
    found = {one.code: one for one in diagnose(tmp_path, spec=spec).findings}
    assert set(found) == {"kind-undecided", "store-absent"}
    assert found["store-absent"].store == "t"
    note = found["kind-undecided"]
    assert (note.severity, len(note.evidence["stores"])) == (NOTE, 7)
    assert all(said in note.what for said in ("stores.yaml", "7 stores", "m0, m1, m2, m3, m4 and 2 more"))


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_the_deleted_only_store_of_a_task_costs_a_restore(tmp_path, guarantee):
    plain(tmp_path)
    for task in ("0_1", "1_0", "2_0"):
        shutil.rmtree(plain(tmp_path, task=task))  # the task and its rocksdb/ stay
    (tmp_path / "app" / "3_0").mkdir()
    spec = read_spec(
        f"application_id: app\nbootstrap_servers: localhost:1\nprocessing_guarantee: {guarantee}\nsubtopologies:\n"
        "  0: {stores: {s: {kind: key-value}}}\n"
        "  1: {stores: {m: {kind: in-memory}, c: {kind: custom}, n: {kind: key-value, changelog: none}}}\n"
        "  2: {stores: {only: {kind: key-value}}}\n"
    )
    expected = {("0_1", "s"), ("2_0", "only")}
    for how in ({}, {"tasks": ["0_1", "1_0", "2_0", "3_0"]}):
        found = diagnose(tmp_path, spec=spec, **how).findings
        assert {(one.task, one.store) for one in found} == expected
        assert {(one.code, one.severity, one.repair) for one in found} == {("store-absent", WARNING, Repair.REBUILD)}
    assert diagnose(tmp_path).findings == ()
    with running(tmp_path):
        assert diagnose(tmp_path, spec=spec).findings == ()


BOTH = "s: {kind: key-value}, w: {kind: timestamped-window, retention: 10m}"
SEGMENTS = {600_000: (7, 0, 2), 900_000: (7, 0, 2)}


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
@pytest.mark.parametrize("task", ["0_0", "0_1"])
def test_a_store_that_is_only_in_the_place_of_other_kinds_is_absent(tmp_path, task, guarantee):
    """Kafka Streams looks for it elsewhere, and restores it."""
    for of in ("0_0", "0_1"):
        plain(tmp_path, of)
        window(tmp_path, dict.fromkeys(SEGMENTS, (None, 0, 2)), task=of)
    here = tmp_path / "app" / task
    (here / "w").rename(here / "rocksdb/w")
    (here / "rocksdb/s").rename(here / "s")
    spec = read_spec(SPEC.format(guarantee=guarantee, stores=BOTH))
    found = [one for one in diagnose(tmp_path, spec=spec).findings if one.task == task]
    assert {(one.store, one.code, one.severity, one.repair) for one in found} == {
        (store, *what)
        for store in ("s", "w")
        for what in (("store-absent", WARNING, Repair.REBUILD), ("store-undeclared", NOTE, None))
    }


def test_a_store_without_a_changelog_is_never_ignored_where_its_own_place_is_empty(tmp_path):
    """Its rows are nowhere else, and the kind in the spec may be wrong."""
    plain(tmp_path)
    stores = "s: {kind: timestamped-window, retention: 10m, changelog: none}"
    spec = read_spec(SPEC.format(guarantee="at_least_once", stores=stores))
    assert ("kind-mismatch", LOSS) in {(one.code, one.severity) for one in diagnose(tmp_path, spec=spec).findings}


def leftover_database(task):
    shutil.copytree(task / "rocksdb/s", task / "rocksdb/w")


def leftover_segments(task):
    shutil.copytree(task / "w", task / "s")
    for segment in (task / "s").iterdir():
        segment.rename(segment.with_name(segment.name.replace("w.", "s.")))


def copied_beside(task):
    shutil.copytree(task / "rocksdb/s", task / "s")


@pytest.mark.parametrize(
    ("leave", "directory", "with_spec"),
    [
        (leftover_database, "rocksdb/w", True),
        (leftover_segments, "s", True),
        (copied_beside, "s", True),
        (copied_beside, "s", False),
    ],
)
def test_beside_the_place_of_a_store_that_of_another_kind_is_a_note(tmp_path, leave, directory, with_spec):
    plain(tmp_path)
    window(tmp_path, SEGMENTS)
    leave(tmp_path / "app/0_0")
    spec = read_spec(SPEC.format(guarantee="exactly_once_v2", stores=BOTH)) if with_spec else None
    (found,) = diagnose(tmp_path, spec=spec).findings
    assert (found.code, found.severity, found.evidence["ignored"]) == ("store-undeclared", NOTE, directory)


def test_a_directory_with_files_of_another_class_is_never_ignored(tmp_path):
    plain(tmp_path)
    (tmp_path / "app/0_0/t").mkdir()
    (tmp_path / "app/0_0/t/rows").write_text("rows")
    spec = read_spec(SPEC.format(guarantee="at_least_once", stores="s: {kind: key-value}, t: {kind: key-value}"))
    assert codes(tmp_path, spec=spec) == {"kind-mismatch": LOSS}
