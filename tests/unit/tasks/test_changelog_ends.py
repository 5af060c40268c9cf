"""How far a changelog may be followed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pytest

from statecore.changelog.model import LogOffsets, TopicDescription
from statecore.errors import Invalid, Retryable, StatecoreError
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import ApplicationSpec, ProcessingGuarantee
from statecore.tasks.changelog_ends import ChangelogEnd, changelog_ends, ends_of_tasks
from statecore.tasks.standby_store import StandbyStoreSpec
from tests.unit.changelog.consumed import GroupCoordinator

CHANGELOG, SOURCE = TopicPartition("app-counts-changelog", 1), TopicPartition("in", 1)
EOS, ALOS = ProcessingGuarantee.EXACTLY_ONCE_V2, ProcessingGuarantee.AT_LEAST_ONCE


class Brokers(GroupCoordinator):
    """Logs from 5 to 90, of which 80 are stable."""

    def __init__(self, consumed: int | None) -> None:
        super().__init__(lambda group, at: consumed if (group, at) == ("app", SOURCE) else None)
        self.asked: Mapping[TopicPartition, int] = {}

    def time_ms(self) -> int:
        return 7_500

    def describe_topics(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        return {name: TopicDescription(name, "1" * 32, 2, {}) for name in names}

    def log_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, LogOffsets]:
        return {at: LogOffsets(5, 80, 90) for at in partitions}

    def epoch_ends(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        self.asked = wanted
        return dict.fromkeys(wanted, 70)


@pytest.mark.parametrize(("guarantee", "end"), [(EOS, 80), (ALOS, 90)])
@pytest.mark.parametrize(("consumed", "most"), [(None, 0), (4, 0), (5, 5), (33, 33), (1_000, 1_000)])
def test_a_log_is_followed_to_what_is_stable_and_a_source_topic_to_what_was_consumed(
    guarantee: ProcessingGuarantee, end: int, consumed: int | None, most: int
) -> None:
    spec = ApplicationSpec("app", "nowhere:9092", guarantee, (), ())
    stores = [
        StandbyStoreSpec("counts", StoreKind.KEY_VALUE, CHANGELOG),
        StandbyStoreSpec("table", StoreKind.KEY_VALUE, SOURCE, is_source=True),
    ]
    brokers: Any = Brokers(consumed)
    epochs = {CHANGELOG: 3, SOURCE: -1, TopicPartition("other", 0): 4}
    found = changelog_ends(brokers, spec, stores, epochs)
    assert {at: one.end for at, one in found.items()} == {CHANGELOG: end, SOURCE: min(end, most)}
    assert brokers.asked == {CHANGELOG: 3}
    assert (found[CHANGELOG].epoch_end, found[SOURCE].epoch_end) == (70, None)
    assert {(one.read_at_ms, one.delete_retention_ms) for one in found.values()} == {(7_500, 86_400_000)}


def no_leader(*topics: str) -> Retryable:
    return Retryable("No leader.", code="test-error", action="Wait.", topics=topics)


UNREACHABLE = Retryable("No broker answers.", code="test-error", action="Wait.")
DENIED = Invalid("It is not allowed.", code="test-error", action="Allow it.")


@pytest.mark.parametrize(
    ("errors", "asked", "without"),
    [
        ([], ["abc"], ""),
        ([no_leader("a")], ["abc", "bc"], "a"),
        ([no_leader("a"), no_leader("b", "c")], ["abc", "bc"], "abc"),
        ([no_leader("a"), UNREACHABLE], ["abc", "bc"], "abc"),
        ([UNREACHABLE], ["abc"], "abc"),
        ([no_leader("elsewhere")], ["abc"], "abc"),
        ([DENIED, None, DENIED, no_leader("c")], ["abc", "a", "b", "c"], "bc"),
    ],
)
def test_an_error_is_that_of_as_few_tasks_as_possible(
    errors: list[StatecoreError | None], asked: list[str], without: str
) -> None:
    calls: list[str] = []

    def ask(names: Collection[str]) -> dict[TopicPartition, ChangelogEnd]:
        calls.append("".join(names))
        if len(calls) <= len(errors) and (error := errors[len(calls) - 1]) is not None:
            raise error
        return {}

    found = {name: ends for names, ends in ends_of_tasks({name: {name} for name in "abc"}, ask) for name in names}
    assert (calls, set(found)) == (asked, set("abc"))
    assert {name for name, ends in found.items() if isinstance(ends, StatecoreError)} == set(without)


def test_tasks_are_asked_for_until_it_is_stopped() -> None:
    calls: list[Collection[str]] = []

    def ask(names: Collection[str]) -> dict[TopicPartition, ChangelogEnd]:
        calls.append(names)
        raise DENIED

    topics = {name: {name} for name in "abc"}
    assert [names for names, _ in ends_of_tasks(topics, ask, lambda: len(calls) == 2)] == [["a"]]
