"""What snapshots hold that no newer one does: each file is counted once, and nothing is guessed."""

from __future__ import annotations

import string
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.documents import Document
from statecore.errors import Corrupted
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.head import SnapshotEntry
from statecore.repository.listing import held_bytes, list_snapshots
from statecore.repository.maintenance.head_repair import apply_repair, plan_repair
from statecore.repository.maintenance.pins import pin
from statecore.repository.manifest import Manifest
from statecore.repository.snapshot_verification import TaskManifestKey, VerifiedSnapshot, key_of
from statecore.spec.model import ProcessingGuarantee
from tests.harness.simulated_store import Storage
from tests.unit.repository.snapshots import publication, reference_of, uploaded

SIZES = {letter: 2**number for number, letter in enumerate(string.ascii_lowercase[:8])}
"""Files, whose bytes say which they are."""

SNAPSHOTS = st.lists(st.lists(st.frozensets(st.sampled_from(sorted(SIZES))), min_size=1, max_size=3), max_size=6)
"""The files of each task of each snapshot, newest first."""


def examined(
    number: int, tasks: list[frozenset[str]], files: dict[TaskManifestKey, dict[str, int]]
) -> VerifiedSnapshot:
    references = tuple(
        replace(reference_of(f"0_{task}", "".join(sorted(named))), read_at_ms=number)
        for task, named in enumerate(tasks)
    )
    files.update({key_of(one): {name: SIZES[name] for name in tasks[at]} for at, one in enumerate(references)})
    entry = SnapshotEntry(f"s{number}", "", "", "", None, "", "restore", 1, 0, 0)
    guarantee = ProcessingGuarantee.EXACTLY_ONCE_V2
    manifest = Manifest(f"s{number}", "", "", 0, 0, None, "", "", "", "", guarantee, {}, "", references)
    return VerifiedSnapshot(entry, Document(manifest, {}), {})


@settings(deadline=None, max_examples=100)
@given(SNAPSHOTS)
def test_each_file_is_counted_once_at_the_newest_that_names_it(snapshots: list[list[frozenset[str]]]) -> None:
    files: dict[TaskManifestKey, dict[str, int]] = {}
    found = held_bytes([examined(number, tasks, files) for number, tasks in enumerate(snapshots)], files)
    named = [frozenset[str]().union(*tasks) for tasks in snapshots]
    for number, one in enumerate(found):
        only = named[number].difference(*named[:number]) if number else ()
        assert one.held_bytes == sum(SIZES[name] for name in only)
    assert sum(one.held_bytes or 0 for one in found) == sum(
        SIZES[name] for name in frozenset[str]().union(*named).difference(*named[:1])
    )


@pytest.mark.parametrize("lost", [True, False], ids=["its manifest", "one of its task manifests"])
def test_what_is_older_than_something_damaged_is_not_guessed(lost: bool) -> None:
    files: dict[TaskManifestKey, dict[str, int]] = {}
    found = [examined(number, [frozenset(name)], files) for number, name in enumerate("abcd")]
    found[2] = found[2]._replace(
        manifest=None if lost else found[2].manifest,
        damage={"": Corrupted("It is damaged.", code="test-error", action="Look.")},
    )
    assert [one.held_bytes for one in held_bytes(found, files)] == [0, SIZES["b"], None, None]


def test_a_pinned_snapshot_holds_what_a_rebuild_has_replaced(
    app_repository: ApplicationRepository, storage: Storage, tmp_path: Path
) -> None:
    for number, every in enumerate((50, 50, 200)):
        task_manifests = uploaded(app_repository, tmp_path, {"0_0": {"left": 100 + 50 * number}}, every=every)
        publication(app_repository, f"r{number}", name=lambda number=number: f"{number:08x}").publish(
            task_manifests, drops_other_tasks=True
        )
    oldest = app_repository.head().snapshots[-1]
    pin(app_repository, oldest.snapshot)
    found = list_snapshots(app_repository, app_repository.head(), space_usage=True)
    assert [one.held_bytes for one in found] == [0, 3 * 40, 0], "of 40 bytes each, all in the second as well"
    assert [one.held_bytes for one in list_snapshots(app_repository, app_repository.head())] == [None, None, None]
    del storage.blobs[app_repository.names.manifest(found[1].entry.snapshot)]
    assert [one.held_bytes for one in list_snapshots(app_repository, app_repository.head(), space_usage=True)] == [
        0,
        None,
        None,
    ]
    apply_repair(app_repository, plan_repair(app_repository))
    found = list_snapshots(app_repository, app_repository.head(), space_usage=True)
    assert [(one.held_bytes, one.entry.pinned) for one in found] == [(0, False), (2 * 40, True)]
