"""What is decided of a task's directory that is to be one of 4.3."""

from __future__ import annotations

import pytest

from statecore.conversion import StoreConversion, TaskConversion
from statecore.conversion.inspection import TaskInspection
from statecore.conversion.upward import plan_upward
from statecore.errors import Reason
from statecore.formats.offsets import OFFSET_UNKNOWN, decode_int64, offset_key
from statecore.formats.position import decode_position
from statecore.formats.releases import RELEASES
from statecore.formats.topic_partition import TopicPartition
from tests.unit.conversion.inspections import at, buffer, plain, segmented, task

STATUS = b"status"


def plan(seen: TaskInspection) -> TaskConversion:
    return plan_upward(seen, RELEASES["4.3"])


def entries(store: StoreConversion, database: int = 0) -> dict[bytes, int]:
    """What is written to the offsets family of a database, but for the position."""
    written = store.databases[database].entries
    return {key: decode_int64(value) for key, value in written.items() if key != b"position"}


def test_an_offset_of_the_file_goes_into_a_store_that_has_none() -> None:
    made = plan(task(plain("a"), checkpoint={at("a"): 20}))
    assert entries(made.stores[0]) == {offset_key(at("a")): 20, STATUS: 0}
    assert (made.moved, made.written, made.left, made.seen) == ((".checkpoint",), {}, (), "4.2")


def test_every_segment_gets_the_same_offset() -> None:
    made = plan(task(segmented("w", [None, None, None]), checkpoint={at("w"): 7}))
    assert [entries(made.stores[0], number) for number in range(3)] == [{offset_key(at("w")): 7, STATUS: 0}] * 3


def test_a_segment_without_an_offset_gets_that_of_the_others() -> None:
    store = plan(task(segmented("w", [{at("w"): 7}, None]))).stores[0]
    assert store.databases[0].is_empty
    assert entries(store, 1) == {offset_key(at("w")): 7, STATUS: 0}


@pytest.mark.parametrize("segments", [[{at("w"): 7}, {}], [{}, {at("w"): 7}]])
def test_a_segment_of_4_3_that_was_never_flushed_stays_so_that_the_damage_can_be_seen(
    segments: list[dict[TopicPartition, int]],
) -> None:
    assert plan(task(segmented("w", segments, status=1, filled=False))).is_empty


def test_a_store_keeps_its_offset_and_a_contradiction_is_reported() -> None:
    made = plan(task(plain("a", {at("a"): 30}), checkpoint={at("a"): 20}))
    assert made.stores[0].is_empty
    assert made.moved == (".checkpoint",)
    assert all(said in made.notes[0] for said in ("app-a-changelog-0 at 20", "app-a-changelog-0 at 30"))


def test_a_source_topic_that_a_store_has_an_offset_of_is_its_own_without_a_spec_too() -> None:
    source = TopicPartition("orders", 0)
    made = plan(task(plain("a", {source: 30}, seen_changelog=""), checkpoint={source: 40}))
    assert made.stores[0].is_empty
    assert (made.moved, made.written, made.left) == ((".checkpoint",), {}, ())
    assert all(said in made.notes[0] for said in ("orders-0 at 40", "orders-0 at 30"))


@pytest.mark.parametrize("offset", [5, OFFSET_UNKNOWN])
def test_a_store_without_a_segment_gets_one_that_keeps_its_offset(offset: int) -> None:
    made = plan(task(segmented("w"), checkpoint={at("w"): offset}))
    (database,) = made.stores[0].databases
    assert (database.directory, database.create) == ("w/w.0", True)
    assert entries(made.stores[0]) == {offset_key(at("w")): offset, STATUS: 0}
    assert made.moved == (".checkpoint",)


def test_a_store_without_a_segment_that_is_declared_and_not_in_the_file_gets_minus_4() -> None:
    made = plan(task(segmented("w", seen_logged=True), plain("a"), checkpoint={at("a"): 1}))
    assert entries(made.stores[0]) == {offset_key(at("w")): OFFSET_UNKNOWN, STATUS: 0}


def test_an_unknown_store_without_a_segment_gets_none() -> None:
    made = plan(task(segmented("w"), plain("a"), checkpoint={at("a"): 1}))
    assert not made.stores[0].databases


def test_an_entry_of_minus_4_is_kept_so_that_nothing_is_wiped_for_want_of_it() -> None:
    made = plan(task(plain("a", filled=False), checkpoint={at("a"): OFFSET_UNKNOWN}))
    assert entries(made.stores[0]) == {offset_key(at("a")): OFFSET_UNKNOWN, STATUS: 0}


STARTS_ANEW = "Kafka Streams restores it from the start"


