from __future__ import annotations

import pytest

from statecore.changelog.cleanup_policy import check_compacted, why_not_compacted
from statecore.changelog.model import TopicDescription
from statecore.errors import Invalid
from tests.harness.raising import raises


def topic(**configs: str) -> TopicDescription:
    return TopicDescription("prices", "0" * 32, 2, {name.replace("_", "."): value for name, value in configs.items()})


@pytest.mark.parametrize(
    "kept",
    [
        topic(cleanup_policy="compact", retention_ms="60000"),
        topic(cleanup_policy="delete", retention_ms="-1", retention_bytes="-1"),
        topic(cleanup_policy="compact,delete", retention_ms="-1"),
        topic(),
    ],
)
def test_a_topic_that_keeps_the_last_record_of_every_key(kept: TopicDescription) -> None:
    assert why_not_compacted(kept) == ""
    check_compacted(kept, "store", accept=False, how_to_accept="--so")


@pytest.mark.parametrize(
    "losing",
    [
        topic(cleanup_policy="delete", retention_ms="60000"),
        topic(cleanup_policy="compact, delete", retention_bytes="1000"),
    ],
)
def test_a_topic_that_deletes_them_is_refused_unless_that_is_accepted(losing: TopicDescription) -> None:
    policy = losing.configs["cleanup.policy"]
    with raises(Invalid, "topic-not-compacted", topic="prices", store="store", cleanup_policy=policy) as caught:
        check_compacted(losing, "store", accept=False, how_to_accept="--so")
    assert "--so" in caught.value.action
    check_compacted(losing, "store", accept=True, how_to_accept="--so")
