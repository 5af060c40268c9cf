"""Makes repositories of format version 1: ``python -m tests.golden.make_repository version-1 encrypted-1``.

Every later release reads them: made once, and not again. ``encrypted-1`` is encrypted with the key of 32 bytes that is
the SHA-256 of its name. Each has two snapshots of an application (a window store, a
key-value store, a global store; one snapshot of runs, one of RocksDB's own files with runs above), of which one is
pinned, a retention of its own, a collection behind it, and garbage that is listed. ``<name>.json`` has what the stores
hold, by snapshot.
"""

from __future__ import annotations

import gzip
import io
import json
import sys
import tarfile
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any

from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.head import Retention
from statecore.repository.maintenance.collection import Collector
from statecore.repository.maintenance.forget import forget
from statecore.repository.maintenance.pins import pin
from tests.unit.jobs.published import CUT, Shop
from tests.unit.repository.encrypted import encrypted_url

HERE = Path(__file__).resolve().parent / "repositories"
PLAIN, ENCRYPTED = "version-1", "encrypted-1"
KEY = sha256(ENCRYPTED.encode()).digest()
"""The key of the user of the encrypted one."""

_MODIFIED = 1_795_251_600


class _EncryptedShop(Shop):
    """An application whose repository is encrypted."""

    @property
    def url(self) -> str:
        return encrypted_url(self.root / "repository", ENCRYPTED)


def main(*names: str) -> None:
    """Make the archives and their contents."""
    for name in names:
        with tempfile.TemporaryDirectory() as directory:
            shop = {PLAIN: Shop, ENCRYPTED: _EncryptedShop}[name](Path(directory))
            contents = _published(shop)
            contents_file(name).write_text(json.dumps(contents, indent=1, sort_keys=True) + "\n")
            archive(name).write_bytes(_packed(Path(directory) / "repository"))


def archive(name: str) -> Path:
    return HERE / f"{name}.tar.gz"


def contents_file(name: str) -> Path:
    return HERE / f"{name}.json"


def _published(shop: Shop) -> dict[str, dict[str, list[Any]]]:
    """Publish, forget and collect; what the stores hold then."""
    forgotten = shop.publish([100])
    pinned = shop.publish([200, 300], cut=CUT + 60)
    newest = shop.publish([300, 400], based=True, cut=CUT + 120)
    assert len({forgotten.snapshot, pinned.snapshot, newest.snapshot}) == 3
    pin(shop.app_repository, pinned.snapshot, "kept for ever")
    forget(shop.app_repository, Retention(last=1, hourly=0, daily=0, weekly=0))
    for _ in range(2):
        Collector(shop.app_repository, min_age_ms=0).run()
    return contents_of(shop.app_repository)


def contents_of(app_repository: ApplicationRepository) -> dict[str, dict[str, list[Any]]]:
    """By snapshot and store: identity, known rows and their digest, and the offset of each partition."""
    found = {}
    for entry in app_repository.head().snapshots:
        manifest = app_repository.manifest(entry).value
        found[entry.snapshot] = {
            f"{task} {store.store}": [
                store.identity,
                store.rows,
                store.digest,
                {f"{partition}": offset for partition, offset in sorted(store.offsets.items())},
            ]
            for task, read in app_repository.task_manifests(manifest.task_manifests).items()
            for store in read.manifest.stores
        }
    return found


def _packed(root: Path) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for path in sorted(path for path in root.rglob("*") if path.is_file() and "~locks" not in path.parts):
            entry = tarfile.TarInfo(str(path.relative_to(root)))
            entry.size, entry.mtime = path.stat().st_size, _MODIFIED
            archive.addfile(entry, io.BytesIO(path.read_bytes()))
    return gzip.compress(made.getvalue(), mtime=0)


if __name__ == "__main__":
    main(*sys.argv[1:])
