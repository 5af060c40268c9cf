"""Local files of a fetch: the downloaded ones, those already present, and the disk space for the rest.

::

    <application>/.statecore/fetched/files/<sha256>     complete; used by any later fetch
                                     partial/<random>   being downloaded

After a kill they stay until a fetch has finished or a day has passed (``statedir.placement.recover``).
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from statecore.errors import Capacity
from statecore.filesystem import FileState, file_hashes, file_sha256
from statecore.formats.rocksdb_log import DATA_SUFFIXES
from statecore.jobs.fetch.store_to_fetch import StoreToFetch, bytes_of, bytes_of_files, distinct_files
from statecore.jobs.pipeline import staging
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.download import DownloadResult, RemoteFile, check_present, delete_partial, download
from statecore.statedir.state_directory import StateDirectory, ensure_free_space
from statecore.statedir.work_directory import FETCHED

_MARGIN = 1.1
"""Upper bound of a database's size relative to its files, for what RocksDB writes besides them."""

_EACH = 64 << 10
"""Fixed overhead of a database in bytes."""


class FetchedFiles:
    """The files of a fetch.

    Attributes:
        hashed: state of the local files when they were hashed, by hash.
    """

    def __init__(self, directory: StateDirectory) -> None:
        self._directory = directory
        self.path = directory.work_path / FETCHED
        self.hashed: dict[str, FileState | None] = {}

    def missing(self, stores: Iterable[StoreToFetch], at_hand: Collection[str]) -> list[RemoteFile]:
        """Files of the stores to download: neither downloaded nor among ``at_hand``."""
        return [one for one in distinct_files(stores) if one.sha256 not in at_hand and not self._has(one)]

    def expected_download(self, repository: ApplicationRepository, stores: Sequence[StoreToFetch]) -> DownloadResult:
        """What a download of the stores would give. Raises ``Corrupted`` if the repository lacks something of it."""
        missing = self.missing(stores, self.at_hand(stores).keys())
        check_present(repository, missing)
        size = bytes_of(missing)
        return DownloadResult(size, 0, bytes_of_files(stores) - size, 0)

    def _has(self, one: RemoteFile) -> bool:
        try:
            return (self.path / staging.file_name(one.sha256)).stat().st_size == one.extent.bytes
        except OSError:
            return False

    def ensure_free_space(self, stores: Sequence[StoreToFetch], at_hand: Mapping[str, Path] | None = None) -> None:
        """Refuse a fetch that does not fit on the disk. Partial downloads are deleted first: they are never resumed."""
        delete_partial(self.path)
        ownership = self._directory.ownership
        linked = {name for name, path in (at_hand or {}).items() if ownership.accepts(path.stat())}  # others are copied
        databases = sum(max(1, len(store.snapshot.databases)) for store in stores)
        merged = sum(store.merged_bytes for store in stores)
        needed = int(_MARGIN * bytes_of(self.missing(stores, linked))) + merged + _EACH * databases
        try:
            ensure_free_space(self._directory.path, needed)
        except Capacity as error:
            error.action = "Free disk space there, or fetch or restore fewer tasks at a time."
            raise

    def at_hand(self, stores: Sequence[StoreToFetch]) -> dict[str, Path]:
        """Files of the replaced tasks that the snapshot needs, by hash; only those of a matching size are hashed."""
        wanted: dict[int, set[str]] = {}
        for store in stores:
            for one in store.data_files:
                if not self._has(one):
                    wanted.setdefault(one.extent.bytes, set()).add(one.sha256)
        candidates = []
        for task in sorted({store.task for store in stores}) if wanted else ():
            for path in self._directory.task_path(task).rglob("*.*"):
                with suppress(OSError):
                    if path.suffix in DATA_SUFFIXES and path.is_file() and path.stat().st_size in wanted:
                        candidates.append(path)
        found = {}
        for path in candidates:
            with suppress(OSError):  # an unreadable file is downloaded
                state = FileState.of(path)
                found[sha256 := file_sha256(path)] = path
                self.hashed[sha256] = state
        hashes = {sha256 for of_size in wanted.values() for sha256 in of_size}
        return {sha256: path for sha256, path in found.items() if sha256 in hashes}

    def download(
        self,
        repository: ApplicationRepository,
        stores: Sequence[StoreToFetch],
        at_hand: Mapping[str, Path],
        advance: Callable[[int], None],
    ) -> DownloadResult:
        self._drop_damaged(stores)
        one_at_a_time = threading.Lock()

        def report(amount: int) -> None:
            with one_at_a_time:
                advance(amount)

        downloaded = download(repository, distinct_files(stores), self.path, local_files=at_hand, advance=report)
        self.hashed.update(downloaded.hashed)
        return downloaded

    def _drop_damaged(self, stores: Iterable[StoreToFetch]) -> None:
        """Verify files that an earlier attempt downloaded, because the disk may have damaged them since."""
        hashes = sorted({one.sha256 for one in distinct_files(stores)})
        paths = [path for sha256 in hashes if (path := self.path / staging.file_name(sha256)).is_file()]
        states = [FileState.of(path) for path in paths]
        for path, state, sha256 in zip(paths, states, file_hashes(paths), strict=True):
            if path.name == sha256:
                self.hashed[sha256] = state
            else:
                path.unlink()

    def drop(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
