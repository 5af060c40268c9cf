"""Which stores can be compared with their whole changelogs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from statecore.jobs.checkpoint.reconcile.eligible import split_eligible
from statecore.repository.manifest import BaseFile, Extent
from tests.unit.jobs.checkpoint.reconciling import PLAIN, World


def why_not(world: World, key: tuple[str, str], change: Callable[[Any], None] = lambda _: None, **config: str) -> str:
    planned = world.planned(key, **config)
    change(planned)
    right, wrong = split_eligible(planned, [world.refused(key)])
    assert (len(right), len(wrong)) in ((1, 0), (0, 1))
    return "" if right else wrong[0].why


def test_only_what_compaction_alone_cleans_can_be_compared(world: World) -> None:
    assert why_not(world, PLAIN) == ""
    for policy in ("compact,delete", "delete,compact", "delete", ""):
        why = why_not(world, PLAIN, **{"cleanup.policy": policy})
        assert "cleanup.policy of orders-plain-changelog" in why
        assert policy in why


def test_only_a_store_of_runs_and_of_one_partition_in_the_newest_snapshot_can_be_compared(world: World) -> None:
    assert "2 partitions of names" in why_not(world, ("global", "names"))

    def older(planned: Any) -> None:
        planned.frozen.newest_snapshot = "another"

    def based(planned: Any) -> None:
        store = planned.bases[PLAIN].snapshot
        (database,) = store.databases
        database = replace(database, base=(BaseFile("1.sst", "0" * 64, Extent("b", 0, 1)),))
        planned.bases[PLAIN] = replace(planned.bases[PLAIN], snapshot=replace(store, databases=(database,)))

    assert "newest snapshot" in why_not(world, PLAIN, older)
    assert "RocksDB files" in why_not(world, PLAIN, based)


def test_what_else_is_wrong_with_a_parent_is_left_as_it_is_said(world: World) -> None:
    one = replace(world.refused(PLAIN), why="the log was truncated", missed_deletes=False)
    assert split_eligible(world.planned(PLAIN), [one]) == ([], [one])
