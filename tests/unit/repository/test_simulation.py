"""Hundreds of seeds of a simulation (:mod:`tests.unit.repository.simulation`), and what it has to find.

``STATECORE_SEED=123`` runs that seed alone, as a failure names it; so does ``python -m
tests.unit.repository.simulation 123``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.unit.repository.simulation import EVERYTHING, Broken, Simulation

SEED = "STATECORE_SEED"


def run(seeds: Iterable[int], directory: Path) -> Counter[str]:
    met: Counter[str] = Counter()
    for seed in [int(os.environ[SEED])] if os.environ.get(SEED) else seeds:
        met += Simulation(seed, directory).run().met
    return met


def test_every_published_snapshot_is_fetchable_whatever_fails(tmp_path: Path) -> None:
    met = run(range(300), tmp_path)
    assert os.environ.get(SEED) or EVERYTHING <= met.keys(), EVERYTHING - met.keys()


@pytest.mark.long
def test_every_published_snapshot_is_fetchable_whatever_fails_in_ten_thousand_runs(tmp_path: Path) -> None:
    met = run(range(1_000_000, 1_010_000), tmp_path)
    print(json.dumps(met, indent=1, sort_keys=True))


def test_a_seed_is_the_same_run_again_in_another_process(tmp_path: Path) -> None:
    seed = 7
    words = [sys.executable, "-m", "tests.unit.repository.simulation", str(seed)]
    said = [
        json.loads(subprocess.check_output(words, env={**os.environ, "PYTHONHASHSEED": hashing}, timeout=60))
        for hashing in ("1", "2")
    ]
    here = Simulation(seed, tmp_path).run()
    assert said[0] == said[1] == [here.trace, dict(here.met)]
    assert here.trace != Simulation(seed + 1, tmp_path).run().trace