def test_what_the_next_start_restores_in_full_is_noted() -> None:
    made = plan(task(plain("a"), plain("b", filled=False), checkpoint={at("a"): 3, at("b"): OFFSET_UNKNOWN}))
    assert made.notes == (f"b: its offset is -4: {STARTS_ANEW}",)
    made = plan(task(segmented("w", seen_logged=True), plain("a"), checkpoint={at("a"): 1}))
    assert made.notes == (f"w: its offset is -4: {STARTS_ANEW}",)
    of_4_3 = task(plain("a", {at("a"): OFFSET_UNKNOWN}), plain("b", {}, seen_logged=True), plain("c", {at("c"): 3}))
    assert plan(of_4_3).is_empty
    known, wiped = plan(of_4_3).notes
    assert known == f"a: its offset is -4: {STARTS_ANEW}"
    assert wiped.startswith(f"b: it has no offset: {STARTS_ANEW}, ")
    tables = task(plain("g", seen_changelog="prices"), plain("h", {at("h"): 3}), name="global")
    (note,) = plan(tables).notes
    assert (note.partition(": ")[0], STARTS_ANEW in note) == ("g", True)


def test_a_store_that_may_be_the_one_whose_offset_stays_in_the_file_is_not_called_unlogged() -> None:
    source = TopicPartition("orders", 0)
    made = plan(task(plain("t"), plain("a"), checkpoint={at("a"): 1, source: 7}))
    (maybe,) = made.notes
    assert (maybe.partition(": ")[0], ".checkpoint" in maybe) == ("t", True)
    made = plan(task(plain("t"), plain("a"), checkpoint={at("a"): 1}))
    (unlogged,) = made.notes
    assert (unlogged.partition(": ")[0], ".checkpoint" in unlogged) == ("t", False)


def test_rows_of_which_the_file_says_minus_4_are_left_because_they_may_never_have_been_committed() -> None:
    made = plan(task(plain("a"), plain("b", filled=False), checkpoint={at("a"): OFFSET_UNKNOWN, at("b"): 3}))
    assert (made.stores, made.moved, made.written) == ((), (), {})
    assert made.left[0].startswith(".checkpoint says -4 of a")


def test_an_unclaimed_entry_of_minus_4_is_not_inherited() -> None:
    made = plan(task(plain("t"), checkpoint={TopicPartition("table-topic", 0): OFFSET_UNKNOWN}))
    assert "takes it over" not in made.left[0]
    assert "wiped the task" in made.left[0]


def test_a_global_store_never_gets_minus_4() -> None:
    source = TopicPartition("prices", 0)
    store = plain("g", seen_changelog="prices")
    made = plan(task(store, checkpoint={source: OFFSET_UNKNOWN}, name="global"))
    assert entries(made.stores[0]) == {STATUS: 0}
    assert "fails every start" in made.notes[0]


def test_a_global_store_has_the_offsets_of_all_partitions_and_no_position() -> None:
    both = {TopicPartition("prices", number): 10 + number for number in range(2)}
    store = plain("g", seen_changelog="prices", seen_file_position={"prices": {0: 4}}, seen_has_position_file=True)
    made = plan(task(store, checkpoint=both, name="global"))
    assert entries(made.stores[0]) == {offset_key(one): offset for one, offset in both.items()} | {STATUS: 0}
    assert b"position" not in made.stores[0].databases[0].entries


def test_a_position_is_merged_by_the_greater_offset() -> None:
    store = plain(
        "a",
        {at("a"): 3},
        position={"in": {0: 5, 1: 9}},
        seen_file_position={"in": {0: 7, 1: 2}, "other": {0: 1}},
        seen_has_position_file=True,
    )
    made = plan(task(store))
    assert decode_position(made.stores[0].databases[0].entries[b"position"]) == {"in": {0: 7, 1: 9}, "other": {0: 1}}
    assert made.moved == ("a.position",)


def test_the_entry_of_a_grace_buffer_goes_to_a_file_of_its_own() -> None:
    made = plan(task(buffer("b"), checkpoint={at("b"): 8}))
    assert made.written == {".checkpoint_b": {at("b"): 8}}
    assert entries(made.stores[0]) == {STATUS: 0}
    kept = plan(task(buffer("b", file_offsets={at("b"): 9}), checkpoint={at("b"): 8}))
    assert kept.written == {}
    assert "keeps its own" in kept.notes[0]


def test_an_entry_that_no_store_claims_stays_for_kafka_streams() -> None:
    source = TopicPartition("table-topic", 0)
    made = plan(task(plain("b"), plain("t"), checkpoint={at("b"): 1, source: 5, at("a", 1): 6}))
    assert made.written == {".checkpoint": {source: 5, at("a", 1): 6}}
    assert "app-a-changelog-1 at 6" in made.left[0]
    assert "table-topic-0 at 5" in made.left[1]
    assert entries(made.stores[1]) == {STATUS: 0}


