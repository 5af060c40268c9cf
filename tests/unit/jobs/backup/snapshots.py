"""State directories for tests of a backup, their repository, and the layout of what was published."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from statecore.errors import Invalid
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.backup.report import BackupReport
from statecore.jobs.backup.request import BackupRequest
from statecore.jobs.backup.run import run_backup
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.download import FILES, RemoteFile, download
from statecore.repository.manifest import StoreSnapshot
from statecore.repository.repository import create_repository
from statecore.stores.rocksdb.store import RocksDBStore
from tests.harness.raising import raises

ROWS = {b"key-%d" % number: b"value" * number for number in range(50)}
CLICKS = {"clicks": {"kind": "window", "retention": "10m"}}
INTERVAL = 300_000
Rows = Mapping[bytes, bytes]
Content = tuple[dict[bytes, bytes], dict[TopicPartition, int], int | None]


class World:
    """An application with a state directory, and a repository."""

    def __init__(self, root: Path, **stores: Any) -> None:
        self.state_dir, self.root = root / "state", root
        self.url = (root / "repository").as_uri()
        create_repository(self.url)
        self.path = self.state_dir / "app"
        self.spec: dict[str, Any] = {
            "application_id": "app",
            "bootstrap_servers": "localhost:9",
            "processing_guarantee": "at_least_once",
            "subtopologies": {"0": {"stores": {"counts": {"kind": "key-value"}} | stores}},
        }
        self.said: list[str] = []

    def changelog(self, store: str = "counts", partition: int = 0) -> TopicPartition:
        return TopicPartition(f"app-{store}-changelog", partition)

    def database(self, store: str = "counts", task: str = "0_0", segment: int | None = None) -> Path:
        if segment is None:
            return self.path / task / "rocksdb" / store
        return self.path / task / store / f"{store}.{segment}"

    def write(
        self,
        rows: Rows,
        offset: int | None,
        *,
        path: Path | None = None,
        kind: str = "key-value",
        changelog: TopicPartition | None = None,
    ) -> None:
        """Rows in a database, at an offset, closed."""
        with RocksDBStore(path or self.database(), StoreKind(kind), create_if_missing=True) as store:
            for row, value in rows.items():
                store.put(row, value)
            store.commit({} if offset is None else {changelog or self.changelog(): offset})

    def snapshot(self, *, request_id: str | None = None, faults: Any = None, **changes: Any) -> BackupReport:
        given = {"spec": self.spec, "offline": True, **changes}
        if request_id is not None:
            given["request_id"] = request_id
        request = BackupRequest(state_dir=str(self.state_dir), repository=self.url, **given)
        return run_backup(request, faults=faults, say=self.said.append)

    @property
    def app_repository(self) -> ApplicationRepository:
        return ApplicationRepository.open(self.url, "app")

    def stored(self) -> dict[tuple[str, str], StoreSnapshot]:
        """The stores of the newest snapshot, by task and name."""
        app_repository = self.app_repository
        entry = app_repository.head().newest
        assert entry is not None
        task_manifests = app_repository.task_manifests(app_repository.manifest(entry).value.task_manifests)
        return {(task, store.store): store for task, read in task_manifests.items() for store in read.manifest.stores}

    def laid_out(self, name: str = "laid") -> dict[tuple[str, str, int | None], Path]:
        """The databases of the newest snapshot, brought out of the repository under their names."""
        return lay_out(self.app_repository, self.root / name)

    def rows(
        self, path: Path, kind: str = "key-value"
    ) -> tuple[dict[bytes, bytes], dict[TopicPartition, int], int | None]:
        """Rows, offsets and status of a database."""
        with RocksDBStore(path, StoreKind(kind), read_only=True) as store:
            return dict(store.all()), store.committed_offsets(), store.status


def lay_out(app_repository: ApplicationRepository, where: Path) -> dict[tuple[str, str, int | None], Path]:
    """The databases of the newest snapshot, brought out of the repository under their names."""
    entry = app_repository.head().newest
    assert entry is not None
    task_manifests = app_repository.task_manifests(app_repository.manifest(entry).value.task_manifests)
    wanted, names = [], []
    for task, read in task_manifests.items():
        for store in read.manifest.stores:
            for database in store.databases:
                at = where / task / store.store / str(database.segment)
                for file in database.base:
                    wanted.append(RemoteFile(file.sha256, file.extent, f"{file.name} of {store.store}"))
                    names.append(((task, store.store, database.segment), at, file))
    download(app_repository, wanted, where / "downloaded")
    found = {}
    for of, at, file in names:
        at.mkdir(parents=True, exist_ok=True)
        (at / file.name).write_bytes((where / "downloaded" / FILES / file.sha256).read_bytes())
        found[of] = at
    return found


def tree(path: Path) -> dict[str, tuple[int, int, bytes]]:
    """Every file below a path with its time of change, mode and content."""
    return {
        str(file.relative_to(path)): (file.stat().st_mtime_ns, file.stat().st_mode, file.read_bytes())
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }


def segment_of(world: World, start: int, offset: int | None, rows: dict[bytes, bytes] | None = None) -> Path:
    path = world.database("clicks", segment=start)
    rows = {b"window-%d" % start: b"v"} if rows is None else rows
    world.write(rows, offset, path=path, kind="window", changelog=world.changelog("clicks"))
    return path


def left_open(path: Path) -> None:
    """Make a database say that somebody has it open, as a kill after a flush leaves it."""
    set_status(path, 1)


def set_status(path: Path, status: int | None) -> None:
    """Give a database a status; ``None`` for none, as transactional stores leave it that never were anything else."""
    from rocksdict import AccessType, Options, Rdict, WriteBatch

    families = {name: Options(raw_mode=True) for name in Rdict.list_cf(str(path), Options(raw_mode=True))}
    database = Rdict(str(path), Options(raw_mode=True), column_families=families, access_type=AccessType.read_write())
    batch = WriteBatch(raw_mode=True)
    if status is None:
        batch.delete(b"status", database.get_column_family_handle("offsets"))
    else:
        batch.put(b"status", status.to_bytes(8), database.get_column_family_handle("offsets"))
    database.write(batch)
    del batch
    database.close()
    (path / "rocksdict-config.json").unlink()
    (path / "statecore-witness").unlink(missing_ok=True)


def refusal(world: World, **changes: Any) -> list[dict[str, str]]:
    """The problems of a snapshot that is refused, and changes nothing."""
    before = tree(world.path / "0_0")
    with raises(Invalid, "backup-refused") as caught:
        world.snapshot(**changes)
    assert world.app_repository.read_head() is None
    assert tree(world.path / "0_0") == before
    assert not list((world.path / ".statecore").glob("snapshot-*"))
    problems: list[dict[str, str]] = caught.value.context["problems"]
    assert [problem for problem in problems if problem["what"] not in str(caught.value)] == []
    return problems


def codes(problems: list[dict[str, str]]) -> list[tuple[str, str]]:
    """Code and store of each problem, of task 0_0."""
    assert {problem["task"] for problem in problems} == {"0_0"}
    return [(problem["code"], problem["store"]) for problem in problems]


def two_snapshots(world: World) -> None:
    before = os.umask(0o022)
    try:
        for number, offset in ((1, 7), (2, 9)):
            world.write({b"%d-%d" % (number, row): os.urandom(20_000) for row in range(70)}, offset)
            world.snapshot()
    finally:
        os.umask(before)
