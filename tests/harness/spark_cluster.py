"""A real Spark standalone cluster on the loopback addresses: one master, some workers, started by PySpark's launcher.

::

    with SparkCluster(directory, owner=os.getpid()) as cluster:
        cluster.master                      # "spark://127.0.0.1:41235"
        cluster.applications()              # what the master's page says of the applications that ran

Every worker has a loopback address of its own (127.0.0.2, 127.0.0.3, …), so Spark sees as many hosts as there are
workers. All ports are chosen by the system and read from the logs. Workers start with a ``PATH`` on which there is no
Python of this checkout, as on a machine that somebody else has set up; what runs on them is what a job asks for.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.harness import process_guard

SPARK_HOME = Path(find_spec("pyspark").origin or "").parent  # type: ignore[union-attr]
START_SECONDS = 600.0
STOP_SECONDS = 20.0
EXECUTORS_COME = {"spark.scheduler.maxRegisteredResourcesWaitingTime": "900s"}
"""For jobs whose executors must come."""

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class ClusterFailed(RuntimeError):
    """A daemon ended or did not come up; the message carries the end of its log."""


def can_hide() -> bool:
    """Whether this user may give processes a view of the file system of their own."""
    words = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]
    return os.geteuid() == 0 and subprocess.run(words, capture_output=True, check=False).returncode == 0


def _hiding(directories: Sequence[str]) -> list[str]:
    """What runs a command so that it does not see what lies in some directories."""
    if not directories:
        return []
    mounts = " && ".join(f"mount -t tmpfs none {shlex.quote(one)}" for one in directories)
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", f'{mounts} && exec "$@"', "hidden"]


class SparkCluster:
    """One master and its workers.

    Args:
        directory: holds logs and the work directories of the applications; made when it is absent.
        workers: how many.
        cores: cores of each worker.
        memory: memory of each worker, as Spark writes it.
        owner: all daemons are killed as soon as this process is gone.
        path: ``PATH`` of the daemons, and so of the executors.
        hidden: directories that no worker sees: an empty one of its own lies upon each, in a mount namespace. Only
            root can have that; for others they stay visible.
        environment: more for the workers, and so for the executors.
    """

    def __init__(
        self,
        directory: Path,
        *,
        workers: int = 2,
        cores: int = 1,
        memory: str = "1g",
        owner: int | None = None,
        path: str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        hidden: Sequence[Path] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory.resolve()
        self.hosts = tuple(f"127.0.0.{number + 2}" for number in range(workers))
        self._cores, self._memory, self._owner, self._path = cores, memory, owner or os.getpid(), path
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._hidden = [str(path) for path in hidden] if can_hide() else []
        self._environment = dict(environment or {})
        self.master = ""
        self.page = ""

    def start(self) -> SparkCluster:
        """Start all daemons and return when every worker is registered.

        Raises:
            ClusterFailed: one did not come up.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            self._launch("master", "master.Master", "127.0.0.1")
            self.master = self._said("master", r"Starting Spark master at (spark://\S+)")
            port = self._said("master", r"Successfully started service 'MasterUI' on port (\d+)")
            self.page = f"http://127.0.0.1:{port}"
            for host in self.hosts:
                self.start_worker(host)
            self._await(lambda: len(self._alive()) == len(self.hosts), "the workers did not register")
        except BaseException:
            self.stop()
            raise
        return self

    def start_worker(self, host: str, environment: Mapping[str, str] | None = None) -> None:
        """Start the worker of a loopback address, as a machine that is added to the cluster."""
        arguments = ["--cores", str(self._cores), "--memory", self._memory]
        work = self.directory / f"work-{host}"
        more = {**self._environment, **(environment or {})}
        words = [*arguments, "--work-dir", str(work), self.master]
        self._launch(host, "worker.Worker", host, *words, environment=more, before=_hiding(self._hidden))

    def stop(self) -> None:
        """End all daemons, and with the workers their executors."""
        running = list(self._daemons.values())
        self._daemons.clear()
        for daemon in running:
            daemon.send_signal(signal.SIGTERM)
        for daemon in running:
            try:
                daemon.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(daemon.pid, signal.SIGKILL)  # guard and daemon, in a session of their own
                daemon.wait()

    def status(self) -> dict[str, Any]:
        """The master's page as JSON."""
        with _OPENER.open(f"{self.page}/json/", timeout=30) as response:
            document: dict[str, Any] = json.load(response)
        return document

    def await_idle(self) -> None:
        """Return when every worker is alive and free: an application that has ended holds its cores for a moment."""

        def idle() -> bool:
            return len(self._alive()) == len(self.hosts) and self.status()["coresused"] == 0

        self._await(idle, "the workers are not free")

    def applications(self) -> list[dict[str, Any]]:
        """Every application the master knows: ``id``, ``name``, ``cores``, ``state``."""
        status = self.status()
        return [*status["activeapps"], *status["completedapps"]]

    def executors_of(self, application: str) -> set[str]:
        """Addresses of the workers on which an application has had an executor."""
        return {host for host in self.hosts if any(self.directory.joinpath(f"work-{host}").glob(f"{application}/*"))}

    def log_tail(self, name: str, characters: int = 4000) -> str:
        """The end of what a daemon printed."""
        return self._log(name).read_text(errors="replace")[-characters:]

    def __enter__(self) -> SparkCluster:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _launch(
        self,
        name: str,
        daemon: str,
        host: str,
        *more: str,
        environment: Mapping[str, str] | None = None,
        before: Sequence[str] = (),
    ) -> None:
        command = [
            *before,
            *(str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{daemon}"),
            *("--host", host, "--port", "0", "--webui-port", "0", *more),
        ]
        java = {name: value for name, value in os.environ.items() if name == "JAVA_HOME"}
        with self._log(name).open("wb") as log:
            self._daemons[name] = subprocess.Popen(
                process_guard.command_line(self._owner, command),
                env={
                    **java,
                    "PATH": self._path,
                    "HOME": str(self.directory),
                    "SPARK_HOME": str(SPARK_HOME),
                    "SPARK_DAEMON_MEMORY": "256m",
                    "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
                    **(environment or {}),
                },
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _log(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    def _said(self, name: str, pattern: str) -> str:
        found: list[str] = []

        def look() -> bool:
            match = re.search(pattern, self._log(name).read_text(errors="replace"))
            found.extend(match.groups() if match else ())
            return bool(found)

        self._await(look, f"{name} did not say {pattern}")
        return found[0]

    def _alive(self) -> list[dict[str, Any]]:
        try:
            return [worker for worker in self.status()["workers"] if worker["state"] == "ALIVE"]
        except (urllib.error.URLError, ValueError):
            return []  # the port is open a moment before the page is there

    def _await(self, condition: Callable[[], bool], failure: str) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not condition():
            ended = [name for name, daemon in self._daemons.items() if daemon.poll() is not None]
            if ended or time.monotonic() > deadline:
                logs = "\n".join(f"--- {name}\n{self.log_tail(name)}" for name in ended or self._daemons)
                raise ClusterFailed(f"{failure}; ended: {ended}\n{logs}")
            time.sleep(0.1)
