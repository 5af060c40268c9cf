"""Databases whose values lie in blob files: wherever files of a database are listed, linked, checked or read."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from statecore.doctor.database_inspection import InspectionDepth, inspect_database
from statecore.doctor.row_check import RowCheck
from statecore.errors import NOT_READABLE_HERE, Corrupted, Invalid
from statecore.formats.rocksdb_log import Manifest
from statecore.images.image import build_image
from statecore.images.linked_bases import ImageBase, ImageBases, checked_bases
from statecore.jobs.diff.store_diff import have_same_files
from statecore.statedir.database_state import read_database_state
from statecore.statedir.readonly_database import Database
from statecore.statedir.task_layout import Segment
from statecore.stores.rocksdb import files as rocksdb_files
from statecore.stores.rocksdb import manifest_guard
from statecore.stores.rocksdb.checkpoint import named_files, take_checkpoint
from statecore.stores.rocksdb.files import live_files, manifest_of, sst_formats
from statecore.stores.rocksdb.store import RocksDBStore
from tests.harness.raising import raises
from tests.unit.formats.test_rocksdb_blobs import added_at
from tests.unit.formats.test_rocksdb_log import record
from tests.unit.stores.blobs import CHANGELOG, KIND, blob_files, row, write

ROWS = 200


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = write(tmp_path / "s", range(ROWS // 2))
    return write(path, range(ROWS // 2, ROWS), deleted=range(20))


def rows_of(path: Path) -> dict[bytes, bytes]:
    with RocksDBStore(path, KIND, read_only=True) as opened:
        return {key: value for keys, values in opened.scan_lists() for key, value in zip(keys, values, strict=True)}


EXPECTED = dict(map(row, range(20, ROWS)))


def test_blob_files_are_files_of_a_database(store: Path, tmp_path: Path) -> None:
    names = {file.name for file in blob_files(store)}
    assert len(names) == 2
    assert names <= {file.name for file in named_files(store)}
    found = live_files(store)[KIND.data_column_family]
    assert {name: size for name, size in found.items() if name in names} == {
        file.name: file.stat().st_size for file in blob_files(store)
    }
    moment = take_checkpoint(store, tmp_path / "moment")
    assert {file.name for file in blob_files(moment.path)} == names
    assert rows_of(moment.path) == EXPECTED


def test_an_image_on_a_base_has_its_blob_files(store: Path, tmp_path: Path) -> None:
    bases = ImageBases({None: ImageBase(store)}, {CHANGELOG: ROWS})
    build_image(tmp_path / "image", KIND, [], {CHANGELOG: ROWS + 5}, bases=bases)
    assert rows_of(tmp_path / "image") == EXPECTED
    assert [file.stat().st_ino for file in blob_files(tmp_path / "image")] == [
        file.stat().st_ino for file in blob_files(store)
    ]


def test_the_identity_of_a_base_is_of_its_blob_files_too(store: Path) -> None:
    def identity(start: int) -> str:
        bases = ImageBases({None: ImageBase(store)}, {CHANGELOG: start})
        return checked_bases(bases, KIND, [CHANGELOG])[None].identity

    before = identity(ROWS)
    write(store, range(ROWS, ROWS + 1))
    assert identity(ROWS + 1) != before


def lost(store: Path) -> None:
    blob_files(store)[0].unlink()


def cut(store: Path) -> None:
    file = blob_files(store)[0]
    file.write_bytes(file.read_bytes()[:-7])


def emptied(store: Path) -> None:
    blob_files(store)[1].write_bytes(b"")


DAMAGES: list[Callable[[Path], None]] = [lost, cut, emptied]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_missing_or_truncated_blob_file_is_damage_before_the_open(
    store: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    damage(store)
    before = {file.name: file.read_bytes() for file in store.iterdir()}
    for read_only in (True, False):
        with pytest.raises(Corrupted, match=r"\.blob"):
            RocksDBStore(store, KIND, read_only=read_only).open()
    with pytest.raises(Corrupted, match=r"\.blob"):
        read_database_state(store, sample=True)
    with pytest.raises(Corrupted, match=r"\.blob"):
        build_image(
            tmp_path / "image",
            KIND,
            [],
            {CHANGELOG: ROWS},
            bases=ImageBases({None: ImageBase(store)}, {CHANGELOG: ROWS}),
        )
    assert {file.name: file.read_bytes() for file in store.iterdir()} == before


def without_table(store: Path) -> None:
    lost(store)
    next(store.glob("*.sst")).unlink()


@pytest.mark.parametrize(
    ("damage", "cause"),
    [(lost, "blob-damaged"), (cut, "blob-damaged"), (emptied, "blob-damaged"), (without_table, "file-missing")],
)
def test_an_inspection_finds_a_damaged_blob_file(store: Path, damage: Callable[[Path], None], cause: str) -> None:
    found = inspect_database(Segment(store, None), None, InspectionDepth(), RowCheck(KIND))
    assert found is not None
    assert (found.cause, found.rows) == ("", ROWS - 20)
    damage(store)
    found = inspect_database(Segment(store, None), None, InspectionDepth(count=False), RowCheck(KIND))
    assert found is not None
    assert (found.cause, found.error) == (cause, "Corrupted")


def test_a_reader_keeps_the_blob_files_that_a_writer_deletes(store: Path) -> None:
    with Database(store) as opened:
        for file in (*blob_files(store), *store.glob("*.sst")):
            file.unlink()
        assert dict(opened.rows(KIND.data_column_family)) == EXPECTED


def test_two_databases_share_their_rows_only_where_they_share_their_blob_files(store: Path, tmp_path: Path) -> None:
    shutil.copytree(store, tmp_path / "linked", copy_function=lambda one, other: Path(other).hardlink_to(one))
    assert have_same_files(store, tmp_path / "linked")
    (file, *_) = blob_files(tmp_path / "linked")
    content = file.read_bytes()
    file.unlink()
    assert not have_same_files(store, tmp_path / "linked")
    file.write_bytes(content)
    assert not have_same_files(store, tmp_path / "linked")


def test_files_at_unknown_paths_refuse_every_listing(store: Path, tmp_path: Path) -> None:
    with (store / manifest_of(store)[0]).open("ab") as manifest:
        manifest.write(record(added_at(path_id=1)))
    for ask in (manifest_of, named_files, live_files, sst_formats):
        with raises(Invalid, NOT_READABLE_HERE) as caught:
            ask(store)
        assert "db_paths" in caught.value.what
    with raises(Invalid, NOT_READABLE_HERE):
        take_checkpoint(store, tmp_path / "moment")
    assert not (tmp_path / "moment").exists()
    for file in store.glob("*.sst"):
        file.unlink()
    found = inspect_database(Segment(store, None), None, InspectionDepth(), RowCheck(KIND))
    assert found is not None
    assert found.cause == NOT_READABLE_HERE


def test_a_database_with_unknown_files_is_not_opened_for_writing(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def not_understood(_: bytes) -> Manifest:
        raise ValueError("tag 999 of a version edit")

    monkeypatch.setattr(rocksdb_files, "read_manifest", not_understood)
    monkeypatch.setattr(manifest_guard, "read_manifest", not_understood)
    before = {file.name: file.read_bytes() for file in store.iterdir()}
    with raises(Invalid, "manifest-unsupported"):
        RocksDBStore(store, KIND).open()
    assert {file.name: file.read_bytes() for file in store.iterdir()} == before
    assert rows_of(store) == EXPECTED
