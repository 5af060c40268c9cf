"""Placement of stores that are not one database with one offset: segments, grace buffers, global stores."""

from __future__ import annotations

import dataclasses
import json
import os
import stat
from pathlib import Path

import pytest

from statecore.errors import Corrupted
from statecore.faults import FaultInjected, InjectedFault
from statecore.formats.kinds import WINDOWED_KINDS, StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.topic_partition import TopicPartition
from statecore.statedir.database_state import read_database_state
from statecore.statedir.placement import apply_placement, recover
from statecore.statedir.placement_plan import plan_placement
from statecore.statedir.placement_stores import SiblingStore
from statecore.statedir.state_directory import store_directory
from tests.harness.raising import raises
from tests.unit.statedir.support import (
    ALOS,
    BUFFER,
    EOS,
    KIND,
    WINDOW,
    changelog,
    content_of,
    make_database,
    make_global_image,
    make_image,
    make_live,
    make_segmented_image,
    make_segments,
    make_with_offsets,
    offset_of,
    place,
    problems,
    refusal,
    sibling,
)

ENDS = {TopicPartition("products", 0): 12, TopicPartition("products", 1): 0, TopicPartition("products", 2): 7}


def content(directory, task="0_0"):
    return content_of(directory.task_path(task))


def checkpoint(topic: str, offset: int) -> str:
    return f"0\n1\n{topic} 0 {offset}\n"


# Segmented stores


@pytest.mark.parametrize("start", [0, 60_000])
def test_a_kept_store_whose_only_segment_lost_its_current_is_refused_under_exactly_once(directory, start):
    make_segments(directory.task_path("0_0") / "w", changelog("0_0", "w"), 5, (start,))
    (directory.task_path("0_0") / "w" / f"w.{start}" / "CURRENT").unlink()
    windows = sibling("0_0", "w", WINDOW)
    found = refusal(directory, make_image(directory, "0_0", "s"), siblings=[windows])
    assert found == [("0_0", "store-incomplete", "w")]
    place(directory, make_image(directory, "0_0", "s"), siblings=[windows], guarantee=ALOS)


def test_a_kept_store_whose_only_segment_is_an_empty_directory_gets_a_segment(directory):
    (directory.task_path("0_0") / "w" / "w.0").mkdir(parents=True)
    place(directory, make_image(directory, "0_0", "s"), siblings=[sibling("0_0", "w", WINDOW)])
    assert content(directory)["w/w.0"] == {changelog("0_0", "w"): OFFSET_UNKNOWN}


def test_a_segmented_store_is_placed_whole_and_no_old_segment_stays(directory):
    task = directory.task_path("0_0")
    make_segments(task / "w", changelog("0_0", "w"), 5, (0, 60_000))
    report = place(directory, make_segmented_image(directory, "0_0", "w", (60_000, 120_000)), replace=True)
    nine = {changelog("0_0", "w"): 9}
    assert content(directory) == {"w/w.60000": nine, "w/w.120000": nine}
    assert [(one.directory, one.offsets, one.checkpoint) for one in report.tasks[0].stores] == [
        ("w/w.60000", nine, ""),
        ("w/w.120000", nine, ""),
    ]
    assert len({one.identity for one in report.tasks[0].stores}) == 2
    for path in (task / "w", *task.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o750 if path.is_dir() else 0o640), path


@pytest.mark.parametrize(
    ("offset", "closed", "expected"),
    [
        (8, True, {"offsets": {"app-w-changelog-0": 8}, "status": 0}),
        (9, False, {"offsets": {"app-w-changelog-0": 9}, "status": 1}),
        (None, True, {"offsets": {}}),
    ],
)
@pytest.mark.parametrize("start", [0, 60_000])
def test_every_segment_is_checked(directory, start, offset, closed, expected):
    make_segments(directory.task_path("0_0") / "w", changelog("0_0", "w"), 5, (0,))
    path = directory.work_path / "image" / "w"
    partition = changelog("0_0", "w")
    make_segments(path, partition, 9, {0, 60_000} - {start})
    make_database(path / f"w.{start}", partition if offset else None, offset or 0, closed=closed, kind=WINDOW)
    image = dataclasses.replace(make_segmented_image(directory, "0_0", "w"), path=path)
    with raises(Corrupted, "image-mismatch", task="0_0", store="w", directory=f"w/w.{start}", **expected):
        place(directory, image, replace=True)
    assert content(directory) == {"w/w.0": {partition: 5}}


