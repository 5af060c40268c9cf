"""The demo: a real application loses its state twice. Airflow and Spark rebuild it, and publish it into an object
store. Then it works on; a checkpoint keeps the snapshot fresh, and the second time the state is fetched from there.

Every step uses the real thing: a Kafka broker, a Kafka Streams 4.4.0 application under exactly-once on the flights that
left New York in 2013, an S3 server, Airflow with its REST API and UI, Spark, and the same Dag that runs in production.
The command fails if Kafka Streams restores a single record, or if one row differs from before the loss.

Everything lies below ``.demo/``; a second run starts from scratch.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo import flights
from demo.airflow_server import ROOT, AirflowFailed, AirflowServer, TaskStatus
from demo.application import FlightsApplication, StoreState, application_id, create_topics
from demo.stop import stop_all
from tests.harness.broker import Broker
from tests.harness.s3_server import ACCESS, SECRET, S3Server

DEMO = ROOT / ".demo"
STATE = DEMO / "state"
SPEC = DEMO / "stores.yaml"
DAG = "restore_stores"
PROGRAM = Path(sys.executable).with_name("statecore")
LIVE = sys.stderr.isatty()


@dataclass(frozen=True)
class Line:
    """One store partition: before each loss, and after it was rebuilt, and fetched.

    Attributes:
        before: what Kafka Streams answered before the first and the second loss.
        after: what it answered from the directory that was built, and from the one that was fetched.
        records: changelog records that the restore read, and the checkpoint.
        restored: records that Kafka Streams had to restore itself, both times.
    """

    before: tuple[StoreState, ...]
    after: tuple[StoreState | None, ...]
    records: tuple[int, ...]
    restored: tuple[int, ...]

    @property
    def equal(self) -> bool:
        """Whether the application has everything it had, and had nothing to restore, both times."""
        return self.after == self.before and not any(self.restored)


@dataclass(frozen=True)
class Life:
    """What the application found when it was started on a directory.

    Attributes:
        states: (store, partition) → what it answered.
        restored: (store, partition) → records that it restored itself.
    """

    states: Mapping[tuple[str, int], StoreState]
    restored: Mapping[tuple[str, int], int]


def main(work: Callable[[], int] | None = None) -> int:
    """Run the demo, and say in a sentence why it could not be run; the exit code."""
    try:
        return (work or demonstrate)()
    except (AirflowFailed, RuntimeError, OSError) as error:  # whoever waits in vain raises a TimeoutError, an OSError
        print(f"\nThe demo failed: {error}\nWhat runs is left for a look; `make stop` ends it.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nThe demo was stopped. What runs is left for a look; `make stop` ends it.", file=sys.stderr)
        return 130


def demonstrate() -> int:
    """The whole story; 0 when every row is back and nothing had to be restored."""
    for line in stop_all(DEMO):
        say(f"stopped {line} (of an earlier demo)")
    shutil.rmtree(DEMO, ignore_errors=True)
    STATE.mkdir(parents=True)
    began = time.monotonic()
    with step("starting a Kafka broker"):
        broker = Broker(DEMO / "broker").start()
    with step("producing the flights that left New York from January to November 2013"):
        create_topics(broker.bootstrap_servers)
        produced = flights.produce_flights(broker.bootstrap_servers, before=flights.DECEMBER)
    before = first_life(broker, produced)
    with step("starting an S3 server, and making a repository in it: statecore repo init"):
        repository = make_repository()
    lose_the_machine()
    server = AirflowServer(DEMO / "airflow", environment=airflow_environment(repository))
    with step("starting Airflow"):
        server.start()
        server.wait_healthy()
    say(f"Airflow is at {server.url}: user {server.user}, password {server.password}")
    report = restore(server, repository)
    rebuilt, later = second_life(broker)
    advanced = checkpoint(repository)
    lose_the_machine()
    fetched = fetch(repository)
    lives = (rebuilt, next_life(broker))
    lines = compared((before, later), lives, (report, advanced))
    print(table(lines))
    seconds = time.monotonic() - began
    failed = [line for line in lines if not line.equal]
    print(verdict(lines, report, advanced, fetched, failed, seconds))
    print(
        f"\nAirflow is still up:  {server.url}/dags/{DAG}\n"
        f"user {server.user}, password {server.password}\n"
        f"The snapshots are still there, too:\n"
        f"  export AWS_ACCESS_KEY_ID={shlex.quote(ACCESS)} AWS_SECRET_ACCESS_KEY={shlex.quote(SECRET)}\n"
        f"  {shlex.quote(str(PROGRAM))} repo snapshots --repository {shlex.quote(repository)}\n"
        f"stop everything with: make stop"
    )
    return 1 if failed or not lines else 0


def first_life(broker: Broker, produced: int) -> list[StoreState]:
    """Let the application build its state, look at all of it, write its spec, and close it."""
    with step(f"running a Kafka Streams application, exactly-once, over {produced:,} flights"):
        application = FlightsApplication(broker.bootstrap_servers, STATE, DEMO / "streams.log").start()
        application.wait_until_processed()
    with step("asking every store for every row"):
        before = application.digests()
        (DEMO / "describe.txt").write_text(application.describe())
        application.close()
    with step("writing its spec: statecore discover"):
        command = ["discover", "--bootstrap-servers", broker.bootstrap_servers, "--application-id", application_id]
        command += ["--topology", str(DEMO / "describe.txt"), "--state-dir", str(STATE), "--output", str(SPEC)]
        command += ["--processing-guarantee", "exactly_once_v2"]
        statecore(command)
    return before


def lose_the_machine() -> None:
    """Delete the application's state directory."""
    with step(f"losing the machine: deleting {(STATE / application_id).relative_to(ROOT)}"):
        shutil.rmtree(STATE / application_id)


