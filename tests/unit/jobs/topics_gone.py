"""An application of two subtopologies, and brokers that lack some of its changelogs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from statecore.changelog.model import TopicDescription
from statecore.errors import NotFound, Retryable
from statecore.spec.model import ApplicationSpec
from statecore.spec.reader import parse_spec

KEY_VALUE = {"kind": "key-value"}


def spec(**second: Any) -> ApplicationSpec:
    """Two subtopologies; the stores of the second one are said."""
    stores = second or {"names": KEY_VALUE, "sums": KEY_VALUE}
    return parse_spec(
        {
            "application_id": "app",
            "bootstrap_servers": "127.0.0.1:1",
            "processing_guarantee": "at_least_once",
            "subtopologies": {"0": {"stores": {"counts": KEY_VALUE}}, "1": {"stores": stores}},
        }
    )


class Brokers:
    """Changelogs of two partitions each, of which some are gone."""

    def __init__(self, *gone: str) -> None:
        self.gone = {f"app-{store}-changelog" for store in gone}
        self.asked = 0
        self.away = False

    def describe_topics(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        self.asked += 1
        wanted = set(names)
        if self.away:
            raise Retryable("No broker answered.", code="test-error", action="Wait.")
        if wanted & self.gone:
            raise NotFound(
                "Topics do not exist.", code="test-error", action="Check.", topics=sorted(wanted & self.gone)
            )
        return {name: TopicDescription(name, "1" * 32, 2, {}) for name in wanted}
