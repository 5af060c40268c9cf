from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from statecore.airflow.ui import failing_applications as refusals
from statecore.airflow.ui.freshness import Freshness, record_checks
from statecore.errors import NotFound, Retryable
from statecore.jobs.attempt import utc
from statecore.jobs.history.report_index import INDEX
from statecore.repository.maintenance.verification_record import VerifiedLevel
from tests.unit.airflow.home import ROOT, migrate
from tests.unit.jobs.reports import attempt, done, entry, failed, write

# FastAPI's test client says so on import.
pytestmark = pytest.mark.filterwarnings("ignore:Using `httpx` with")


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Requests the page anonymously, or as a user of a role."""
    from airflow.api_fastapi.app import create_auth_manager, init_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from fastapi.testclient import TestClient

    from statecore.airflow.ui.store_page import app

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


@pytest.mark.parametrize("path", ["/", "/stores", "/reports", "/instance?name=x"])
def test_the_page_is_for_users_of_airflow_alone(client: Callable[..., Any], path: str) -> None:
    assert client(path).status_code == 401
    there = 404 if "instance" in path else 200
    assert client(path, "viewer").status_code == there
    assert client(path, "admin").status_code == there


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/openapi.json"])
def test_the_api_documentation_is_not_public(client: Callable[..., Any], path: str) -> None:
    assert client(path).status_code == 404


def test_without_a_report_the_page_says_what_to_do(client: Callable[..., Any]) -> None:
    assert "restore_stores" in client("/", "viewer").text


def test_the_page_shows_each_store_of_each_instance(client: Callable[..., Any], tmp_path: Path) -> None:
    first = done(
        attempt(1, "/var/a"), entry("by-id", 0, 1_234_567), entry("by-id", 1, 0, committed_offset=-4), seconds=12.3
    )
    write(tmp_path, 1, first)
    write(tmp_path, 2, done(attempt(2, "/var/b"), entry("by-id", 3, 5)))
    text = client("/", "viewer").text
    assert text.index("/var/b") < text.index("/var/a")
    assert "9, 1 empty changelog" in text
    assert "1,234,567" in text
    assert "in 12.3 s" in text
    assert 'href="/dags/restore_stores/runs/manual__1/tasks/restore/mapped/0"' in text
    answer = client("/stores", "viewer").json()
    assert (answer["version"], answer["page"], answer["pages"], answer["total"], answer["red"]) == (1, 1, 1, 1, 0)
    second, first = answer["applications"][0]["instances"]
    assert [(one["task"], one["rows"]) for one in first["partitions"]] == [("0_0", 1_234_567), ("0_1", 0)]
    assert (second["host"], second["state_dir"], len(second["partitions"])) == ("one", "/var/b", 1)
    assert second["last"]["outcome"] == "restored"


def test_a_failed_last_try_is_seen_whatever_succeeded_before(client: Callable[..., Any], tmp_path: Path) -> None:
    write(tmp_path, 1, done(attempt(1), entry("by-id", 0)))
    write(tmp_path, 2, failed(attempt(2), phase="read", error="Corrupted", code="record-corrupt"))
    text = client("/", "viewer").text
    assert text.index("The latest attempt failed") < text.index("Before that, restored")
    assert "in phase read" in text
    assert 'role="alert"' in text
    assert "<p>Corrupted (record-corrupt): " in text
    assert "by-id" in text
    write(tmp_path, 3, attempt(3).begun())
    assert "Nothing found" in client("/?state=restored", "viewer").text
    assert "An attempt began" in client("/?state=begun&q=ORD", "viewer").text


def test_an_attempt_that_was_refused_because_the_application_runs_is_no_alarm(
    client: Callable[..., Any], tmp_path: Path
) -> None:
    write(tmp_path, 1, done(attempt(1), entry("by-id", 0)))
    write(tmp_path, 2, failed(attempt(2), code="application-running"))
    text = client("/", "viewer").text
    assert 'role="alert"' not in text
    assert "<p>Fenced (application-running): " in text
    assert "Before that, restored" in text


def test_migrations_and_recoveries_are_on_the_page_and_on_that_of_their_directory(
    client: Callable[..., Any], tmp_path: Path
) -> None:
    write(tmp_path, 1, done(attempt(1), entry("by-id", 0)))
    tried = replace(attempt(2), request_id="migrate_checkpoints/manual__2/migrate.apply/0")
    write(tmp_path / "orders", 2, failed(tried, code="application-running"), "migrations")
    where = "/instance?name=orders&application=orders&host=one&state_dir=/s"
    for path in ("/", where):
        text = client(path, "viewer").text
        assert "Fenced (application-running)" in text
        assert "/dags/migrate_checkpoints/runs/manual__2/tasks/migrate.apply/mapped/0" in text
    assert "migrate_checkpoints" not in client("/?q=orders", "viewer").text
    assert "migrate_checkpoints" not in client(where.replace("/s", "/other"), "viewer").text


def test_an_instance_has_a_page_with_its_partitions_and_attempts(client: Callable[..., Any], tmp_path: Path) -> None:
    write(tmp_path, 1, done(attempt(1), *(entry("by-id", number) for number in range(250))))
    write(tmp_path, 2, failed(attempt(2), code="application-running"))
    where = "/instance?name=orders&application=orders&host=one&state_dir=/s"
    text = client(where, "viewer").text
    assert text.count("<td>by-id</td>") == 200
    assert "Attempts, newest first" in text
    assert text.index("Fenced (application-running): ") < text.index(">restored</td>")
    assert client("/reports", "viewer").json()["reports"][0]["error"]["code"] == "application-running"
    assert client(f"{where}&page=2", "viewer").text.count("<td>by-id</td>") == 50
    assert client("/instance?name=../orders&application=orders&host=one&state_dir=/s", "viewer").status_code == 404
    assert [one["outcome"] for one in client("/reports", "viewer").json()["reports"]] == ["failed", "restored"]


def test_many_applications_come_in_pages(client: Callable[..., Any], tmp_path: Path) -> None:
    for number in range(205):
        name = f"app-{number:03d}"
        write(tmp_path, number, done(attempt(number, application=name), entry("s", 0)), name)
    text = client("/", "viewer").text
    assert text.count("<section>") == 100
    assert "page 1 of 3" in text
    assert client("/?page=3", "viewer").text.count("<section>") == 5
    assert client("/?q=app-01&page=1", "viewer").text.count("<section>") == 10
    assert client("/?page=x", "viewer").status_code == 422


def test_of_fifty_applications_with_fifty_reports_each_the_indexes_are_read_and_no_report(
    client: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, really = list[Path](), io.open

    def noting(file: Any, *arguments: Any, **options: Any) -> Any:
        if str(file).startswith(str(tmp_path)):
            read.append(Path(file))
        return really(file, *arguments, **options)

    for number in range(50):
        name = f"app-{number:02d}"
        entries = [entry(f"store-{store}", number) for store in range(4) for number in range(4)]
        for second in range(50):
            tried = attempt(second, f"/state/{second % 2}", application=name)
            write(tmp_path, second, done(tried, *entries), name)
    with monkeypatch.context() as reading:
        reading.setattr(io, "open", noting)
        client("/?q=nothing-of-this-name", "viewer")  # whoever comes first after a long time reads what is new
    assert len(read) >= 50 * 50
    for path in ("/", "/stores", "/reports", "/?q=app-4", "/stores?state=failed"):
        read.clear()
        with monkeypatch.context() as reading:
            reading.setattr(io, "open", noting)
            assert client(path, "viewer").status_code == 200
        assert {file.parent.name for file in read} <= {INDEX}, path
        assert len(read) <= 100, path


def test_the_page_marks_stores_restored_by_kafka_streams(client: Callable[..., Any], tmp_path: Path) -> None:
    left = entry("prices", 0, kind="versioned-key-value", committed_offset=-4, restored_by_kafka_streams=True)
    write(tmp_path, 1, done(attempt(1), left))
    text = client("/", "viewer").text
    assert "restored by Kafka Streams" in text
    assert "empty changelog" not in text


def test_only_a_note_that_asks_for_something_stands_out(client: Callable[..., Any], tmp_path: Path) -> None:
    write(tmp_path, 1, done(attempt(1), entry("by-id", 0), notes=["warning: Declare it.", "It was resumed."]))
    text = client("/", "viewer").text
    assert '<p class="note">warning: Declare it.</p>' in text
    assert '<p class="facts">It was resumed.</p>' in text


@pytest.mark.parametrize("kind", ["manual", "scheduled", "asset_triggered"])
def test_a_long_id_of_a_run_is_shortened_to_the_minute_and_whole_in_its_title(
    client: Callable[..., Any], tmp_path: Path, kind: str
) -> None:
    run = f"{kind}__2026-11-28T10:30:00.123456+00:00_Ab3dE6gH"
    write(tmp_path, 1, {**done(attempt(1), entry("by-id", 0)), "request_id": f"restore_stores/{run}/restore/0"})
    text = client("/", "viewer").text
    assert f'title="{run} of restore_stores, task restore [0]">{kind}__2026-11-28T10:30…</a>' in text
    assert text.count(f">{run}") == 0


def test_what_a_job_wrote_cannot_become_markup(client: Callable[..., Any], tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    own = {**entry(evil, 0), "task": evil, "digest": evil, "kind": evil}
    whole = dict.fromkeys(("application_id", "state_dir", "host", "user", "request_id", "plan_id"), evil)
    write(tmp_path, 1, {**done(attempt(1), own, notes=[evil]), **whole})
    write(tmp_path, 2, {**failed(attempt(2), what=evil, action=evil, error=evil, code=evil, phase=evil), **whole})
    write(tmp_path, 3, {**done(attempt(3), {**own, "committed_offset": -4}, notes=[evil]), **whole, "host": "b"})
    write(tmp_path, 4, {**failed(attempt(4), what=evil, action=evil, error=evil), "application_id": ""})
    write(tmp_path, 5, "{half")
    (tmp_path / "orders" / "r5.json").rename(tmp_path / "orders" / "<b>.json")
    query = urlencode({"name": "orders", "application": evil, "host": evil, "state_dir": evil})
    pages = [
        client(path, "viewer")
        for path in ("/", f"/?q={quote('<script>')}", f"/instance?{query}", "/instance?name=%3Cb%3E&host=%3Cb%3E")
    ]
    for answer in pages:
        assert evil not in answer.text
        assert "<b>" not in answer.text
        assert "script-src 'nonce-" in answer.headers["Content-Security-Policy"]
    assert pages[0].text.count("&lt;script&gt;") >= 8
    assert pages[2].status_code == 200
    assert pages[2].text.count("&lt;script&gt;") >= 8


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
    assert [view["name"] for view in plugin["external_views"]] == ["Stores", "Statecore progress", "Statecore progress"]
    tab = next(view for view in plugin["external_views"] if view["destination"] == "dag_run")
    assert tab["href"] == "/behind/a/proxy/statecore-progress/?dag_id={DAG_ID}&run_id={RUN_ID}"


def test_a_published_snapshot_is_no_restored_state_directory(client: Callable[..., Any], tmp_path: Path) -> None:
    published = {"repository": "s3://states/<production>", "published": {"snapshot": "20260102T030405Z-abc"}}
    write(tmp_path, 1, done(attempt(1, state_dir=""), entry("by-id", 0, -1, digest=""), **published))
    text = client("/", "viewer").text
    assert "<code>s3://states/&lt;production&gt;</code>" in text
    assert "snapshot <code>20260102T030405Z-abc</code>" in text
    assert text.count("not counted") == 2
    assert ">As of</th>" in text
    assert ">-1<" not in text
    assert "Restored" not in text
    where = "/instance?name=orders&application=orders&host=one&state_dir="
    page = client(where, "viewer").text
    assert page.count("not counted") == 3
    assert "Z-abc in s3://states/&lt;production&gt;." in page
    (shown,) = client("/stores?state=published", "viewer").json()["applications"]
    (one,) = shown["instances"]
    assert (one["last_restored"], one["last_published"]["snapshot"]) == (None, "20260102T030405Z-abc")
    assert client("/stores?state=restored", "viewer").json()["applications"] == []
    write(tmp_path, 2, failed(attempt(2, state_dir=""), phase="read"))
    text = client("/", "viewer").text
    assert text.index("The latest attempt was refused") < text.index("Before that, published")


def test_a_restore_that_published_says_both(client: Callable[..., Any], tmp_path: Path) -> None:
    published = {"repository": "file:///r", "published": {"snapshot": "s1"}}
    write(tmp_path, 1, done(attempt(1), entry("by-id", 0), **published))
    text = client("/", "viewer").text
    assert "Restored <time" in text
    assert ("<code>file:///r</code>" in text, "<code>s1</code>" in text) == (True, True)


def test_a_job_without_a_state_directory_that_never_succeeded(client: Callable[..., Any], tmp_path: Path) -> None:
    write(tmp_path, 1, failed(attempt(1, state_dir="")))
    text = client("/", "viewer").text
    assert "published nothing yet" not in text, "others may have published"
    assert "published no snapshot" in text
    assert "Never published before." not in text


def test_a_checkpoint_that_found_nothing_new_says_so_and_of_when_the_newest_snapshot_is(
    client: Callable[..., Any], tmp_path: Path
) -> None:
    place = {"repository": "file:///r", "placed": False}
    stores = entry("by-id", 0, -1, digest="")
    write(tmp_path, 1, done(attempt(1, state_dir=""), stores, published={"snapshot": "s1"}, **place))
    write(tmp_path, 2, done(attempt(2, state_dir=""), stores, **place))
    text = client("/", "viewer").text
    assert "Nothing new <time" in text
    assert "<code>s1</code>, published <time" in text
    page = client("/instance?name=orders&application=orders&host=one&state_dir=", "viewer").text
    assert "<td>nothing new</td>" in page
    assert "<td>published</td>" in page
    assert "in place already" not in page


def test_a_checkpoint_that_had_nothing_to_do_does_not_hide_what_the_one_before_it_came_to(
    client: Callable[..., Any], tmp_path: Path
) -> None:
    made = done(attempt(1, state_dir=""), entry("by-id", 0, -1), repository="file:///r", published={"snapshot": "s1"})
    idle = done(attempt(2, state_dir=""), plan_id="", repository="file:///r", published=None, notes=["It was made."])
    write(tmp_path, 2, idle)
    assert "It was made." in client("/", "viewer").text
    write(tmp_path, 1, made)
    text = client("/", "viewer").text
    assert "Published <time" in text
    assert ("It was made." in text, "othing new <time" in text) == (False, False)


def test_a_spec_of_an_unknown_application_is_shown_by_its_path(client: Callable[..., Any], tmp_path: Path) -> None:
    error = NotFound("No spec /srv/<a>.yaml.", code="spec-not-found", action="Name the file.").to_json()
    refusals.record(tmp_path, "/srv/<a>.yaml", "checkpoint_stores/scheduled__1/checkpoint/4", error)
    text = client("/", "viewer").text
    assert "<h2>/srv/&lt;a&gt;.yaml</h2>" in text
    assert "NotFound (spec-not-found): " in text
    assert "0 partitions" not in text


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATECORE_CHECKPOINT_TICK", "1m")


def checked_ago(directory: Path, checked: int, current: int | None, interval: int = 60, **fields: Any) -> None:
    """Write the check of a time some seconds ago, and until when the snapshot was complete then."""
    now = int(time.time())
    found = Freshness((now - checked) * 1000, interval * 1000, None if current is None else (now - current) * 1000)
    record_checks(directory, {"orders": replace(found, **fields)})


@pytest.mark.usefixtures("ticking")
@pytest.mark.parametrize(("dag", "is_alarm"), [("verify_snapshots", True), ("checkpoint_stores", False)])
def test_damage_stays_an_alarm_although_a_later_check_finds_nothing_new(
    client: Callable[..., Any], tmp_path: Path, dag: str, *, is_alarm: bool
) -> None:
    """The check compares offsets: of the files it knows nothing."""
    checked_ago(tmp_path, 1, 1)
    tried = replace(attempt(2, ""), request_id=f"{dag}/scheduled__2/verify/0")
    write(tmp_path, 2, failed(tried, error="Corrupted", code="blob-missing"))
    assert ('role="alert"' in client("/", "viewer").text) == is_alarm


@pytest.mark.usefixtures("ticking")
def test_a_verification_that_failed_stays_an_alarm_whatever_checkpoints_do(
    client: Callable[..., Any], tmp_path: Path
) -> None:
    checked_ago(tmp_path, 1, 1)
    tried = replace(attempt(2, ""), request_id="verify_snapshots/scheduled__2/verify/0")
    write(tmp_path, 2, failed(tried, error="Corrupted", code="blob-damaged"))
    made = done(attempt(3, state_dir=""), entry("by-id", 0), repository="file:///r", published={"snapshot": "s1"})
    write(tmp_path, 3, made)
    text = client("/", "viewer").text
    assert "<strong>The verification failed</strong>" in text
    assert "Corrupted (blob-damaged): " in text
    assert "The latest attempt failed" not in text
    assert text.count('role="alert"') == 1
    write(tmp_path, 4, failed(attempt(4, state_dir=""), error="Retryable", code="broker-unreachable"))
    checked_ago(tmp_path, 1, 300)
    text = client("/", "viewer").text
    assert "The verification failed" in text
    assert "Retryable (broker-unreachable): " in text


@pytest.mark.usefixtures("ticking")
@pytest.mark.parametrize("is_explained", [True, False])
def test_where_a_failure_is_newer_than_the_last_check_the_page_points_to_it(
    client: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_explained: bool
) -> None:
    checked_ago(tmp_path, 240, 240)
    error = Retryable("No broker answered.", code="broker-unreachable", action="Check it.").to_json()
    refusals.record(tmp_path, "orders", "checkpoint_stores/scheduled__1/checkpoint/0", error)
    if not is_explained:  # a check came after the failure, and then none
        checked_ago(tmp_path, -60, 240)
        now = time.time()
        monkeypatch.setattr("statecore.airflow.ui.store_page.time.time", lambda: now + 600)
    text = client("/", "viewer").text
    assert "Not checked since" in text
    assert ("The failure below says why, and what to do: Retryable (broker-unreachable)." in text) is is_explained
    assert ("Check whether the Dag is paused" in text) is not is_explained


@pytest.fixture
def outage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoints of three applications failed of one cause, one of another; two are late, one is well."""
    monkeypatch.setenv("STATECORE_CHECKPOINT_TICK", "15s")
    away = {"error": "Retryable", "code": "broker-unreachable", "action": "Check it, then run this again."}
    causes = {
        **{f"away-{number}": {**away, "what": f"No broker has away-{number}-log."} for number in range(3)},
        "broken": {
            "error": "Invalid",
            "code": "spec-invalid",
            "what": "It is no spec:\n- line 1",
            "action": "Mend it.",
        },
    }
    now_ms = int(time.time() * 1000)
    late = Freshness(now_ms, 60_000, now_ms - 300_000, snapshot="s1")
    for name in (*causes, "late-1", "late-2", "well"):
        tried = [
            replace(attempt(second, "", application=name), request_id=f"checkpoint_stores/r/checkpoint/{second}")
            for second in (1, 2, 3)
        ]
        write(tmp_path, 1, done(tried[0], entry("s", 0), repository="file:///r", published={"snapshot": "s1"}), name)
        if name in causes:
            write(tmp_path, 2, failed(tried[1], **causes[name]), name)
        if name == "away-2":
            write(tmp_path, 3, tried[2].begun(), name)
    record_checks(
        tmp_path, dict.fromkeys((*causes, "late-1", "late-2"), late) | {"well": replace(late, current_ms=now_ms)}
    )


