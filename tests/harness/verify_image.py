"""Reads an image row by row."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from statecore.filesystem import tree_bytes
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.images.digest import combined, digest_rows
from statecore.images.model import Image
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.settings import KEEP_FILES


def verify_image(
    path: Path, kind: StoreKind, changelogs: Sequence[TopicPartition], *, identity: str | None = None
) -> Image:
    """The image at ``path`` with its content, by reading every row; the databases have all offsets, and the same."""
    databases = sorted(one for one in path.iterdir() if one.is_dir()) if kind.is_segmented else []
    contents, offsets = [], []
    for database in databases or [path]:
        with RocksDBStore(database, kind, read_only=True, settings=KEEP_FILES) as store:
            committed = store.committed_offsets()
            offsets.append({str(changelog): committed[changelog] for changelog in changelogs})
            contents.append(digest_rows(store.scan_lists()))
    assert all(one == offsets[0] for one in offsets)
    found = combined(*contents)
    return Image(
        identity=identity,
        **found._asdict(),
        file_bytes=tree_bytes(path),
        offsets=offsets[0],
        segments=len(databases),
    )
