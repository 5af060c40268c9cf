"""``migrate_checkpoints`` and ``recover_global_stores``: real Airflow, real directories, answers by the REST API."""

from __future__ import annotations

import contextlib
import tarfile
import time
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from demo.airflow_server import AirflowServer
from statecore.statedir.file_trees import fingerprint
from tests.golden.make_older import APPLICATIONS, TASK
from tests.harness.airflow_site import AirflowSite
from tests.unit.jobs.recover_global.recover_world import TRUTH, RecoverWorld

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

DAG, RECOVER = "migrate_checkpoints", "recover_global_stores"
GOLDEN = Path(__file__).resolve().parents[1] / "golden"
ENDED = ("success", "failed", "skipped", "upstream_failed")
OLD, NEWER = APPLICATIONS["3.9.1"], APPLICATIONS["4.2.0"]


@pytest.fixture(scope="module")
def server(airflow: AirflowSite) -> Iterator[AirflowServer]:
    with airflow.running(DAG, RECOVER):
        yield airflow.server


def unpacked(root: Path, version: str) -> dict[str, str]:
    """A state directory as that version left it, as a run names it."""
    directory = root / APPLICATIONS[version]
    directory.mkdir(parents=True)
    with tarfile.open(GOLDEN / f"kafka-streams-{version}-task.tar.gz") as archive:
        archive.extractall(directory, filter="data")
    return {"application_id": APPLICATIONS[version], "state_dir": str(root)}


def path_of(named: dict[str, str]) -> Path:
    return Path(named["state_dir"]) / named["application_id"]


def state_of(server: AirflowServer, run: str, task_id: str, dag: str = DAG) -> str | None:
    return next(task.state for task in server.tasks(dag, run) if task.task_id == task_id)


def asked(server: AirflowServer, run: str, dag: str = DAG) -> dict[str, Any]:
    """What a person is shown, once the run waits for them."""
    deadline = time.monotonic() + 300
    while (state := state_of(server, run, "approve", dag)) != "awaiting_input":
        assert state not in ENDED, server.why(dag, run)
        assert time.monotonic() < deadline, server.tasks(dag, run)
        time.sleep(0.5)
    found: dict[str, Any] = server.api("GET", _answers(run, dag))
    return found


def answer(server: AirflowServer, run: str, chosen: str, dag: str = DAG) -> None:
    """Answer as a person does: long after the scheduler has heard that the task which asks has left its process.

    Until then it takes one that goes on for one that was lost, and asks again.
    """
    deadline = time.monotonic() + 300
    while not heard_of_question(server, run):
        assert time.monotonic() < deadline, server.log_tail()
        time.sleep(0.2)
    while (state := state_of(server, run, "approve", dag)) not in ENDED:
        if state == "awaiting_input":
            with contextlib.suppress(urllib.error.HTTPError):  # it was answered just now
                server.api("PATCH", _answers(run, dag), {"chosen_options": [chosen], "params_input": {}})
        assert time.monotonic() < deadline, server.tasks(dag, run)
        time.sleep(0.5)


def heard_of_question(server: AirflowServer, run: str) -> bool:
    """Whether the scheduler's log says so; there is no other sign of it."""
    asked = ("Received executor event with state success", "task_id='approve'", f"run_id='{run}'")
    return any(all(part in line for part in asked) for line in server.log_file.read_text(errors="replace").splitlines())


def _answers(run: str, dag: str = DAG) -> str:
    return f"/dags/{dag}/dagRuns/{quote(run)}/taskInstances/approve/-1/hitlDetails"


def states(server: AirflowServer, run: str, dag: str = DAG) -> dict[tuple[str, str], str | None]:
    return {(task.task_id, task.name): task.state for task in server.tasks(dag, run)}


def log_of(server: AirflowServer, run: str, task_id: str, name: str = "", dag: str = DAG) -> str:
    (found,) = [task for task in server.tasks(dag, run) if (task.task_id, task.name) == (task_id, name)]
    return server.task_log(dag, run, found)


