"""What is asked on a terminal, and what becomes of the answers."""

from __future__ import annotations

import io

from statecore.cli.discover import ask_on
from statecore.discover.spec_draft import OpenStore
from statecore.formats.kinds import StoreKind

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
    for word in ("latest", "key-value", "timestamped-key-value", "12"):
        assert word in said[1]
    assert sum(line.startswith("Kind of latest?") for line in said) == 3
    assert [line for line in said if "latest" in line and "session" in line] != []


def test_the_end_of_the_answers_leaves_the_rest_undecided():
    found = ask_on(io.StringIO(""), lambda line: None)(OPEN)
    assert (found.kinds, found.changelogs) == ({}, {})
