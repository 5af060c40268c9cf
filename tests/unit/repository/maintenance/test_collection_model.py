"""The protocol of collection loses nothing in any interleaving of a few actors, and each of its rules is needed."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from tests.unit.repository.maintenance.collection_model import (
    FORGET,
    OPERATOR,
    REPAIR,
    Blob,
    Rules,
    State,
    beginning,
    collector,
    copied,
    search,
    writer,
)

SMALL = {
    "a writer": beginning(writer("w", ["old", "left"]), collector(3)),
    "a writer while snapshots are forgotten": beginning(writer("w", ["left", "new"]), collector(4), FORGET),
    "a writer and a repair": beginning(writer("w", ["left"]), collector(3), REPAIR, disasters=1),
    "a repair": beginning(collector(4), FORGET, REPAIR, disasters=1),
    "a damaged list and a repair": beginning(collector(4), FORGET, OPERATOR, REPAIR, disasters=1),
    "a writer, a damaged list, and a repair": beginning(
        writer("w", ["left"]), collector(3), OPERATOR, REPAIR, disasters=1
    ),
    "a replica and a repair": copied(beginning(collector(1), FORGET, REPAIR, collection=2, disasters=1)),
}
OF_EARLIER = beginning(writer("v", ["left"]), collector(4), REPAIR, collection=1, disasters=1)
LARGE = {
    "a writer, a repair, and what an earlier writer left": replace(
        OF_EARLIER, blobs=OF_EARLIER.blobs | {Blob("left", 1)}
    ),
    "two writers": beginning(writer("w", ["left"]), writer("v", ["left", "old"]), collector(3)),
    "two writers and a repair": beginning(
        writer("w", ["left"]), writer("v", ["left"]), collector(3), REPAIR, disasters=1
    ),
    "a writer, a repair, and forgotten snapshots": beginning(
        writer("w", ["left"]), collector(4), FORGET, REPAIR, disasters=1
    ),
    "a replica and a writer": copied(beginning(writer("w", ["left"]), collector(2), collection=1)),
    "a replica and a collector": copied(beginning(collector(2), FORGET, REPAIR, collection=2, disasters=1)),
    "two collectors": beginning(collector(3), collector(3), FORGET, REPAIR, disasters=1),
}
BROKEN_BY = {
    "writers_check_names": SMALL["a writer"],
    "blobs_of_the_last_collection_stay": SMALL["a writer"],
    "manifests_in_flight_stay": SMALL["a writer"],
    "replicas_keep_what_the_source_has": SMALL["a replica and a repair"],
    "repair_reads_garbage": SMALL["a writer and a repair"],
    "lists_are_deleted_by_hand_at_rest": SMALL["a damaged list and a repair"],
    "checks_head_before_deleting": LARGE["two collectors"],
    "repair_jumps": LARGE["a writer, a repair, and what an earlier writer left"],
}


@pytest.mark.parametrize(
    "state",
    [
        *(pytest.param(state, id=name) for name, state in SMALL.items()),
        *(pytest.param(state, id=name, marks=pytest.mark.full) for name, state in LARGE.items()),
    ],
)
def test_no_interleaving_takes_what_a_head_names(state: State) -> None:
    found = search(state)
    assert found.broken is None
    assert found.states > 1_000


@pytest.mark.parametrize("rule", [one.name for one in fields(Rules)])
def test_each_rule_is_needed(rule: str) -> None:
    assert search(BROKEN_BY[rule], replace(Rules(), **{rule: False})).broken is not None
