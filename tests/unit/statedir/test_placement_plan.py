"""The plan of a placement: what it refuses before anything changes, and what it lists."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.statedir.file_trees import file_sizes, fingerprint
from statecore.statedir.placement import apply_placement
from statecore.statedir.placement_plan import existing_stores_error, plan_placement, refusals
from statecore.statedir.placement_stores import SiblingStore, StoreImage
from statecore.statedir.state_directory import StateDirectory
from tests.unit.statedir.support import (
    ALOS,
    EOS,
    KIND,
    changelog,
    make_database,
    make_image,
    make_live,
    offset_of,
    place,
    problems,
    refusal,
    sibling,
)


@pytest.mark.parametrize(
    ("usual", "of_the_application"),
    [
        ("comparator=leveldb.BytewiseComparator", "comparator=rocksdb.ReverseBytewiseComparator"),
        ("table_factory=BlockBasedTable", "table_factory=PlainTable"),
        ("num_levels=7", "num_levels=3"),
    ],
)
def test_a_store_unreadable_with_the_options_of_the_application_is_refused(directory, usual, of_the_application):
    make_live(directory, "0_0", "s")
    options = max(directory.store_path("0_0", "s", KIND).glob("OPTIONS-*"))
    assert usual in options.read_text()
    options.write_text(options.read_text().replace(usual, of_the_application))
    image = make_image(directory, "0_0", "s")
    (problem,) = problems(directory, image, replace=True)
    assert (problem["task"], problem["code"], problem["store"]) == ("0_0", "not-readable-here", "s")
    assert of_the_application.partition("=")[2] in problem["why"]
    assert [one.code for one in refusals(directory, [image], guarantee=EOS)] == ["not-readable-here"]
    plan_placement(directory, [replace(image, advances=True)], guarantee=EOS)
    plan_placement(directory, [make_image(directory, "0_1", "s")], guarantee=EOS)
    shutil.rmtree(directory.store_path("0_0", "s", KIND))
    plan_placement(directory, [image], guarantee=EOS)


def test_a_target_that_is_not_empty_is_refused_unless_it_may_be_replaced(directory):
    make_live(directory, "0_0", "s")
    make_live(directory, "0_1", "t")
    found = refusal(directory, make_image(directory, "0_0", "s"), make_image(directory, "0_1", "t"))
    assert found == [("0_0", "store-exists", "s"), ("0_1", "store-exists", "t")]
    place(directory, make_image(directory, "0_0", "s"), make_image(directory, "0_1", "t"), replace=True)
    assert (offset_of(directory, "0_0", "s"), offset_of(directory, "0_1", "t")) == (9, 9)


@pytest.mark.parametrize("lost", ["CURRENT", "MANIFEST-*"])
def test_a_damaged_store_is_refused_with_its_damage(directory, lost):
    make_live(directory, "0_0", "s")
    (directory.store_path("0_0", "s", KIND) / "000099.log").write_bytes(b"rows")
    for file in directory.store_path("0_0", "s", KIND).glob(lost):
        file.unlink()
    (problem,) = problems(directory, make_image(directory, "0_0", "s"))
    assert (problem["code"], problem["store"]) == ("store-exists", "s")
    assert str(directory.store_path("0_0", "s", KIND)) in problem["damage"]
    assert problem["damage"] in problem["what"]


def test_a_store_of_another_shape_under_the_same_name_counts_as_the_target(directory):
    make_database(directory.task_path("0_0") / "s" / "s.0", changelog("0_0", "s"))
    assert refusal(directory, make_image(directory, "0_0", "s")) == [("0_0", "store-exists", "s")]
    place(directory, make_image(directory, "0_0", "s"), replace=True)
    assert not (directory.task_path("0_0") / "s").exists()


def test_an_empty_store_directory_is_no_target(directory):
    directory.store_path("0_0", "s", KIND).mkdir(parents=True)
    place(directory, make_image(directory, "0_0", "s"))
    assert offset_of(directory, "0_0", "s") == 9


def test_a_missing_sibling_of_unknown_kind_is_refused_under_exactly_once(directory):
    image = make_image(directory, "0_0", "s")
    siblings = [sibling("0_0", "gap", StoreKind.UNKNOWN)]
    assert refusal(directory, image, siblings=siblings) == [("0_0", "kind-undecided", "gap")]
    place(directory, image, siblings=siblings, guarantee=ALOS)


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize(
    ("offset", "closed", "reason"), [(None, True, "offset-missing"), (5, False, "not-closed-cleanly")]
)
def test_a_kept_store_that_would_get_the_task_wiped_is_refused(directory, declared, offset, closed, reason):
    path = directory.store_path("0_0", "k", KIND)
    make_database(path, changelog("0_0", "k") if offset else None, offset or 5, closed=closed)
    siblings = [sibling("0_0", "k")] if declared else []
    image = make_image(directory, "0_0", "s")
    found = refusal(directory, image, siblings=siblings, replace=True)
    assert found == [("0_0", reason, "k")]
    place(directory, image, siblings=siblings, guarantee=ALOS)


def unlogged(task: str, store: str, kind: StoreKind = KIND) -> SiblingStore:
    return SiblingStore(task, store, kind, None, logged=False)


def test_a_store_that_is_not_logged_needs_no_offset_but_has_to_be_closed(directory):
    path = make_database(directory.store_path("0_0", "k", KIND), None)
    image = make_image(directory, "0_0", "s")
    (problem,) = problems(directory, image)
    assert (problem["task"], problem["code"], problem["store"]) == ("0_0", "offset-missing", "k")
    assert "changelog: none" in problem["what"]
    files = file_sizes(path)
    place(directory, image, siblings=[unlogged("0_0", "k")], guarantee=EOS)
    assert file_sizes(directory.store_path("0_0", "k", KIND)) == files


def test_an_unlogged_store_that_was_not_closed_is_refused_without_advice_to_restore(directory):
    path = make_database(directory.store_path("0_0", "k", KIND), None, closed=False)
    (problem,) = problems(directory, make_image(directory, "0_0", "s"), siblings=[unlogged("0_0", "k")])
    assert (problem["task"], problem["code"], problem["store"]) == ("0_0", "not-closed-cleanly", "k")
    assert f"move {path} away" in problem["what"]
    assert "restore" not in problem["what"]


@pytest.mark.parametrize("kind", [KIND, StoreKind.TIMESTAMPED_WINDOW, StoreKind.UNKNOWN])
def test_a_missing_unlogged_store_is_not_created(directory, kind):
    place(directory, make_image(directory, "0_0", "s"), siblings=[unlogged("0_0", "k", kind)], guarantee=EOS)
    assert [path.name for path in directory.task_path("0_0").iterdir()] == ["rocksdb"]
    assert [path.name for path in (directory.task_path("0_0") / "rocksdb").iterdir()] == ["s"]


def test_an_unlogged_window_store_without_segments_is_carried_unchanged(directory):
    (directory.task_path("0_0") / "k").mkdir(parents=True)
    siblings = [unlogged("0_0", "k", StoreKind.TIMESTAMPED_WINDOW)]
    place(directory, make_image(directory, "0_0", "s"), siblings=siblings, guarantee=EOS)
    assert list((directory.task_path("0_0") / "k").iterdir()) == []


def test_a_missing_store_of_an_undecided_changelog_is_refused_under_exactly_once(directory):
    image = make_image(directory, "0_0", "s")
    siblings = [SiblingStore("0_0", "gap", KIND, None)]
    assert refusal(directory, image, siblings=siblings) == [("0_0", "changelog-undecided", "gap")]
    place(directory, image, siblings=siblings, guarantee=ALOS)


def test_an_offset_of_another_topic_is_no_offset_of_a_declared_sibling(directory):
    make_database(directory.store_path("0_0", "k", KIND), changelog("0_0", "other"))
    found = refusal(directory, make_image(directory, "0_0", "s"), siblings=[sibling("0_0", "k")])
    assert found == [("0_0", "offset-missing", "k")]


def test_a_kept_store_that_cannot_be_opened_is_refused_under_exactly_once(directory):
    path = make_live(directory, "0_0", "k")
    next(path.glob("MANIFEST-*")).write_bytes(b"\0" * 100)
    assert refusal(directory, make_image(directory, "0_0", "s")) == [("0_0", "database-damaged", "k")]


@pytest.mark.parametrize("guarantee", [ALOS, EOS])
def test_a_checkpoint_file_in_which_the_offset_of_a_carried_store_is_unknown_is_dropped(directory, guarantee):
    """A start takes no -4 out of it, and finds the offset in the store, which may be -4, too."""
    make_database(directory.store_path("0_0", "k", KIND), changelog("0_0", "k"), OFFSET_UNKNOWN)
    file = directory.task_path("0_0") / ".checkpoint"
    file.write_text("0\n2\napp-s-changelog 0 3000\napp-k-changelog 0 -4\n")
    place(directory, make_image(directory, "0_0", "s"), guarantee=guarantee)
    assert not file.exists()
    assert offset_of(directory, "0_0", "k") == OFFSET_UNKNOWN


@pytest.mark.parametrize("guarantee", [ALOS, EOS])
def test_a_checkpoint_file_with_the_offset_of_a_carried_store_is_refused(directory, guarantee):
    make_live(directory, "0_0", "k")
    image = make_image(directory, "0_0", "s")
    file = directory.task_path("0_0") / ".checkpoint"
    file.write_text("0\n2\napp-s-changelog 0 3000\napp-k-changelog 0 7\n")
    (problem,) = problems(directory, image, guarantee=guarantee)
    assert (problem["code"], problem["topics"]) == ("checkpoint-of-other-stores", ["app-k-changelog"])
    file.write_bytes(b"0\n1\n\xff\n")
    assert refusal(directory, image, guarantee=guarantee) == [("0_0", "checkpoint-unreadable", "")]


@pytest.mark.parametrize("guarantee", [ALOS, EOS])
@pytest.mark.parametrize("entries", ["1\napp-s-changelog 0 3000\n", *(f"1\napp-k-changelog 0 {at}\n" for at in (4, 5))])
def test_a_checkpoint_file_is_dropped_if_the_carried_stores_have_its_offsets_or_later_ones(
    directory, guarantee, entries
):
    """A Python processor and a standby write the offsets of their stores into it as well."""
    make_live(directory, "0_0", "k")
    image = make_image(directory, "0_0", "s")
    file = directory.task_path("0_0") / ".checkpoint"
    file.write_text(f"0\n{entries}")
    place(directory, image, guarantee=guarantee)
    assert not file.exists()
    assert offset_of(directory, "0_0", "k") == 5


def test_a_task_directory_that_is_a_link_is_refused(directory, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    directory.task_path("0_0").symlink_to(tmp_path / "elsewhere")
    assert refusal(directory, make_image(directory, "0_0", "s")) == [("0_0", "task-directory-linked", "")]


def test_a_placement_is_planned_before_its_images_are_built(directory):
    make_live(directory, "0_0", "s")
    make_live(directory, "0_0", "k")
    wanted = make_image(directory, "0_0", "s")
    unbuilt = type(wanted)(wanted.task, wanted.store, wanted.kind, wanted.changelog)
    siblings = [sibling("0_0", "k"), sibling("0_0", "gap")]
    plan = plan_placement(directory, [unbuilt], siblings=siblings, guarantee=EOS, replace=True)
    (task,) = plan.to_json()
    assert (task["task"], task["live"], task["restored"], task["kept"]) == ("0_0", True, ["s"], ["rocksdb/k"])
    assert (task["created"], task["replaced"], task["dropped"], len(plan.lines)) == (["gap"], ["rocksdb/s"], [], 1)
    assert plan.lines == ["0_0: replace; restore s; keep rocksdb/k; create without data gap"]
    with pytest.raises(ValueError, match="has no path"):
        apply_placement(plan)
    assert offset_of(directory, "0_0", "s") == 5


def test_an_advanced_store_is_not_reported_as_replaced_or_dropped(directory):
    for store in ("s", "t", "other"):
        make_live(directory, "0_0", store)
    advanced, restored = replace(make_image(directory, "0_0", "s"), advances=True), make_image(directory, "0_0", "t")
    siblings = [sibling("0_0", "t"), sibling("0_0", "other")]
    plan = plan_placement(directory, [advanced], siblings=siblings, guarantee=ALOS)
    (task,) = plan.to_json()
    assert ([image.store for image in plan.tasks[0].restored if image.advances], task["dropped"]) == (["s"], [])
    assert task["kept"] == ["rocksdb/other", "rocksdb/t"]
    assert not any("replace" in line or "drop" in line for line in plan.lines)
    plan = plan_placement(directory, [advanced, restored], siblings=siblings, guarantee=ALOS, replace=True)
    (task,) = plan.to_json()
    assert [(image.store, image.advances) for image in plan.tasks[0].restored] == [("s", True), ("t", False)]
    assert (task["kept"], task["replaced"], task["dropped"]) == (["rocksdb/other"], ["rocksdb/t"], [])


def test_refusals_are_listed_for_each_task_without_the_lock(tmp_path):
    directory = StateDirectory(tmp_path, "app")
    images = [StoreImage(task, "s", KIND, changelog(task, "s")) for task in ("0_0", "0_1")]
    for task in ("0_0", "0_1"):
        path = directory.store_path(task, "k", KIND)
        make_database(path, changelog(task, "k"), 5, closed=task == "0_1")
    before = fingerprint(directory.path)
    siblings = [sibling(task, "k") for task in ("0_0", "0_1")]
    (problem,) = refusals(directory, images, siblings=siblings, guarantee=EOS)
    assert (problem.code, problem.context) == ("not-closed-cleanly", {"task": "0_0", "store": "k"})
    assert refusals(directory, images, siblings=siblings, guarantee=ALOS) == []
    assert fingerprint(directory.path) == before


def test_existing_stores_are_found_without_the_lock(tmp_path):
    directory = StateDirectory(tmp_path / "state", "app")
    image = StoreImage("0_0", "s", KIND, changelog("0_0", "s"))
    assert existing_stores_error(directory, [image]) is None
    assert not directory.path.exists()
    make_live(directory, "0_0", "s")
    (problem,) = existing_stores_error(directory, [image]).context["problems"]
    assert (problem["code"], problem["task"], problem["store"]) == ("store-exists", "0_0", "s")
    assert "--replace" in problem["what"]
    assert existing_stores_error(directory, [replace(image, advances=True)]) is None
    assert existing_stores_error(directory, [replace(image, store="t")]) is None