def test_a_declared_source_topic_is_the_changelog_of_its_store() -> None:
    source = TopicPartition("table-topic", 0)
    made = plan(task(plain("t", seen_changelog="table-topic"), checkpoint={source: 5}))
    assert entries(made.stores[0]) == {offset_key(source): 5, STATUS: 0}


def test_an_entry_of_a_store_that_is_no_database_stays() -> None:
    for foreign, said in ((True, "reads it itself"), (False, "has no database")):
        store = plain("x", seen_foreign=foreign)
        made = plan(task(type(store)(**{**vars(store), "databases": ()}), checkpoint={at("x"): 5}))
        assert made.is_empty
        assert said in made.left[0]


def test_an_entry_of_another_partition_is_not_reported_missing() -> None:
    made = plan(task(plain("a"), checkpoint={at("a"): 5, at("a", 1): 6}))
    assert all(said in made.left[0] for said in ("app-a-changelog-1 at 6", "not of 0_0"))
    assert "has no database" not in made.left[0]


def test_a_task_without_any_offset_is_left_as_it_is() -> None:
    made = plan(task(plain("a"), segmented("w", [None])))
    assert made.is_empty
    assert "the instance died" in made.left[0]


def test_what_cannot_be_read_is_refused() -> None:
    broken = Reason("cannot be opened", "database-damaged", database="a")
    (why,) = plan(task(plain("a", seen_damage=broken), checkpoint={})).refused
    assert (why.code, why.context) == ("database-damaged", {"database": "a", "store": "a"})
    (why,) = plan(task(plain("a"), damage=Reason("torn", "checkpoint-file-damaged"))).refused
    assert why.code == "checkpoint-file-damaged"


def test_a_directory_of_4_3_is_nothing_to_do() -> None:
    made = plan(task(plain("a", {at("a"): 30}), segmented("w", [{at("w"): 1}]), plain("unlogged", {})))
    assert made.is_empty
    assert (made.left, made.refused, made.seen) == ((), (), "4.3 or 4.4")


def test_a_segment_without_an_offset_beside_others_is_reported() -> None:
    made = plan(task(segmented("w", [{at("w"): 9}, {}])))
    assert "app-w-changelog-0 at 9" in made.notes[0]
    assert not plan(task(segmented("w", [{at("w"): 9}, {at("w"): 9}]))).notes


def test_segments_at_different_offsets_stay_and_the_doctor_is_named() -> None:
    made = plan(task(segmented("w", [{at("w"): 9}, {at("w"): 12}])))
    assert made.is_empty
    (note,) = made.notes
    assert "statecore doctor" in note
    assert "statecore repair" in note


def test_an_open_status_is_kept_and_reported() -> None:
    made = plan(task(plain("a", {at("a"): 30}, status=1)))
    assert made.is_empty
    assert "not closed" in made.notes[0]


@pytest.mark.parametrize(
    "seen",
    [
        task(plain("a"), plain("b", filled=False)),
        task(plain("a"), plain("b"), checkpoint={at("a"): OFFSET_UNKNOWN, at("b"): 3}),
        task(plain("a", seen_logged=True), plain("b"), checkpoint={at("b"): 3}),
    ],
    ids=["no file", "-4", "no entry"],
)
def test_rows_of_no_offset_are_refused_where_4_4_would_restore_over_them_instead_of_a_wipe(
    seen: TaskInspection,
) -> None:
    declared = plan_upward(seen, RELEASES["4.4"], True, transactional=True)
    assert [(why.code, why.context) for why in declared.refused] == [("uncommitted-rows", {"stores": ["a"]})]
    assert declared.is_empty
    undeclared, without = (
        plan_upward(seen, RELEASES["4.4"], True),
        plan_upward(seen, RELEASES["4.4"], True, transactional=False),
    )
    assert (undeclared.refused, len(undeclared.remarks), without.remarks) == ((), 1, ())
    for release, exactly_once in (("4.3", True), ("4.4", False)):
        assert not plan_upward(seen, RELEASES[release], exactly_once, transactional=True).refused


def test_what_has_no_rows_or_an_offset_is_not_refused_for_transactional_stores() -> None:
    for seen in (
        task(plain("a", filled=False)),
        task(plain("a"), checkpoint={at("a"): 3}),
        task(plain("a", {at("a"): 3}, status=None)),
        task(plain("a", seen_logged=False), plain("b"), checkpoint={at("b"): 3}),
    ):
        assert not plan_upward(seen, RELEASES["4.4"], True, transactional=True).refused
