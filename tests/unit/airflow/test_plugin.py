from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.airflow.home import ROOT, migrate
from tests.unit.airflow.test_restored import FAILED, done, entry, write

# FastAPI's test client says so on import.
pytestmark = pytest.mark.filterwarnings("ignore:Using `httpx` with")


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Requests the page as nobody, or as a user of a role."""
    from airflow.api_fastapi.app import create_auth_manager, init_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from fastapi.testclient import TestClient

    from statecore.airflow.store_page import app

    migrate()  # it holds the tokens that were revoked
    monkeypatch.setenv("STATECORE_REPORTS", str(tmp_path))
    manager = create_auth_manager()
    init_auth_manager(app)

    def get(path: str, role: str | None = None) -> Any:
        headers = {}
        if role is not None:
            token = manager.generate_jwt(SimpleAuthManagerUser(username=role, role=role))
            headers["Authorization"] = f"Bearer {token}"
        return TestClient(app).get(path, headers=headers)

    return get


@pytest.mark.parametrize("path", ["/", "/stores"])
def test_the_page_is_for_users_of_airflow_alone(client: Callable[..., Any], path: str) -> None:
    assert client(path).status_code == 401
    assert client(path, "viewer").status_code == 200
    assert client(path, "admin").status_code == 200


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/openapi.json"])
def test_no_documentation_page_tells_strangers_what_there_is(client: Callable[..., Any], path: str) -> None:
    assert client(path).status_code == 404


def test_without_a_report_the_page_says_what_to_do(client: Callable[..., Any]) -> None:
    assert "restore_stores" in client("/", "viewer").text


def test_the_page_shows_each_store_partition(client: Callable[..., Any], tmp_path: Path) -> None:
    write(tmp_path, "orders", 1, done(entry("by-id", 0, 1_234_567), {**entry("by-id", 1, 0), "committed_offset": -4}))
    text = client("/", "viewer").text
    assert "orders" in text
    assert "1 store, 2 partitions, 1,234,567 rows" in text
    assert "empty changelog" in text
    rows = client("/stores", "viewer").json()[0]["partitions"]
    assert [(one["task"], one["rows"], one["committed_offset"]) for one in rows] == [
        ("0_0", 1_234_567, 9),
        ("0_1", 0, -4),
    ]


def test_what_a_job_wrote_cannot_become_markup(client: Callable[..., Any], tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    report = done(
        {**entry(evil, 0, 1), "digest": evil, "kind": evil}, application_id=evil, state_dir=evil, notes=[evil]
    )
    write(tmp_path, "orders", 1, report)
    write(tmp_path, "orders", 2, {**FAILED, "what": evil, "action": evil, "error": evil})
    answer = client("/", "viewer")
    assert evil not in answer.text
    assert answer.text.count("&lt;script&gt;") >= 8
    assert "script-src 'nonce-" in answer.headers["Content-Security-Policy"]


def test_airflow_finds_the_plugin_and_mounts_its_page(tmp_path: Path) -> None:
    script = (
        "import json\n"
        "from airflow import plugins_manager as m\n"
        "apps, _ = m.get_fastapi_plugins()\n"
        "views = m.get_plugin_info()\n"
        "print(json.dumps([m.get_import_errors(), [a['url_prefix'] for a in apps], views], default=str))\n"
    )
    environment = {
        "PATH": "/usr/bin:/bin",
        "AIRFLOW_HOME": str(tmp_path),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
        "AIRFLOW__API__BASE_URL": "http://localhost:1234/behind/a/proxy",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    errors, prefixes, plugins = json.loads(done.stdout.splitlines()[-1])
    assert errors == {}
    assert prefixes == ["/state-stores", "/statecore-progress"]
    (plugin,) = [one for one in plugins if one["name"] == "statecore"]
    assert plugin["external_views"][0]["href"] == "/behind/a/proxy/state-stores/"
    tab = next(view for view in plugin["external_views"] if view["destination"] == "dag_run")
    assert tab["href"] == "/behind/a/proxy/statecore-progress/?dag_id={DAG_ID}&run_id={RUN_ID}"