@pytest.mark.parametrize("stray", ["notes.txt", "empty/", "w-0", "other.0", "w.x"])
def test_a_segmented_image_with_anything_else_in_it_is_not_placed(directory, stray):
    image = make_segmented_image(directory, "0_0", "w", (0, 60_000))
    if stray.endswith("/"):
        (image.path / stray).mkdir()
    elif stray.endswith(".txt"):
        (image.path / stray).touch()
    else:
        make_database(image.path / stray, image.changelog, 9, kind=WINDOW)
    with raises(Corrupted, "image-mismatch", task="0_0", store="w", stray=[stray.rstrip("/")]):
        place(directory, image)
    assert content(directory) is None


def test_an_image_of_another_shape_than_its_kind_is_not_placed(directory):
    plain = dataclasses.replace(make_image(directory, "0_0", "s"), kind=WINDOW)
    with raises(Corrupted, "image-mismatch", store="s", databases=1) as caught:
        place(directory, plain)
    assert "CURRENT" in caught.value.context["stray"]
    segmented = dataclasses.replace(make_segmented_image(directory, "0_0", "w"), kind=KIND)
    with raises(Corrupted, "image-mismatch", store="w", databases=len(list(segmented.path.iterdir())), stray=[]):
        place(directory, segmented)
    (directory.work_path / "empty" / "w").mkdir(parents=True)
    with raises(Corrupted, "image-mismatch", store="w", databases=0, stray=[]):
        place(directory, dataclasses.replace(segmented, path=directory.work_path / "empty" / "w", kind=WINDOW))


def test_a_segmented_sibling_is_kept_with_all_its_segments_unless_one_was_not_closed(directory):
    task = directory.task_path("0_0")
    make_segments(task / "w", changelog("0_0", "w"), 21, (0, 60_000))
    siblings = [sibling("0_0", "w", WINDOW)]
    place(directory, make_image(directory, "0_0", "s"), siblings=siblings)
    kept = {"w/w.0": {changelog("0_0", "w"): 21}, "w/w.60000": {changelog("0_0", "w"): 21}}
    assert content(directory) == {"rocksdb/s": {changelog("0_0", "s"): 9}, **kept}
    make_database(task / "w" / "w.120000", changelog("0_0", "w"), 22, closed=False, kind=WINDOW)
    found = refusal(directory, make_image(directory, "0_0", "t"), siblings=[*siblings, sibling("0_0", "s")])
    assert found == [("0_0", "not-closed-cleanly", "w")]


@pytest.mark.parametrize("kind", [kind for kind in StoreKind if kind.can_be_built])
@pytest.mark.parametrize("live", [False, True])
def test_under_exactly_once_a_missing_sibling_is_created_with_an_unknown_offset(directory, kind, live):
    if live:
        directory.task_path("0_0").mkdir()
    place(directory, make_image(directory, "0_0", "s"), siblings=[sibling("0_0", "gap", kind)])
    where = store_directory("gap", kind) + ("/gap.0" if kind.is_segmented else "")
    state = read_database_state(directory.task_path("0_0") / where)
    assert set(state.column_families) == {"default", "offsets", kind.data_column_family}
    assert (state.offsets, state.status) == ({changelog("0_0", "gap"): OFFSET_UNKNOWN}, 0)
    expected = {"rocksdb/s": {changelog("0_0", "s"): 9}, where: state.offsets}
    if kind is BUFFER:
        expected[".checkpoint_gap"] = checkpoint("app-gap-changelog", OFFSET_UNKNOWN)
    assert content(directory) == expected
    assert not list((directory.task_path("0_0") / where).glob("rocksdict*"))


@pytest.mark.parametrize("kind", sorted(WINDOWED_KINDS))
def test_a_windowed_sibling_that_had_no_data_gets_a_segment_under_exactly_once_only(directory, kind):
    (directory.task_path("0_0") / "w").mkdir(parents=True)
    siblings = [sibling("0_0", "w", kind)]
    place(directory, make_image(directory, "0_0", "s"), siblings=siblings, guarantee=ALOS)
    assert list((directory.task_path("0_0") / "w").iterdir()) == []
    place(directory, make_image(directory, "0_0", "s"), siblings=siblings, replace=True)
    assert content(directory)["w/w.0"] == {changelog("0_0", "w"): OFFSET_UNKNOWN}


def test_a_directory_that_the_declared_kind_does_not_use_neither_counts_nor_hinders(directory):
    make_live(directory, "0_0", "w", 21, closed=False)
    place(directory, make_image(directory, "0_0", "s"), siblings=[sibling("0_0", "w", WINDOW)])
    assert content(directory)["w/w.0"] == {changelog("0_0", "w"): OFFSET_UNKNOWN}
    assert (directory.task_path("0_0") / "rocksdb" / "w").is_dir()


