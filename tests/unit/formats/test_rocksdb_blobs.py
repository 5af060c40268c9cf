"""The blob files that a MANIFEST names, against those that RocksDB itself copies into a checkpoint."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rocksdict import Checkpoint, Options, Rdict

from statecore.formats.rocksdb_log import read_manifest
from statecore.stores.rocksdb.directory import current_manifest
from tests.unit.formats.test_rocksdb_log import files, sized
from tests.unit.images.sst_files import varint

FAMILIES = ("default", "keyValueWithTimestamp")


def options(*, garbage_collection: bool = False) -> Options:
    made = Options(raw_mode=True)
    made.create_if_missing(True)
    made.create_missing_column_families(True)
    made.set_atomic_flush(True)
    made.set_disable_auto_compactions(True)
    made.set_enable_blob_files(True)
    made.set_min_blob_size(32)
    made.set_enable_blob_gc(garbage_collection)
    made.set_blob_gc_age_cutoff(0.6)
    made.set_blob_gc_force_threshold(0.3)
    return made


@pytest.fixture(params=[False, True], ids=["kept garbage", "collected garbage"])
def database(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Path, Rdict, list[Any]]]:
    path = tmp_path / "store"
    opened = Rdict(str(path), options(garbage_collection=request.param), column_families={
        name: options(garbage_collection=request.param) for name in FAMILIES
    })  # fmt: skip
    handles = [opened.get_column_family(name) for name in FAMILIES]
    yield path, opened, handles
    for handle in handles:
        handle.close()
    opened.close()


def blobs_of_checkpoint(database: Rdict, target: Path) -> dict[str, int]:
    Checkpoint(database).create_checkpoint(str(target))
    return {file.name: file.stat().st_size for file in target.glob("*.blob")}


def test_the_live_blob_files_are_those_that_rocksdb_keeps(
    database: tuple[Path, Rdict, list[Any]], tmp_path: Path
) -> None:
    path, opened, handles = database
    chance = random.Random(7)
    seen: set[str] = set()
    for step in range(40):
        handle = chance.choice(handles)
        for _ in range(chance.randrange(1, 30)):
            key = b"%03d" % chance.randrange(60)
            if chance.random() < 0.2:
                handle.delete(key)
            else:
                handle.put(key, bytes([step]) * chance.choice((5, 50, 400)))
        if chance.random() < 0.3:
            handle.flush()
            handle.compact_range(None, None)
        expected = blobs_of_checkpoint(opened, tmp_path / f"checkpoint-{step}")
        manifest = read_manifest(current_manifest(path)[1])
        assert {blob.name: blob.size for blob in manifest.blobs.values()} == expected
        assert {name for name in manifest.names if name.endswith(".blob")} == expected.keys()
        copied = read_manifest(current_manifest(tmp_path / f"checkpoint-{step}")[1])
        assert copied.blobs.keys() == manifest.blobs.keys()
        seen |= expected.keys()
    assert len(seen) > len(expected)  # some have gone meanwhile


def test_blob_files_are_of_the_family_that_they_were_added_to(database: tuple[Path, Rdict, list[Any]]) -> None:
    path, _, (default, timestamped) = database
    for handle, name in ((default, "default"), (timestamped, "keyValueWithTimestamp")):
        handle.put(b"key", b"v" * 100)
        handle.flush()
        manifest = read_manifest(current_manifest(path)[1])
        (newest,) = (blob for blob in manifest.blobs.values() if blob.number == max(manifest.blobs))
        assert newest.family == name
        (linked,) = (file for file in manifest.files.values() if file.family == name)
        assert linked.oldest_blob == newest.number


def added_at(path_id: int) -> bytes:
    return varint(103) + b"".join(map(varint, (0, 7, 1000))) + sized(b"a") + sized(b"b") + varint(7) * 2 + (
        varint(65) + sized(varint(path_id)) + b"\1"
    )  # fmt: skip


def test_a_file_in_another_directory_is_not_understood() -> None:
    with pytest.raises(ValueError, match="000007"):
        files([added_at(1)])


@pytest.mark.parametrize("field", [64, 66, 127])
def test_a_field_that_must_not_be_ignored_is_not_understood(field: int) -> None:
    added = varint(103) + b"".join(map(varint, (0, 7, 1000))) + sized(b"a") + sized(b"b") + varint(7) * 2
    with pytest.raises(ValueError, match=f"field {field}"):
        files([added + varint(field) + sized(b"x") + b"\1"])
    blob = varint(400) + b"".join(map(varint, (8, 1, 100))) + sized(b"") * 2
    with pytest.raises(ValueError, match=f"field {field}"):
        files([blob + varint(field) + sized(b"x") + varint(0)])
