"""Seeds of a simulation of copies (``copying.py``), and defects that it has to find."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from statecore.objectstore.pointers import PointerValue
from statecore.repository.head import Head
from statecore.repository.maintenance.copier import Copier, CopyOutcome
from tests.unit.repository.maintenance.copying import Copying
from tests.unit.repository.oracle import Broken

SEED = "STATECORE_SEED"
MET = {
    "copy copied",
    "copy current",
    "copy failed",
    "copy died",
    "publish",
    "lose",
    "pin",
    "unpin",
    "listed",
    "pruned",
    "equal",
}


def run(seeds: Iterable[int], directory: Path) -> Counter[str]:
    met: Counter[str] = Counter()
    for seed in [int(os.environ[SEED])] if os.environ.get(SEED) else seeds:
        met += Copying(seed, directory).run().met
    return met


def test_every_head_of_a_replica_is_whole_whatever_fails(tmp_path: Path) -> None:
    met = run(range(30), tmp_path)
    assert os.environ.get(SEED) or met.keys() >= MET, MET - met.keys()


@pytest.mark.full
def test_every_head_of_a_replica_is_whole_in_five_hundred_runs(tmp_path: Path) -> None:
    met = run(range(1000, 1500), tmp_path)
    assert os.environ.get(SEED) or met.keys() >= {*MET, "copy incomplete", "revived"}


def _first(self: Copier, read: Any) -> Any:
    self._swap(read)
    return _COPY(self, read)


def _always(self: Copier, read: Any) -> CopyOutcome:
    """The head is swapped whatever the replica's is."""
    name = read.head.application_id
    found = self._target.pointers.read(f"apps/{name}/HEAD")
    self._target.pointers.swap(f"apps/{name}/HEAD", read.pointer.content, None if found is None else found.version)
    return CopyOutcome.COPIED


def _as_if_damaged(self: Copier, found: PointerValue) -> Head | None:
    return None


def _none(self: Copier, name: str, *_: Any) -> bool:
    """Manifests are expected to be there."""
    return "/manifests/" not in name


_COPY = Copier._copy


@pytest.mark.parametrize(
    ("mutated", "mutant"),
    [("_copy", _first), ("_swap", _always), ("_head_of_target", _as_if_damaged), ("_is_missing", _none)],
)
def test_the_simulation_finds_defects(
    mutated: str, mutant: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Copier, mutated, mutant)
    with pytest.raises(Broken, match=r"^seed \d+: "):
        run(range(200), tmp_path)