# Grace-period buffers


def buffer_live(directory, file: str | None = None, *, closed: bool = True) -> Path:
    task = directory.task_path("0_0")
    make_database(task / "b" / "b.0", changelog("0_0", "b"), 5, kind=BUFFER, closed=closed)
    if file is not None:
        (task / ".checkpoint_b").write_text(file)
    return task


@pytest.mark.parametrize("guarantee", [ALOS, EOS])
def test_a_grace_buffer_is_placed_with_the_file_that_holds_its_offset(directory, guarantee):
    buffer_live(directory, checkpoint("app-b-changelog", 3000))
    image = make_segmented_image(directory, "0_0", "b", kind=BUFFER)
    report = place(directory, image, replace=True, guarantee=guarantee)
    assert content(directory) == {
        "b/b.0": {changelog("0_0", "b"): 9},
        ".checkpoint_b": checkpoint("app-b-changelog", 9),
    }
    assert stat.S_IMODE((directory.task_path("0_0") / ".checkpoint_b").stat().st_mode) == 0o640
    assert [store.checkpoint for store in report.tasks[0].stores] == [".checkpoint_b"]


@pytest.mark.parametrize("damage", ["0\n1\napp-b-changelog 0 8\n", "0\n1\napp-b-changelog 1 9\n", "x", None])
def test_recovery_puts_a_grace_buffer_back_whose_file_is_not_the_one_that_was_placed(directory, damage):
    buffer_live(directory, checkpoint("app-b-changelog", 5))
    image = make_segmented_image(directory, "0_0", "b", kind=BUFFER)
    plan = plan_placement(directory, [image], guarantee=EOS, replace=True)
    with pytest.raises(FaultInjected):
        apply_placement(plan, InjectedFault("placement.after-swap", "raise", 1))
    file = directory.task_path("0_0") / ".checkpoint_b"
    if damage is None:
        file.unlink()
    else:
        file.write_text(damage)
    assert recover(directory).put_back == ("0_0",)
    assert content(directory)[".checkpoint_b"] == checkpoint("app-b-changelog", 5)


def test_a_grace_buffer_beside_a_restored_store_is_kept_with_its_file(directory):
    buffer_live(directory, checkpoint("app-b-changelog", 5))
    place(directory, make_image(directory, "0_0", "s"), siblings=[sibling("0_0", "b", BUFFER)])
    assert content(directory) == {
        "rocksdb/s": {changelog("0_0", "s"): 9},
        "b/b.0": {changelog("0_0", "b"): 5},
        ".checkpoint_b": checkpoint("app-b-changelog", 5),
    }


@pytest.mark.parametrize(
    ("file", "reasons"),
    [
        (None, ["offset-missing"]),
        (checkpoint("app-other-changelog", 5), ["offset-missing"]),
        ("0\n7\n", ["checkpoint-unreadable", "offset-missing"]),
    ],
)
def test_a_grace_buffer_whose_file_does_not_hold_its_offset_is_refused_under_exactly_once(directory, file, reasons):
    buffer_live(directory, file)
    siblings = [sibling("0_0", "b", BUFFER)]
    found = refusal(directory, make_image(directory, "0_0", "s"), siblings=siblings)
    assert found == [("0_0", reason, "b") for reason in reasons]
    place(directory, make_image(directory, "0_0", "s"), siblings=siblings, guarantee=ALOS)


def test_a_grace_buffer_that_was_not_closed_is_refused_whatever_its_file_says(directory):
    buffer_live(directory, checkpoint("app-b-changelog", 5), closed=False)
    found = refusal(directory, make_image(directory, "0_0", "s"), siblings=[sibling("0_0", "b", BUFFER)])
    assert found == [("0_0", "not-closed-cleanly", "b")]


@pytest.mark.parametrize("there", [".checkpoint_b", "b/"])
def test_a_grace_buffer_without_a_database_is_created_and_its_old_file_does_not_stay(directory, there):
    task = directory.task_path("0_0")
    task.mkdir()
    if there.endswith("/"):
        (task / there).mkdir()
    else:
        (task / there).write_text(checkpoint("app-b-changelog", 5))
    place(directory, make_image(directory, "0_0", "s"), siblings=[sibling("0_0", "b", BUFFER)])
    assert content(directory)["b/b.0"] == {changelog("0_0", "b"): OFFSET_UNKNOWN}
    assert content(directory)[".checkpoint_b"] == checkpoint("app-b-changelog", OFFSET_UNKNOWN)


