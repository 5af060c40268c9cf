"""A store that follows its changelog stands where its databases say, and nowhere else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.topic_partition import TopicPartition
from statecore.images.model import Segmentation
from statecore.runtime.followed_store import FollowedSpec, FollowedStore

CHANGELOG = TopicPartition("orders-store-changelog", 0)


def store_of(tmp_path: Path, kind: StoreKind, *, exactly_once: bool = False) -> FollowedStore:
    segmentation = Segmentation(60_000, 60_000) if kind.is_segmented else None
    (tmp_path / "scratch").mkdir(exist_ok=True)
    (tmp_path / "0_0").mkdir(exist_ok=True)
    spec = FollowedSpec("store", kind, CHANGELOG, segmentation)
    return FollowedStore(spec, tmp_path / "0_0", tmp_path / "scratch", exactly_once=exactly_once)


@pytest.mark.parametrize("exactly_once", [False, True])
@pytest.mark.parametrize("kind", [StoreKind.KEY_VALUE, StoreKind.WINDOW, StoreKind.GRACE_BUFFER])
def test_it_goes_on_where_it_was_closed(tmp_path: Path, kind: StoreKind, exactly_once: bool) -> None:
    store = store_of(tmp_path, kind, exactly_once=exactly_once)
    store.open()
    assert (store.offset, store.position) == (OFFSET_UNKNOWN, 0)
    store.apply([], 7)
    store.close()
    again = store_of(tmp_path, kind, exactly_once=exactly_once)
    again.open()
    assert (again.offset, again.position) == (6, 7)
    again.close()


def test_a_grace_buffer_whose_database_is_gone_does_not_stand_where_its_file_says(tmp_path: Path) -> None:
    store = store_of(tmp_path, StoreKind.GRACE_BUFFER)
    store.open()
    store.apply([], 501)
    store.close()
    shutil.rmtree(store.path)
    again = store_of(tmp_path, StoreKind.GRACE_BUFFER)
    again.open()
    assert (again.offset, again.position) == (OFFSET_UNKNOWN, 0)
    again.close()
