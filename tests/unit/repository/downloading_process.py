"""Downloads a snapshot, and dies after so many steps: ``python -m tests.unit.repository.downloading_process``.

Arguments: URL of the repository, directory, bytes of a piece, and after how many pieces the process kills itself.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from pathlib import Path

from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.download import RemoteFile, download
from tests.unit.repository.snapshots import APPLICATION


def wanted_of(app_repository: ApplicationRepository) -> list[RemoteFile]:
    """All files of the newest snapshot."""
    newest = app_repository.head().snapshots[0]
    task_manifests = app_repository.task_manifests(app_repository.manifest(newest).value.task_manifests)
    return [
        RemoteFile(digest, extent, f"A file of store {store.store} of task {task}")
        for task, read in task_manifests.items()
        for store in read.manifest.stores
        for digest, extent in store.extents
    ]


def main(url: str, directory: str, piece: str, die_after: str) -> None:
    app_repository = ApplicationRepository.open(url, APPLICATION)
    steps = itertools.count(1)

    def advance(_: int) -> None:
        if next(steps) == int(die_after):
            os.kill(os.getpid(), signal.SIGKILL)

    download(app_repository, wanted_of(app_repository), Path(directory), advance=advance, piece_bytes=int(piece))


if __name__ == "__main__":
    main(*sys.argv[1:])
