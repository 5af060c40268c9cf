"""A whole Airflow on this machine, started without a question and stopped without a rest.

``airflow standalone`` on SQLite and the loopback address, on free ports, with a password that is set beforehand. It is
told what to do through its public REST API alone, as any client would.

Stopping it takes care: SIGINT to the parent alone ends it cleanly, as a rule within ten seconds, but on a busy machine
one of its children now and then never hears of it, so what is left after a while gets SIGTERM, then SIGKILL. SIGTERM to
the parent alone leaves its four children running, and SIGINT to the whole group makes them hang. Everything it starts
stays in the session it was started in and inherits a mark in its environment, so what belongs to it can be told for
certain, also when the parent is gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from demo.airflow_client import AirflowClient, AirflowFailed, TaskStatus, call
from tests.harness.process_guard import started_at

__all__ = ["RECORD", "ROOT", "AirflowFailed", "AirflowServer", "TaskStatus"]

ROOT = Path(__file__).resolve().parents[1]
RECORD = "airflow.json"
"""Name of the file in ``home`` that says which process runs there."""

MARK = "STATECORE_AIRFLOW_SERVER"
COMPONENTS = ("metadatabase", "scheduler", "dag_processor", "triggerer")
START_SECONDS = 400
STOP_SECONDS = 20
"""How long it may take to end by itself."""

END_SECONDS = 5
"""How long each stronger signal may take."""


class AirflowServer(AirflowClient):
    """One ``airflow standalone`` in a directory of its own.

    Args:
        home: AIRFLOW_HOME: database, logs, pid record; made when absent. One server a home.
        dags: the Dag folder.
        plugins: the plugin folder.
        spark_master: what the connection ``spark_default`` names.
        user: login of the one (admin) user.
        password: its password; a random one when ``None``.
        environment: further environment variables for every part (``STATECORE_SPECS``, …).
    """

    def __init__(
        self,
        home: Path,
        dags: Path = ROOT / "dags",
        plugins: Path = ROOT / "plugins",
        spark_master: str = "local[*]",
        *,
        user: str = "admin",
        password: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__("", user, password or secrets.token_urlsafe(12))
        self.home = home.resolve()
        self.dags = dags.resolve()
        self.plugins = plugins.resolve()
        self.spark_master = spark_master
        self.environment = dict(environment or {})
        self._child: subprocess.Popen[bytes] | None = None

    @classmethod
    def attach(cls, home: Path) -> AirflowServer | None:
        """The server that some process started in ``home``, or ``None`` when nothing of it runs any more."""
        server = cls(home)
        record = server._record()
        if record is None:
            return None
        server.user, server.password = record["user"], record["password"]
        return server if server.running or server.processes() else None

    @property
    def url(self) -> str:
        """Where UI and REST API are."""
        record = self._record()
        if record is None:
            raise AirflowFailed(f"no Airflow was started in {self.home}")
        return f"http://127.0.0.1:{record['port']}"

    def check_alive(self) -> None:
        """Raise ``AirflowFailed`` with the end of the log when the server has ended."""
        if not self.running:
            raise AirflowFailed(f"Airflow has ended; end of its log:\n{self.log_tail()}")

    @property
    def log_file(self) -> Path:
        """What all its parts print."""
        return self.home / "standalone.log"

    @property
    def pid(self) -> int | None:
        """Process id of the parent, as recorded."""
        record = self._record()
        return None if record is None else int(record["pid"])

    @property
    def running(self) -> bool:
        """Whether the parent lives: that very process, not a later one with its pid."""
        record = self._record()
        if self._child is not None:
            self._child.poll()  # reaps it
        return record is not None and started_at(int(record["pid"])) == record["started_at"]

    def start(self) -> AirflowServer:
        """Start it; returns at once, see ``wait_healthy``. Raises ``AirflowFailed`` when it runs already."""
        if self.running or self.processes():
            raise AirflowFailed(f"an Airflow runs in {self.home} already (pid {self.pid}); stop it first")
        self.home.mkdir(parents=True, exist_ok=True)
        passwords = self.home / "passwords.json"
        passwords.touch(mode=0o600)
        passwords.write_text(json.dumps({self.user: self.password}))
        ports = _free_ports(3)
        mark = secrets.token_hex(8)
        with self.log_file.open("ab") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "airflow", "standalone"],
                env=self._environment(ports, passwords, mark),
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                # A shell that starts us in the background has SIGINT ignored, and that is inherited.
                preexec_fn=_default_interrupt,
            )
        record = {
            "pid": self._child.pid,
            "started_at": started_at(self._child.pid),
            "port": ports[0],
            "mark": mark,
            "user": self.user,
            "password": self.password,
        }
        staged = self.home / f"{RECORD}.tmp"
        staged.touch(mode=0o600)
        staged.write_text(json.dumps(record))
        staged.rename(self.home / RECORD)
        return self

    def wait_healthy(self, seconds: float = START_SECONDS) -> AirflowServer:
        """Wait until API server, scheduler, Dag processor and triggerer all say they are well."""
        deadline = time.monotonic() + seconds
        seen: dict[str, Any] = {}
        while time.monotonic() < deadline:
            self.check_alive()
            with contextlib.suppress(OSError, ValueError):
                health = call("GET", f"{self.url}/api/v2/monitor/health")
                seen = {name: (health.get(name) or {}).get("status") for name in COMPONENTS}
                if all(status == "healthy" for status in seen.values()):
                    return self
            time.sleep(0.5)
        raise AirflowFailed(f"Airflow was not healthy after {seconds:.0f} s: {seen}\n{self.log_tail()}")

    def stop(self, seconds: float = STOP_SECONDS) -> bool:
        """Stop it, and whatever of it is left; ``False`` when there was nothing to stop.

        Args:
            seconds: how long it may take to end by itself before stronger signals follow.

        Raises:
            AirflowFailed: processes of it are left that not even SIGKILL has ended.
        """
        if not self.running and not self.processes():
            return False
        pid = self.pid
        if self.running and pid is not None:
            os.kill(pid, signal.SIGINT)  # to the parent alone
            self._wait_gone(seconds)
        for number in (signal.SIGTERM, signal.SIGKILL):
            left = self.processes()
            for one in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one, number)
            if left:
                self._wait_gone(END_SECONDS)
        if left := self.processes():
            raise AirflowFailed(f"these processes of Airflow could not be ended: {left}")
        if self._child is not None:
            self._child.wait()  # it may have ended after the last poll
        self._token = None
        return True

    def processes(self) -> list[int]:
        """Every living process of the recorded server: the parent, its children, the jobs they started."""
        record = self._record()
        if record is None:
            return []
        leader = int(record["pid"])
        reused = started_at(leader) not in (None, record["started_at"])
        mark = f"{MARK}={record['mark']}".encode()
        # A process may overwrite its environment with its title (setproctitle does), or leave the session.
        return [
            pid for pid, session in _sessions() if (session == leader and not reused) or mark in _environment_of(pid)
        ]

    def log_tail(self, characters: int = 4000) -> str:
        """The end of what it printed."""
        try:
            return self.log_file.read_text(errors="replace")[-characters:]
        except FileNotFoundError:
            return "(no log)"

    def __enter__(self) -> AirflowServer:
        return self.start().wait_healthy()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _wait_gone(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and (self.running or self.processes()):
            time.sleep(0.1)

    def _record(self) -> dict[str, Any] | None:
        try:
            record: dict[str, Any] = json.loads((self.home / RECORD).read_text())
        except (FileNotFoundError, ValueError):
            return None
        return record

    def _environment(self, ports: list[int], passwords: Path, mark: str) -> dict[str, str]:
        api, worker_logs, trigger_logs = ports
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
        binaries = str(Path(sys.executable).parent)
        settings = {
            "CORE__DAGS_FOLDER": str(self.dags),
            "CORE__PLUGINS_FOLDER": str(self.plugins),
            "CORE__LOAD_EXAMPLES": "False",
            "CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "CORE__PARALLELISM": "4",
            "CORE__SIMPLE_AUTH_MANAGER_USERS": f"{self.user}:admin",
            "CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
            "API__HOST": "127.0.0.1",
            "API__PORT": str(api),
            "API__BASE_URL": f"http://127.0.0.1:{api}",  # the tasks' own API derives from it
            "DAG_PROCESSOR__REFRESH_INTERVAL": "10",
            "LOGGING__WORKER_LOG_SERVER_PORT": str(worker_logs),
            "LOGGING__TRIGGER_LOG_SERVER_PORT": str(trigger_logs),
            "USAGE_DATA_COLLECTION__ENABLED": "False",
        }
        connection = {"conn_type": "spark", "host": self.spark_master, "extra": {"deploy-mode": "client"}}
        return {
            **inherited,
            **{f"AIRFLOW__{name}": value for name, value in settings.items()},
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(connection),
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
            # standalone starts `airflow`, and the Spark hook `spark-submit`, by name.
            "PATH": os.pathsep.join([binaries, inherited.get("PATH", os.defpath)]),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), inherited.get("PYTHONPATH", "")])),
            **self.environment,
            MARK: mark,
        }


def _default_interrupt() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _free_ports(count: int) -> list[int]:
    held = []
    try:
        for _ in range(count):
            held.append(socket.socket())
            held[-1].bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()


def _sessions() -> Iterator[tuple[int, int]]:
    """Every process that is not a zombie, with its session."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if fields[0] not in ("Z", "X"):
                    yield int(entry.name), int(fields[3])


def _environment_of(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