@pytest.mark.parametrize("unknown", [[], [sibling("0_0", "k", StoreKind.UNKNOWN)]])
def test_a_file_with_the_offset_of_a_store_that_keeps_its_own_does_not_count(directory, unknown):
    make_database(directory.store_path("0_0", "k", KIND), None)
    (directory.task_path("0_0") / ".checkpoint_k").write_text(checkpoint("app-k-changelog", 5))
    image = make_image(directory, "0_0", "s")
    assert refusal(directory, image, siblings=[sibling("0_0", "k")]) == [("0_0", "offset-missing", "k")]
    place(directory, image, siblings=unknown)  # it may be a store of the application's own class
    assert content(directory)[".checkpoint_k"] == checkpoint("app-k-changelog", 5)


def test_stores_whose_names_end_like_the_files_beside_them_are_not_mistaken_for_these(directory):
    task = directory.task_path("0_0")
    make_live(directory, "0_0", "s")
    for store in ("s.position", "x.lock", "x.tmp"):
        make_live(directory, "0_0", store, 21)
        make_segments(task / f"{store}-w", changelog("0_0", f"{store}-w"), 22, (0,))
    for file in ("s.position", "s.tmp", "s.lock", ".checkpoint_s", ".checkpoint_s.tmp"):
        (task / file).touch()
    place(directory, make_image(directory, "0_0", "s"), replace=True)
    assert set(content(directory)) == {
        *(f"rocksdb/{store}" for store in ("s", "s.position", "x.lock", "x.tmp")),
        *(f"{store}-w/{store}-w.0" for store in ("s.position", "x.lock", "x.tmp")),
    }


# Global stores


@pytest.mark.parametrize("guarantee", [ALOS, EOS])
def test_a_global_store_is_placed_with_the_next_offset_of_every_partition(directory, guarantee):
    make_with_offsets(directory.global_path / "rocksdb" / "g", {TopicPartition("products", 0): 3})
    (directory.global_path / ".checkpoint").write_text(checkpoint("products", 3))
    siblings = [SiblingStore("global", "absent", KIND, None), SiblingStore("0_0", "k", KIND, changelog("0_0", "k"))]
    image = make_global_image(directory, "g", ENDS)
    report = place(directory, image, siblings=siblings, guarantee=guarantee, replace=True)
    assert content(directory, "global") == {"rocksdb/g": ENDS}
    assert [task.task for task in report.tasks] == ["global"]
    assert stat.S_IMODE(directory.global_path.stat().st_mode) == 0o750


def test_global_stores_that_are_not_restored_stay_as_they_are(directory):
    hidden = {TopicPartition("hidden", 0): 8, TopicPartition("hidden", 1): 0}
    make_with_offsets(directory.global_path / "rocksdb" / "declared", hidden)
    make_database(directory.global_path / "rocksdb" / "undeclared", None)
    make_segments(directory.global_path / "w", TopicPartition("windows", 3), 4, (0,))
    (directory.global_path / ".checkpoint_own").write_text(checkpoint("own", 3))
    siblings = [SiblingStore("global", "declared", KIND, None)]
    place(directory, make_global_image(directory, "g", ENDS), siblings=siblings)
    assert content(directory, "global") == {
        "rocksdb/g": ENDS,
        "rocksdb/declared": hidden,
        "rocksdb/undeclared": {},
        "w/w.0": {TopicPartition("windows", 3): 4},
        ".checkpoint_own": checkpoint("own", 3),
    }


def test_a_global_store_that_was_not_closed_is_not_kept_under_exactly_once(directory):
    path = make_database(directory.global_path / "rocksdb" / "h", TopicPartition("hidden", 0), closed=False)
    image = make_global_image(directory, "g", ENDS)
    assert refusal(directory, image) == [("global", "not-closed-cleanly", "h")]
    place(directory, image, guarantee=ALOS)
    assert path.is_dir()


@pytest.mark.parametrize("guarantee", [ALOS, EOS])
def test_a_global_store_at_an_unknown_offset_or_beyond_reading_is_not_kept(directory, guarantee):
    path = make_database(directory.global_path / "rocksdb" / "h", TopicPartition("hidden", 1), OFFSET_UNKNOWN)
    image = make_global_image(directory, "g", ENDS)
    (problem,) = problems(directory, image, guarantee=guarantee)
    assert (problem["task"], problem["code"], problem["store"]) == ("global", "offset-unknown", "h")
    assert "-4 for hidden-1" in problem["what"]
    next(path.glob("MANIFEST-*")).write_bytes(b"\0" * 100)
    assert refusal(directory, image, guarantee=guarantee) == [("global", "database-damaged", "h")]


