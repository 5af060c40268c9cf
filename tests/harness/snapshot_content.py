"""The content of a store on disk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.statedir.state_directory import StateDirectory
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.settings import KEEP_FILES
from tests.harness.directory import Families
from tests.harness.rebuilding import Rows
from tests.harness.verify_image import verify_image


@dataclass(frozen=True)
class Content:
    """What is on disk of a store partition, read row by row.

    Attributes:
        rows: live rows.
        digest: their digest.
        offsets: what all its databases say, by ``<topic>-<partition>``.
        segments: the directories of its segments that have rows. Which empty ones there are depends on the runs: a
            delete that deletes nothing is dropped where nothing lies below.
    """

    rows: int
    digest: str
    offsets: Mapping[str, int]
    segments: tuple[str, ...]


def content_of(
    state_dir: Path, application_id: str, task: str, store: str, kind: str, offsets: Iterable[str]
) -> Content:
    """What is on disk of a store; ``offsets`` are the names of its changelog's partitions."""
    of = StoreKind(kind)
    path = StateDirectory(state_dir, application_id).store_path(task, store, of)
    partitions = [TopicPartition(name.rpartition("-")[0], int(name.rpartition("-")[2])) for name in offsets]
    image = verify_image(path, of, partitions)
    segments = sorted(one for one in path.iterdir() if one.is_dir()) if of.is_segmented else []
    return Content(image.rows, image.digest, image.offsets, tuple(one.name for one in segments if has_rows(one, of)))


def has_rows(database: Path, kind: StoreKind) -> bool:
    """Whether a database has a row."""
    with RocksDBStore(database, kind, read_only=True, settings=KEEP_FILES) as store:
        return next(iter(store.all()), None) is not None


def differences(ours: Rows, theirs: Rows) -> dict[tuple[str, str], dict[str, tuple[object, object]]]:
    """Databases that have other rows in one of two directories than in the other, and what differs.

    A segment without a row is as good as none. Kafka Streams makes one with the first record of it, even if that is a
    delete, and a rebuild makes one where there would be none, to keep the offset in it.
    """
    found = {}
    for key in ours.keys() | theirs.keys():
        one, other = (side.get(key) for side in (ours, theirs))
        if "/" in key[1] and not any([*(one or {}).values(), *(other or {}).values()]):
            continue
        if one != other:
            found[key] = difference(one or {}, other or {})
    return found


def difference(ours: Families, theirs: Families) -> dict[str, tuple[object, object]]:
    """Rows that only one of two databases has, by column family; a few of them."""
    return {
        family: (
            sorted(set(ours.get(family, [])) - set(theirs.get(family, [])))[:3],
            sorted(set(theirs.get(family, [])) - set(ours.get(family, [])))[:3],
        )
        for family in ours.keys() | theirs.keys()
    }