def make_repository() -> str:
    """A repository in an S3 server of this machine; its URL. The credentials are in the environment from now on."""
    server = S3Server(DEMO / "s3", stays=True).start()
    os.environ.update(AWS_ACCESS_KEY_ID=ACCESS, AWS_SECRET_ACCESS_KEY=SECRET)
    url = server.bucket("states").below("demo").url
    statecore(["repo", "init", "--repository", url])
    return url


def fetch(repository: str) -> dict[str, Any]:
    """Bring the snapshot into the state directory, and return the report."""
    with step("fetching the snapshot from the object store: statecore fetch"):
        words = ["fetch", "--repository", repository, "--application-id", application_id, "--state-dir", str(STATE)]
        found: dict[str, Any] = json.loads(statecore([*words, "--json"]))
    return found


def restore(server: AirflowServer, repository: str) -> dict[str, Any]:
    """Trigger the Dag through the REST API, wait for it, and return the job's report."""
    with step(f"triggering the Dag {DAG} through Airflow's REST API; it publishes a snapshot, too"):
        asked = {"applications": [str(SPEC)], "state_dir": str(STATE), "repository": repository}
        run = server.trigger(DAG, asked)
        state = server.wait(DAG, run, on_change=show_tasks)
        if state != "success":
            raise AirflowFailed(f"the run {run} ended as {state}:\n{server.why(DAG, run)}")
    (report,) = (DEMO / "reports" / application_id).glob("*.json")
    found: dict[str, Any] = json.loads(report.read_text())
    return found


def second_life(broker: Broker) -> tuple[Life, list[StoreState]]:
    """Start the application on what was rebuilt, ask it for everything, and let it work on; what it has then."""
    with step("starting the application again, on the directory that was rebuilt"):
        application, found = started(broker)
    with step("letting it work on: the flights of December"):
        flights.produce_flights(broker.bootstrap_servers, since=flights.DECEMBER)
        application.wait_until_processed()
        later = application.digests()
        application.close()
    return found, later


def next_life(broker: Broker) -> Life:
    """Start the application on what was fetched, and ask it for everything."""
    with step("starting the application again, on the directory that was fetched"):
        application, found = started(broker)
        application.close()
    return found


def started(broker: Broker) -> tuple[FlightsApplication, Life]:
    """The application, started, and what it found."""
    application = FlightsApplication(broker.bootstrap_servers, STATE, DEMO / "streams.log").start()
    states = {(state.store, state.partition): state for state in application.digests()}
    return application, Life(states, application.restored_records())


def checkpoint(repository: str) -> dict[str, Any]:
    """Advance the snapshot by what the application has written since, and return the report."""
    with step("advancing the snapshot by what was written since: statecore checkpoint"):
        found: dict[str, Any] = json.loads(
            statecore(["checkpoint", "--spec", str(SPEC), "--repository", repository, "--json"])
        )
    return found


