"""A request for a plan only is refused for the same reasons in the directory as its job."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import Invalid, Reason
from statecore.formats.kinds import StoreKind
from statecore.jobs.bases.base import DIRECTORY, Base, Refused
from statecore.jobs.planning.frozen_plan import FrozenPlan
from statecore.jobs.planning.plan import NotedPlan, PartitionPlan, ReadPlan
from statecore.jobs.planning.selection import unadvanceable_stores
from statecore.jobs.restore.base_candidates import RestoreCandidates
from statecore.jobs.restore.planned_restore import PlannedRestore, RefusedPlan, refuse_preview
from statecore.jobs.restore.request import RestoreRequest
from statecore.spec.model import ProcessingGuarantee
from statecore.spec.reader import parse_spec
from statecore.statedir.state_directory import StateDirectory
from tests.harness.raising import raises
from tests.unit.statedir.support import KIND, changelog, make_database

KEY = ("0_0", "store")
PLAN = ReadPlan(
    "app",
    ProcessingGuarantee.AT_LEAST_ONCE,
    (PartitionPlan("store", StoreKind.KEY_VALUE, "0_0", "topic", "id", 0, 0, 20, 20, ((0, 20),)),),
)


@pytest.fixture
def directory(tmp_path: Path) -> StateDirectory:
    """A directory that has the store; no process holds its lock."""
    directory = StateDirectory(tmp_path, "app")
    make_database(directory.store_path("0_0", "store", KIND), changelog("0_0", "store"), 5)
    return directory


def asked(**fields: Any) -> RestoreRequest:
    return RestoreRequest(spec_path="stores.yaml", state_dir="/s", plan_only=True, **fields)


def planned(
    *refused: Refused,
    bases: dict[Any, Base] | None = None,
    directory: StateDirectory | None = None,
    kind: str = "key-value",
) -> PlannedRestore:
    spec = parse_spec(
        {
            "application_id": "app",
            "bootstrap_servers": "localhost:9",
            "processing_guarantee": "at_least_once",
            "subtopologies": {"0": {"stores": {"store": {"kind": kind}}}},
        }
    )
    candidates = RestoreCandidates(asked(), spec, directory, None, {})
    frozen = FrozenPlan(PLAN, (), 0.0, "r")
    return PlannedRestore(frozen=frozen, bases=bases or {}, refused=refused, topics={}, notes=(), candidates=candidates)


def test_an_image_advances_the_store_that_is_its_base() -> None:
    (new,), (advanced,) = planned().images, planned(bases={KEY: Base(DIRECTORY, {}, frozenset())}).images
    assert (new.task, new.store, new.kind, str(new.changelog)) == (*KEY, StoreKind.KEY_VALUE, "topic-0")
    assert (new.path, new.offsets) == (None, None)
    assert (new.advances, advanced.advances) == (False, True)


def test_stores_that_cannot_be_advanced_refuse_a_plan_as_they_refuse_the_job(directory: StateDirectory) -> None:
    why = Refused(*KEY, DIRECTORY, Reason("topic-0 ends at 3 now", "log-ends-before-base", log_end=3, end=6))
    problem = {"code": "log-ends-before-base", "task": "0_0", "store": "store", "log_end": 3, "end": 6}
    with raises(RefusedPlan, "advance-refused", problems=[{**problem, "what": str(why), "base": DIRECTORY}]) as caught:
        refuse_preview(planned(why), asked(), directory)
    assert caught.value.exit_code == Invalid.exit_code == 13
    assert caught.value.plan == PLAN
    document = caught.value.to_json()
    assert document["error"] == "Invalid"
    assert document["plan"]["partitions"][0]["store"] == "store"


def test_stores_that_are_there_refuse_the_plan_of_a_restore_that_does_not_replace_them(
    directory: StateDirectory,
) -> None:
    with raises(RefusedPlan, "placement-refused"):
        refuse_preview(planned(), asked(start_from="none"), directory)
    assert refuse_preview(planned(), asked(start_from="none", replace=True), directory) == ()
    assert refuse_preview(planned(bases={KEY: Base(DIRECTORY, {}, frozenset())}), asked(), directory) == ()
    assert refuse_preview(planned(), asked(), None) == ()


def test_what_the_application_would_not_open_refuses_the_plan_that_replaces_it(directory: StateDirectory) -> None:
    for file in directory.store_path("0_0", "store", KIND).glob("*.sst"):
        file.unlink()
    with pytest.raises(RefusedPlan, match="db_paths"):
        refuse_preview(planned(), asked(start_from="none", replace=True), directory)
    here = planned(Refused(*KEY, DIRECTORY, "it cannot be read"), directory=directory)
    with pytest.raises(RefusedPlan, match="db_paths") as caught:
        refuse_preview(here, asked(), directory)
    assert "--replace" not in caught.value.action


def test_a_store_of_another_kind_is_not_to_be_replaced_but_declared(directory: StateDirectory) -> None:
    here = planned(Refused(*KEY, DIRECTORY, "another"), directory=directory, kind="timestamped-key-value")
    with pytest.raises(RefusedPlan) as caught:
        refuse_preview(here, asked(), directory)
    assert caught.value.code == "kind-mismatch"


def test_a_plan_for_a_locked_directory_notes_it(directory: StateDirectory) -> None:
    with directory.lock():
        use, note = refuse_preview(planned(), asked(start_from="none"), directory)
        assert refuse_preview(planned(), asked(replace=True), directory) == (use,)
    assert f"process {os.getpid()}" in use
    assert "[state-directory-in-use]" in use
    assert "0_0 contains the store" in note


def test_a_directory_that_the_job_would_refuse_refuses_the_plan_and_stays_as_it_is(tmp_path: Path) -> None:
    inner = tmp_path / "app"
    (inner / "0_0").mkdir(parents=True)
    (tmp_path / "file").touch()
    refused = {
        inner: "application-directory-given",
        tmp_path / "file": "state-directory-invalid",
        Path("/proc/x"): "state-directory-invalid",
    }
    for state_dir, code in refused.items():
        directory = StateDirectory(state_dir, "app")
        with raises(RefusedPlan, code) as caught:
            refuse_preview(planned(), asked(), directory)
        assert caught.value.plan == PLAN
        with raises(Invalid, code):
            directory.lock()
    assert [path.name for path in inner.iterdir()] == ["0_0"]


def test_the_notes_of_a_plan_are_in_its_document_and_decide_nothing() -> None:
    noted = NotedPlan.of_plan(PLAN, ("one", "two"))
    assert noted.to_json() == {**PLAN.to_json(), "notes": ["one", "two"]}
    assert noted.plan_id == PLAN.plan_id


def test_versioned_stores_stay_as_they_are_unless_they_were_asked_for() -> None:
    spec = parse_spec(
        {
            "application_id": "app",
            "bootstrap_servers": "localhost:9",
            "processing_guarantee": "at_least_once",
            "subtopologies": {
                "0": {"stores": {"a": {"kind": "key-value"}, "v": {"kind": "versioned-key-value", "retention": "1h"}}}
            },
        }
    )
    plain, versioned = spec.stores
    assert unadvanceable_stores([plain, versioned], ()) == ("v",)
    assert unadvanceable_stores([plain], ("a",)) == unadvanceable_stores([plain], ()) == ()
    for stores, names in (([plain, versioned], ("a", "v")), ([versioned], ())):
        with raises(Invalid, "versioned-store-not-advanced", stores=["v"]):
            unadvanceable_stores(stores, names)
