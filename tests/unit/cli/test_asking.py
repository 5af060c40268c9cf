"""What is asked on a terminal, and what becomes of the answers."""

from __future__ import annotations

import io

from statecore.cli.asking import ask_on
from statecore.formats.kinds import StoreKind
from statecore.maintenance.drafts import OpenStore

KINDS = (StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE)
OPEN = (
    OpenStore("latest", 0, KINDS, (), ("12 of its records",)),
    OpenStore("counts", 0, KINDS, ("none",), ()),
    OpenStore("scratch", 1, (StoreKind.KEY_VALUE,), ("none", "orders"), ()),
)


def test_every_open_store_is_listed_and_then_asked_for_until_the_answer_is_one():
    said: list[str] = []
    answers = io.StringIO("timestamped-keyvalue\nsession\ntimestamped-key-value\n\nnone\norders\n")
    found = ask_on(answers, said.append)(OPEN)
    assert found.kinds == {"latest": StoreKind.TIMESTAMPED_KEY_VALUE}
    assert found.changelogs == {"counts": "none", "scratch": "orders"}
    assert "latest (subtopology 0): kind key-value or timestamped-key-value (seen: 12 of its records)" in said[1]
    assert sum(line.startswith("Kind of latest? key-value, timestamped-key-value") for line in said) == 3
    assert any("did you mean timestamped-key-value" in line for line in said)
    assert any("latest cannot be of the kind session" in line for line in said)


def test_the_end_of_the_answers_leaves_the_rest_undecided():
    found = ask_on(io.StringIO(""), lambda line: None)(OPEN)
    assert (found.kinds, found.changelogs) == ({}, {})