@pytest.mark.usefixtures("outage")
def test_the_causes_of_all_alarms_stand_above_once(client: Callable[..., Any]) -> None:
    """The failure of an application of which a newer attempt runs is among them."""
    answer = client("/stores", "viewer").json()
    found = [(one["code"], one["applications"], one["unsaid"], one["tried_every"]) for one in answer["causes"]]
    assert found == [
        ("broker-unreachable", ["away-0", "away-1", "away-2"], 0, "15s"),
        ("snapshot-late", ["late-1", "late-2"], 0, ""),
        ("spec-invalid", ["broken"], 0, ""),
    ]
    assert [one["what"] for one in answer["causes"][0]["wordings"]] == ["No broker has <application>-log."]
    failures = {one["name"]: one["instances"][0]["failure"] for one in answer["applications"]}
    assert {name for name, one in failures.items() if one} == {"away-0", "away-1", "away-2", "broken"}
    text = client("/", "viewer").text
    assert text.count('role="alert"') == 1
    top, *blocks = text.split("<section>")
    assert [top.count(one) for one in ("No broker", "Check it", "Mend it.", "away-0, away-1, away-2")] == [1] * 4
    said = {block[: block.index("</h2>")].strip().removeprefix("<h2>"): block for block in blocks}
    assert ["the same cause as above" in said[f"away-{number}"] for number in range(3)] == [True] * 3
    assert "An attempt began" in said["away-2"]
    assert "line 1" in said["broken"], "more lines than above"
    assert "Check it" not in "".join(blocks)
    assert [name for name, block in said.items() if "<details>" in block] == [*sorted(failures)[:6]]


