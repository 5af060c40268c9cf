"""What a client of Airflow does, through its public REST API alone: trigger a Dag, wait, look at tasks and logs."""

from __future__ import annotations

import io
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

ENDED = ("success", "failed")
"""States in which a run stays."""

_SERVER_FAILED = 500
_ANSWER_SECONDS, _TRIES = 120.0, 5  # of one request; a machine that sets up everything at once is slow

# A proxy of the environment has no business with the loopback address.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class AirflowFailed(RuntimeError):
    """Airflow did not start, or refused a call; the message holds what it said."""


@dataclass(frozen=True)
class TaskStatus:
    """One task of a run as it stands.

    Attributes:
        task_id: the task.
        name: what the grid shows for a mapped task (application or store), else empty.
        map_index: -1 for a task that is not mapped.
        state: Airflow's state, ``None`` before it is scheduled.
        try_number: counted from 1.
        progress: the job's latest progress line, or ``None``.
    """

    task_id: str
    name: str
    map_index: int
    state: str | None
    try_number: int
    progress: dict[str, Any] | None


class AirflowClient:
    """Calls one Airflow.

    Args:
        url: where it is, without a path; a subclass may find out later.
        user: login.
        password: its password.
    """

    def __init__(self, url: str, user: str, password: str) -> None:
        self._url = url
        self.user = user
        self.password = password
        self._token: str | None = None

    @property
    def url(self) -> str:
        """Where UI and REST API are."""
        return self._url

    def check_alive(self) -> None:
        """Raise ``AirflowFailed`` when waiting is in vain; a client that knows only the URL cannot tell."""

    def wait_for_dag(self, dag_id: str, seconds: float = 600) -> None:
        """Wait until the Dag processor has read the Dag; an import error of a Dag file ends the wait."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                self.api("GET", f"/dags/{_quote(dag_id)}")
                return
            except urllib.error.HTTPError as error:
                if error.code != 404:
                    raise AirflowFailed(_said(error)) from error
            errors = self.api("GET", "/importErrors")["import_errors"]
            if errors:
                raise AirflowFailed("\n".join(f"{one['filename']}: {one['stack_trace']}" for one in errors))
            time.sleep(0.5)
        raise AirflowFailed(f"the Dag {dag_id} did not appear within {seconds:.0f} s")

    def trigger(self, dag_id: str, conf: Mapping[str, Any] | None = None) -> str:
        """Start a run with these parameters; returns its run id. Raises ``AirflowFailed`` when it is refused."""
        self.wait_for_dag(dag_id)
        body = {"logical_date": None, "conf": dict(conf or {})}
        try:
            return str(self.api("POST", f"/dags/{_quote(dag_id)}/dagRuns", body)["dag_run_id"])
        except urllib.error.HTTPError as error:
            raise AirflowFailed(_said(error)) from error

    def wait(
        self,
        dag_id: str,
        run_id: str,
        seconds: float = 1800,
        on_change: Callable[[list[TaskStatus]], None] | None = None,
    ) -> str:
        """Wait for the end of a run and return its state, ``success`` or ``failed``.

        Args:
            dag_id: the Dag.
            run_id: the run.
            seconds: how long at most; ``AirflowFailed`` after it.
            on_change: called with all tasks whenever a state or a job's progress has changed.
        """
        deadline = time.monotonic() + seconds
        before: list[TaskStatus] | None = None
        while time.monotonic() < deadline:
            state = str(self.api("GET", f"{_run(dag_id, run_id)}")["state"])
            if on_change is not None:
                tasks = self.tasks(dag_id, run_id)
                if tasks != before:
                    on_change(tasks)
                before = tasks
            if state in ENDED:
                return state
            self.check_alive()
            time.sleep(0.5)
        raise AirflowFailed(f"the run {run_id} of {dag_id} did not end within {seconds:.0f} s")

    def tasks(self, dag_id: str, run_id: str) -> list[TaskStatus]:
        """All tasks of a run, with the progress of those that are running."""
        return [
            TaskStatus(
                task_id=one["task_id"],
                name=one.get("rendered_map_index") or "",
                map_index=one["map_index"],
                state=one["state"],
                try_number=one["try_number"],
                progress=self._progress(dag_id, run_id, one) if one["state"] == "running" else None,
            )
            for one in self.api("GET", f"{_run(dag_id, run_id)}/taskInstances?limit=1000")["task_instances"]
        ]

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value", map_index: int = -1) -> Any:
        """A value that a task left."""
        path = f"{_run(dag_id, run_id)}/taskInstances/{_quote(task_id)}/xcomEntries/{_quote(key)}?map_index={map_index}"
        return self.api("GET", path)["value"]

    def task_log(self, dag_id: str, run_id: str, task: TaskStatus) -> str:
        """The log of a task's latest try, one event a line."""
        path = f"{_run(dag_id, run_id)}/taskInstances/{_quote(task.task_id)}/logs/{max(task.try_number, 1)}"
        content = self.api("GET", f"{path}?map_index={task.map_index}&full_content=true")["content"]
        return "\n".join(text for line in content for text in _log_lines(line))

    def why(self, dag_id: str, run_id: str, lines: int = 30) -> str:
        """The ends of the logs of all failed tasks of a run, for a person."""
        texts = [
            f"--- {task.task_id} {task.name} (try {task.try_number})\n"
            + "\n".join(self.task_log(dag_id, run_id, task).splitlines()[-lines:])
            for task in self.tasks(dag_id, run_id)
            if task.state == "failed"
        ]
        return "\n".join(texts)

    def api(self, method: str, path: str, body: Any = None) -> Any:
        """A call of the public REST API (``/api/v2``). Raises ``urllib.error.HTTPError``."""
        if self._token is None:
            login = {"username": self.user, "password": self.password}
            self._token = call("POST", f"{self.url}/auth/token", login)["access_token"]
        try:
            return call(method, f"{self.url}/api/v2{path}", body, self._token)
        except urllib.error.HTTPError as error:
            if error.code != 401:
                raise
            self._token = None  # tokens expire
            login = {"username": self.user, "password": self.password}
            self._token = call("POST", f"{self.url}/auth/token", login)["access_token"]
            return call(method, f"{self.url}/api/v2{path}", body, self._token)

    def _progress(self, dag_id: str, run_id: str, task: Mapping[str, Any]) -> dict[str, Any] | None:
        path = f"{_run(dag_id, run_id)}/taskInstances/{_quote(task['task_id'])}/state-store/progress"
        try:
            value = self.api("GET", f"{path}?map_index={task['map_index']}")["value"]
        except urllib.error.HTTPError:
            return None  # no progress yet
        return value if isinstance(value, dict) else None