def test_what_a_person_approves_is_done_and_one_that_is_refused_does_not_stop_the_others(
    server: AirflowServer, tmp_path: Path
) -> None:
    old, newer = unpacked(tmp_path / "a", "3.9.1"), unpacked(tmp_path / "b", "4.2.0")
    absent = {"application_id": "absent", "state_dir": str(tmp_path)}
    before = {named["application_id"]: fingerprint(path_of(named)) for named in (old, newer)}
    conf = {"directories": [old, absent, {**newer, "queue": "of-b"}], "to": "4.3"}
    run = server.trigger(DAG, conf)
    shown = asked(server, run)
    assert "2 state directories" in shown["subject"]
    assert shown["defaults"] == ["Reject"]
    plans = {
        number: server.xcom(DAG, run, "plan", map_index=number)
        for number, named in enumerate((old, absent, newer))
        if named is not absent
    }
    for plan in plans.values():
        assert plan["plan_id"] in shown["body"]
        assert (plan["outcome"], plan["tasks"], plan["changed"]) == ("planned", 1, 1)
    assert f"| {OLD} | `{old['state_dir']}` | 3.9 or 4.2 | 1 of 1 |" in shown["body"]
    assert "| 0_1 | `stamped` |" in shown["body"]
    assert "| absent |" in shown["body"]
    assert "see the log of its task *plan*: NotFound (application-not-found)" in shown["body"]
    assert {named["application_id"]: fingerprint(path_of(named)) for named in (old, newer)} == before
    answer(server, run, "Approve")
    assert server.wait(DAG, run) == "failed"
    assert states(server, run) == {
        ("read_directories", ""): "success",
        ("plan", OLD): "success",
        ("plan", "absent"): "failed",
        ("plan", NEWER): "success",
        ("approve", ""): "success",
        ("migrate.apply", OLD): "success",
        ("migrate.apply", "absent"): "skipped",
        ("migrate.apply", NEWER): "success",
        ("migrate.verify", OLD): "success",
        ("migrate.verify", "1"): "skipped",  # one that never began has no name
        ("migrate.verify", NEWER): "success",
        ("outcome", ""): "failed",
    }, server.why(DAG, run)
    found = server.api("GET", f"/dags/{DAG}/dagRuns/{quote(run)}/taskInstances")["task_instances"]
    assert {one["map_index"] for one in found if one["queue"] == "of-b"} == {2}
    assert sum(one["queue"] == "of-b" for one in found) == 3, "plan, apply and verify"
    assert "has no application absent" in log_of(server, run, "plan", "absent")
    assert f"absent in {tmp_path}: not planned: NotFound (application-not-found)" in log_of(server, run, "outcome")
    assert server.xcom(DAG, run, "approve", "answer")["by"] == server.user
    for named in (old, newer):
        assert not (path_of(named) / TASK / ".checkpoint").exists()
    for number, plan in plans.items():
        applied = server.xcom(DAG, run, "migrate.apply", map_index=number)
        assert (applied["outcome"], applied["plan_id"]) == ("migrated", plan["plan_id"])
        verified = server.xcom(DAG, run, "migrate.verify", map_index=number)
        assert (verified["outcome"], verified["findings"]) == ("nothing to do", {})


@pytest.mark.full
def test_what_a_person_rejects_or_what_has_changed_since_is_left_alone(server: AirflowServer, tmp_path: Path) -> None:
    kept, moved = unpacked(tmp_path / "kept", "4.2.0"), unpacked(tmp_path / "moved", "4.2.0")
    before = fingerprint(path_of(kept))
    conf = {"no": {"directories": [kept], "to": "4.3"}, "yes": {"directories": [moved], "to": "4.3"}}
    runs = {name: server.trigger(DAG, conf[name]) for name in conf}
    for run in runs.values():
        asked(server, run)
    answer(server, runs["no"], "Reject")
    (path_of(moved) / TASK / "plain.position").unlink()
    meanwhile = fingerprint(path_of(moved) / TASK)
    answer(server, runs["yes"], "Approve")
    assert server.wait(DAG, runs["no"]) == "success", server.why(DAG, runs["no"])
    assert {state for (task, _), state in states(server, runs["no"]).items() if task.startswith("migrate.")} == {
        "skipped"
    }
    assert [one["outcome"] for one in server.xcom(DAG, runs["no"], "outcome")] == ["rejected"]
    assert fingerprint(path_of(kept)) == before
    assert server.wait(DAG, runs["yes"]) == "failed"
    (apply,) = [task for task in server.tasks(DAG, runs["yes"]) if task.task_id == "migrate.apply"]
    assert (apply.state, apply.try_number) == ("failed", 1)
    assert "Invalid (plan-changed): " in server.task_log(DAG, runs["yes"], apply)
    assert fingerprint(path_of(moved) / TASK) == meanwhile