@pytest.mark.usefixtures("outage")
def test_of_one_application_all_is_in_its_block(client: Callable[..., Any]) -> None:
    text = client("/?q=away-0", "viewer").text
    assert (text.count('role="alert"'), text.count("No broker has away-0-log.")) == (2, 1)
    assert ("<details>" in text, "with an alarm" in text) == (False, False)


@pytest.mark.usefixtures("outage")
@pytest.mark.parametrize(("name", "said"), [("away-0", True), ("broken", False), ("late-1", False)])
def test_where_no_person_is_needed_the_page_says_that_the_schedule_tries_again(
    client: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, name: str, *, said: bool
) -> None:
    for path in (f"/?q={name}", f"/instance?name={name}&application={name}&host=one"):
        assert ("The schedule tries again every 15s" in client(path, "viewer").text) is said
    monkeypatch.delenv("STATECORE_CHECKPOINT_TICK")
    assert "The schedule tries again every" not in client(f"/?q={name}", "viewer").text


def test_since_when_it_has_failed_is_shown_beside_the_latest_failure(
    client: Callable[..., Any], tmp_path: Path
) -> None:
    write(tmp_path, 1, failed(attempt(1)))
    write(tmp_path, 2, done(attempt(2), entry("by-id", 0)))
    write(tmp_path, 63, failed(attempt(63), error="Retryable", code="broker-unreachable"))
    assert "the first failure was" not in client("/", "viewer").text
    write(tmp_path, 200, failed(attempt(200), error="Retryable", code="broker-unreachable"))
    text = client("/", "viewer").text
    since = text[text.index("the first failure was") :]
    assert since.index(attempt(63).started[:19]) < 80


