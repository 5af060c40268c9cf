"""For which stores an exactly-once start wipes their task."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.releases import CURRENT, RELEASES
from statecore.formats.topic_partition import TopicPartition
from statecore.statedir.database_state import DatabaseState
from statecore.statedir.exactly_once_wipe import StoreAtStart, has_offset, why_wiped

OWN, OTHER, ELSEWHERE = TopicPartition("c", 0), TopicPartition("d", 0), TopicPartition("c", 1)
AT, UNKNOWN = {OWN: 7}, {OWN: OFFSET_UNKNOWN}
PLAIN, BUFFER, ANY = StoreKind.KEY_VALUE, StoreKind.GRACE_BUFFER, StoreKind.UNKNOWN


def database(offsets: Mapping[TopicPartition, int] = {}, status: int | None = 0) -> DatabaseState:
    return DatabaseState(("default", "offsets"), offsets, status)


@pytest.mark.parametrize(
    ("databases", "logged", "transactional", "code"),
    [
        ([database(AT)], True, False, None),
        ([database(UNKNOWN)], True, False, None),
        ([database(AT, None)], True, False, None),
        ([database(AT), database()], True, False, None),
        ([database(AT), database(AT, 1)], True, False, "store-not-closed"),
        ([database(AT, 1)], True, True, "store-not-closed"),
        ([database()], True, False, "offset-missing"),
        ([database()], True, True, None),
        ([database({OTHER: 7})], True, False, "offset-missing"),
        ([], True, False, "database-missing"),
        ([], True, True, None),
        ([], False, False, None),
        ([database()], False, False, None),
        ([database(status=1)], False, False, "store-not-closed"),
    ],
)
def test_a_start_wipes_the_task_of_a_store(
    databases: list[DatabaseState], logged: bool, transactional: bool, code: str | None
) -> None:
    why = why_wiped(StoreAtStart(databases, OWN, 0, PLAIN, logged=logged), transactional=transactional)
    assert (None if why is None else why.code) == code


@pytest.mark.parametrize(
    ("kind", "inside", "own_file", "task_file", "current", "older"),
    [
        (PLAIN, AT, {}, {}, True, False),
        (PLAIN, {}, AT, {}, False, False),
        (PLAIN, {}, {}, AT, True, True),
        (PLAIN, {}, {}, UNKNOWN, False, True),
        (PLAIN, {}, {}, {OTHER: 7, ELSEWHERE: 7}, False, False),
        (BUFFER, AT, {}, {}, False, False),
        (BUFFER, {}, AT, {}, True, False),
        (BUFFER, {}, UNKNOWN, {}, True, False),
        (BUFFER, {}, {}, AT, True, True),
        (BUFFER, {}, {}, UNKNOWN, False, True),
        (ANY, AT, {}, {}, True, False),
        (ANY, {}, AT, {}, True, False),
    ],
)
def test_each_release_finds_an_offset_in_its_own_places(
    kind: StoreKind,
    inside: Mapping[TopicPartition, int],
    own_file: Mapping[TopicPartition, int],
    task_file: Mapping[TopicPartition, int],
    current: bool,
    older: bool,
) -> None:
    store = StoreAtStart([database(inside)], OWN, 0, kind, own_file=own_file, task_file=task_file)
    assert (has_offset(store, CURRENT), has_offset(store, RELEASES["4.2"])) == (current, older)


def test_any_changelog_of_its_partition_may_be_that_of_a_store_without_a_known_one() -> None:
    assert has_offset(StoreAtStart([database({OTHER: 7})], None, 0))
    assert not has_offset(StoreAtStart([database({ELSEWHERE: 7})], None, 0))


@pytest.mark.parametrize(
    ("kind", "segmented", "own_file", "code"),
    [
        (PLAIN, False, {}, None),
        (StoreKind.WINDOW, True, {}, "database-missing"),
        (StoreKind.WINDOW, True, AT, "database-missing"),
        (BUFFER, True, {}, None),
    ],
)
def test_an_offset_of_the_task_file_has_no_place_without_a_segment(
    kind: StoreKind, segmented: bool, own_file: Mapping[TopicPartition, int], code: str | None
) -> None:
    why = why_wiped(StoreAtStart([], OWN, 0, kind, segmented=segmented, own_file=own_file, task_file=AT))
    assert (None if why is None else why.code) == code
