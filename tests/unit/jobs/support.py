"""A spec for tests that need one and do not look into it."""

from __future__ import annotations

from statecore.spec.model import ApplicationSpec
from statecore.spec.reader import parse_spec


def spec() -> ApplicationSpec:
    return parse_spec(
        {
            "application_id": "app",
            "bootstrap_servers": "localhost:9",
            "processing_guarantee": "at_least_once",
            "subtopologies": {"0": {"stores": {"store": {"kind": "key-value"}}}},
        },
        "<test>",
    )