def test_a_failure_that_is_reported_again_and_again_keeps_when_it_was_first(
    client: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = Retryable("No broker answered.", code="broker-unreachable", action="Check it.").to_json()
    request = "checkpoint_stores/scheduled__1/checkpoint/0"
    for at in (1_700_000_000, 1_700_000_060, 1_700_000_120):
        monkeypatch.setattr("statecore.jobs.attempt.utc_now", lambda at=at: utc(at))
        refusals.record(tmp_path, "orders", request, error)
    (head,) = client("/reports", "viewer").json()["reports"]
    assert (head["failing_since"], head["finished"]) == (utc(1_700_000_000), utc(1_700_000_120))
    assert "the first failure was <time" in client("/", "viewer").text
    refusals.delete(tmp_path, ["orders"])
    refusals.record(tmp_path, "orders", request, error)
    (head,) = client("/reports", "viewer").json()["reports"]
    assert head["failing_since"] == utc(1_700_000_120)


@pytest.mark.usefixtures("ticking")
def test_a_late_and_a_damaged_application_come_first_and_are_found_with_the_failed_ones(
    client: Callable[..., Any], tmp_path: Path
) -> None:
    names = ("a-fine", "b-late", "c-damaged", "d-failed")
    for number, name in enumerate(names):
        tried = attempt(number, state_dir="", application=name)
        write(tmp_path, number, failed(tried) if name == "d-failed" else done(tried, entry("by-id", 0)), name)
    write(tmp_path, 3, failed(attempt(3, "", application="d-failed"), error="Corrupted"), "d-failed")
    now_ms = int(time.time() * 1000)
    fine = Freshness(now_ms, 60_000, now_ms)
    damaged = replace(fine, verified=(VerifiedLevel("files", now_ms, 1),))
    record_checks(tmp_path, {"a-fine": fine, "b-late": replace(fine, current_ms=0), "c-damaged": damaged})

    def shown(path: str) -> list[str]:
        return [one["name"] for one in client(path, "viewer").json()["applications"]]

    assert shown("/stores") == ["b-late", "c-damaged", "d-failed", "a-fine"]
    assert shown("/stores?state=failed") == ["b-late", "c-damaged", "d-failed"]


@pytest.mark.usefixtures("ticking")
@pytest.mark.parametrize(
    ("checked", "current", "interval", "late", "unchecked"),
    [
        (10, 70, 60, False, False),
        (10, 130, 60, True, False),  # another process that checks, and none that publishes
        (240, 240, 60, True, True),  # the object store is away: no check has ended
        (240, 240, 300, False, True),
        (10, None, 60, False, False),
    ],
)
def test_the_age_of_a_snapshot_is_compared_with_the_interval(
    client: Callable[..., Any],
    tmp_path: Path,
    checked: int,
    current: int | None,
    interval: int,
    late: bool,
    unchecked: bool,
) -> None:
    published = {"repository": "file:///r", "published": {"snapshot": "s1"}}
    write(tmp_path, 1, done(attempt(1, state_dir=""), entry("by-id", 0), **published))
    write(tmp_path, 2, done(attempt(2, state_dir="", host="two"), entry("by-id", 0), **published))
    write(tmp_path, 3, done(attempt(3, state_dir="/s"), entry("by-id", 0)))
    checked_ago(tmp_path, checked, current, interval)
    text = client("/", "viewer").text
    assert text.count("is late") == late
    assert text.count("Not checked since") == unchecked
    for to_do in ("the Dag is paused", "scheduler runs"):
        assert text.count(to_do) == (late or unchecked)
    assert text.count("task decide") == unchecked
    assert text.count('role="alert"') == (late or unchecked)
    (shown,) = client("/stores", "viewer").json()["applications"]
    assert (shown["freshness"]["is_late"], shown["freshness"]["is_unchecked"]) == (late, unchecked)
    where = "/instance?name=orders&application=orders&host=one&state_dir="
    assert client(where, "viewer").text.count('role="alert"') == (late or unchecked)
    assert 'role="alert"' not in client(f"{where}/s", "viewer").text


@pytest.mark.usefixtures("ticking")
@pytest.mark.parametrize("damaged", [0, 2])
def test_what_was_verified_when_is_shown_and_damage_is_an_alarm(
    client: Callable[..., Any], tmp_path: Path, damaged: int
) -> None:
    write(tmp_path, 1, done(attempt(1, state_dir=""), entry("by-id", 0), published={"snapshot": "s1"}))
    checked_ago(tmp_path, 10, 20)
    assert "Never verified" in client("/", "viewer").text
    now_ms = int(time.time() * 1000)
    verified = (VerifiedLevel("files", now_ms - 60_000, damaged), VerifiedLevel("bytes", now_ms - 3_600_000, 0))
    checked_ago(tmp_path, 10, 20, verified=verified)
    text = client("/", "viewer").text
    assert "Verified: files <time" in text
    assert "bytes <time" in text
    assert (text.count('role="alert"'), "2 damaged" in text) == ((1, True) if damaged else (0, False))
    (shown,) = client("/stores", "viewer").json()["applications"]
    assert [one["level"] for one in shown["freshness"]["verified"]] == ["files", "bytes"]


@pytest.mark.usefixtures("ticking")
@pytest.mark.parametrize("kept", ["", "s0"])
def test_a_snapshot_of_before_the_changelogs_were_replaced_is_shown_until_it_is_unpinned(
    client: Callable[..., Any], tmp_path: Path, kept: str
) -> None:
    write(tmp_path, 1, done(attempt(1, state_dir=""), entry("by-id", 0), published={"snapshot": "s1"}))
    checked_ago(tmp_path, 10, 20, kept=kept, kept_note="the last one before")
    assert ("statecore repo unpin s0" in client("/", "viewer").text) is bool(kept)


@pytest.mark.usefixtures("ticking")
def test_damage_of_a_part_is_an_alarm_before_all_of_the_level_was_verified(
    client: Callable[..., Any], tmp_path: Path
) -> None:
    write(tmp_path, 1, done(attempt(1, state_dir=""), entry("by-id", 0), published={"snapshot": "s1"}))
    checked_ago(tmp_path, 10, 20, verified=(VerifiedLevel("bytes", None, 1),))
    text = client("/", "viewer").text
    assert 'role="alert"' in text
    assert "Verified: bytes in part, 1 damaged." in text
    (shown,) = client("/stores", "viewer").json()["applications"]
    assert (shown["freshness"]["is_damaged"], shown["freshness"]["verified"][0]["since_ms"]) == (True, None)


@pytest.mark.usefixtures("ticking")
def test_a_failure_is_over_when_a_later_check_finds_nothing_new(client: Callable[..., Any], tmp_path: Path) -> None:
    write(tmp_path, 1, failed(attempt(1, state_dir=""), error="Corrupted", code="record-corrupt"))
    assert 'role="alert"' in client("/", "viewer").text
    checked_ago(tmp_path, 10, 10)
    text = client("/", "viewer").text
    assert 'role="alert"' not in text
    assert "Corrupted (record-corrupt)" in text


@pytest.mark.usefixtures("ticking")
def test_the_newest_snapshot_is_that_of_the_repository(client: Callable[..., Any], tmp_path: Path) -> None:
    published = {"repository": "file:///r", "published": {"snapshot": "s1"}}
    write(tmp_path, 1, done(attempt(1, state_dir=""), entry("by-id", 0), **published))
    checked_ago(tmp_path, 10, 10, snapshot="s2", published_at="2026-11-29T01:02:03.000Z")
    assert "the newest snapshot is <code>s2</code>" in client("/", "viewer").text


def published_ago(directory: Path, seconds: float, snapshot: str = "s2", **fields: Any) -> None:
    """Write the report of a checkpoint that read the ends a second before it published, some seconds ago."""
    now = time.time()
    made = {"snapshot": snapshot, "created_at": utc(now - seconds), "read_at_ms": int((now - seconds - 1) * 1000)}
    tried = replace(attempt(1, state_dir=""), started=utc(now - seconds - 2))
    report = done(tried, entry("by-id", 0, -1), repository="file:///r", published={**made, **fields})
    write(directory, 1, {**report, "finished": utc(now - seconds)})


@pytest.mark.usefixtures("ticking")
def test_of_two_repositories_that_which_is_checked_is_shown(client: Callable[..., Any], tmp_path: Path) -> None:
    for second, repository, rows in ((1, "file:///r", 11), (2, "file:///other", 22)):
        tried, published = attempt(second, state_dir=""), {"snapshot": f"s{second}"}
        write(tmp_path, second, done(tried, entry("by-id", 0, rows), repository=repository, published=published))
    (shown,) = client("/stores", "viewer").json()["applications"]
    assert [one["rows"] for one in shown["instances"][0]["stores"]] == [22], "none is checked: the last"
    checked_ago(tmp_path, 10, 10, snapshot="s1", published_at=utc(time.time() - 10), repository="file:///r")
    where = "/instance?name=orders&application=orders&host=one&state_dir="
    for text in (client("/", "viewer").text, client(where, "viewer").text):
        assert "published to <code>file:///r</code>" in text
        assert "to another repository, <code>file:///other</code>: snapshot <code>s2</code>" in text
        assert "the newest snapshot of this one is <code>s1</code>" in text
        assert ('<td class="n">11</td>' in text, '<td class="n">22</td>' in text.split("Attempts,")[0]) == (True, False)
    (shown,) = client("/stores", "viewer").json()["applications"]
    (instance,) = shown["instances"]
    assert ([one["rows"] for one in instance["stores"]], instance["last_published"]["snapshot"]) == ([11], "s1")


@pytest.mark.usefixtures("ticking")
@pytest.mark.parametrize("before", ["s1", ""])
def test_what_a_job_has_published_since_the_check_is_the_newest_snapshot(
    client: Callable[..., Any], tmp_path: Path, before: str
) -> None:
    checked_ago(tmp_path, 20, 150 if before else None, snapshot=before, repository="file:///r")
    published_ago(tmp_path, 7)
    text = client("/", "viewer").text
    assert 'role="alert"' not in text
    assert "8 seconds ago" in text[text.index("The newest snapshot has") : text.index("a checkpoint is due every")]
    assert "There is no snapshot yet." not in text
    assert "the newest snapshot is" not in text, "it is the one that the job has published"
    (shown,) = client("/stores", "viewer").json()["applications"]
    assert (shown["freshness"]["is_late"], shown["freshness"]["snapshot"]) == (False, "s2")


@pytest.mark.usefixtures("ticking")
def test_ends_that_were_read_long_before_the_publication_do_not_make_a_snapshot_late(
    client: Callable[..., Any], tmp_path: Path
) -> None:
    checked_ago(tmp_path, 20, 150, snapshot="s1", repository="file:///r")
    published_ago(tmp_path, 7, read_at_ms=1)
    assert 'role="alert"' not in client("/", "viewer").text


@pytest.mark.usefixtures("ticking")
@pytest.mark.parametrize(("published", "repository"), [(30, "file:///r"), (7, "file:///another")])
def test_a_report_of_before_the_check_or_of_another_repository_does_not_change_what_the_check_has_found(
    client: Callable[..., Any], tmp_path: Path, published: int, repository: str
) -> None:
    checked_ago(tmp_path, 20, 150, snapshot="s1", repository=repository)
    published_ago(tmp_path, published)
    assert "is late" in client("/", "viewer").text


@pytest.mark.usefixtures("ticking")
@pytest.mark.parametrize(
    ("unchanged", "repository", "late"),
    [("s1", "file:///r", False), ("s0", "file:///r", True), ("s1", "file:///another", True), ("", "file:///r", True)],
)
@pytest.mark.parametrize("checked", [20, 3])
def test_a_checkpoint_that_found_nothing_new_has_checked_its_snapshot(
    client: Callable[..., Any], tmp_path: Path, checked: int, unchanged: str, repository: str, late: bool
) -> None:
    """Also where a check came later: it finds that something is new, and not what a checkpoint makes of it."""
    checked_ago(tmp_path, checked, 150, snapshot="s1", repository="file:///r")
    now = time.time()
    tried = replace(attempt(1, state_dir=""), started=utc(now - 9))
    found = {"unchanged": {"snapshot": unchanged, "read_at_ms": int((now - 8) * 1000)} if unchanged else None}
    write(tmp_path, 1, {**done(tried, repository=repository, published=None, **found), "finished": utc(now - 7)})
    text = client("/", "viewer").text
    assert ("is late" in text) is late
    assert ("8 seconds ago" in text[text.index("all records of") : text.index("a checkpoint is due every")]) is not late


def test_without_scheduled_checkpoints_no_snapshot_is_late(client: Callable[..., Any], tmp_path: Path) -> None:
    write(tmp_path, 1, done(attempt(1, state_dir=""), entry("by-id", 0)))
    checked_ago(tmp_path, 900, 900)
    assert 'role="alert"' not in client("/", "viewer").text


def test_of_an_attempt_without_an_end_the_page_asks_airflow(client: Callable[..., Any], tmp_path: Path) -> None:
    write(tmp_path, 1, attempt(1).begun())
    text = client("/", "viewer").text
    assert 'data-task="dags/restore_stores/dagRuns/manual__1/taskInstances/restore/0"' in text
    assert "it is running, or was killed" in text
    where = "/instance?name=orders&application=orders&host=one&state_dir=/s"
    assert "data-task=" in client(where, "viewer").text


@pytest.mark.skipif(shutil.which("node") is None, reason="runs the page's script")
def test_what_airflow_says_of_an_attempt_without_an_end() -> None:
    script = (ROOT / "statecore" / "airflow" / "ui" / "templates" / "attempts.js").read_text()
    states = ["running", "failed", "up_for_retry", "queued", None]
    script += f"""
    console.log(JSON.stringify({json.dumps(states)}.map((state) => {{
      const box = {{className: "note", role: "status", setAttribute(name, value) {{ this[name] = value; }}}};
      const element = {{closest: () => box}};
      show(element, state);
      return [element.textContent, box.className, box.role];
    }})))"""
    done = subprocess.run(["node", "-e", script], capture_output=True, check=True, timeout=60)
    (running, *_), *killed = shown = json.loads(done.stdout)
    assert "killed" not in running
    assert all("killed" in one for one, *_ in killed)
    alarms = {state: one for state, (one, *box) in zip(states, shown, strict=True) if box == ["failure", "alert"]}
    assert list(alarms) == ["failed"], "no retry is left"
    assert "clear the failed task" in alarms["failed"]
    assert all(box == ["note", "status"] for state, (_, *box) in zip(states, shown, strict=True) if state != "failed")


@pytest.mark.skipif(shutil.which("node") is None, reason="runs the page's script")
def test_what_airflow_says_of_the_schedule_that_tries_again() -> None:
    script = (ROOT / "statecore" / "airflow" / "ui" / "templates" / "attempts.js").read_text()
    now = 1_700_000_000
    dags = [
        {"is_paused": True, "next_dagrun_run_after": utc(now + 9)},
        *(
            {"is_paused": False, "next_dagrun_run_after": one}
            for one in (utc(now + 9), utc(now + 300), utc(now - 300), utc(now - 9), None)
        ),
    ]
    script += f"""
    console.log(JSON.stringify({json.dumps(dags)}.map((dag) => scheduleInWords(dag, {now * 1000}))))"""
    done = subprocess.run(["node", "-e", script], capture_output=True, check=True, timeout=60)
    paused, soon, later, dead, *unknown = json.loads(done.stdout)
    assert "is paused" in paused
    assert "5 minutes ago" in dead
    assert ("in 9 s" in soon, "in 5 minutes" in later, unknown) == (True, True, ["", ""])


@pytest.mark.full
@pytest.mark.skipif(shutil.which("chromium") is None, reason="measures the page")
@pytest.mark.parametrize("width", [1400, 1000])
def test_no_table_is_wider_than_the_window(client: Callable[..., Any], tmp_path: Path, width: int) -> None:
    pages, kind = tmp_path / "pages", "headers-timestamped-window"
    large = {"kind": kind, "committed_offset": 9_876_543_210, "tail_left": 12_345, "digest": "0123456789abcdef"}
    entries = [entry("KSTREAM-AGGREGATE-STATE-STORE-0000000003", number, 123_456_789, **large) for number in range(3)]
    entries += [entry("clicks-per-customer-and-region", 0, 5, **{**large, "committed_offset": -4})]
    tried = replace(
        attempt(1, "/var/lib/kafka-streams"), request_id="restore_stores/scheduled__2026-11-30T03:00:00+00:00/restore/0"
    )
    write(tmp_path, 1, done(tried, *entries, notes=["Read from snapshot 20261129T010203Z-abcdef."]))
    asked = {"name": "orders", "application": "orders", "host": "one", "state_dir": "/var/lib/kafka-streams"}
    count = "[...document.querySelectorAll('.wide')].filter((one) => one.scrollWidth > one.clientWidth).length"
    pages.mkdir()
    for path in ("/", f"/instance?{urlencode(asked)}"):
        file = pages / "page.html"
        file.write_text(f"{client(path, 'viewer').text}<script>document.title = `wider: ${{{count}}}`</script>")
        command = [
            "chromium",
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--window-size={width},900",
            "--dump-dom",
        ]
        shown = subprocess.run([*command, file.as_uri()], capture_output=True, check=True, timeout=300).stdout.decode()
        assert "<title>wider: 0</title>" in shown, path
