"""Runs that a publication inherits are checked, and damage is reported."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from statecore.errors import Corrupted
from statecore.repository.maintenance.head_repair import apply_repair, plan_repair
from tests.harness.raising import raises
from tests.unit.repository.snapshots import BOTH, Snapshots, blobs_of, damaged


@pytest.mark.parametrize("kind", ["missing", "shorter"])
def test_an_inherited_task_that_cannot_be_fetched_is_named_and_the_others_are_published(
    orders: Snapshots, first: None, kind: str
) -> None:
    (entry,) = orders.app_repository.head().snapshots
    task_manifests = orders.app_repository.task_manifests(orders.app_repository.manifest(entry).value.task_manifests)
    ((_, extent),) = task_manifests["0_1"].manifest.stores[0].extents
    damaged(orders.storage, extent.blob, kind)
    done = orders.publish("second", {"0_0": {"left": 100}})
    assert orders.ends == {"0_0": {"left": 100, "right": 50}, "0_1": {"left": 50, "right": 50}}
    (warning,) = done.warnings
    assert re.findall(r"\b\d_\d\b", warning)[0] == "0_1"
    assert extent.blob in warning
    assert re.findall(r"statecore \w+", warning) == ["statecore backup", "statecore restore"]


def test_an_inherited_store_that_cannot_be_fetched_is_named_with_its_task(orders: Snapshots) -> None:
    for name in ("left", "right"):
        orders.publish(name, {"0_0": {name: 50}})
    task_manifests = orders.app_repository.task_manifests(orders.newest.task_manifests)
    ((_, extent),) = task_manifests["0_0"].manifest.stores[1].extents
    damaged(orders.storage, extent.blob, "missing")
    done = orders.publish("second", {"0_0": {"left": 100}})
    (warning,) = done.warnings
    assert "store right of task 0_0" in warning
    assert extent.blob in warning
    again = orders.publish("third", {"0_0": {"right": 50}})
    assert again.warnings == ()


def test_a_store_whose_base_runs_cannot_be_fetched_is_named_with_its_task(orders: Snapshots) -> None:
    orders.publish("first", {"0_0": {"left": 50}})
    (entry,) = orders.app_repository.head().snapshots
    below = orders.app_repository.task_manifests(orders.app_repository.manifest(entry).value.task_manifests)[
        "0_0"
    ].manifest
    ((_, extent),) = below.stores[0].extents
    damaged(orders.storage, extent.blob, "missing")
    made = replace(below, stores=(replace(below.stores[0], base_snapshot=entry.snapshot),))
    (warning,) = orders.begin("restore").publish([made], drops_other_tasks=False).warnings
    assert "store left of task 0_0" in warning
    assert extent.blob in warning
    assert "statecore restore --from none" in warning


def test_an_inherited_task_manifest_that_cannot_be_read_is_named(orders: Snapshots) -> None:
    for task in ("0_0", "0_1", "0_2"):
        orders.publish(task, {task: {"left": 50, "right": 50}})
    references = {task_manifest.task: task_manifest for task_manifest in orders.newest.task_manifests}
    damaged(orders.storage, references["0_1"].extent.blob, "shorter")
    damaged(orders.storage, references["0_2"].extent.blob, "missing")
    done = orders.publish("again", {"0_0": {"left": 50}})
    (warning,) = done.warnings
    assert "Tasks 0_1, 0_2 were inherited" in warning


def test_a_publication_that_inherits_nothing_checks_nothing(orders: Snapshots, first: None) -> None:
    task_manifests = orders.upload({task: {"left": 100, "right": 100} for task in BOTH})
    for name in blobs_of(orders.storage, "packs")[:1]:
        orders.storage.blobs.pop(name)
    asked: list[str] = []
    orders.network.fault = lambda request, _: asked.append(request) or ""  # type: ignore[method-assign,func-returns-value]
    assert orders.begin("second").publish(task_manifests, drops_other_tasks=True).warnings == ()
    assert sorted(asked) == ["get", "get", "get", "put", "put", "read", "swap"]


def test_inherited_runs_cost_one_check_for_each_blob(orders: Snapshots, first: None) -> None:
    task_manifests = orders.upload({"0_0": {"left": 100, "right": 100}})
    asked: list[str] = []
    orders.network.fault = lambda request, _: asked.append(request) or ""  # type: ignore[method-assign,func-returns-value]
    assert orders.begin("second").publish(task_manifests, drops_other_tasks=False).warnings == ()
    assert sorted(asked) == ["get", "get", "get", "get", "head", "put", "put", "read", "swap"]


@pytest.mark.parametrize("request_", ["head", "get"])
def test_a_failed_check_of_inherited_runs_is_a_warning(orders: Snapshots, first: None, request_: str) -> None:
    task_manifests = orders.upload({"0_0": {"left": 100}})
    swapped: list[str] = []

    def fault(request: str, _: tuple[str, ...]) -> str:
        swapped.extend([request] * (request == "swap"))
        return "refused" if swapped and request == request_ else ""

    orders.network.fault = fault  # type: ignore[method-assign]
    (warning,) = orders.begin("second").publish(task_manifests, drops_other_tasks=False).warnings
    assert "could not be checked" in warning
    del orders.network.fault  # type: ignore[method-assign]
    assert orders.ends["0_0"] == {"left": 100, "right": 50}


@pytest.mark.parametrize("which", ["manifests", "task-manifests"])
def test_an_unreadable_newest_snapshot_is_an_error_with_the_repair_command(
    orders: Snapshots, first: None, which: str
) -> None:
    orders.publish("second", {"0_0": {"left": 100}})
    newest = orders.app_repository.head().snapshots[0]
    reference = orders.app_repository.manifest(newest).value.reference("0_0")
    assert reference is not None
    damaged(
        orders.storage,
        orders.app_repository.names.manifest(newest.snapshot) if which == "manifests" else reference.extent.blob,
        "missing",
    )
    task_manifests = orders.upload({"0_0": {"left": 150, "right": 50}})
    with raises(Corrupted, "blob-missing") as caught:
        orders.begin("third").publish(task_manifests, drops_other_tasks=False)
    assert f"{orders.app_repository.repair_command} --apply" in caught.value.action
    assert caught.value.context["goes_on"] is True
    apply_repair(orders.app_repository, plan_repair(orders.app_repository))
    orders.begin("third").publish(task_manifests, drops_other_tasks=False)
    assert orders.ends["0_0"] == {"left": 150, "right": 50}
    assert len(orders.fetched()) == 2


@pytest.mark.parametrize("whole", [False, True])
def test_what_is_damaged_is_whole_once_the_same_is_published_again(orders: Snapshots, first: None, whole: bool) -> None:
    for number, name in enumerate([*blobs_of(orders.storage, "packs"), *blobs_of(orders.storage, "files")]):
        content = orders.storage.blobs[name][0]
        orders.storage.blobs[name] = (bytes([content[0] ^ 1]) + content[1:], 0.0)
        newest = orders.app_repository.task_manifests(orders.newest.task_manifests)
        task_manifests = orders.upload(BOTH, before=[read.manifest for read in newest.values()])
        orders.begin(f"again-{number}").publish(task_manifests, drops_other_tasks=whole)
    assert len(orders.fetched()) == number + 2
