"""Publication of runs: large ones at once, small ones of several ranges together."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from statecore.images.model import RunFile, RunFormat
from statecore.jobs.pipeline.run_publisher import ApplicationAddress, Publisher
from statecore.repository.layout import Layout
from statecore.repository.manifest import Extent
from statecore.repository.object_store import object_store_of


@pytest.fixture
def address(tmp_path: Path) -> ApplicationAddress:
    return ApplicationAddress((tmp_path / "repository").as_uri(), "orders", 5)


def run(path: Path, content: bytes) -> RunFile:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    digest = sha256(content).hexdigest()
    return RunFile(digest, RunFormat.SST, 1, 0, 1, len(content), "0" * 32, "61", "61", path=path)


def test_small_runs_of_several_ranges_share_a_pack_that_is_put_at_the_end(
    address: ApplicationAddress, tmp_path: Path
) -> None:
    publisher, told = Publisher(address), dict[str, tuple[Extent, ...]]()
    ranges = {name: [run(tmp_path / name / str(n), name.encode() * n) for n in (1, 2)] for name in ("a", "b")}
    for name, files in ranges.items():
        publisher.publish(files, lambda extents, name=name: told.update({name: extents}))
    assert publisher.waits
    assert not told
    publisher.flush()
    assert not publisher.waits
    blobs = object_store_of(address.url).blobs
    (pack,) = blobs.list()
    assert pack.name.startswith(f"{Layout('orders').root}packs/")
    for name, files in ranges.items():
        for file, extent in zip(files, told[name], strict=True):
            assert blobs.get(extent.blob, extent.start, extent.start + extent.bytes) == file.path.read_bytes()
        assert address.holds(zip((file.sha256 for file in files), told[name], strict=True))


def test_a_range_of_large_runs_does_not_wait(address: ApplicationAddress, tmp_path: Path) -> None:
    publisher, told = Publisher(address, small=3), list[Extent]()
    large = run(tmp_path / "large", b"12345")
    publisher.publish([large], told.extend)
    assert [extent.bytes for extent in told] == [5]
    assert not publisher.waits
    publisher.publish([], told.extend)
    assert len(told) == 1


def test_a_range_with_small_and_large_runs_is_published_when_all_are_uploaded(
    address: ApplicationAddress, tmp_path: Path
) -> None:
    publisher, told = Publisher(address, small=3), list[Extent]()
    publisher.publish([run(tmp_path / "large", b"12345"), run(tmp_path / "small", b"1")], told.extend)
    assert len(list(object_store_of(address.url).blobs.list())) == 1
    assert not told
    publisher.flush()
    assert [extent.bytes for extent in told] == [5, 1]


def test_a_pack_that_is_full_is_put(address: ApplicationAddress, tmp_path: Path) -> None:
    publisher, told = Publisher(address, pack_bytes=4), list[Extent]()
    publisher.publish([run(tmp_path / "1", b"11")], told.extend)
    assert not told
    publisher.publish([run(tmp_path / "2", b"22")], told.extend)
    assert len(told) == 2


def test_missing_and_changed_runs_are_noticed(address: ApplicationAddress, tmp_path: Path) -> None:
    publisher, told = Publisher(address), list[Extent]()
    one = run(tmp_path / "1", b"11")
    publisher.publish([one], told.extend)
    publisher.flush()
    (extent,) = told
    assert address.holds([])
    assert address.holds([(one.sha256, extent)])
    assert replace(address, collection=6).holds([(one.sha256, extent)])
    assert not replace(address, collection=7).holds([(one.sha256, extent)]), "two collections later it may be deleted"
    assert not address.holds([(one.sha256, Extent(extent.blob, extent.start, extent.bytes + 1))])
    blob = object_store_of(address.url).blobs.local_path(extent.blob)
    assert blob is not None
    blob.unlink()
    assert not address.holds([(one.sha256, extent)])
    blob.write_bytes(b"12")
    assert not address.holds([(one.sha256, extent)])
