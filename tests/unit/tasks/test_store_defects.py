"""Which databases without the file that names all others are a loss."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from statecore.errors import Corrupted
from statecore.formats.kinds import StoreKind
from statecore.images.model import Segmentation
from statecore.statedir.database_state import create_database
from statecore.statedir.task_layout import stores_in
from statecore.tasks.store_defects import half_expired, is_rejected, is_unclean, rejected_in_task, why_partially_deleted
from tests.golden.directories import unpacked
from tests.harness.damage import EXACTLY_ONCE, STAMPED
from tests.harness.damaging import cut_manifest, database_of
from tests.harness.raising import raises
from tests.unit.tasks.startup_tasks_world import KV, World

SEGMENTATION = Segmentation(retention_ms=7_200_000, interval_ms=3_600_000)


@pytest.mark.parametrize(("start", "is_expired"), [(3, False), (2, True)])
def test_a_partly_deleted_segment_is_no_loss_only_if_expired(tmp_path: Path, start: int, is_expired: bool) -> None:
    """Of two hours those of the newest segment, the fifth, and of the two before it are live."""
    create_database(tmp_path / "0_0" / "clicks" / "clicks.18000000", StoreKind.WINDOW, {})
    half = tmp_path / "0_0" / "clicks" / f"clicks.{start * 3_600_000}"
    half.mkdir()
    (half / "000007.sst").write_bytes(b"rows")
    (place,) = stores_in(tmp_path / "0_0")
    assert half_expired(place, SEGMENTATION) == ([half] if is_expired else [])
    assert (why_partially_deleted(place, SEGMENTATION) == "") is is_expired


def test_one_that_was_closed_is_clean(tmp_path: Path) -> None:
    create_database(tmp_path / "one", StoreKind.KEY_VALUE, {})
    assert not is_unclean(tmp_path / "one")
    assert not is_rejected(tmp_path / "one")


def test_one_that_kafka_streams_left_open_is_distrusted(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.put_task("0_0", 4)
    assert rejected_in_task(world.path("0_0")) is None
    world.leave_open("0_0")
    path = world.path("0_0") / "rocksdb" / KV
    assert is_unclean(path)
    assert is_rejected(path)
    assert rejected_in_task(world.path("0_0")) == path


def test_one_that_this_library_was_killed_in_is_not_distrusted_and_nothing_is_changed(tmp_path: Path) -> None:
    path = tmp_path / "one"
    script = (
        "import os, signal, sys; from pathlib import Path; from statecore.formats.kinds import StoreKind;"
        "from statecore.stores.rocksdb.store import RocksDBStore;"
        "store = RocksDBStore(Path(sys.argv[1]), StoreKind.KEY_VALUE, create=True); store.open();"
        "store.put(b'key', b'row'); store.commit({}); os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", script, str(path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    before = {file.name: (file.stat().st_size, file.stat().st_mtime_ns) for file in path.iterdir()}
    assert is_unclean(path)
    assert not is_rejected(path)
    assert {file.name: (file.stat().st_size, file.stat().st_mtime_ns) for file in path.iterdir()} == before


def test_one_whose_manifest_lost_its_end_is_damaged(tmp_path: Path) -> None:
    database = database_of(unpacked(EXACTLY_ONCE, tmp_path), STAMPED)
    assert not is_rejected(database)
    cut_manifest(database, between=True)
    with raises(Corrupted, "database-damaged", store_path=str(database)):
        is_rejected(database)