def test_a_global_image_without_a_next_offset_is_refused(directory):
    image = make_global_image(directory, "g", ENDS | {TopicPartition("products", 1): OFFSET_UNKNOWN})
    (problem,) = problems(directory, image)
    assert (problem["code"], problem["store"], problem["partitions"]) == ("offset-missing", "g", ["products-1"])


def test_the_global_checkpoint_of_an_older_version_is_dropped_only_when_it_names_no_kept_store(directory):
    make_with_offsets(directory.global_path / "rocksdb" / "h", {TopicPartition("hidden", 0): 8})
    file = directory.global_path / ".checkpoint"
    file.write_text("0\n2\nproducts 0 3\nhidden 0 9\n")
    image = make_global_image(directory, "g", ENDS)
    (problem,) = problems(directory, image)
    assert (problem["code"], problem["topics"]) == ("checkpoint-of-other-stores", ["hidden"])
    file.write_text(checkpoint("products", 3))
    before = dataclasses.replace(image, path=None, offsets=None, changelog=TopicPartition("products", 0))
    plan = plan_placement(directory, [before], guarantee=EOS)
    (task,) = plan.to_json()
    assert (task["task"], task["live"], task["restored"]) == ("global", True, ["g"])
    assert (task["kept"], task["dropped"]) == (["rocksdb/h"], [".checkpoint"])
    place(directory, image)
    assert set(content(directory, "global")) == {"rocksdb/g", "rocksdb/h"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_root_places_belongs_to_the_owner_of_the_directory(directory, swapping):
    buffer_live(directory)
    make_segments(directory.task_path("0_0") / "w", changelog("0_0", "w"), 5, (0,))
    os.chown(directory.path, 4242, 4243)
    (directory.task_path("0_0") / "w").chmod(0o770)
    images = [
        make_segmented_image(directory, "0_0", "b", kind=BUFFER),
        make_image(directory, "0_1", "s"),
        make_global_image(directory, "g", ENDS),
    ]
    place(directory, *images, siblings=[sibling("0_0", "gap", BUFFER)], replace=True)
    for above in (directory.task_path("0_0"), directory.task_path("0_1"), directory.global_path):
        for path in (above, *above.rglob("*")):
            assert (path.stat().st_uid, path.stat().st_gid) == (4242, 4243), path
    assert stat.S_IMODE((directory.task_path("0_0") / "w").stat().st_mode) == 0o770  # kept as it was


# All of them


def test_every_reason_of_every_task_is_named(directory):
    make_live(directory, "0_0", "s")
    make_live(directory, "0_0", "k", closed=False)
    buffer_live(directory)
    make_live(directory, "0_1", "s")
    make_database(directory.global_path / "rocksdb" / "h", TopicPartition("hidden", 0), closed=False)
    found = refusal(
        directory,
        make_image(directory, "0_0", "s"),
        make_image(directory, "0_1", "s"),
        make_global_image(directory, "g", ENDS),
        siblings=[sibling("0_0", "b", BUFFER), sibling("0_0", "gap", StoreKind.UNKNOWN), sibling("0_0", "k")],
    )
    assert set(found) == {
        ("0_0", "store-exists", "s"),
        ("0_0", "not-closed-cleanly", "k"),
        ("0_0", "offset-missing", "b"),
        ("0_0", "kind-undecided", "gap"),
        ("0_1", "store-exists", "s"),
        ("global", "not-closed-cleanly", "h"),
    }


@pytest.mark.parametrize("version", [1, 2])
def test_a_journal_of_an_older_version_is_brought_to_its_end_and_its_record_is_known(directory, version):
    make_live(directory, "0_0", "s")
    image = make_image(directory, "0_0", "s")
    plan = plan_placement(directory, [image], guarantee=EOS, replace=True, request_id="one")
    with pytest.raises(FaultInjected):
        apply_placement(plan, InjectedFault("placement.before-swap", "raise", 1))
    file = directory.work_path / "journal.json"
    document = json.loads(file.read_text())
    del document["keeps"]
    for task in document["tasks"] if version == 1 else ():
        for store in task["stores"]:
            [[topic, partition, offset]] = store.pop("offsets")
            del store["checkpoint"]
            store |= {"changelog": [topic, partition], "offset": offset}
    file.write_text(json.dumps({**document, "version": version}))
    assert recover(directory).placed == ("0_0",)
    assert offset_of(directory, "0_0", "s") == 9
    again = plan_placement(directory, [image], guarantee=EOS, request_id="one")
    assert [task["already_placed"] for task in again.to_json()] == [True]
