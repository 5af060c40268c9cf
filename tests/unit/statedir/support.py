"""Small real databases, and state directories made of them."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from statecore.errors import Invalid
from statecore.faults import FaultInjected, InjectedFault
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import ProcessingGuarantee
from statecore.statedir.database_state import DatabaseState, read_database_state
from statecore.statedir.file_trees import fingerprint
from statecore.statedir.placement import apply_placement
from statecore.statedir.placement_plan import plan_placement
from statecore.statedir.placement_stores import SiblingStore, StoreImage
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.task_layout import databases_of
from statecore.stores.rocksdb.store import RocksDBStore
from tests.harness.directory import copy_of_open
from tests.harness.raising import raises
from tests.unit.templates import TEMPLATES

KIND = StoreKind.KEY_VALUE
WINDOW = StoreKind.TIMESTAMPED_WINDOW
BUFFER = StoreKind.GRACE_BUFFER
ALOS = ProcessingGuarantee.AT_LEAST_ONCE
EOS = ProcessingGuarantee.EXACTLY_ONCE_V2


def problems(directory: StateDirectory, *images: StoreImage, **options: Any) -> list[dict[str, Any]]:
    """Why a placement is refused; nothing was changed."""
    before = fingerprint(directory.path)
    with raises(Invalid, "placement-refused", state_dir=str(directory.path)) as caught:
        plan_placement(directory, images, **{"guarantee": EOS, **options})
    assert fingerprint(directory.path) == before
    found: list[dict[str, Any]] = caught.value.context["problems"]
    assert all(one["what"].startswith(f"{one['task']} ") and one["what"] in caught.value.what for one in found)
    return found


def refusal(directory: StateDirectory, *images: StoreImage, **options: Any) -> list[tuple[str, str, str]]:
    """The task, the code and the store of all that a placement is refused for."""
    found = problems(directory, *images, **options)
    return [(one["task"], one["code"], one.get("store", "")) for one in found]


def place(directory: StateDirectory, *images: StoreImage, **options: Any) -> Any:
    return apply_placement(plan_placement(directory, images, **{"guarantee": EOS, **options}))


def changelog(task: str, store: str) -> TopicPartition:
    return TopicPartition(f"app-{store}-changelog", int(task.rpartition("_")[2]))


Offsets = tuple[tuple[TopicPartition, int], ...]


@cache
def _template(offsets: Offsets, closed: bool, rows: int, kind: StoreKind) -> Path:
    wanted = Path(os.environ[TEMPLATES], hashlib.sha256(repr((offsets, closed, rows, kind)).encode()).hexdigest()[:16])
    if not wanted.exists():
        with suppress(OSError):  # another process was first
            _make_template(offsets, closed, rows, kind).rename(wanted)
    return wanted


def _make_template(offsets: Offsets, closed: bool, rows: int, kind: StoreKind) -> Path:
    path = Path(mkdtemp(prefix="statecore-template-", dir=os.environ[TEMPLATES])) / "database"
    store = RocksDBStore(path, kind, create=True)
    store.open()
    for number in range(rows):
        store.put(b"key%d" % number, b"value%d" % (offsets[0][1] if offsets else 5))
    store.commit(dict(offsets))
    if closed:
        store.close()
        return path
    store.flush()
    copy = path.with_name("unclean")
    copy_of_open(path, copy)
    store.close()
    (copy / "rocksdict-config.json").unlink(missing_ok=True)
    return copy


def make_database(
    path: Path,
    partition: TopicPartition | None,
    offset: int = 5,
    *,
    closed: bool = True,
    rows: int = 3,
    kind: StoreKind = KIND,
) -> Path:
    """A database with one offset; without ``partition`` one that has rows and no offset."""
    return make_with_offsets(path, {partition: offset} if partition else {}, closed=closed, rows=rows, kind=kind)


def make_with_offsets(
    path: Path, offsets: Mapping[TopicPartition, int], *, closed: bool = True, rows: int = 3, kind: StoreKind = KIND
) -> Path:
    """A database with any number of offsets."""
    shutil.copytree(_template(tuple(offsets.items()), closed, rows, kind), path)
    # A name of its own, as every database that RocksDB makes has.
    (path / "IDENTITY").write_text(f"{path}-{sum(offsets.values())}")
    return path


def make_segments(
    path: Path, partition: TopicPartition, offset: int, starts: Sequence[int], kind: StoreKind = WINDOW
) -> Path:
    """A segmented store with segments of these start times (ms)."""
    for start in starts:
        make_database(path / f"{path.name}.{start}", partition, offset, kind=kind)
    return path


def make_live(directory: StateDirectory, task: str, store: str, offset: int = 5, *, closed: bool = True) -> Path:
    """A store as Kafka Streams left it."""
    return make_database(directory.store_path(task, store, KIND), changelog(task, store), offset, closed=closed)


def make_image(directory: StateDirectory, task: str, store: str, offset: int = 9) -> StoreImage:
    """A built store, staged as the job does."""
    path = directory.work_path / "staged" / "images" / task / "rocksdb" / store
    if not path.exists():
        make_database(path, changelog(task, store), offset, rows=5)
    return StoreImage(task, store, KIND, changelog(task, store), path, {changelog(task, store): offset})


def make_segmented_image(
    directory: StateDirectory,
    task: str,
    store: str,
    starts: Sequence[int] = (0,),
    kind: StoreKind = WINDOW,
    offset: int = 9,
) -> StoreImage:
    """A built store with segments, staged as the job does."""
    path = directory.work_path / "staged" / "images" / task / store
    if not path.exists():
        make_segments(path, changelog(task, store), offset, starts, kind)
    return StoreImage(task, store, kind, changelog(task, store), path, {changelog(task, store): offset})


def make_global_image(directory: StateDirectory, store: str, offsets: Mapping[TopicPartition, int]) -> StoreImage:
    """A built global store, staged as the job does."""
    path = directory.work_path / "staged" / "images" / "global" / "rocksdb" / store
    if not path.exists():
        make_with_offsets(path, offsets)
    return StoreImage("global", store, KIND, None, path, offsets)


def sibling(task: str, store: str, kind: StoreKind = KIND) -> SiblingStore:
    return SiblingStore(task, store, kind, changelog(task, store))


def state_of(directory: StateDirectory, task: str, name: str) -> DatabaseState | None:
    """The bookkeeping of a store's (first) database in the live directory."""
    databases = databases_of(directory.task_path(task) / name)
    return read_database_state(databases[0]) if databases else None


def content_of(task_directory: Path) -> dict[str, object] | None:
    """Every database of a task (its offsets by directory) and every file beside them (its text); ``None`` without."""
    if not task_directory.is_dir():
        return None
    found: dict[str, object] = {
        str(file.parent.relative_to(task_directory)): dict(read_database_state(file.parent).offsets)
        for file in task_directory.rglob("CURRENT")
    }
    return found | {path.name: path.read_text() for path in task_directory.iterdir() if path.is_file()}


def offset_of(directory: StateDirectory, task: str, store: str) -> int | None:
    state = state_of(directory, task, f"rocksdb/{store}")
    return None if state is None else state.offsets.get(changelog(task, store))


def work_content(directory) -> set[str]:
    return {entry.name for entry in directory.work_path.iterdir()}


def interrupted(directory, point, *images, nth=1, **options):
    plan = plan_placement(directory, images, **{"guarantee": EOS, "replace": True, **options})
    with pytest.raises(FaultInjected):
        apply_placement(plan, InjectedFault(point, "raise", nth))
