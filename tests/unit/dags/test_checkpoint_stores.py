from __future__ import annotations

import json
import logging
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.exceptions import ParamValidationError

from statecore.airflow import due_applications as deciding
from statecore.airflow.due_applications import due_requests
from statecore.airflow.settings import CHECKPOINT_PRIORITY, MAPPED_AT_ONCE, Settings
from statecore.airflow.ui import failing_applications
from statecore.airflow.ui.freshness import Freshness, read_checks, record_checks
from statecore.errors import Invalid, NotFound, Reason, Retryable, StatecoreError
from statecore.jobs.checkpoint.last_checkpoint import NO_SNAPSHOT
from statecore.jobs.checkpoint.replaced_changelogs import PIN_NOTE, pin_last_before
from statecore.jobs.checkpoint.schedule import DueVerdict
from statecore.jobs.history.report_head import ReportOutcome
from statecore.jobs.history.report_index import ReportIndex
from statecore.jobs.in_progress_marker import LOST
from statecore.metrics import CHECKPOINT_CHECKED, CHECKPOINT_INTERVAL, CHECKPOINT_SUCCESS
from statecore.objectstore.base import DEFAULT_RETRIES, RetryPolicy
from statecore.repository.head import SnapshotEntry
from statecore.repository.maintenance.verification_record import VerifiedLevel, VerifiedPart, record_verified
from statecore.repository.repository import create_repository
from tests.harness.case_selection import one_of
from tests.harness.collector import Collector
from tests.harness.raising import raises
from tests.unit.airflow.home import ROOT
from tests.unit.airflow.stub import StubSpark, spec
from tests.unit.airflow.test_checkpoint_operator import local_calls
from tests.unit.dags.loading import AIRFLOWS_OWN_WARNINGS, assert_explained, bag_of, load_dag
from tests.unit.dags.test_restore_stores import events, states
from tests.unit.jobs.backup.snapshots import World

pytestmark = AIRFLOWS_OWN_WARNINGS
load = partial(load_dag, "checkpoint_stores")


@pytest.fixture
def repository(tmp_path: Path) -> str:
    url = (tmp_path / "states").as_uri()
    create_repository(url)
    return url


