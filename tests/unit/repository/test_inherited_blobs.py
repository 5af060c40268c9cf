"""Runs that a publication inherits are checked, and damage is reported."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from statecore.errors import Corrupted
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.head_repair import apply_repair, plan_repair
from tests.harness.raising import raises
from tests.harness.simulated_store import Network, Storage
from tests.unit.repository.snapshots import (
    BOTH,
    blobs_of,
    damaged,
    ends_of,
    fetched,
    publication,
    uploaded,
)


@pytest.mark.parametrize("kind", ["missing", "shorter"])
def test_an_inherited_task_that_cannot_be_fetched_is_named_and_the_others_are_published(
    app_repository: ApplicationRepository, first: None, storage: Storage, directory: Path, kind: str
) -> None:
    (entry,) = app_repository.head().snapshots
    task_manifests = app_repository.task_manifests(app_repository.manifest(entry).value.task_manifests)
    ((_, extent),) = task_manifests["0_1"].manifest.stores[0].extents
    damaged(storage, extent.blob, kind)
    done = publication(app_repository, "second").publish(
        uploaded(app_repository, directory, {"0_0": {"left": 100}}), whole=False
    )
    assert ends_of(app_repository) == {"0_0": {"left": 100, "right": 50}, "0_1": {"left": 50, "right": 50}}
    (warning,) = done.warnings
    assert re.findall(r"\b\d_\d\b", warning)[0] == "0_1"
    assert extent.blob in warning
    assert re.findall(r"statecore \w+", warning) == ["statecore backup", "statecore restore"]


def test_an_inherited_store_that_cannot_be_fetched_is_named_with_its_task(
    app_repository: ApplicationRepository, storage: Storage, directory: Path
) -> None:
    for name in ("left", "right"):
        publication(app_repository, name).publish(uploaded(app_repository, directory, {"0_0": {name: 50}}), whole=False)
    task_manifests = app_repository.task_manifests(
        app_repository.manifest(app_repository.head().snapshots[0]).value.task_manifests
    )
    ((_, extent),) = task_manifests["0_0"].manifest.stores[1].extents
    damaged(storage, extent.blob, "missing")
    done = publication(app_repository, "second").publish(
        uploaded(app_repository, directory, {"0_0": {"left": 100}}), whole=False
    )
    (warning,) = done.warnings
    assert "store right of task 0_0" in warning
    assert extent.blob in warning
    again = publication(app_repository, "third").publish(
        uploaded(app_repository, directory, {"0_0": {"right": 50}}), whole=False
    )
    assert again.warnings == ()


def test_a_store_whose_base_runs_cannot_be_fetched_is_named_with_its_task(
    app_repository: ApplicationRepository, storage: Storage, directory: Path
) -> None:
    publication(app_repository, "first").publish(
        uploaded(app_repository, directory, {"0_0": {"left": 50}}), whole=False
    )
    (entry,) = app_repository.head().snapshots
    below = app_repository.task_manifests(app_repository.manifest(entry).value.task_manifests)["0_0"].manifest
    ((_, extent),) = below.stores[0].extents
    damaged(storage, extent.blob, "missing")
    made = replace(below, stores=(replace(below.stores[0], base_snapshot=entry.snapshot),))
    (warning,) = publication(app_repository, "restore").publish([made], whole=False).warnings
    assert "store left of task 0_0" in warning
    assert extent.blob in warning
    assert "statecore restore --from none" in warning


def test_an_inherited_task_manifest_that_cannot_be_read_is_named(
    app_repository: ApplicationRepository, storage: Storage, directory: Path
) -> None:
    for task in ("0_0", "0_1", "0_2"):
        publication(app_repository, task).publish(
            uploaded(app_repository, directory, {task: {"left": 50, "right": 50}}), whole=False
        )
    references = {
        task_manifest.task: task_manifest
        for task_manifest in app_repository.manifest(app_repository.head().snapshots[0]).value.task_manifests
    }
    damaged(storage, references["0_1"].extent.blob, "shorter")
    damaged(storage, references["0_2"].extent.blob, "missing")
    done = publication(app_repository, "again").publish(
        uploaded(app_repository, directory, {"0_0": {"left": 50}}), whole=False
    )
    (warning,) = done.warnings
    assert "Tasks 0_1, 0_2 were inherited" in warning


def test_a_publication_that_inherits_nothing_checks_nothing(
    app_repository: ApplicationRepository, first: None, storage: Storage, network: Network, directory: Path
) -> None:
    task_manifests = uploaded(app_repository, directory, {task: {"left": 100, "right": 100} for task in BOTH})
    for name in blobs_of(storage, "packs")[:1]:
        storage.blobs.pop(name)
    asked: list[str] = []
    network.fault = lambda request, _: asked.append(request) or ""  # type: ignore[method-assign,func-returns-value]
    assert publication(app_repository, "second").publish(task_manifests, whole=True).warnings == ()
    assert sorted(asked) == ["get", "get", "get", "put", "put", "read", "swap"]


def test_inherited_runs_cost_one_check_for_each_blob(
    app_repository: ApplicationRepository, first: None, network: Network, directory: Path
) -> None:
    task_manifests = uploaded(app_repository, directory, {"0_0": {"left": 100, "right": 100}})
    asked: list[str] = []
    network.fault = lambda request, _: asked.append(request) or ""  # type: ignore[method-assign,func-returns-value]
    assert publication(app_repository, "second").publish(task_manifests, whole=False).warnings == ()
    assert sorted(asked) == ["get", "get", "get", "get", "head", "put", "put", "read", "swap"]


@pytest.mark.parametrize("request_", ["head", "get"])
def test_a_failed_check_of_inherited_runs_is_a_warning(
    app_repository: ApplicationRepository, first: None, network: Network, directory: Path, request_: str
) -> None:
    task_manifests = uploaded(app_repository, directory, {"0_0": {"left": 100}})
    swapped: list[str] = []

    def fault(request: str, _: tuple[str, ...]) -> str:
        swapped.extend([request] * (request == "swap"))
        return "refused" if swapped and request == request_ else ""

    network.fault = fault  # type: ignore[method-assign]
    (warning,) = publication(app_repository, "second").publish(task_manifests, whole=False).warnings
    assert "could not be checked" in warning
    del network.fault  # type: ignore[method-assign]
    assert ends_of(app_repository)["0_0"] == {"left": 100, "right": 50}


@pytest.mark.parametrize("which", ["manifests", "task-manifests"])
def test_an_unreadable_newest_snapshot_is_an_error_with_the_repair_command(
    app_repository: ApplicationRepository, first: None, storage: Storage, directory: Path, which: str
) -> None:
    publication(app_repository, "second").publish(
        uploaded(app_repository, directory, {"0_0": {"left": 100}}), whole=False
    )
    newest = app_repository.head().snapshots[0]
    reference = app_repository.manifest(newest).value.reference("0_0")
    assert reference is not None
    damaged(
        storage,
        app_repository.names.manifest(newest.snapshot) if which == "manifests" else reference.extent.blob,
        "missing",
    )
    task_manifests = uploaded(app_repository, directory, {"0_0": {"left": 150, "right": 50}})
    with raises(Corrupted, "blob-missing") as caught:
        publication(app_repository, "third").publish(task_manifests, whole=False)
    assert f"{app_repository.repair_command} --apply" in caught.value.action
    assert caught.value.context["goes_on"] is True
    apply_repair(app_repository, plan_repair(app_repository))
    publication(app_repository, "third").publish(task_manifests, whole=False)
    assert ends_of(app_repository)["0_0"] == {"left": 150, "right": 50}
    assert len(fetched(app_repository)) == 2


@pytest.mark.parametrize("whole", [False, True])
def test_what_is_damaged_is_whole_once_the_same_is_published_again(
    app_repository: ApplicationRepository, first: None, storage: Storage, directory: Path, whole: bool
) -> None:
    for number, name in enumerate([*blobs_of(storage, "packs"), *blobs_of(storage, "files")]):
        content = storage.blobs[name][0]
        storage.blobs[name] = (bytes([content[0] ^ 1]) + content[1:], 0.0)
        newest = app_repository.task_manifests(
            app_repository.manifest(app_repository.head().snapshots[0]).value.task_manifests
        )
        task_manifests = uploaded(app_repository, directory, BOTH, before=[read.manifest for read in newest.values()])
        publication(app_repository, f"again-{number}").publish(task_manifests, whole=whole)
    assert len(fetched(app_repository)) == number + 2
