"""Whoever publishes above whom: a store has the rows that a replay of its changelog has, and not one more."""

from __future__ import annotations

import os
from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.repository.manifest import StoredRun, StoreSnapshot
from statecore.repository.publish import rebase
from tests.unit.repository.defects import taken_for_expired
from tests.unit.repository.replayed import History

SEED = "STATECORE_SEED"
STEPS = 25
EVERYTHING = frozenset(
    {
        "a compaction has left nothing",
        "above a base",
        "compaction: nothing",
        "compaction: published",
        "rebuild: in their place",
        "directory: in their place",
        *(f"checkpoint: {what}" for what in ("above theirs", "as it was made", "fenced", "nothing")),
        *(f"above {shape}: ptm stays" for shape in ("plain", "segments", "global")),
        "above plain: pm stays",
        "above plain: tm stays",
        *(f"above segments: {what} stays" for what in ("pm", "tm", "m", "t")),
        *(f"above segments: {what} goes" for what in ("p", "pt", "pm")),
    }
)
"""What has to happen. The letters say who has a database: the base, the newest snapshot (theirs), the job (mine)."""


def run(seeds: range) -> Counter[str]:
    met: Counter[str] = Counter()
    for seed in seeds:
        history = History(Random(seed))
        try:
            history.run(STEPS)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        met += history.met
    return met


@settings(deadline=None, max_examples=100)
@given(st.randoms(use_true_random=False))
def test_a_store_equals_a_replay_for_any_order_of_publications(chance: Random) -> None:
    History(chance).run(STEPS)


def test_everything_that_can_become_of_a_database_is_met() -> None:
    seed = os.environ.get(SEED)
    met = run(range(int(seed), int(seed) + 1) if seed else range(2000))
    assert seed or met.keys() >= EVERYTHING, EVERYTHING - met.keys()


@pytest.mark.long
def test_a_store_has_what_a_replay_has_in_a_hundred_thousand_histories() -> None:
    run(range(1_000_000, 1_100_000))


def _never_expired(store: StoreSnapshot, segment: int | None) -> bool:
    """Whatever others or the job have, it has not expired."""
    return False


def _at_the_first(runs: tuple[StoredRun, ...], inputs: object) -> int:
    """What was merged is taken to stand below all others."""
    return 0


@pytest.mark.parametrize(
    ("mutated", "mutant"),
    [
        ("_rebased", taken_for_expired),
        ("_has_expired", _never_expired),
        ("_index_of", _at_the_first),
        ("_is_ahead", lambda one, other: False),
    ],
)
def test_the_replay_finds_defects(mutated: str, mutant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebase, mutated, mutant)
    with pytest.raises(AssertionError, match=r"^seed \d+: "):
        run(range(4000))
