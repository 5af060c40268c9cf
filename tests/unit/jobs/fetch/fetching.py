"""A fetch for tests: how it is asked for, how it is refused, and how what it reads is damaged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from statecore.changelog.cluster import Cluster
from statecore.changelog.model import LogOffsets, TopicDescription
from statecore.errors import StatecoreError
from statecore.faults import NO_FAULTS, FaultPoints
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.fetch.report import FetchReport
from statecore.jobs.fetch.request import FetchRequest
from statecore.jobs.fetch.run import run_fetch
from statecore.repository.application_repository import ApplicationRepository
from tests.harness.raising import raises
from tests.unit.jobs.published import CUT, TOPIC_ID, Shop


def request_for(shop: Shop, state_dir: Path, **changes: Any) -> FetchRequest:
    return FetchRequest(repository=shop.url, application_id="orders", state_dir=str(state_dir), **changes)


class Topics:
    """A cluster that has the topics of a shop; in place of the class, too.

    Args:
        end: where the log of a partition ends.
        id: of the cluster.
    """

    def __init__(self, end: Callable[[TopicPartition], int], id: str = "") -> None:
        self.end, self.id = end, id

    def __call__(self, *_: object, **__: object) -> Any:
        return self

    def __enter__(self) -> Topics:
        return self

    def __exit__(self, *_: object) -> None: ...

    def describe_topics(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        return {name: TopicDescription(name, TOPIC_ID, 2, {}) for name in names}

    def log_offsets(self, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, LogOffsets]:
        return {one: LogOffsets(0, self.end(one), self.end(one)) for one in wanted}

    def epoch_ends(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        return dict.fromkeys(wanted)

    def time_ms(self) -> int:
        return int((CUT + 60) * 1000)

    def cluster_id(self) -> str:
        return self.id


def fetch(
    shop: Shop,
    state_dir: Path,
    say: Callable[[str], None] = lambda _: None,
    *,
    faults: FaultPoints = NO_FAULTS,
    app_repository: ApplicationRepository | None = None,
    cluster: Any = Cluster,
    **changes: Any,
) -> FetchReport:
    return run_fetch(
        request_for(shop, state_dir, **changes),
        say=say,
        faults=faults,
        shared_repository=app_repository,
        connect=cluster,
    )


def tree(path: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below a path, by inode and bytes."""
    return {
        str(file.relative_to(path)): (file.stat().st_ino, file.read_bytes())
        for file in path.rglob("*")
        if file.is_file()
    }


def refused(kind: type[StatecoreError], code: str, shop: Shop, state_dir: Path, **changes: Any) -> StatecoreError:
    """The fetch is refused with this code, and nothing in the state directory was changed by it."""
    before = tree(state_dir)
    with raises(kind, code) as caught:
        fetch(shop, state_dir, **changes)
    after = {name: file for name, file in tree(state_dir).items() if "/.statecore/" not in name or name in before}
    assert {name for name in after if not name.endswith("/.lock")} == {n for n in before if not n.endswith("/.lock")}
    assert all(after[name] == before[name] for name in before)
    assert caught.value.action
    return caught.value


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def files_of(shop: Shop, newest: bool = True) -> dict[str, Path]:
    """A file of each kind that the newest snapshot has and the older one does not."""
    root = shop.root / "repository" / "apps" / "orders"
    new, old = shop.app_repository.head().snapshots
    names: dict[str, set[str]] = {}
    for entry in (new, old):
        manifest = shop.app_repository.manifest(entry).value
        names[entry.snapshot] = {reference.extent.blob for reference in manifest.task_manifests} | {
            extent.blob
            for read in shop.app_repository.task_manifests(manifest.task_manifests).values()
            for store in read.manifest.stores
            for _, extent in store.extents
        }
    mine = sorted(names[new.snapshot] - names[old.snapshot])
    return {
        "manifest": root / "manifests" / f"{new.snapshot}.json",
        "task manifest": next(shop.root / "repository" / name for name in mine if "/task-manifests/" in name),
        "file": next(shop.root / "repository" / name for name in mine if "/task-manifests/" not in name),
    }


def command(shop: Shop, state_dir: Path, *more: str) -> list[str]:
    where = ["--repository", shop.url, "--application-id", "orders", "--state-dir", str(state_dir)]
    return [sys.executable, "-m", "statecore.cli.main", "fetch", "--json", *where, *more]


def run(words: list[str], fault: str = "") -> tuple[int, dict[str, Any]]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        **({"STATECORE_FAULT": fault} if fault else {}),
    }
    done = subprocess.run(words, env=environment, capture_output=True, check=False)
    return done.returncode, json.loads(done.stdout) if done.stdout else {}
