"""Which stores of a directory are published, and why others are refused or left out."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import Invalid, NotFound
from statecore.formats.checkpoint import encode_checkpoint
from statecore.jobs.backup.report import BackupOutcome
from tests.harness.raising import raises
from tests.unit.jobs.backup.snapshots import ROWS, World, codes, refusal


def test_tasks_and_stores_that_were_not_asked_for_stay_as_they_are(tmp_path: Path) -> None:
    world = World(tmp_path, sums={"kind": "key-value"})
    for partition in (0, 1):
        for store in ("counts", "sums"):
            at = world.database(store, f"0_{partition}")
            world.write(ROWS, 5, path=at, changelog=world.changelog(store, partition))
    world.snapshot()
    before = world.stored()
    for partition in (0, 1):
        for store in ("counts", "sums"):
            at = world.database(store, f"0_{partition}")
            world.write({b"n": b"1"}, 6, path=at, changelog=world.changelog(store, partition))
    world.snapshot(tasks=("0_1",), stores=("sums",))
    after = world.stored()
    changed = {key for key in after if after[key] != before[key]}
    assert changed == {("0_1", "sums")}
    world.snapshot(partitions=(0,))
    assert {key for key, store in world.stored().items() if store.changelogs[0].offset == 5} == {("0_1", "counts")}


@pytest.mark.parametrize(
    ("changes", "code", "context"),
    [
        ({"tasks": ("0_7",)}, "task-not-found", {"tasks": ["0_7"]}),
        ({"stores": ("nothing",)}, "store-not-declared", {"stores": ["nothing"]}),
        ({"partitions": (3,)}, "task-not-found", {"tasks": None}),
    ],
)
def test_what_is_not_there_is_not_found(
    world: World, changes: dict[str, Any], code: str, context: dict[str, Any]
) -> None:
    world.write(ROWS, 7)
    with raises(NotFound, code, **context):
        world.snapshot(**changes)


def test_all_reasons_are_reported_together(clicks: World) -> None:
    (clicks.path / "0_0" / "rocksdb" / "forgotten").mkdir()
    shutil.rmtree(clicks.path / "0_0" / "rocksdb" / "counts")
    clicks.spec["subtopologies"]["0"]["stores"]["absent"] = {"kind": "session", "retention": "10m"}
    assert sorted(codes(refusal(clicks))) == [
        ("store-directory-missing", "absent"),
        ("store-directory-missing", "counts"),
        ("store-undeclared", "forgotten"),
    ]


@pytest.mark.parametrize("declared", ["in-memory", "custom"])
def test_a_store_that_is_declared_as_one_of_another_class_is_refused_as_that(world: World, declared: str) -> None:
    world.write(ROWS, 7)
    world.spec["subtopologies"]["0"]["stores"]["counts"]["kind"] = declared
    problems = refusal(world)
    assert codes(problems) == [("kind-mismatch", "counts")]
    assert f"the spec says {declared}" in problems[0]["what"]


def test_an_undeclared_store_is_refused_and_may_be_left_out_by_name(world: World) -> None:
    world.write(ROWS, 7)
    (world.path / "0_0" / "forgotten").mkdir()
    assert codes(refusal(world)) == [("store-undeclared", "forgotten")]
    assert world.snapshot(stores=("counts",)).outcome is BackupOutcome.PUBLISHED


def test_a_store_without_an_offset_is_refused(world: World) -> None:
    world.write(ROWS, None)
    assert codes(refusal(world)) == [("offset-missing", "counts")]


def test_an_offset_of_another_topic_is_refused(world: World) -> None:
    world.write(ROWS, 7, changelog=world.changelog("others"))
    (problem,) = refusal(world)
    assert problem["code"] == "changelog-mismatch"
    assert "app-others-changelog-0" in problem["what"]


@pytest.mark.parametrize("declared", ["timestamped-key-value", "headers-key-value"])
def test_a_store_of_another_kind_is_refused_under_its_own_path(world: World, declared: str) -> None:
    world.write(ROWS, 7)
    world.spec["subtopologies"]["0"]["stores"]["counts"]["kind"] = declared
    (problem,) = refusal(world)
    assert problem["code"] == "kind-mismatch"
    assert str(world.database()) in problem["what"]
    assert "snapshot-" not in problem["what"]


def test_a_store_of_another_shape_is_refused(world: World) -> None:
    world.write(ROWS, 7)
    world.spec["subtopologies"]["0"]["stores"]["counts"] = {"kind": "window", "retention": "10m"}
    assert codes(refusal(world)) == [("kind-mismatch", "counts"), ("store-undeclared", "counts")]


def test_rows_of_an_older_format_are_refused(world: World) -> None:
    from tests.unit.doctor.stored import offsets, write_database

    at = offsets("app-counts-changelog", 0, 7)
    write_database(world.database(), {"default": [(b"k", b"v")], "keyValueWithTimestamp": [], "offsets": at})
    world.spec["subtopologies"]["0"]["stores"]["counts"]["kind"] = "timestamped-key-value"
    assert codes(refusal(world)) == [("older-row-format", "counts")]


def test_a_database_of_an_older_release_is_refused(world: World) -> None:
    from tests.unit.doctor.stored import write_database

    write_database(world.database(), {"default": [(b"k", b"v")]})
    assert codes(refusal(world)) == [("database-of-older-release", "counts")]


@pytest.mark.parametrize("undecided", [{"kind": "?"}, {"kind": "key-value", "changelog": "?"}])
def test_undecided_stores_are_refused(world: World, undecided: dict[str, str]) -> None:
    world.write(ROWS, 7)
    world.spec["subtopologies"]["0"]["stores"]["counts"] = undecided
    undecided_kinds = ["counts"] if undecided["kind"] == "?" else []
    with raises(Invalid, "spec-undecided", stores=["counts"], kinds=undecided_kinds):
        world.snapshot()


@pytest.mark.parametrize(("said", "fits"), [(7, True), (-4, True), (6, False), (8, False)])
def test_a_checkpoint_that_contradicts_is_refused(world: World, said: int, fits: bool) -> None:
    world.write(ROWS, 7)
    (world.path / "0_0" / ".checkpoint").write_bytes(encode_checkpoint({world.changelog(): said}))
    if fits:
        assert world.snapshot().outcome is BackupOutcome.PUBLISHED
    else:
        (problem,) = refusal(world)
        assert problem["code"] == "checkpoint-file-mismatch"
        assert f".checkpoint has {said}," in problem["what"]


def test_stores_that_are_not_logged_or_in_memory_are_left_out_and_named(tmp_path: Path) -> None:
    more = {"own": {"kind": "key-value", "changelog": "none"}, "memory": {"kind": "in-memory"}}
    world = World(tmp_path, **more)
    world.write(ROWS, 7)
    world.write(ROWS, None, path=world.database("own"))
    report = world.snapshot()
    assert [store.store for store in report.stores] == ["counts"]
    assert [note.partition(".")[0] for note in report.notes] == ["Left out: own", "Left out: memory"]


def test_stores_of_the_application_s_own_classes_are_left_out_and_named(tmp_path: Path) -> None:
    world = World(tmp_path, mine={"kind": "custom"})
    world.write(ROWS, 7)
    task = world.database("counts").parent.parent
    for name in ("mine", "elsewhere"):
        (task / name).mkdir()
        (task / name / "rows").write_text("rows")
    world.write(ROWS, None, path=world.database("mine"))
    report = world.snapshot()
    assert [store.store for store in report.stores] == ["counts"]
    assert [note.partition(".")[0] for note in report.notes] == ["Left out: mine"]


def global_world(tmp_path: Path, offset: int) -> World:
    world = World(tmp_path)
    world.write(ROWS, 7)
    world.spec["global_stores"] = {"products": {"kind": "key-value", "topic": "products"}}
    topic = world.changelog()._replace(topic="products", partition=3)
    world.write(ROWS, offset, path=world.database("products", "global"), changelog=topic)
    return world


def test_a_global_store_says_the_next_offset(tmp_path: Path) -> None:
    world = global_world(tmp_path, 5)
    world.snapshot()
    (end,) = world.stored()["global", "products"].changelogs
    assert (end.topic, end.partition, end.offset, end.end) == ("products", 3, 5, 5)


def test_a_global_store_without_an_offset_is_refused(tmp_path: Path) -> None:
    assert [problem["code"] for problem in refusal(global_world(tmp_path, -4))] == ["global-offset-unknown"]


def test_an_empty_changelog_stays_unknown(world: World) -> None:
    world.write({}, -4)
    world.snapshot()
    (end,) = world.stored()["0_0", "counts"].changelogs
    assert (end.offset, end.end) == (-4, 0)