def call(
    method: str,
    url: str,
    body: Any = None,
    token: str | None = None,
    *,
    seconds: float = _ANSWER_SECONDS,
    tries: int = _TRIES,
) -> Any:
    """One HTTP request with JSON both ways; a ``GET`` without an answer is sent again.

    So is a ``GET`` or ``PATCH`` that the server failed to do, as when its database was locked.

    Raises ``urllib.error.HTTPError``, ``OSError``, and ``AirflowFailed`` if there was no answer.
    """
    for attempt in range(1, tries + 1):
        try:
            return _call(method, url, body, token, seconds)
        except TimeoutError:
            if method != "GET":
                break
        except urllib.error.HTTPError as error:
            if error.code < _SERVER_FAILED or method not in ("GET", "PATCH") or attempt == tries:
                raise
            time.sleep(attempt)
    raise AirflowFailed(f"{method} {url}: Airflow did not answer within {seconds:g} s")


def _call(method: str, url: str, body: Any, token: str | None, seconds: float) -> Any:
    request = urllib.request.Request(url, method=method)
    request.add_header("Content-Type", "application/json")
    request.add_header("Accept", "application/json")
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    data = None if body is None else json.dumps(body).encode()
    try:
        with _OPENER.open(request, data=data, timeout=seconds) as response:
            text = response.read()
    except urllib.error.HTTPError as error:
        with error:  # it holds the connection, for as long as a traceback holds the error
            text = error.read()
        raise urllib.error.HTTPError(url, error.code, error.reason, error.headers, io.BytesIO(text)) from None
    return json.loads(text) if text else None


def _said(error: urllib.error.HTTPError) -> str:
    return f"{error.url}: {error.code} {error.read().decode(errors='replace')}"


def _log_lines(line: Any) -> Iterator[str]:
    """An event of a log, and the exceptions that it carries beside its text."""
    if isinstance(line, str):
        yield line
        return
    yield str(line.get("event", ""))
    for error in line.get("error_detail") or ():
        yield f"{error.get('exc_type')}: {error.get('exc_value')}"


def _quote(text: str) -> str:
    return urllib.parse.quote(text, safe="")


def _run(dag_id: str, run_id: str) -> str:
    return f"/dags/{_quote(dag_id)}/dagRuns/{_quote(run_id)}"
