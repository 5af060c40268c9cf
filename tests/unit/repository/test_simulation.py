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
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import Retryable
from statecore.images.model import Run
from statecore.objectstore.base import Blobs
from statecore.repository.manifest import StoredRun, StoreSnapshot, TaskManifest
from statecore.repository.publish.conflicts import Conflicts, PublicationRequest
from statecore.repository.publish.publication import Publication, Published
from statecore.repository.publish.upload import put_verified
from tests.harness.case_selection import three_of
from tests.harness.simulated_store import SimulatedPointers, version_of
from tests.unit.repository.defects import taken_for_expired
from tests.unit.repository.oracle import Broken
from tests.unit.repository.simulation import EVERYTHING, Simulation

SEED = "STATECORE_SEED"
MOST_UNMET = 10
"""What sixty seeds need not meet; of a thousand nine at least meet the rarest."""


def chosen(seeds: range) -> Iterable[int]:
    """The seed that somebody wants to see again, or else these."""
    return [int(os.environ[SEED])] if os.environ.get(SEED) else seeds


def run(seeds: Iterable[int], directory: Path, *, is_encrypted: bool = False) -> Counter[str]:
    met: Counter[str] = Counter()
    for seed in seeds:
        met += Simulation(seed, directory, is_encrypted).run().met
    return met


def test_every_published_snapshot_is_fetchable_whatever_fails(tmp_path: Path) -> None:
    met = run(chosen(range(60)), tmp_path)
    assert os.environ.get(SEED) or len(EVERYTHING - met.keys()) <= MOST_UNMET, EVERYTHING - met.keys()


def test_every_published_snapshot_of_an_encrypted_repository_is_fetchable(tmp_path: Path) -> None:
    met = run(chosen(range(20)), tmp_path, is_encrypted=True)
    assert os.environ.get(SEED) or len(EVERYTHING - met.keys()) <= 2 * MOST_UNMET, EVERYTHING - met.keys()


@pytest.mark.full
def test_every_published_snapshot_of_an_encrypted_repository_is_fetchable_in_hundreds_of_runs(tmp_path: Path) -> None:
    met = run(chosen(range(1000, 1200)), tmp_path, is_encrypted=True)
    assert os.environ.get(SEED) or len(EVERYTHING - met.keys()) <= MOST_UNMET, EVERYTHING - met.keys()


@pytest.mark.full
def test_every_published_snapshot_is_fetchable_and_what_can_fail_does(tmp_path: Path) -> None:
    met = run(chosen(range(1000)), tmp_path)
    assert os.environ.get(SEED) or met.keys() >= EVERYTHING, EVERYTHING - met.keys()


@pytest.mark.long
def test_every_published_snapshot_is_fetchable_whatever_fails_in_ten_thousand_runs(tmp_path: Path) -> None:
    met = run(chosen(range(1_000_000, 1_010_000)), tmp_path)
    assert os.environ.get(SEED) or met.keys() >= EVERYTHING, EVERYTHING - met.keys()
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


def _not_refusing(*_: object) -> None:
    """What others have published is replaced."""


def _as_it_was_made(self: Conflicts, seen: Any, asked: PublicationRequest) -> list[TaskManifest]:
    """A rebase that ignores the newest snapshot and publishes the job's own task manifest."""
    return list(asked.task_manifests)


def _above_anything(mine: StoreSnapshot, base: StoreSnapshot) -> dict[int | None, list[StoredRun]]:
    """All runs of a job count as its tail."""
    return {database.segment: list(database.runs) for database in mine.databases}


def _at_the_first(runs: Sequence[StoredRun], inputs: Sequence[Run]) -> int:
    """What was merged is taken to stand below all others."""
    return 0


def _never_ahead(one: StoreSnapshot, other: StoreSnapshot) -> bool:
    """The newest snapshot is taken to have everything."""
    return False


def _of_their_own(task_manifest: TaskManifest, read_at_ms: int | None) -> TaskManifest:
    """The read positions of a manifest are lost when the task manifest is rewritten."""
    return task_manifest


def _only_what_was_there_first(self: Publication, seen: Any) -> Published | None:
    """Whether another try has published is looked for when a try begins, and not again."""
    return _OWN(self, seen) if seen is self._begun else None


def _taking_no_answer_for_yes(blobs: Blobs, name: str, content: bytes | Path, size: int, digest: str) -> None:
    with suppress(Retryable):
        put_verified(blobs, name, content, size, digest)


def _blind(pointers: SimulatedPointers, name: str, content: bytes, expected: str | None) -> str | None:
    """A swap whose condition the server ignores."""
    now = pointers._network.storage.pointers.get(name)
    return _SWAP(pointers, name, content, None if now is None else version_of(now))


def _by_size(blobs: Blobs, name: str, content: bytes | Path, size: int, digest: str) -> bool:
    """A blob that is as long as it should be is believed."""
    return blobs.head(name).size == size


def _believing(*_: object) -> set[object]:
    """Files of an earlier manifest are not checked."""
    return set()


_OWN, _SWAP = Publication._published_by_request, SimulatedPointers.swap


@pytest.mark.parametrize(
    ("mutated", "mutant"),
    three_of(
        [
            ("statecore.repository.publish.conflicts.Conflicts.refuse", _not_refusing),
            ("statecore.repository.publish.conflicts.Conflicts._refuse_older_stores", _not_refusing),
            ("statecore.repository.publish.conflicts.Conflicts.rebased", _as_it_was_made),
            ("statecore.repository.publish.rebase._rebased", taken_for_expired),
            ("statecore.repository.publish.rebase._tail", _above_anything),
            ("statecore.repository.publish.rebase._index_of", _at_the_first),
            ("statecore.repository.publish.rebase._is_ahead", _never_ahead),
            ("statecore.repository.manifest.TaskManifest.as_of", _of_their_own),
            ("statecore.repository.publish.publication.Publication._published_by_request", _only_what_was_there_first),
            ("statecore.repository.publish.publication.put_verified", _taking_no_answer_for_yes),
            ("statecore.repository.publish.upload.put_verified", _taking_no_answer_for_yes),
            ("tests.harness.simulated_store.SimulatedPointers.swap", _blind),
            ("statecore.repository.publish.upload.is_intact", _by_size),
            ("tests.unit.repository.snapshots.missing_files", _believing),
        ]
    ),
)
def test_the_simulation_finds_defects(
    mutated: str, mutant: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutated, mutant)
    with pytest.raises(Broken, match=r"^seed \d+: "):
        run(range(1000), tmp_path)
