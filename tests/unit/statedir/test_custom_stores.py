"""Stores of the application's own classes in tasks that are placed."""

from __future__ import annotations

from pathlib import Path

import pytest

from statecore.formats.checkpoint import decode_checkpoint
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.statedir.placement import apply_placement
from statecore.statedir.placement_plan import plan_placement
from statecore.statedir.placement_stores import SiblingStore
from statecore.statedir.state_directory import StateDirectory
from tests.unit.statedir.support import (
    ALOS,
    EOS,
    changelog,
    make_database,
    make_global_image,
    make_image,
    make_live,
    offset_of,
    place,
    problems,
    refusal,
    sibling,
)

CUSTOM = StoreKind.CUSTOM
BOTH = pytest.mark.parametrize("guarantee", [EOS, ALOS])
ODD = ["c", "C-1_x.y", "x.tmp", "x.lock", "x.position", "s.c", "checkpoint"]


def custom(store: str = "c", task: str = "0_0") -> SiblingStore:
    return sibling(task, store, CUSTOM)


def write(path: Path, text: str = "rows") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def offset(directory: StateDirectory, store: str = "c", at: int = 7, *, file: str = "") -> Path:
    path = directory.task_path("0_0") / (file or f".checkpoint_{store}")
    return write(path, f"0\n1\napp-{store}-changelog 0 {at}\n")


def said(directory: StateDirectory, store: str = "c") -> int | None:
    """The offset that Kafka Streams would find."""
    file = directory.task_path("0_0") / f".checkpoint_{store}"
    return decode_checkpoint(file.read_bytes(), "file")[changelog("0_0", store)] if file.exists() else None


def placed(directory: StateDirectory, *siblings: SiblingStore, **options):
    """Places one store beside these; the plan."""
    options = {"guarantee": EOS, "replace": True, **options}
    plan = plan_placement(directory, [make_image(directory, "0_0", "s")], siblings=siblings, **options)
    apply_placement(plan)
    assert offset_of(directory, "0_0", "s") == 9
    return plan


@pytest.mark.parametrize("store", ODD)
def test_a_missing_custom_store_is_restored_by_kafka_streams(directory, store):
    (note,) = placed(directory, custom(store)).notes
    assert said(directory, store) == -4
    assert store in note
    assert sorted(path.name for path in directory.task_path("0_0").iterdir()) == sorted(
        [f".checkpoint_{store}", "rocksdb"]
    )


def test_at_least_once_nothing_has_to_be_there(directory):
    plan = placed(directory, custom(), guarantee=ALOS)
    assert said(directory) is None
    assert [one.store for task in plan.tasks for one in task.custom if one.why_restored] == ["c"]


@BOTH
@pytest.mark.parametrize("store", ["c", "x.tmp"])
@pytest.mark.parametrize("where", ["{}/rows", "rocksdb/{}/rows", "{}.db", "{}/{}.60000/rows", "elsewhere/rows"])
def test_what_was_closed_is_kept_as_it_is(directory, guarantee, store, where):
    rows = write(directory.task_path("0_0") / where.replace("{}", store))
    offset(directory, store)
    plan = placed(directory, custom(store), guarantee=guarantee)
    assert (rows.read_text(), said(directory, store), plan.notes) == ("rows", 7, [])


@pytest.mark.parametrize("store", ["c", "x.tmp"])
@pytest.mark.parametrize("where", ["{}/rows", "rocksdb/{}/rows", "{}.db", "{}/{}.60000/rows", "elsewhere/rows"])
def test_what_was_not_closed_is_not_carried_over_under_exactly_once(directory, store, where):
    rows = write(directory.task_path("0_0") / where.replace("{}", store))
    assert "from the start" in placed(directory, custom(store)).notes[0]
    assert (rows.exists(), said(directory, store)) == (False, -4)


@pytest.mark.parametrize("where", ["c/rows", "c.db"])
def test_what_was_not_closed_stays_under_at_least_once(directory, where):
    rows = write(directory.task_path("0_0") / where)
    assert len(placed(directory, custom(), guarantee=ALOS).notes) == 1
    assert (rows.read_text(), said(directory)) == ("rows", None)


