"""Every entry of a file is of one store, or of none; nothing is lost on the way."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.conversion import TaskConversion
from statecore.conversion.checkpoint_entries import assign_entries, lost_flush
from statecore.conversion.downward import ConversionOptions, plan_downward
from statecore.conversion.inspection import StoreInspection, TaskInspection
from statecore.conversion.upward import plan_upward
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.releases import RELEASES
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import StoreSpec
from statecore.statedir.database_state import smallest_offsets
from statecore.statedir.flush_times import Flushes
from tests.unit.conversion.inspections import APPLICATION, at, plain, task
from tests.unit.conversion.tasks import golden_task

NAMES = st.sampled_from(["a", "b", "c"])
OFFSETS = st.one_of(st.just(OFFSET_UNKNOWN), st.integers(0, 2**63 - 1))
ENTRIES = st.dictionaries(
    st.builds(
        TopicPartition, st.sampled_from([*(f"{APPLICATION}-{one}-changelog" for one in "abc"), "in"]), st.integers(0, 2)
    ),
    OFFSETS,
    max_size=8,
)


@settings(deadline=None)
@given(st.sets(NAMES), ENTRIES, st.integers(0, 2))
def test_entries_are_divided_and_none_is_lost(stores: set[str], entries: dict[TopicPartition, int], at: int) -> None:
    found = assign_entries(task(*map(plain, sorted(stores)), checkpoint=entries, name=f"0_{at}"))
    of_stores = {entry: offset for offsets in found.by_store.values() for entry, offset in offsets.items()}
    assert {**of_stores, **found.unclaimed} == entries
    assert not of_stores.keys() & found.unclaimed.keys()
    assert all(entry.partition == at for entry in of_stores)


@settings(deadline=None)
@given(st.lists(ENTRIES, max_size=4))
def test_the_smallest_offset_of_each_partition_is_taken(several: list[dict[TopicPartition, int]]) -> None:
    found = smallest_offsets(several)
    assert found.keys() == {partition for one in several for partition in one}
    for partition, offset in found.items():
        assert offset == min(one[partition] for one in several if partition in one)


@settings(deadline=None)
@given(st.sets(NAMES, min_size=1), ENTRIES)
def test_every_entry_of_the_file_is_kept_in_a_store_or_the_file(
    stores: set[str], entries: dict[TopicPartition, int]
) -> None:
    made = plan_upward(task(*map(plain, sorted(stores)), checkpoint=entries), RELEASES["4.3"])
    inside = {entry: offset for store in made.stores for entry, offset in store.offsets.items()}
    kept = made.written.get(".checkpoint", {} if ".checkpoint" in made.moved else entries)
    assert {**inside, **kept} == entries


@settings(deadline=None)
@given(st.sets(NAMES, min_size=1), ENTRIES, ENTRIES)
def test_downward_the_stores_win_over_the_file(
    stores: set[str], entries: dict[TopicPartition, int], said: dict[TopicPartition, int]
) -> None:
    inside = {
        one: {entry: at for entry, at in said.items() if entry.topic == f"{APPLICATION}-{one}-changelog"}
        for one in stores
    }
    seen = task(*(plain(one, inside[one] or None) for one in sorted(stores)), checkpoint=entries)
    made = plan_downward(seen, ConversionOptions(RELEASES["4.2"], exactly_once=True))
    written = made.written.get(".checkpoint", {} if ".checkpoint" in made.moved else entries)
    assert {entry: at for one in inside.values() for entry, at in one.items()}.items() <= dict(written).items()
    unclaimed = assign_entries(seen).unclaimed
    assert unclaimed.keys() <= written.keys()


LATE = Flushes({"rocksdb/a/000015.sst": 1_795_455_716_000_000_000}, 2, 2)
EARLY = Flushes({}, 1, 1)
COPIED = Flushes({}, 2, 0)

every_release = pytest.mark.parametrize("to", ["3.9", "4.2", "4.3"])


def plan(seen: TaskInspection, to: str, exactly_once: bool | None) -> TaskConversion:
    release = RELEASES[to]
    return (
        plan_upward(seen, release, exactly_once)
        if release.offsets_inside
        else plan_downward(seen, ConversionOptions(release, exactly_once))
    )


def seen(*stores: StoreInspection, **more: object) -> TaskInspection:
    return task(*stores, **{"checkpoint": {at("a"): 20, at("b"): 30}, **more})  # type: ignore[arg-type]


def store(name: str, flushes: Flushes, **more: object) -> StoreInspection:
    return replace(plain(name, sst_format=5), flushes=flushes, **more)  # type: ignore[arg-type]


@every_release
def test_under_exactly_once_the_checkpoint_file_is_dropped(to: str) -> None:
    made = plan(seen(store("a", LATE), store("b", EARLY)), to, True)
    assert (made.moved, made.written, made.refused) == ((".checkpoint",), {}, ())
    assert all(one.is_empty for one in made.stores)
    assert not made.is_empty
    (why,) = made.left
    assert "(rocksdb/a/000015.sst at 2026-11-23 17:41:56)" in why
    assert "wiped" in why


def test_transactional_stores_are_not_wiped_so_late_rows_are_refused() -> None:
    late = seen(store("a", LATE), store("b", EARLY))
    assert plan_upward(late, RELEASES["4.4"], True, transactional=True).refused
    assert not plan_upward(late, RELEASES["4.3"], True, transactional=True).refused


@every_release
def test_under_at_least_once_the_checkpoint_file_is_used_and_reported(to: str) -> None:
    made, quiet = (plan(seen(store("a", of), store("b", EARLY)), to, False) for of in (LATE, EARLY))
    assert (made.stores, made.moved, made.written, made.left) == (quiet.stores, quiet.moved, quiet.written, quiet.left)
    (remark,) = set(made.notes) - set(quiet.notes)
    assert "at-least-once" in remark


@every_release
def test_without_a_guarantee_the_task_is_refused(to: str) -> None:
    made = plan(seen(store("a", LATE), store("b", EARLY)), to, None)
    assert [why.code for why in made.refused] == ["processing-guarantee-unknown"]
    assert made.is_empty


def test_only_rows_count_of_which_the_file_says_the_offset() -> None:
    for stores in (
        [store("a", EARLY), store("b", LATE, logged=False)],
        [store("a", EARLY), replace(store("c", LATE), changelog="")],
    ):
        made = plan(seen(*stores, checkpoint={at("a"): 20}), "4.3", True)
        assert made.moved == (".checkpoint",)
        assert not made.left
        assert made.stores[0].offsets == {at("a"): 20}


def test_a_store_that_is_nowhere_else_is_named_where_its_task_is_to_be_wiped() -> None:
    (why,) = plan(seen(store("a", LATE), store("mine", EARLY, logged=False)), "4.3", True).left
    assert ("mine" in why, "copy it first" in why) == (True, True)
    (why,) = plan(seen(store("a", LATE), store("b", EARLY)), "4.3", True).left
    assert "copy it first" not in why


def test_an_entry_of_a_source_topic_may_be_any_undeclared_store_s() -> None:
    made = plan(seen(store("a", EARLY), store("c", LATE), checkpoint={TopicPartition("orders", 0): 20}), "4.3", True)
    assert (made.moved, made.written) == ((".checkpoint",), {})
    assert made.left


def test_a_copy_without_its_file_times_is_reported() -> None:
    for guarantee, told in ((True, True), (None, True), (False, False)):
        made = plan(seen(store("a", COPIED), store("b", COPIED)), "4.3", guarantee)
        assert made.stores[0].offsets == {at("a"): 20}
        assert len(made.notes) == told
    made = plan(seen(store("a", COPIED), store("b", EARLY)), "4.3", True)
    assert not made.notes


def test_a_directory_on_disk_is_asked_and_a_conversion_leaves_none_that_would_be_doubted(tmp_path: Path) -> None:
    older = golden_task(tmp_path, "4.2")
    for name in ("rocksdb/plain/000008.sst", "rocksdb/stamped/000010.sst"):
        os.utime(older.path / name)
    os.utime(older.path / ".checkpoint", (1_600_000_000, 1_600_000_000))
    assert older.plan("4.3").left
    assert "rocksdb/plain/000008.sst at 20" in older.plan("4.3").left[0]
    older.exactly_once = False
    older.convert("3.9")  # writes the rows anew, beside a file that stays
    older.exactly_once = True
    assert not older.plan("4.3").left
    older.convert("4.3")


LOST = {"filled": False, "unnamed_files": ("000009.sst",)}


@pytest.mark.parametrize(
    ("store", "entry", "offset", "is_lost"),
    [
        (plain("a", **LOST), at("a"), 9, True),
        (plain("a", **LOST), at("a"), OFFSET_UNKNOWN, False),
        (plain("a", **LOST), at("b"), 9, False),
        (plain("a", **LOST), TopicPartition("prices", 0), 9, True),
        (plain("a", **LOST, seen_declared=StoreSpec("a", StoreKind.KEY_VALUE, 0, "orders")), at("b"), 9, False),
        (plain("a", {}, **LOST), at("a"), 9, False),
        (plain("a", unnamed_files=("000009.sst",)), at("a"), 9, False),
        (plain("a", filled=False), at("a"), 9, False),
    ],
)
def test_an_empty_store_of_an_older_release_with_an_offset_and_an_unnamed_file_has_lost_its_flush(
    store: StoreInspection, entry: TopicPartition, offset: int, is_lost: bool
) -> None:
    """Also one whose changelog has any name, such as a global store's without a spec, as the doctor finds it."""
    seen = task(store, checkpoint={entry: offset})
    assert (lost_flush(store, assign_entries(seen)) is not None) is is_lost
