"""One restore as a command of its own, measured from outside: what every benchmark of restores does alike."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bench.process import Cost, ProcessTree, measure

ENGINES: Mapping[str, Sequence[str]] = {
    "spark": ("--master", "local[2]"),
    "processes": ("--engine", "processes", "--processes", "2"),
}
"""What the command is given for each engine: two cores work."""


@dataclass(frozen=True)
class Restored:
    """What a restore cost, and its report.

    Attributes:
        cost: of the whole process tree.
        report: as ``statecore restore --json`` prints it.
    """

    cost: Cost
    report: Mapping[str, Any]

    @property
    def runs(self) -> int:
        """The runs of all store partitions."""
        return sum(store["runs"] for store in self.report["stores"])

    @property
    def state_bytes(self) -> int:
        """Bytes on disk of all that was restored."""
        return sum(store["file_bytes"] for store in self.report["stores"])


def write_spec(path: Path, servers: str, application: str, stores: Mapping[str, Mapping[str, Any]]) -> Path:
    """A spec of these stores, which are all of one subtopology, under exactly-once."""
    document = {
        "application_id": application,
        "bootstrap_servers": servers,
        "processing_guarantee": "exactly_once_v2",
        "subtopologies": {"0": {"stores": {name: dict(store) for name, store in stores.items()}}},
    }
    path.write_text(yaml.safe_dump(document))
    return path


def restore(spec: Path, state: Path, *options: str, watch: Callable[[int], ProcessTree] = ProcessTree) -> Restored:
    """Restore all of a spec into a directory that is emptied first.

    Raises:
        RuntimeError: the restore failed; why stands on stderr.
    """
    shutil.rmtree(state, ignore_errors=True)
    return Restored(*run("restore", "--spec", str(spec), "--state-dir", str(state), *options, watch=watch))


def fetch(url: str, application: str, state: Path) -> tuple[Cost, dict[str, Any]]:
    """Fetch all of an application into a directory that is emptied first: what it cost, and its report.

    Raises:
        RuntimeError: it failed; why stands on stderr.
    """
    shutil.rmtree(state, ignore_errors=True)
    return run("fetch", "--repository", url, "--application-id", application, "--state-dir", str(state))


def run(command: str, *options: str, watch: Callable[[int], ProcessTree] = ProcessTree) -> tuple[Cost, dict[str, Any]]:
    """Run a command of statecore: what it cost, and its report.

    Raises:
        RuntimeError: it failed; why stands on stderr.
    """
    program = str(Path(sys.executable).with_name("statecore"))
    cost = measure([program, command, "--json", *options], watch=watch)
    if cost.returncode != 0:
        raise RuntimeError(f"statecore {command} failed with exit code {cost.returncode}: {cost.stdout}")
    return cost, json.loads(cost.stdout)