@BOTH
@pytest.mark.parametrize("there", [None, "c", "rocksdb/c", "c/c.0"])
def test_an_offset_without_files_is_ignored(directory, guarantee, there):
    offset(directory)
    if there is not None:
        (directory.task_path("0_0") / there).mkdir(parents=True)
    assert len(placed(directory, custom(), guarantee=guarantee).notes) == 1
    assert said(directory) == -4


@BOTH
@pytest.mark.parametrize("text", ["", "x", "0\n1\napp-other-changelog 0 7\n", "0\n1\napp-c-changelog 1 7\n"])
def test_an_offset_that_is_none_of_it_counts_as_none(directory, guarantee, text):
    rows = write(directory.task_path("0_0") / "c" / "rows")
    write(directory.task_path("0_0") / ".checkpoint_c", text)
    placed(directory, custom(), guarantee=guarantee)
    assert (rows.exists(), said(directory)) == (guarantee is ALOS, -4)


@BOTH
def test_an_offset_in_the_file_of_an_older_release_is_inherited(directory, guarantee):
    rows = write(directory.task_path("0_0") / "c" / "rows")
    offset(directory, at=3)
    write(directory.task_path("0_0") / ".checkpoint", "0\n2\napp-c-changelog 0 5\napp-s-changelog 0 5\n")
    placed(directory, custom(), guarantee=guarantee)
    assert (rows.read_text(), said(directory)) == ("rows", 5)
    assert not (directory.task_path("0_0") / ".checkpoint").exists()


def test_the_file_of_an_older_release_is_not_dropped_while_another_store_is_kept(directory):
    make_live(directory, "0_0", "kept")
    write(directory.task_path("0_0") / ".checkpoint", "0\n2\napp-c-changelog 0 5\napp-kept-changelog 0 6\n")
    siblings = [custom(), sibling("0_0", "kept")]
    (problem,) = problems(directory, make_image(directory, "0_0", "s"), siblings=siblings)
    assert (problem["code"], problem["topics"]) == ("checkpoint-of-other-stores", ["app-kept-changelog"])


def test_two_custom_stores_are_checked_separately(directory):
    closed = write(directory.task_path("0_0") / "c" / "rows")
    offset(directory)
    torn = write(directory.task_path("0_0") / "c.d" / "rows")
    beside = write(directory.task_path("0_0") / "c.d.db")
    placed(directory, custom("c"), custom("c.d"))
    assert (closed.exists(), said(directory)) == (True, 7)
    assert (torn.exists(), beside.exists(), said(directory, "c.d")) == (False, False, -4)


def test_files_of_an_unknown_owner_are_not_trusted_if_a_store_was_not_closed(directory):
    rows = write(directory.task_path("0_0") / "elsewhere" / "rows")
    offset(directory)
    placed(directory, custom("c"), custom("d"))
    assert (rows.exists(), said(directory), said(directory, "d")) == (False, -4, -4)


def test_one_that_was_closed_keeps_all_of_its_files_or_none_of_them(directory):
    mine = write(directory.task_path("0_0") / "c" / "rows")
    others = write(directory.task_path("0_0") / "c-wal" / "rows")
    offset(directory)
    placed(directory, custom("c"))
    assert (mine.exists(), others.exists(), said(directory)) == (True, True, 7)
    placed(directory, custom("c"), custom("d"))  # of which they may be as well
    assert (mine.exists(), others.exists(), said(directory), said(directory, "d")) == (False, False, -4, -4)


def test_one_that_was_not_closed_leaves_none_of_its_files(directory):
    mine = write(directory.task_path("0_0") / "c" / "rows")
    others = write(directory.task_path("0_0") / "c-wal" / "rows")
    placed(directory, custom("c"))
    assert (mine.exists(), others.exists(), said(directory)) == (False, False, -4)


def test_what_may_be_of_one_that_is_not_logged_is_never_dropped(directory):
    rows = [write(directory.task_path("0_0") / name / "rows") for name in ("u", "u-wal")]
    placed(directory, SiblingStore("0_0", "u", CUSTOM, None, logged=False), custom("d"))
    assert [one.exists() for one in rows] == [True, True]


@BOTH
@pytest.mark.parametrize("name", ["c.lock", "c.tmp", ".DS_Store"])
def test_what_has_no_rows_is_no_file_of_it(directory, guarantee, name):
    write(directory.task_path("0_0") / name)
    offset(directory)
    placed(directory, custom("c"), guarantee=guarantee)
    assert said(directory) == -4


