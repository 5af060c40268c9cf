"""What is decided of a task's directory that is to be one of 4.2 or 3.9."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from statecore.conversion import TaskConversion
from statecore.conversion.downward import ConversionOptions, plan_downward
from statecore.conversion.inspection import StoreInspection, TaskInspection
from statecore.conversion.rows import RowCounts
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.releases import RELEASES
from statecore.formats.topic_partition import TopicPartition
from statecore.images.model import StoreDigest
from tests.unit.conversion.inspections import at, buffer, database, plain, segmented, task

HEADERS = "keyValueWithTimestampAndHeaders"


def plan(seen: TaskInspection, release: str = "4.2", exactly_once: bool | None = True, **more: Any) -> TaskConversion:
    return plan_downward(seen, ConversionOptions(RELEASES[release], exactly_once, **more))


def test_the_offsets_family_is_dropped_and_its_offsets_are_in_the_file() -> None:
    stores = plain("a", {at("a"): 30}, position={"in": {0: 4}}), segmented("w", [{at("w"): 7}, {at("w"): 7}])
    made = plan(task(*stores))
    assert [one.drop for store in made.stores for one in store.databases] == [("offsets",)] * 3
    assert made.written == {".checkpoint": {at("a"): 30, at("w"): 7}, "a.position": {TopicPartition("in", 0): 4}}
    assert not any(one.rewrite for store in made.stores for one in store.databases)


def test_3_9_gets_files_of_its_format_and_keeps_those_it_can_read() -> None:
    made = plan(task(plain("a", {at("a"): 3}), plain("b", {at("b"): 3}, sst_format=5)), "3.9")
    assert [one.rewrite for store in made.stores for one in store.databases] == [("default",), ()]
    assert made.needed_bytes > made.stores[0].rewritten_bytes == 1000
    assert made.stores[1].databases[0].files == {"default": frozenset({"000007.sst"})}


@pytest.mark.parametrize("exactly_once", [True, None])
def test_a_store_that_was_not_closed_is_refused_unless_at_least_once(exactly_once: bool | None) -> None:
    seen = task(plain("a", {at("a"): 30}, status=1))
    assert [why.code for why in plan(seen, exactly_once=exactly_once).refused] == ["not-closed-cleanly"]
    made = plan(seen, exactly_once=False)
    assert made.written == {".checkpoint": {at("a"): 30}}
    assert "after its last flush" in made.notes[0]


def test_segments_that_disagree_are_refused_unless_at_least_once() -> None:
    seen = task(segmented("w", [{at("w"): 9}, {at("w"): 4}, {at("w"): 9}]))
    assert [why.code for why in plan(seen).refused] == ["segment-offsets-differ"]
    made = plan(seen, exactly_once=False)
    assert made.written == {".checkpoint": {at("w"): 4}}
    assert "the smallest is used" in made.notes[0]


def test_a_segment_with_rows_and_no_offset_makes_the_offset_of_its_store_unknown() -> None:
    made = plan(task(segmented("w", [{at("w"): 9}, {}])), exactly_once=False)
    assert made.written == {".checkpoint": {at("w"): OFFSET_UNKNOWN}}


@pytest.mark.parametrize("newest_was_flushed", [True, False])
def test_a_segment_that_was_never_flushed_makes_the_offset_of_its_store_unknown(newest_was_flushed: bool) -> None:
    flushed = database("w/w.1000", {at("w"): 9}, status=1)
    empty = database("w/w.2000", {}, status=None, filled=False)
    databases = (empty, flushed) if newest_was_flushed else (flushed, empty)
    made = plan(task(replace(segmented("w"), databases=databases)), exactly_once=False)
    assert made.written == {".checkpoint": {at("w"): OFFSET_UNKNOWN}}


def test_a_segment_that_was_made_after_the_others_were_closed_says_nothing() -> None:
    closed, made_later = database("w/w.1000", {at("w"): 9}), database("w/w.2000", {}, status=None, filled=False)
    made = plan(task(replace(segmented("w"), databases=(closed, made_later))))
    assert made.written == {".checkpoint": {at("w"): 9}}


def test_a_transactional_store_that_was_killed_is_at_its_offset() -> None:
    stores = plain("a", {at("a"): 30}, status=None), segmented("w", [{at("w"): 7}, {at("w"): 7}], status=None)
    made = plan(task(*stores))
    assert made.written == {".checkpoint": {at("a"): 30, at("w"): 7}}


def test_segments_of_a_transactional_store_that_was_killed_are_lowered_to_the_smallest_offset() -> None:
    killed = segmented("w", [{at("w"): 7}, {at("w"): 12}], status=None)
    assert plan(task(killed)).written == {".checkpoint": {at("w"): 7}}
    closed = segmented("w", [{at("w"): 7}, {at("w"): 12}])
    assert [why.code for why in plan(task(closed)).refused] == ["segment-offsets-differ"]


def test_a_transactional_buffer_whose_file_is_gone_has_the_offset_inside() -> None:
    stores = segmented("b", [{at("b"): 8}], status=None, seen_kind=StoreKind.GRACE_BUFFER), plain("a", {at("a"): 3})
    assert plan(task(*stores)).written == {".checkpoint": {at("a"): 3, at("b"): 8}}
    stores = segmented("b", [{at("b"): 8}], seen_kind=StoreKind.GRACE_BUFFER), plain("a", {at("a"): 3})
    assert plan(task(*stores)).written == {".checkpoint": {at("a"): 3}}


@pytest.mark.parametrize("status", [None, 0])
def test_beside_a_segment_without_an_offset_one_may_have_been_flushed_by_no_close(status: int | None) -> None:
    flushed = database("w/w.1000", {at("w"): 9}, status=status, flushed=True)
    empty = database("w/w.2000", {}, status=None, filled=False)
    seen = task(replace(segmented("w"), databases=(flushed, empty)))
    assert [why.code for why in plan(seen).refused] == ["segment-offsets-differ"]
    assert plan(seen, exactly_once=False).written == {".checkpoint": {at("w"): OFFSET_UNKNOWN}}


def test_the_offset_of_a_global_store_that_is_not_declared_is_left_out() -> None:
    one, other = TopicPartition("prices", 0), TopicPartition("retired", 0)
    stores = plain("g", {one: 5}, seen_changelog="prices"), plain("old", {other: 7}, seen_changelog="")
    made = plan(task(*stores, name="global", sources=frozenset({"prices"})))
    assert made.written == {".checkpoint": {one: 5}}
    assert "retired-0 at 7" in made.left[0]


def test_without_a_spec_several_global_stores_are_remarked_because_one_may_be_retired() -> None:
    one, other = TopicPartition("prices", 0), TopicPartition("retired", 0)
    stores = plain("g", {one: 5}, seen_changelog=""), plain("old", {other: 7}, seen_changelog="")
    made = plan(task(*stores, name="global"))
    assert made.written == {".checkpoint": {one: 5, other: 7}}
    assert ".checkpoint has entries of 2 topics" in made.remarks[0]
    assert plan(task(stores[0], name="global")).remarks == ()


def test_a_store_without_a_segment_is_named_with_minus_4() -> None:
    made = plan(task(segmented("w"), plain("a", {at("a"): 3})))
    assert made.written == {".checkpoint": {at("a"): 3, at("w"): OFFSET_UNKNOWN}}
    unlogged = plan(task(segmented("w", seen_logged=False), plain("a", {at("a"): 3})))
    assert unlogged.written == {".checkpoint": {at("a"): 3}}


def test_a_store_that_is_not_logged_is_not_named() -> None:
    made = plan(task(plain("unlogged", {}), plain("a", {at("a"): 3})))
    assert made.written == {".checkpoint": {at("a"): 3}}


def test_without_any_offset_none_is_invented() -> None:
    made = plan(task(plain("a", {}, seen_logged=True), segmented("w")))
    assert not made.written
    assert "has an offset" in made.left[0]


def test_the_file_of_a_grace_buffer_is_merged() -> None:
    made = plan(task(buffer("b", file_offsets={at("b"): 8}), plain("a", {at("a"): 3})))
    assert made.written == {".checkpoint": {at("a"): 3, at("b"): 8}}
    assert made.moved == (".checkpoint_b",)


def test_the_file_of_a_store_of_the_applications_own_making_is_merged_whatever_its_directory_is_called() -> None:
    made = plan(task(plain("a", {at("a"): 3}), offset_files={".checkpoint_custom": {at("custom"): 8}}))
    assert made.written == {".checkpoint": {at("a"): 3, at("custom"): 8}}
    assert made.moved == (".checkpoint_custom",)


def test_what_was_converted_already_keeps_what_the_file_says() -> None:
    made = plan(task(plain("a"), plain("b", {at("b"): 8}), checkpoint={at("a"): 3, at("b"): 5}))
    assert made.written == {".checkpoint": {at("a"): 3, at("b"): 8}}
    assert made.moved == (".checkpoint",)
    assert "app-b-changelog-0 at 5" in made.notes[0]


def test_a_global_store_is_never_named_with_minus_4_and_only_global_topics_are() -> None:
    one, other = TopicPartition("prices", 0), TopicPartition("stale", 0)
    store = plain("g", {one: OFFSET_UNKNOWN}, seen_changelog="prices")
    made = plan(task(store, checkpoint={other: 4}, name="global", sources=frozenset({"prices"})))
    assert made.written == {}
    assert made.moved == (".checkpoint",)
    assert "fails every start" in made.left[0]
    assert plan(task(plain("g", {one: 5}), name="global")).written == {".checkpoint": {one: 5}}


@pytest.mark.parametrize("release", ["4.2", "3.9"])
def test_a_directory_of_that_release_is_nothing_to_do(release: str) -> None:
    made = plan(task(plain("a", sst_format=5), segmented("w"), checkpoint={at("a"): 1, at("w"): -4}), release)
    assert made.is_empty
    assert not made.left


def with_headers(headers: int = 0, strange: int = 0, **more: Any) -> StoreInspection:
    counted = RowCounts(10, headers, strange, StoreDigest(10, 100, "1" * 32))
    seen = {"seen_kind": StoreKind.HEADERS_KEY_VALUE, "seen_target": StoreKind.TIMESTAMPED_KEY_VALUE, **more}
    return plain("h", {at("h"): 3}, data=HEADERS, converted_rows=counted, **seen)


def test_rows_with_headers_blocks_that_are_empty_are_moved() -> None:
    made = plan(task(with_headers()))
    (database,) = made.stores[0].databases
    (move,) = database.moves
    assert (move.source, move.target, move.rows) == (HEADERS, "keyValueWithTimestamp", 10)
    assert database.drop == ("offsets", HEADERS)
    assert database.families == {"default", "keyValueWithTimestamp"}
    assert database.contents == {"keyValueWithTimestamp": StoreDigest(10, 100, "1" * 32)}
    assert made.stores[0].kind is StoreKind.TIMESTAMPED_KEY_VALUE


def test_headers_are_lost_only_where_that_is_asked_for() -> None:
    (why,) = plan(task(with_headers(4))).refused
    assert (why.code, why.context["rows"]) == ("headers-unsupported", 4)
    assert plan(task(with_headers(4)), lose_headers=True).notes == ("h: 4 rows lose their headers",)


def test_a_store_with_headers_of_which_the_kind_is_not_known_is_refused() -> None:
    unknown = {"seen_kind": StoreKind.UNKNOWN, "seen_target": None, "seen_possible_kinds": "a or b"}
    assert [why.code for why in plan(task(with_headers(**unknown))).refused] == ["kind-undecided"]
    (why,) = plan(task(with_headers(strange=2))).refused
    assert (why.code, why.context["rows"]) == ("kind-mismatch", 2)
    wrong = with_headers(seen_kind=StoreKind.HEADERS_SESSION, seen_target=StoreKind.SESSION)
    (why,) = plan(task(wrong)).refused
    assert (why.code, "rows" in why.context) == ("kind-mismatch", False)


def test_a_family_with_headers_and_without_rows_is_only_dropped() -> None:
    made = plan(task(plain("h", {at("h"): 3}, data=HEADERS, filled=False)))
    assert made.stores[0].databases[0].drop == ("offsets", HEADERS)
    assert made.stores[0].databases[0].families == {"default"}


def test_rows_below_those_that_are_moved_are_only_added_up_where_they_are_known() -> None:
    store = with_headers()
    one = store.databases[0]
    below = type(one)(**{**vars(one), "nonempty_families": one.nonempty_families | {"keyValueWithTimestamp"}})
    made = plan(task(type(store)(**{**vars(store), "databases": (below,)})))
    assert made.stores[0].databases[0].contents == {}
