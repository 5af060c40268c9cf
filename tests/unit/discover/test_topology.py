"""The topology that brokers keep of a group, against the text that the same application printed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from statecore.changelog.streams_groups import StreamsGroup, decode
from statecore.cli import discover as command
from statecore.cli.output import Output
from statecore.discover.discover import discover
from statecore.discover.topology import PLUGIN_SETTING, parse_topology, topology_of
from statecore.errors import Invalid, NotFound, Retryable, StatecoreError
from tests.unit.changelog.recorded import TOPOLOGY, streams_group_response
from tests.unit.discover.test_discover import COMPACT, FakeCluster

TOPICS = dict.fromkeys(
    ("in-stream", "in-table", "in-global", "shop-counts-changelog", "shop-apart-repartition"), COMPACT
)


def group(version: int) -> StreamsGroup:
    return decode(streams_group_response(version).groups[0])


def configured(*changelogs: str) -> StreamsGroup:
    """A group without a description, of which one subtopology has these changelogs."""
    found = group(0)
    assert found.subtopologies is not None
    part = replace(found.subtopologies[2], changelogs=changelogs)
    return replace(found, subtopologies=(part,))


def test_the_description_is_what_the_text_says() -> None:
    told = topology_of(group(1), required=True).subtopologies
    assert told is not None
    text = parse_topology(TOPOLOGY)
    assert [part.number for part in told] == [0, 1, 2, -1]
    assert [replace(part, number=0) for part in told] == [replace(part, number=0) for part in text]


def test_from_the_description_the_same_is_discovered_as_from_the_text() -> None:
    by_text = discover(FakeCluster(TOPICS), "shop", topology_text=TOPOLOGY)
    by_group = discover(FakeCluster(TOPICS), "shop", group=group(1))
    assert by_group.spec == by_text.spec
    assert by_group.notes.by_name == by_text.notes.by_name
    assert by_group.notes.open == by_text.notes.open
    assert by_group.notes.general[1:] == by_text.notes.general
    assert [(store.name, store.changelog) for store in by_group.spec.stores] == [
        ("unlogged", "?"),
        ("counts", "shop-counts-changelog"),
        ("profile", "in-table"),
    ]


def test_a_text_wins_over_the_group() -> None:
    text = "   Sub-topology: 5\n    Processor: P (stores: [counts])\n      --> none\n"
    spec, _ = discover(FakeCluster(TOPICS), "shop", topology_text=text, group=group(1))
    assert [(store.name, store.subtopology) for store in spec.stores] == [("counts", 5)]


def test_without_a_description_changelogs_tell_the_logged_stores() -> None:
    cluster = FakeCluster({**TOPICS, "shop-a-changelog-changelog": COMPACT})
    spec, notes = discover(cluster, "shop", group=configured("shop-counts-changelog", "shop-a-changelog-changelog"))
    assert [(store.name, store.subtopology) for store in spec.stores] == [("a-changelog", 2), ("counts", 2)]
    assert PLUGIN_SETTING in notes.general[0]


@pytest.mark.parametrize("topic", ["in-table", "shop-changelog", "shop-x-repartition", "shopping-changelog"])
def test_a_changelog_that_names_no_store_is_refused(topic: str) -> None:
    with pytest.raises(Invalid) as caught:
        topology_of(configured("shop-counts-changelog", topic), required=True)
    assert caught.value.context == {"subtopology": 2, "topics": [topic]}


def test_a_group_that_is_not_ready_has_no_topology() -> None:
    with pytest.raises(NotFound):
        topology_of(replace(group(0), subtopologies=None), required=True)


def test_beside_a_directory_only_a_description_is_used() -> None:
    assert topology_of(configured("in-table"), required=False).subtopologies is None
    assert topology_of(group(1), required=False).subtopologies is not None


class Answering:
    """A cluster that answers all questions but the one for a group, which is an error."""

    def __init__(self, error: StatecoreError) -> None:
        self.error = error

    def brokers(self) -> list[str]:
        return []

    def deadline(self) -> float:
        return 0.0

    def run(self, *question: object) -> None:
        raise self.error


@pytest.mark.parametrize(
    "error",
    [
        Invalid("a", code="test-error", action="b"),
        NotFound("a", code="test-error", action="b"),
        Retryable("a", code="test-error", action="b"),
    ],
)
def test_a_group_that_is_not_to_be_had_is_no_error_beside_a_directory(
    capsys: pytest.CaptureFixture[str], error: StatecoreError
) -> None:
    cluster: Any = Answering(error)
    assert command._group(cluster, "shop", required=False, output=Output(json=True)) is None
    assert ("not used" in capsys.readouterr().err) is not isinstance(error, NotFound)
    with pytest.raises(type(error)):
        command._group(cluster, "shop", required=True, output=Output(json=True))