@BOTH
def test_one_that_is_not_logged_is_kept_and_gets_no_offset(directory, guarantee):
    rows = write(directory.task_path("0_0") / "c" / "rows")
    placed(directory, SiblingStore("0_0", "c", CUSTOM, None, logged=False), guarantee=guarantee)
    assert (rows.read_text(), said(directory)) == ("rows", None)


def test_one_whose_changelog_is_not_decided_is_refused_under_exactly_once(directory):
    undecided = SiblingStore("0_0", "c", CUSTOM, None)
    found = refusal(directory, make_image(directory, "0_0", "s"), siblings=[undecided])
    assert found == [("0_0", "changelog-undecided", "c")]
    place(directory, make_image(directory, "0_0", "s"), siblings=[undecided], guarantee=ALOS)


@BOTH
def test_a_database_of_its_own_is_neither_read_nor_asked_for_an_offset(directory, guarantee):
    path = make_database(directory.task_path("0_0") / "rocksdb" / "c", None, closed=False)
    offset(directory)
    placed(directory, custom(), guarantee=guarantee)
    assert (path / "CURRENT").exists()
    assert said(directory) == 7


@BOTH
@pytest.mark.parametrize(
    ("at", "files", "kept"), [(7, True, True), (-4, True, False), (7, False, False), (None, True, False)]
)
def test_a_global_one_is_never_given_an_unknown_offset(directory, guarantee, at, files, kept):
    if files:
        write(directory.global_path / "c" / "rows")
    if at is not None:
        write(directory.global_path / ".checkpoint_c", f"0\n2\nsource 0 {at}\nsource 1 9\n")
    image = make_global_image(directory, "g", {TopicPartition("products", 0): 12})
    sources = [SiblingStore("global", "c", CUSTOM, TopicPartition("source", 0))]
    plan = plan_placement(directory, [image], siblings=sources, guarantee=guarantee)
    apply_placement(plan)
    assert (directory.global_path / "c" / "rows").exists() is files
    assert (directory.global_path / ".checkpoint_c").exists() is kept
    assert len(plan.notes) == (not kept)


def test_a_global_custom_store_inherits_the_file_of_an_older_release(directory):
    write(directory.global_path / "c" / "rows")
    write(directory.global_path / ".checkpoint", "0\n2\nsource 0 7\nsource 1 9\n")
    image = make_global_image(directory, "g", {TopicPartition("products", 0): 12})
    place(directory, image, siblings=[SiblingStore("global", "c", CUSTOM, TopicPartition("source", 0))])
    assert decode_checkpoint((directory.global_path / ".checkpoint_c").read_bytes(), "file") == {
        TopicPartition("source", 0): 7,
        TopicPartition("source", 1): 9,
    }


@pytest.mark.parametrize(
    ("older", "expected"), [("-4", {0: 120, 1: 9}), ("130", {0: 130, 1: 9})], ids=["unknown", "another offset"]
)
def test_entries_of_an_older_release_count_for_a_global_custom_store_as_at_a_start(directory, older, expected):
    write(directory.global_path / "c" / "rows")
    write(directory.global_path / ".checkpoint_c", "0\n2\nsource 0 120\nsource 1 9\n")
    write(directory.global_path / ".checkpoint", f"0\n1\nsource 0 {older}\n")
    image = make_global_image(directory, "g", {TopicPartition("products", 0): 12})
    place(directory, image, siblings=[SiblingStore("global", "c", CUSTOM, TopicPartition("source", 0))])
    assert decode_checkpoint((directory.global_path / ".checkpoint_c").read_bytes(), "file") == {
        TopicPartition("source", number): offset for number, offset in expected.items()
    }


def test_a_plan_says_what_becomes_of_it(directory):
    plan = placed(directory, custom())
    assert plan.to_json()[0]["restored_by_kafka_streams"] == ["c"]
    assert "restored by Kafka Streams c" in plan.lines[0]
    write(directory.task_path("0_0") / "c" / "rows")
    offset(directory)
    plan = placed(directory, custom())
    assert (plan.to_json()[0]["restored_by_kafka_streams"], plan.to_json()[0]["replaced"]) == ([], ["rocksdb/s"])
