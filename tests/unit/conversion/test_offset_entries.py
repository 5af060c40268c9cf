"""Every entry of a file is of one store, or of none; nothing is lost on the way."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.conversion.downward import ConversionOptions, plan_downward
from statecore.conversion.offset_entries import assign_entries
from statecore.conversion.upward import plan_upward
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.releases import RELEASES
from statecore.formats.topic_partition import TopicPartition
from statecore.statedir.database_state import smallest_offsets
from tests.unit.conversion.inspections import APPLICATION, plain, task

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
def test_whatever_the_file_says_is_said_afterwards_inside_or_beside(
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
