"""State directories for tests of the snapshot, a repository beside them, and how what was published is laid out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
    def shelf(self) -> ApplicationRepository:
        return ApplicationRepository.open(self.url, "app")

    def stored(self) -> dict[tuple[str, str], StoreSnapshot]:
        """The stores of the newest snapshot, by task and name."""
        shelf = self.shelf
        entry = shelf.head().newest
        assert entry is not None
        parts = shelf.task_manifests(shelf.manifest(entry).value.task_manifests)
        return {(task, store.store): store for task, read in parts.items() for store in read.manifest.stores}

    def laid_out(self, name: str = "laid") -> dict[tuple[str, str, int | None], Path]:
        """The databases of the newest snapshot, brought out of the repository under their names."""
        return lay_out(self.shelf, self.root / name)

    def rows(
        self, path: Path, kind: str = "key-value"
    ) -> tuple[dict[bytes, bytes], dict[TopicPartition, int], int | None]:
        """Rows, offsets and status of a database."""
        with RocksDBStore(path, StoreKind(kind), read_only=True) as store:
            return dict(store.all()), store.committed_offsets(), store.status


def lay_out(shelf: ApplicationRepository, where: Path) -> dict[tuple[str, str, int | None], Path]:
    """The databases of the newest snapshot, brought out of the repository under their names."""
    entry = shelf.head().newest
    assert entry is not None
    parts = shelf.task_manifests(shelf.manifest(entry).value.task_manifests)
    wanted, names = [], []
    for task, read in parts.items():
        for store in read.manifest.stores:
            for database in store.databases:
                at = where / task / store.store / str(database.segment)
                for file in database.base:
                    wanted.append(RemoteFile(file.sha256, file.extent, f"{file.name} of {store.store}"))
                    names.append(((task, store.store, database.segment), at, file))
    download(shelf, wanted, where / "downloaded")
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
