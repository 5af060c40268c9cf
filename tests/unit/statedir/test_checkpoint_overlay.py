"""Entries of ``.checkpoint`` over the offsets of a store."""

from __future__ import annotations

from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.topic_partition import TopicPartition
from statecore.statedir.checkpoint_overlay import entries_of, migrated, overlaid

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
FILE = {A0: 3, A1: 4, B0: 5}


def test_a_store_of_a_task_has_the_entry_of_its_partition_and_a_global_store_all_of_its_topic() -> None:
    assert entries_of(FILE, {}, {"a"}, 0) == {A0: 3}
    assert entries_of(FILE, {}, {"a"}, None) == {A0: 3, A1: 4}


def test_an_entry_of_an_own_offset_is_the_store_s_whatever_its_topic() -> None:
    assert entries_of(FILE, {B0: 1}, {""}, 0) == {B0: 5}


def test_an_entry_wins_unless_it_is_unknown_and_the_store_has_an_offset() -> None:
    assert overlaid({A0: 9, A1: 9}, {A0: 3, A1: OFFSET_UNKNOWN, B0: OFFSET_UNKNOWN}) == {
        A0: 3,
        A1: 9,
        B0: OFFSET_UNKNOWN,
    }


def test_a_start_takes_over_all_entries_but_unknown_ones() -> None:
    assert migrated({A0: 3, A1: OFFSET_UNKNOWN, B0: 0}) == {A0: 3, B0: 0}
