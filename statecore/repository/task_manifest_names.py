"""Validates names in a task manifest: none may reach a file outside the repository or the store."""

from __future__ import annotations

import re

from statecore.errors import Corrupted
from statecore.repository.manifest import TaskManifest

_SHA256 = re.compile(r"[0-9a-f]{64}")
_STORE = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}")
_TASK = re.compile(r"global|(?:__[A-Za-z0-9._-]+__/)?[0-9]+_[0-9]+")
_BASE_FILE = re.compile(r"[0-9]+\.(?:sst|blob|log)|CURRENT|IDENTITY|(?:MANIFEST|OPTIONS)-[0-9]+")


def check_names(task_manifest: TaskManifest, blobs: str) -> None:
    """Refuse names that statecore never writes: a writer of the repository must not reach other files by them."""
    wrong = [] if _TASK.fullmatch(task_manifest.task) else [f"task {task_manifest.task!a}"]
    for store in task_manifest.stores:
        wrong += [] if _STORE.fullmatch(store.store) else [f"store {store.store!a}"]
        for digest, extent in store.extents:
            wrong += [] if _SHA256.fullmatch(digest) else [f"hash {digest!a}"]
            wrong += [] if extent.blob.startswith(blobs) and ".." not in extent.blob else [f"blob {extent.blob!a}"]
            wrong += [] if extent.start >= 0 and extent.bytes >= 0 else [f"extent {extent.start}, {extent.bytes}"]
        files = [file.name for database in store.databases for file in database.base]
        wrong += [f"file {name!a}" for name in files if not _BASE_FILE.fullmatch(name)]
    if wrong:
        raise Corrupted(
            f"A task manifest has invalid names: {', '.join(wrong[:5])}.",
            code="manifest-names-invalid",
            action="Find out who has written to the repository, and publish a new snapshot.",
        )
