from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import pytest

from tests.unit.airflow.home import migrate

# FastAPI's test client says so on import.
pytestmark = pytest.mark.filterwarnings("ignore:Using `httpx` with")


def get(path: str, role: str | None = None) -> tuple[int, str, str]:
    """Status, text and content security policy of an answer."""
    from airflow.api_fastapi.app import create_auth_manager, init_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from fastapi.testclient import TestClient

    from statecore.airflow.ui import progress_page

    migrate()  # it holds the tokens that were revoked
    manager = create_auth_manager()
    init_auth_manager(progress_page.app)
    token = "" if role is None else manager.generate_jwt(SimpleAuthManagerUser(username=role, role=role))
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    answer = TestClient(progress_page.app).get(path, headers=headers)
    return answer.status_code, answer.text, answer.headers.get("Content-Security-Policy", "")


def test_the_page_is_for_users_of_airflow_alone() -> None:
    assert get("/")[0] == 401
    assert get("/", "viewer")[0] == 200
    assert get("/docs", "admin")[0] == 404


def test_the_page_runs_its_own_script_and_asks_this_airflow_alone() -> None:
    _, text, policy = get("/?dag_id=%3Cb%3E&run_id=x", "viewer")
    nonce = policy.partition("script-src 'nonce-")[2].partition("'")[0]
    assert nonce
    assert f'<script nonce="{nonce}">' in text
    assert "connect-src 'self'" in policy
    assert "<b>" not in text
    assert "<h1>Statecore progress</h1>" in text


def test_the_page_lists_the_tasks_of_all_operators() -> None:
    from statecore.airflow.checkpoint_operator import StatecoreCheckpointOperator
    from statecore.airflow.directory_change.approval import DirectoryChangeApproval
    from statecore.airflow.directory_change.operator import StatecoreDirectoryChangeOperator
    from statecore.airflow.operators import StatecoreSparkOperator
    from statecore.airflow.prune import CollectionApproval

    _, text, _ = get("/", "viewer")
    for operator in (StatecoreSparkOperator, StatecoreCheckpointOperator, StatecoreDirectoryChangeOperator):
        assert f'"{operator.__name__}"' in text
    for approval in (DirectoryChangeApproval, CollectionApproval):
        assert f'"{approval.__name__}"' in text


@pytest.mark.skipif(shutil.which("node") is None, reason="runs the page's script")
def test_the_steps_of_a_directory_stand_together_in_their_order_under_its_name() -> None:
    _, text, _ = get("/", "viewer")
    assert text.index(">Application</th>") < text.index(">Task</th>") < text.index(">State</th>")
    functions = text[text.index("function nameOf") : text.index("function show")]
    of_run = {"dag_id": "d", "dag_run_id": "r", "try_number": 1}
    tasks = [
        {**of_run, "task_id": "migrate.verify", "map_index": -1, "state": None, "start_date": None},
        {**of_run, "task_id": "migrate.apply", "map_index": 0, "state": None, "start_date": None},
        {**of_run, "task_id": "plan", "map_index": 1, "rendered_map_index": "b", "start_date": "2026-01-01T00:00:01"},
        {**of_run, "task_id": "plan", "map_index": 0, "rendered_map_index": "a", "start_date": "2026-01-01T00:00:02"},
    ]
    script = f"const names = new Map(); {functions}; const tasks = {json.dumps(tasks)};"
    script += "console.log(JSON.stringify(tasks.sort(inOrder).map((task) => [nameOf(task), task.task_id])))"
    done = subprocess.run(["node", "-e", script], capture_output=True, check=True, timeout=60)
    assert json.loads(done.stdout) == [["a", "plan"], ["a", "migrate.apply"], ["b", "plan"], ["", "migrate.verify"]]


@pytest.mark.skipif(shutil.which("node") is None, reason="runs the page's script")
def test_a_waiting_retry_has_its_name_and_says_that_the_try_failed() -> None:
    _, text, _ = get("/", "viewer")
    functions = text[text.index("function nameOf") : text.index("function show")]
    tried: dict[str, Any] = {"dag_id": "d", "dag_run_id": "r", "task_id": "restore", "map_index": 3, "try_number": 1}
    tasks = [
        {**tried, "rendered_map_index": "3", "state": None, "try_number": 0},
        {**tried, "rendered_map_index": "orders", "state": "running"},
        {**tried, "rendered_map_index": "3", "state": "up_for_retry"},
        {**tried, "rendered_map_index": "orders", "state": "running", "try_number": 2},
    ]
    script = f"const names = new Map(), APPROVALS = new Set(); {functions}; const tasks = {json.dumps(tasks)};"
    script += "console.log(JSON.stringify(tasks.map((task) => [nameOf(task), stateOf(task)])))"
    done = subprocess.run(["node", "-e", script], capture_output=True, check=True, timeout=60)
    assert json.loads(done.stdout) == [
        ["[3]", "waiting"],
        ["orders", "running"],
        ["orders", "try 1 failed, the next one waits"],
        ["orders", "running, try 2"],
    ]


@pytest.mark.skipif(shutil.which("node") is None, reason="runs the page's script")
def test_a_plan_that_waits_for_approval_is_shown_with_the_way_to_the_answer() -> None:
    _, text, _ = get("/", "viewer")
    assert '"state=' not in text
    assert '["running", "awaiting_input", "deferred"]' in text, "of all runs"
    functions = text[text.index("function waitsForApproval") : text.index("function inOrder")]
    functions += text[text.index("function summary") : text.index("async function refresh")]
    approve: dict[str, Any] = {
        **{"dag_id": "d", "dag_run_id": "manual__2026-01-01T00:00:00+00:00", "task_id": "approve"},
        **{"operator": "DirectoryChangeApproval", "state": "awaiting_input", "try_number": 1},
    }
    planned = {**approve, "task_id": "plan", "operator": "StatecoreDirectoryChangeOperator", "state": "success"}
    answered = {**approve, "state": "success"}
    header = 'const APPROVALS = new Set(["DirectoryChangeApproval"]), ENDED = new Set(["success"]);'
    script = f"{header} {functions}; const tasks = {json.dumps([approve, planned, answered])}; let run = 'r';"
    script += (
        "const found = [tasks.map(stateOf), approvalPath(tasks[0]), summary(tasks.slice(0, 2)), summary([tasks[2]])];"
    )
    script += "run = null; console.log(JSON.stringify([...found, summary(tasks.slice(0, 1))]))"
    done = subprocess.run(["node", "-e", script], capture_output=True, check=True, timeout=60)
    assert json.loads(done.stdout) == [
        ["waits for approval", "success", "success"],
        "dags/d/runs/manual__2026-01-01T00%3A00%3A00%2B00%3A00/tasks/approve/required_actions",
        "1 job, 0 not ended; 1 plan waits for approval.",
        "This run has no statecore job yet.",
        "No statecore job is running; 1 plan waits for approval.",
    ]