@pytest.mark.full
def test_a_rejection_by_timeout_differs_from_one_by_a_person(server: AirflowServer, tmp_path: Path) -> None:
    kept = unpacked(tmp_path, "4.2.0")
    before = fingerprint(path_of(kept))
    run = server.trigger(DAG, {"directories": [kept], "to": "4.3", "approve_within": "1s"})
    assert server.wait(DAG, run) == "success", server.why(DAG, run)
    (outcome,) = server.xcom(DAG, run, "outcome")
    assert outcome["outcome"] == "no-answer"
    answer = server.xcom(DAG, run, "approve", "answer")
    assert (answer["chosen"], answer["by"]) == ("Reject", None)
    assert fingerprint(path_of(kept)) == before


@pytest.mark.full
def test_spark_converts_if_requested_and_a_run_can_skip_the_approval(server: AirflowServer, tmp_path: Path) -> None:
    conf = {"directories": [unpacked(tmp_path, "3.9.1")], "to": "4.3", "engine": "spark", "approve": "none"}
    run = server.trigger(DAG, conf)
    assert server.wait(DAG, run) == "success", server.why(DAG, run)
    assert states(server, run)["migrate.verify", OLD] == "success"
    assert "Spark runs on local[1]" in log_of(server, run, "migrate.apply", OLD)
    assert "Spark runs" not in log_of(server, run, "plan", OLD)
    assert [one["outcome"] for one in server.xcom(DAG, run, "outcome")] == ["changed"]


@pytest.mark.full
def test_approved_global_stores_are_rebuilt_and_an_unrepairable_one_is_not_reported_sound(
    server: AirflowServer, tmp_path: Path
) -> None:
    worlds = {name: RecoverWorld(tmp_path / name, "exactly_once_v2", name) for name in ("broken", "outdated", "kept")}
    with contextlib.ExitStack() as stack:
        named = {}
        for name, world in worlds.items():
            stack.enter_context(world.brokers)
            named[name] = {
                "application_id": name,
                "state_dir": str(world.state_dir),
                "spec_path": str(world.spec),
            }
        worlds["broken"].damage("prices", -4)
        worlds["outdated"].outdate()
        worlds["kept"].damage("prices", -4)
        before = {name: fingerprint(world.path) for name, world in worlds.items()}
        yes = server.trigger(RECOVER, {"directories": [named["broken"], named["outdated"]]})
        no = server.trigger(RECOVER, {"directories": [named["kept"]]})
        shown = asked(server, yes, RECOVER)
        assert "1 state directory" in shown["subject"]
        assert "prices-store: " in shown["body"]
        asked(server, no, RECOVER)
        assert {name: fingerprint(world.path) for name, world in worlds.items()} == before
        answer(server, no, "Reject", RECOVER)
        answer(server, yes, "Approve", RECOVER)
        assert server.wait(RECOVER, no) == "success", server.why(RECOVER, no)
        assert server.wait(RECOVER, yes) == "failed"
        assert states(server, yes, RECOVER) == {
            ("read_directories", ""): "success",
            ("plan", "broken"): "success",
            ("plan", "outdated"): "failed",
            ("approve", ""): "success",
            ("recover.apply", "broken"): "success",
            ("recover.apply", "outdated"): "skipped",
            ("recover.verify", "broken"): "success",
            ("recover.verify", "1"): "skipped",
            ("outcome", ""): "failed",
        }, server.why(RECOVER, yes)
        refused = log_of(server, yes, "plan", "outdated", RECOVER)
        assert "Invalid (recovery-impossible): " in refused
        assert "[offset-past-end]" in refused
        assert "outdated in" in log_of(server, yes, "outcome", dag=RECOVER)
        assert [one["outcome"] for one in server.xcom(RECOVER, no, "outcome")] == ["rejected"]
        assert fingerprint(worlds["kept"].path) == before["kept"]
        assert fingerprint(worlds["outdated"].path) == before["outdated"]
        assert worlds["broken"].rows("prices") == TRUTH
        assert worlds["broken"].recover().exit_code == 0
