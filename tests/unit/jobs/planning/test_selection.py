from __future__ import annotations

from dataclasses import replace

import pytest

from statecore.errors import Invalid, NotFound
from statecore.formats.kinds import RETAINED_KINDS, StoreKind
from statecore.jobs.planning.selection import check_partitions, select_stores
from statecore.spec.model import NO_CHANGELOG, UNKNOWN_CHANGELOG, ApplicationSpec, ProcessingGuarantee, StoreSpec
from tests.harness.raising import raises
from tests.unit.jobs.planning.test_plan import application, store, topic


def test_changelogs_of_one_subtopology_with_different_partition_counts_are_refused() -> None:
    first, second = store("a"), store("b")
    topics = {first.changelog: topic(first, 4), second.changelog: topic(second, 3)}
    counts = {"app-a-changelog": 4, "app-b-changelog": 3}
    with raises(Invalid, "partition-count-mismatch", partitions=counts):
        check_partitions([first, second], topics)


def test_changelogs_of_different_subtopologies_may_differ() -> None:
    first, second = store("a", 0), store("b", 1)
    topics = {first.changelog: topic(first, 4), second.changelog: topic(second, 2)}
    assert check_partitions([first, second], topics) == {first: (0, 1, 2, 3), second: (0, 1)}


def test_only_the_partitions_that_were_asked_for_are_planned() -> None:
    first = store("a")
    assert check_partitions([first], {first.changelog: topic(first, 4)}, [2, 0]) == {first: (0, 2)}


def test_a_partition_that_no_changelog_has_is_refused() -> None:
    first = store("a")
    with raises(Invalid, "partition-unknown", partitions=[9], partition_count=4) as refused:
        check_partitions([first], {first.changelog: topic(first, 4)}, [1, 9])
    assert "4" in refused.value.what


def test_all_buildable_stores_are_selected_and_in_memory_stores_left_out() -> None:
    spec = application(store("a"), store("m", kind=StoreKind.IN_MEMORY))
    assert [each.name for each in select_stores(spec)] == ["a"]


def test_stores_of_the_application_s_own_classes_are_left_out_and_refused_by_name() -> None:
    spec = application(store("a"), store("c", kind=StoreKind.CUSTOM))
    assert [each.name for each in select_stores(spec)] == ["a"]
    with pytest.raises(Invalid) as refused:
        select_stores(spec, ["c"])
    assert refused.value.context["stores"] == ["c"]
    undecided = replace(store("c", kind=StoreKind.CUSTOM), changelog=UNKNOWN_CHANGELOG)
    assert [each.name for each in select_stores(application(store("a"), undecided))] == ["a"]


def test_a_store_the_spec_does_not_declare_is_refused_with_those_it_does() -> None:
    with raises(NotFound, "store-not-declared"):
        select_stores(application(store("a")), ["x"])


def test_an_undecided_kind_is_refused() -> None:
    with pytest.raises(Invalid, match=r"store 'a' \(line 7\)"):
        select_stores(application(store("a", kind=StoreKind.UNKNOWN)))


def test_an_undecided_changelog_is_refused_with_the_choices() -> None:
    undecided = replace(store("a"), changelog=UNKNOWN_CHANGELOG)
    with raises(Invalid, "spec-undecided", kinds=[], changelogs=["a"]) as refused:
        select_stores(application(undecided))
    assert "'changelog: none'" in refused.value.action
    both = [store("k", kind=StoreKind.UNKNOWN), undecided]
    with raises(Invalid, "spec-undecided", kinds=["k"], changelogs=["a"]):
        select_stores(application(*both))


def test_stores_that_are_not_logged_are_left_out_and_refused_when_they_are_named() -> None:
    unlogged = replace(store("u", kind=StoreKind.UNKNOWN), changelog=NO_CHANGELOG)
    spec = application(store("a"), unlogged)
    assert [each.name for each in select_stores(spec)] == ["a"]
    with raises(Invalid, "store-not-logged", stores=["u"]) as refused:
        select_stores(spec, ["u"])
    assert "stays as it is" in refused.value.action


def test_a_spec_without_stores_is_refused() -> None:
    with raises(Invalid, "no-restorable-store"):
        select_stores(application())


PRODUCTS = StoreSpec("products", StoreKind.KEY_VALUE, -1, "products")
FILLED = StoreSpec("filled", StoreKind.KEY_VALUE, -1, "orders", reprocess=True)


def with_global_stores() -> ApplicationSpec:
    return ApplicationSpec("app", "broker:9092", ProcessingGuarantee.AT_LEAST_ONCE, (store("a"),), (PRODUCTS, FILLED))


def test_global_stores_are_selected_except_where_user_code_fills_them() -> None:
    assert [each.name for each in select_stores(with_global_stores())] == ["a", "products"]


@pytest.mark.parametrize("kind", sorted({*RETAINED_KINDS, StoreKind.LIST, StoreKind.GRACE_BUFFER}))
def test_a_global_store_that_no_global_table_makes_is_filled_by_user_code_whether_it_says_so_or_not(
    kind: StoreKind,
) -> None:
    windows = StoreSpec("windows", kind, -1, "products", 600_000 if kind in RETAINED_KINDS else None)
    spec = ApplicationSpec("app", "broker:9092", ProcessingGuarantee.AT_LEAST_ONCE, (store("a"),), (windows,))
    assert [each.name for each in select_stores(spec)] == ["a"]
    with raises(Invalid, "store-filled-by-processor", stores=["windows"]):
        select_stores(spec, ["windows"])


def test_global_stores_have_no_partition_to_choose() -> None:
    assert [each.name for each in select_stores(with_global_stores(), partitions=[0])] == ["a"]
    topics = {"products": topic(PRODUCTS, 3)}
    assert check_partitions([PRODUCTS], topics) == {PRODUCTS: (0, 1, 2)}


def test_a_global_store_that_user_code_fills_is_refused_by_name() -> None:
    with pytest.raises(Invalid, match="its own processor") as refused:
        select_stores(with_global_stores(), ["filled"])
    assert "orders" in str(refused.value)