def compared(
    before: Sequence[Sequence[StoreState]], lives: Sequence[Life], reports: Sequence[Mapping[str, Any]]
) -> list[Line]:
    """What the application found in its later lives, compared with what it had before each of them."""
    read = [
        {(entry["store"], entry["partition"]): int(entry["records"]) for entry in report["stores"]}
        for report in reports
    ]
    had = [{(state.store, state.partition): state for state in states} for states in before]
    return [
        Line(
            tuple(states[key] for states in had),
            tuple(life.states.get(key) for life in lives),
            tuple(records.get(key, 0) for records in read),
            tuple(life.restored.get(key, 0) for life in lives),
        )
        for key in had[0]
    ]


def table(lines: Sequence[Line]) -> str:
    """The comparison, one line a store partition."""
    heading = (
        *("task", "store", "partition", "rebuilt from records", "advanced by", "rows"),
        *("restored after the rebuild", "after the fetch", "digests", ""),
    )
    rows = [
        (
            line.before[0].task,
            line.before[0].store,
            str(line.before[0].partition),
            *(f"{records:,}" for records in line.records),
            f"{line.before[-1].rows:,}",
            *map(str, line.restored),
            ", ".join(
                before.digest[:8] + ("" if after == before else f" → {after.digest[:8] if after else 'none'}")
                for before, after in zip(line.before, line.after, strict=True)
            ),
            "equal" if line.equal else "DIFFERENT",
        )
        for line in lines
    ]
    widths = [max(len(row[column]) for row in [heading, *rows]) for column in range(len(heading))]
    numbers = {2, 3, 4, 5, 6, 7}

    def cells(row: Sequence[str]) -> str:
        return "  ".join(
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()

    return "\n".join(["", cells(heading), "  ".join("─" * width for width in widths), *map(cells, rows), ""])


def verdict(
    lines: Sequence[Line],
    report: dict[str, Any],
    advanced: dict[str, Any],
    fetched: dict[str, Any],
    failed: Sequence[Line],
    seconds: float,
) -> str:
    """What the table says, in a sentence."""
    if failed or not lines:
        return f"FAILED: {len(failed)} of {len(lines)} store partitions are not as they were."
    totals = report["totals"]
    return (
        f"{len(lines)} store partitions were rebuilt from {totals['records']:,.0f} changelog records in "
        f"{report['seconds']:.1f} s, published, advanced by {advanced['totals']['records']:,.0f} records in "
        f"{advanced['seconds']:.1f} s, and fetched in {fetched['seconds']:.1f} s; Kafka Streams restored "
        f"{sum(sum(line.restored) for line in lines)} records, and every row is as it was before the loss, both times. "
        f"The whole demo took {seconds:.0f} s."
    )


def airflow_environment(repository: str) -> dict[str, str]:
    """What the site sets once: where specs, state, reports and snapshots are."""
    return {
        "STATECORE_SPECS": str(SPEC),
        "STATECORE_STATE_DIR": str(STATE),
        "STATECORE_REPORTS": str(DEMO / "reports"),
        "STATECORE_REPOSITORY": repository,
    }


def statecore(arguments: list[str]) -> str:
    """Run the command line, and return what it printed; its words are shown when it fails."""
    done = subprocess.run([str(PROGRAM), *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"statecore {arguments[0]} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def show_tasks(tasks: list[TaskStatus]) -> None:
    """One line with the states of the run's tasks, and how far the job is."""
    words = []
    for task in tasks:
        name = task.task_id + (f"[{task.name}]" if task.name else "")
        far = ""
        if task.state == "running" and task.progress and task.progress.get("total"):
            far = f" {task.progress['phase']} {100 * task.progress['count'] // task.progress['total']}%"
        words.append(f"{name}: {task.state or 'waiting'}{far}")
    if LIVE:
        print(f"\r\033[K      {', '.join(words)[:150]}", end="", file=sys.stderr, flush=True)


@contextmanager
def step(what: str) -> Iterator[None]:
    """Say what is being done, and how long it took."""
    began = time.monotonic()
    say(f"{what} …")
    yield
    print(f"{chr(13) + chr(27) + '[K' if LIVE else ''}      done in {time.monotonic() - began:.1f} s", file=sys.stderr)


def say(line: str) -> None:
    """A line of the demo's own."""
    bold, plain = ("\033[1m", "\033[0m") if LIVE else ("", "")
    print(f"{bold}[demo]{plain} {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
