"""A diagnosis as a job: a request in, what was found out, and nothing changed."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from statecore.doctor.topic_inspection import inspect_topics
from statecore.errors import Invalid, NotFound, Retryable
from statecore.jobs.diagnose.request import DiagnoseRequest
from statecore.jobs.diagnose.run import run_diagnose
from statecore.jobs.repair.request import RepairRequest
from statecore.spec.model import ProcessingGuarantee
from statecore.statedir.file_trees import fingerprint
from tests.harness.raising import raises
from tests.unit.doctor.stored import offsets, write_database


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    """Two applications, of which the store of the second was not closed."""
    for application, status in (("billing", 0), ("shop", 1)):
        said = offsets(f"{application}-orders-changelog", 0, 41, status)
        write_database(tmp_path / application / "0_0" / "rocksdb" / "orders", {"default": [], "offsets": said})
    return tmp_path


def request(state_dir: Path, **fields: object) -> DiagnoseRequest:
    return DiagnoseRequest.from_json({"state_dir": str(state_dir), **fields})


def test_every_application_is_examined_or_the_one_that_is_named_and_nothing_is_changed(state_dir: Path) -> None:
    before = [fingerprint(path) for path in sorted(state_dir.iterdir())]
    found = run_diagnose(request(state_dir))
    assert [one.application_id for one in found.applications] == ["billing", "shop"]
    assert (found.exit_code, found.unasked) == (21, None)
    assert found.to_json()["exit_code"] == 21
    assert found.to_json()["applications"][0]["findings"] == []
    assert run_diagnose(request(state_dir, application_id="billing")).exit_code == 0
    assert [fingerprint(path) for path in sorted(state_dir.iterdir())] == before


def test_the_request_has_guarantee_release_and_cleanup_age(state_dir: Path) -> None:
    careless = request(state_dir, application_id="shop", processing_guarantee="at_least_once")
    assert careless.processing_guarantee is ProcessingGuarantee.AT_LEAST_ONCE
    assert run_diagnose(careless).exit_code == 20
    (found,) = run_diagnose(request(state_dir, application_id="billing", release="4.2")).applications
    assert [one.code for one in found.findings] == ["release-cannot-open"]
    assert request(state_dir, cleanup_max_age_ms="7d").cleanup_max_age_ms == 7 * 86_400_000


def test_brokers_that_do_not_answer_hide_nothing_and_are_no_good_news(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = inspect_topics.__kwdefaults__ or {}
    monkeypatch.setattr(inspect_topics, "__kwdefaults__", {**usual, "timeout": math.inf})  # the request's counts
    fields = {"bootstrap_servers": "127.0.0.1:1", "processing_guarantee": "exactly_once_v2", "timeout": 1.0}
    well = run_diagnose(request(state_dir, application_id="billing", **fields))
    assert isinstance(well.unasked, Retryable)
    assert well.exit_code == Retryable.exit_code
    assert "[broker-unreachable]" in well.applications[0].undecided[0]
    assert run_diagnose(request(state_dir, application_id="shop", **fields)).exit_code == 21
    assert run_diagnose(request(state_dir, application_id="billing", offline=True, **fields)).exit_code == 0


def test_what_is_missing_is_reported(state_dir: Path) -> None:
    with raises(NotFound, "application-not-found", application_id="orders"):
        run_diagnose(request(state_dir, application_id="orders"))
    with raises(NotFound, "state-dir-not-found"):
        run_diagnose(request(state_dir / "shop" / "0_0" / "rocksdb"))


def test_a_repair_is_asked_for_as_a_diagnosis_is_and_for_the_newest_release_alone() -> None:
    said = {"state_dir": "/s", "application_id": "shop", "tasks": ["0_1"], "bootstrap_servers": "k:9", "timeout": 5.0}
    repair = RepairRequest.from_json({**said, "apply": True, "approved": "p"})
    assert {name: repair.to_json()[name] for name in said} == said
    words = "--state-dir /s --application-id shop --task 0_1 --bootstrap-servers k:9 --timeout 5"
    assert " ".join(DiagnoseRequest.from_json(said).to_words()) == words
    with raises(Invalid, "field-missing", fields=["application_id"]):
        RepairRequest.from_json({"state_dir": "/s"})
    with raises(Invalid, "release-invalid"):
        RepairRequest.from_json({**said, "release": "4.3"})
