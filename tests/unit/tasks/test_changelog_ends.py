"""How far a changelog may be followed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pytest

from statecore.changelog.model import LogOffsets, TopicDescription
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import ApplicationSpec, ProcessingGuarantee
from statecore.tasks.changelog_ends import changelog_ends
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