@pytest.fixture
def due(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every application that can be looked at is due, and no broker is asked."""
    verdict = DueVerdict(True, Reason("there is no snapshot", "no-snapshot"), last_snapshot=NO_SNAPSHOT)
    monkeypatch.setattr(deciding, "check_due", lambda *_, **__: verdict)


def conf(repository: str, *applications: Any, **fields: Any) -> dict[str, Any]:
    named = [one if isinstance(one, str) else json.dumps(one) for one in applications]
    return {"applications": named, "repository": repository, **fields}


def decide(given: dict[str, Any], run: str = "r", **states: str | None) -> list[dict[str, Any]]:
    """What the task of that name does, without a run; ``states`` are those of the first checkpoint of other runs."""
    told = {name: {"checkpoint_0": state} for name, state in states.items()}
    ids = {"dag_id": "checkpoint_stores", "run_id": run, "task_id": "decide", "map_index": -1}
    ti = SimpleNamespace(**ids, get_task_states=lambda **_: told)
    return due_requests(load().params.dump() | given, logging.getLogger("decide"), ti)


def requests(spark: StubSpark) -> list[dict[str, Any]]:
    """What the processes were asked for that were started."""
    return [json.loads(call["argv"][call["argv"].index("--request") + 1]) for call in local_calls(spark)]


def asked(spark: StubSpark) -> list[str]:
    """The applications that a process was started for."""
    return sorted(request["spec"]["application_id"] for request in requests(spark))


def test_the_dag_explains_itself_and_runs_by_itself_only_where_the_site_says_so() -> None:
    dag = load()
    assert "keeps running" in (dag.doc_md or "")
    assert dag.tags == {"statecore", "kafka-streams", "checkpoint"}
    assert (dag.catchup, dag.max_active_runs, dag.schedule) == (False, 16, None)
    assert_explained(dag, ("applications", "repository", "force"))
    assert {"force", "when_refused", "versioned", "memory_budget", "spark_conf"} <= set(dag.params)
    assert {"stores", "partitions", "state_dir"}.isdisjoint(dag.params)


def test_the_site_sets_the_schedule_and_catchup_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.serialization.serialized_objects import DagSerialization

    monkeypatch.setenv("STATECORE_CHECKPOINT_TICK", "1m")
    monkeypatch.setenv("STATECORE_SPECS", "/srv/a.yaml")
    monkeypatch.setenv("STATECORE_REPOSITORY", "s3://states")
    dag = load()
    assert dag.schedule == timedelta(minutes=1)
    assert dag.params.validate()["repository"] == "s3://states"
    first = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag)).next_dagrun_info(
        last_automated_run_info=None
    )
    assert first is not None
    assert abs((first.run_after - datetime.now(UTC)).total_seconds()) < 120


def test_a_tick_without_a_repository_is_an_import_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATECORE_CHECKPOINT_TICK", "1m")
    monkeypatch.setenv("STATECORE_SPECS", "/srv/a.yaml")
    (said,) = bag_of("checkpoint_stores").import_errors.values()
    assert "Error code: setting-missing" in said
    assert "STATECORE_REPOSITORY" in said


def test_without_a_default_of_the_site_a_run_has_to_name_the_repository() -> None:
    params = load().params
    params.update({"applications": ["/a.yaml"]})
    with pytest.raises(ParamValidationError, match="repository"):
        params.validate()


@pytest.mark.usefixtures("due")
def test_each_application_that_is_due_gets_a_task_and_an_event(spark: StubSpark, repository: str) -> None:
    run = load().test(run_conf=conf(repository, spec("orders"), spec("billing", ("open",))))
    assert str(run.state) == "success"
    assert asked(spark) == ["billing", "orders"]
    assert {request["decided_upon"] for request in requests(spark)} == {"none"}
    assert spark.calls == []
    announced = {event["uri"] for event in events() if event["run"] == run.run_id}
    assert announced == {"statecore://orders/", "statecore://billing/"}


@pytest.mark.usefixtures("due")
@pytest.mark.parametrize(
    ("state", "mapped"), [("queued", 0), ("scheduled", 0), (None, 1), ("running", 0), ("failed", 1), ("success", 1)]
)
def test_an_application_has_one_checkpoint_that_waits_or_runs(
    spark: StubSpark, repository: str, state: str | None, mapped: int
) -> None:
    named = conf(repository, spec("orders"))
    assert len(decide(named, "first")) == 1
    assert len(decide(named, "second", first=state)) == mapped
    assert len(decide({**named, "force": True}, "third", first=state)) == 1
    assert len(decide(named, "fourth", **{("second" if mapped else "first"): "success"})) == 1


@pytest.mark.usefixtures("due")
@pytest.mark.parametrize(("state", "mapped"), [("running", 1), ("queued", 0)])
def test_a_checkpoint_that_runs_for_long_counts_no_longer_than_its_marker_does(
    spark: StubSpark, repository: str, monkeypatch: pytest.MonkeyPatch, state: str, mapped: int
) -> None:
    """Its worker may have died, and Airflow learns of that late."""
    named, now = conf(repository, spec("orders")), time.time()
    assert len(decide(named, "first")) == 1
    monkeypatch.setattr(deciding.time, "time", lambda: now + LOST - 5)
    assert decide(named, "second", first=state) == []
    monkeypatch.setattr(deciding.time, "time", lambda: now + LOST + 5)
    assert len(decide(named, "third", first=state)) == mapped


def test_a_checkpoint_that_ends_while_the_heads_are_read_is_not_made_again(
    spark: StubSpark, repository: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its head was read before it published, and Airflow would say afterwards that it has ended."""
    named, state = conf(repository, spec("orders")), {"checkpoint_0": "success"}

    def check(*_: Any, **__: Any) -> DueVerdict:
        state["checkpoint_0"] = "success"
        return DueVerdict(True, Reason("1 new", "offsets-new"), last_snapshot="s1")

    monkeypatch.setattr(deciding, "check_due", check)
    assert len(decide(named, "first")) == 1
    state["checkpoint_0"] = "running"
    ids = {"dag_id": "checkpoint_stores", "run_id": "second", "task_id": "decide", "map_index": -1}
    ti = SimpleNamespace(**ids, get_task_states=lambda **_: {"first": dict(state)})
    assert due_requests(load().params.dump() | named, logging.getLogger("decide"), ti) == []


def test_checkpoints_come_before_other_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    decide, checkpoint = (load().task_dict[name] for name in ("decide", "checkpoint"))
    assert decide.priority_weight > checkpoint.partial_kwargs["priority_weight"] == CHECKPOINT_PRIORITY
    mapped = {"verify_snapshots": "verify", "prune_snapshots": "prune", "snapshot_state": "publish"}
    for dag_id, task_id in mapped.items():
        assert load_dag(dag_id).task_dict[task_id].partial_kwargs["max_active_tis_per_dag"] == MAPPED_AT_ONCE
    monkeypatch.setenv("STATECORE_JOBS_POOL", "long_jobs")
    bag = DagBag(str(ROOT / "dags"))
    pools = {
        (name, task.task_id): task.partial_kwargs.get("pool", task.pool) if task.is_mapped else task.pool
        for name, dag in bag.dags.items()
        for task in dag.tasks
    }
    long = {place for place, pool in pools.items() if pool == "long_jobs"}
    assert {name for name, _ in long} == set(bag.dags) - {"checkpoint_stores"}
    assert {("restore_stores", "restore"), ("snapshot_state", "publish"), ("migrate_checkpoints", "plan")} <= long
    assert load().task_dict["checkpoint"].partial_kwargs.get("pool", "default_pool") == "default_pool"


def test_where_nothing_is_due_the_task_is_skipped_and_the_run_is_green(spark: StubSpark, tmp_path: Path) -> None:
    world = World(tmp_path / "app")
    world.write({b"a": b"1"}, 9)
    world.snapshot()
    run = load().test(run_conf=conf(world.url, world.spec))
    assert (str(run.state), states(run)["checkpoint", -1]) == ("success", "skipped")
    assert local_calls(spark) == []
    forced = load().test(run_conf=conf(world.url, world.spec, force=True))
    assert (str(forced.state), asked(spark)) == ("success", ["app"])


@pytest.mark.usefixtures("due")
def test_what_is_wrong_with_one_application_fails_a_task_of_its_own_at_once(
    spark: StubSpark, repository: str, tmp_path: Path
) -> None:
    broken, secret = tmp_path / "broken.yaml", spec("secret")
    broken.write_text("application_id: broken\n")
    secret["kafka"] = {"sasl_plain_password": "${NOBODY_HAS_SET_THIS}"}
    applications = (str(broken), spec("orders"), secret, str(tmp_path / "absent.yaml"), "{", spec("orders"))
    run = load().test(run_conf=conf(repository, *applications))
    assert str(run.state) == "failed"
    assert asked(spark) == ["orders"]
    tasks = {one.map_index: one for one in run.get_task_instances() if one.task_id == "checkpoint"}
    assert [str(tasks[number].state) for number in range(6)] == ["failed", "success", *["failed"] * 4]
    assert [tasks[number].try_number for number in range(6)] == [1] * 6
    absent = str(tmp_path / "absent.yaml")
    names = ["broken", "orders", "secret", absent, "inline spec 5", "inline spec 6"]
    assert [tasks[number].rendered_map_index for number in range(6)] == names
    assert failing() == {"broken", "secret", absent}


def test_an_application_that_cannot_be_checked_is_failing_before_its_task_gets_a_slot(
    spark: StubSpark, repository: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = Retryable("No broker answered.", code="broker-unreachable", action="Look.")
    monkeypatch.setattr(deciding, "check_due", lambda *_, **__: DueVerdict(True, Reason(away.what, away.code), away))
    since = set()
    for run in ("first", "second"):
        (entry,) = decide(conf(repository, spec("orders")), run)
        assert entry["refusal"]["code"] == "broker-unreachable"
        (instance,) = ReportIndex(Settings.from_environment().reports).application("orders").instances
        assert instance.last.attempt.request_id == f"checkpoint_stores/{run}/decide/-1"
        since.add(instance.last.failing_since)
    assert len(since) == 1
    monkeypatch.setenv("STATECORE_REPOSITORY", "file:///site")
    decide(conf(repository, spec("billing")))
    assert failing() == {"orders"}, "the other run is of another repository"


def test_a_spec_whose_file_is_gone_does_not_take_the_age_of_its_snapshot_from_the_page(
    spark: StubSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path / "app")
    world.write({b"a": b"1"}, 9)
    world.snapshot()
    file, directory = tmp_path / "app.yaml", Settings.from_environment().reports
    file.write_text(json.dumps(world.spec))
    monkeypatch.setenv("STATECORE_SPECS", str(file))
    record_checks(directory, {"no longer named": Freshness(1, 1)})
    decide(conf(world.url, str(file)))
    assert read_checks(directory).keys() == {"app"}
    file.unlink()
    decide(conf(world.url, str(file)))
    assert read_checks(directory).keys() == {"app"}


def test_the_relative_path_of_a_spec_is_no_application(spark: StubSpark, repository: str) -> None:
    (entry,) = decide(conf(repository, "relative.yaml"))
    assert (entry["application_id"], entry["refusal"]["code"]) == ("relative.yaml", "path-relative")
    failing_applications.record(Settings.from_environment().reports, "relative.yaml", "d/r/t/0", entry["refusal"])
    assert failing() == set()


def failing() -> set[str]:
    """The applications that the page shows as failing."""
    index = ReportIndex(Settings.from_environment().reports)
    lasts = [one.last for name in index.names() for one in index.application(name).instances]
    return {one.attempt.application_id for one in lasts if one.outcome is ReportOutcome.FAILED}


def test_the_failure_of_an_application_is_cleared_when_it_can_be_checked(spark: StubSpark, tmp_path: Path) -> None:
    world = World(tmp_path / "app")
    world.write({b"a": b"1"}, 9)
    world.snapshot()
    file = tmp_path / "app.yaml"
    for text, shown in (
        (None, str(file)),
        ("application_id: app\nsubtopologies: none\n", "app"),
    ):
        if text is not None:
            file.write_text(text)
        load().test(run_conf=conf(world.url, str(file)))
        assert failing() == {shown}
    file.write_text(json.dumps(world.spec))
    run = load().test(run_conf=conf(world.url, str(file)))
    assert (str(run.state), states(run)["checkpoint", -1]) == ("success", "skipped")
    assert failing() == set()
    assert local_calls(spark) == []


def test_a_repository_that_is_away_is_shown_with_each_application_until_it_is_back(
    spark: StubSpark, tmp_path: Path
) -> None:
    world = World(tmp_path / "app")
    world.write({b"a": b"1"}, 9)
    world.snapshot()
    with pytest.raises(StatecoreError):
        decide(conf((tmp_path / "away").as_uri(), world.spec, spec("orders")))
    assert failing() == {"app", "orders"}
    decide(conf(world.url, world.spec))
    assert failing() == {"orders"}


def test_an_object_store_that_hangs_is_shown_before_the_next_tick(
    spark: StubSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_for = list[RetryPolicy]()

    def hangs(url: str, retries: RetryPolicy = DEFAULT_RETRIES) -> None:
        asked_for.append(retries)
        raise Retryable(f"{url} does not answer.", code="object-store-unreachable", action="Look at it.")

    monkeypatch.setattr(deciding, "open_repository", hangs)
    with raises(Retryable, "object-store-unreachable"):
        decide(conf("file:///states", spec("orders")))
    (retries,) = asked_for
    assert retries.attempts * retries.timeout <= 20
    assert failing() == {"orders"}


def test_what_was_found_is_kept_for_the_page_and_exported(
    spark: StubSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path / "app")
    world.write({b"a": b"1"}, 9)
    world.snapshot()
    verified = VerifiedPart("files", 1, 1, 5, "s", 2)
    record_verified(world.app_repository, [verified])
    directory = Settings.from_environment().reports
    record_checks(directory, {"gone": Freshness(1, 1)}, set())
    with Collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
        decide(conf(world.url, world.spec))
        exported = [CHECKPOINT_CHECKED, CHECKPOINT_SUCCESS, CHECKPOINT_INTERVAL]
        values = [collector.last(one.name)["application-id", "app"] for one in exported]
    newest = world.app_repository.head().newest
    assert newest is not None
    found = read_checks(directory)
    assert found.keys() == {"gone", "app"}
    assert (found["app"].snapshot, found["app"].published_at) == (newest.snapshot, newest.created_at)
    assert (found["app"].interval_ms, found["app"].repository) == (300_000, world.url)
    assert found["app"].verified == (VerifiedLevel("files", 5, 2),)
    assert (found["app"].kept, found["app"].kept_note) == ("", "")
    pin_last_before(world.app_repository, [newest], ["s"])
    decide(conf(world.url, world.spec))
    kept = read_checks(directory)["app"]
    assert (kept.kept, kept.kept_note) == (newest.snapshot, f"{PIN_NOTE}s")
    assert values == [found["app"].checked_ms / 1000, (found["app"].current_ms or 0) / 1000, 300]
    before = read_checks(directory)["app"]
    with pytest.raises(StatecoreError):
        decide(conf((tmp_path / "away").as_uri(), world.spec))
    assert read_checks(directory)["app"] == before, "nobody could look"


@pytest.mark.parametrize("is_elsewhere", [True, False])
def test_a_run_with_another_repository_does_not_change_what_the_page_shows(
    spark: StubSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_elsewhere: bool
) -> None:
    world = World(tmp_path / "app")
    world.write({b"a": b"1"}, 9)
    world.snapshot()
    monkeypatch.setenv("STATECORE_REPOSITORY", "file:///site" if is_elsewhere else f"{world.url}/")
    directory = Settings.from_environment().reports
    before = Freshness(1, 1, repository="file:///site")
    record_checks(directory, {"app": before}, set())
    failing_applications.record(directory, "app", "checkpoint_stores/r/decide/-1", {"error": "Retryable"})
    decide(conf(world.url, world.spec))
    assert (read_checks(directory)["app"] == before) is is_elsewhere
    assert failing() == ({"app"} if is_elsewhere else set())


def test_another_repository_that_cannot_be_used_is_no_failure_of_the_applications(
    spark: StubSpark, repository: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATECORE_REPOSITORY", repository)
    with raises(NotFound, "repository-not-found"):
        decide(conf((tmp_path / "away").as_uri(), spec("orders")))
    assert failing() == set()


def test_what_a_tick_has_proven_of_a_snapshot_is_not_taken_back_by_the_next(
    spark: StubSpark, repository: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, hour = Settings.from_environment().reports, 3_600_000
    first, second = (SnapshotEntry(name, "", "", "", hour, "", "checkpoint", 1, 0, 0) for name in ("s1", "s2"))
    found = {
        "idle": DueVerdict(False, Reason("nothing is new", "nothing-new"), newest=first, current_ms=9 * hour),
        "its first record": DueVerdict(True, Reason("1 new", "offsets-new"), newest=first, current_ms=hour),
        "in progress": DueVerdict(False, Reason("one is", "in-progress"), newest=first, current_ms=None),
        "another snapshot": DueVerdict(False, Reason("young", "interval-not-over"), newest=second, current_ms=hour),
    }
    known, exported = dict[str, int | None](), dict[str, float]()
    for name, verdict in found.items():
        monkeypatch.setattr(deciding, "check_due", lambda *_, verdict=verdict, **__: verdict)
        with Collector() as collector:
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
            decide(conf(repository, spec("orders")), name)
            exported[name] = collector.last(CHECKPOINT_SUCCESS.name)["application-id", "orders"]
        known[name] = read_checks(directory)["orders"].current_ms
    proven = dict.fromkeys(list(found)[:3], 9 * hour) | {"another snapshot": hour}
    assert known == proven
    assert exported == {name: ms / 1000 for name, ms in proven.items()}


def test_a_spec_that_no_run_could_read_is_mended_when_the_next_tick_reads_it(spark: StubSpark, tmp_path: Path) -> None:
    world = World(tmp_path / "app")
    world.write({b"a": b"1"}, 9)
    world.snapshot()
    directory = Settings.from_environment().reports
    error = Invalid("It is no spec.", code="spec-invalid", action="Mend it.").to_json()
    failing_applications.record(directory, "app", "r", error, dag=failing_applications.UNREADABLE)
    assert failing() == {"app"}
    decide(conf(world.url, world.spec))
    assert failing() == set()


def test_a_second_spec_of_an_application_that_cannot_be_read_does_not_speak_for_the_first(
    spark: StubSpark, repository: str, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.yaml"
    copy.write_text("application_id: orders\nsubtopologies: none\n")
    run = load().test(run_conf=conf(repository, str(copy), spec("orders"), force=True))
    assert (str(run.state), asked(spark)) == ("failed", ["orders"])
    assert failing() == {str(copy)}


@pytest.mark.full
def test_the_lines_of_the_library_of_kafka_are_not_in_the_log(
    spark: StubSpark, repository: str, caplog: pytest.LogCaptureFixture
) -> None:
    unlooked = {**spec("away"), "bootstrap_servers": "127.0.0.1:1"}
    with caplog.at_level(logging.INFO):
        entries = decide(conf(repository, unlooked))
    assert entries[0]["refusal"]["error"] == "Retryable"
    assert [one.name for one in caplog.records if one.name.startswith("kafka")] == []
    assert [one.name for one in caplog.records if "away" in one.getMessage()] == ["decide"]
    logging.getLogger("kafka.net.connection").error("Later lines are seen again.")
    assert caplog.records[-1].name == "kafka.net.connection"


def test_a_repository_that_is_not_there_fails_the_deciding_task(spark: StubSpark, tmp_path: Path) -> None:
    run = load().test(run_conf=conf((tmp_path / "nowhere").as_uri(), spec("orders"), spec("billing")))
    assert str(run.state) == "failed"
    assert states(run)["decide", -1] == "failed"
    assert local_calls(spark) == []


@pytest.mark.parametrize(
    "wrong", one_of([{"forced": True}, {"repository": "ftp://states"}, {"stores": ["by-id"]}]), ids=str
)
def test_a_parameter_that_is_wrong_for_all_fails_the_deciding_task(
    spark: StubSpark, repository: str, wrong: dict[str, Any]
) -> None:
    run = load().test(run_conf={**conf(repository, spec("orders")), **wrong})
    assert states(run)["decide", -1] == "failed"
    assert local_calls(spark) == []
