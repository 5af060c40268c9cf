"""What an earlier manifest names is looked at before a new one names it: each blob once, without moving its bytes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from statecore.errors import Corrupted, Invalid, NotFound
from statecore.objectstore.base import Blob, Blobs
from statecore.objectstore.directory import DirectoryBlobs
from statecore.repository.blob_verification import NamedFile, existing_blobs, is_intact, missing_files
from statecore.repository.layout import Layout
from statecore.repository.publish.upload import LocalFile, put_files, put_verified
from tests.harness.raising import raises
from tests.harness.simulated_store import Network, SimulatedBlobs, Storage, flipped
from tests.unit.repository.snapshots import APPLICATION, file_of

NAMES = Layout(APPLICATION)


class Counting(SimulatedBlobs):
    """Counts requests, and gives no bytes."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(Network(storage, random.Random(0)))
        self.asked: Counter[str] = Counter()
        self._network.fault = lambda request, _: self.asked.update([request]) or ""  # type: ignore[method-assign,func-returns-value]


@pytest.fixture
def directory(tmp_path: Path) -> DirectoryBlobs:
    return DirectoryBlobs(tmp_path / "blobs")


def put(blobs: Blobs, scratch: Path, *sizes_: int) -> tuple[list[LocalFile], list[NamedFile]]:
    """Files, of which those are small that have less than 100 bytes."""
    chance = random.Random(0)
    files = [file_of(scratch, chance.randbytes(size)) for size in sizes_]
    return files, [
        NamedFile(file.sha256, extent)
        for file, extent in zip(files, put_files(blobs, NAMES, files, small=100), strict=True)
    ]


def hands(files: list[LocalFile]) -> dict[str, Path]:
    return {file.sha256: file.path for file in files}


def change(blobs: DirectoryBlobs, name: str, content: bytes) -> None:
    """Other bytes in the place of a blob, whatever else has its file."""
    path = blobs.local_path(name)
    path.unlink()
    path.write_bytes(content)


def test_what_is_there_is_not_lost_and_each_blob_is_asked_for_once(storage: Storage, tmp_path: Path) -> None:
    blobs = Counting(storage)
    files, named = put(blobs, tmp_path, 10, 20, 30, 40, 500, 600)
    blobs.asked.clear()
    assert missing_files(blobs, named, hands(files)) == set()
    assert blobs.asked == {"head": 3}, "a pack of four, and two large ones"
    assert missing_files(blobs, []) == set()


@pytest.mark.parametrize("blob", ["packs", "files"])
@pytest.mark.parametrize("kind", ["missing", "shorter", "flipped"])
@pytest.mark.parametrize("at_hand", [True, False])
def test_damage_in_a_directory_is_found(
    directory: DirectoryBlobs, tmp_path: Path, blob: str, kind: str, at_hand: bool
) -> None:
    files, named = put(directory, tmp_path / "scratch", 10, 20, 30, 500)
    hit = named[2] if blob == "packs" else named[3]  # the last of the pack
    content = directory.get(hit.extent.blob)
    if kind == "missing":
        directory.delete(hit.extent.blob)
    else:
        damaged = content[:-1] if kind == "shorter" else flipped(content, (len(content) - 1) * 8)
        change(directory, hit.extent.blob, damaged)
    expected = set(named[:3]) if (blob, kind) == ("packs", "missing") else {hit}
    assert missing_files(directory, named, hands(files) if at_hand else {}) == expected


def test_damage_where_there_are_checksums_is_found_as_far_as_all_of_a_blob_is_at_hand(
    storage: Storage, tmp_path: Path
) -> None:
    blobs = Counting(storage)
    files, named = put(blobs, tmp_path, 0, 10, 20, 0, 500)
    for one in (named[1], named[4]):
        content = storage.blobs[one.extent.blob][0]
        storage.blobs[one.extent.blob] = (flipped(content, 3), 0.0)
    assert missing_files(blobs, named, hands(files)) == set(named), "which of a pack nobody knows"
    assert missing_files(blobs, named[:4], hands(files[2:])) == set()
    assert missing_files(blobs, named) == set()
    assert "get" not in blobs.asked


@pytest.mark.parametrize("at", [0, 2])
def test_a_file_at_hand_that_has_changed_is_no_damage_of_the_repository(
    storage: Storage, tmp_path: Path, at: int
) -> None:
    blobs = Counting(storage)
    files, named = put(blobs, tmp_path, 10, 20, 500)
    files[at].path.write_bytes(flipped(files[at].path.read_bytes(), 3))
    with raises(Corrupted, "upload-file-changed") as caught:
        missing_files(blobs, named, hands(files))
    assert caught.value.context["path"] == str(files[at].path)


def test_verification_reads_up_to_its_budget_a_new_sample_each_time(directory: DirectoryBlobs, tmp_path: Path) -> None:
    _, named = put(directory, tmp_path / "scratch", 500, 501, 502, 503)
    for one in named:
        change(directory, one.extent.blob, bytes(one.extent.bytes))
    assert missing_files(directory, named, read_limit=0) == set()
    assert missing_files(directory, named, read_limit=None) == set(named)
    found = [missing_files(directory, named, read_limit=600) for _ in range(100)]
    assert {len(one) for one in found} == {2}, "the last may be larger than what is left"
    assert set().union(*found) == set(named)
    directory.delete(named[0].extent.blob)
    assert missing_files(directory, named, read_limit=0) == {named[0]}, "that it is there is asked of each"


def test_a_second_name_of_a_file_at_hand_is_not_read_again(directory: DirectoryBlobs, tmp_path: Path) -> None:
    file = file_of(tmp_path / "scratch", b"content")
    name = NAMES.file(file.sha256)
    final = tmp_path / "blobs" / name
    final.parent.mkdir(parents=True)
    final.hardlink_to(file.path)
    file.path.write_bytes(b"CONTENT")  # which would show, if it was read
    put_verified(directory, name, file.path, file.bytes, file.sha256)
    (extent,) = put_files(directory, NAMES, [file])
    assert missing_files(directory, [NamedFile(file.sha256, extent)], hands([file])) == set()


def test_a_blob_that_the_disk_has_lost_is_not_whole(directory: DirectoryBlobs, tmp_path: Path) -> None:
    _, (one,) = put(directory, tmp_path / "scratch", 10)
    path = directory.local_path(one.extent.blob)

    class Failing(DirectoryBlobs):
        def local_path(self, name: str) -> Path:
            return Path("/proc/self/mem")  # whose first page cannot be read: EIO

    failing = Failing(tmp_path / "blobs")
    failing.head = lambda name: Blob(name, 10, 0.0)  # type: ignore[method-assign]
    assert missing_files(failing, [one]) == {one}
    assert not is_intact(failing, one.extent.blob, path, 10, one.sha256)


def test_a_blob_that_may_not_be_read_is_no_damage(
    directory: DirectoryBlobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, (one,) = put(directory, tmp_path / "scratch", 10)

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with raises(Invalid, "permission-denied"):
        missing_files(directory, [one])


def sizes(blobs: Blobs, names: Sequence[str], listed_from: int) -> dict[str, int]:
    found = existing_blobs(blobs, names, "apps/orders/", listed_from=listed_from)
    return {name: blob.size for name, blob in found.items()}


def test_sizes_of_few_are_asked_for_and_those_of_many_listed(storage: Storage) -> None:
    blobs = Counting(storage)
    names = [f"apps/orders/files/{number}" for number in range(8)]
    for at, name in enumerate(names[:6]):
        storage.put(name, bytes(at))
    there = {name: at for at, name in enumerate(names[:6])}
    assert sizes(blobs, names[:4], listed_from=5) == dict(list(there.items())[:4])
    assert blobs.asked == {"head": 4}
    blobs.asked.clear()
    assert sizes(blobs, names, listed_from=5) == there
    assert blobs.asked == {"list": 1, "head": 2}, "what is not listed is asked for once more"


def test_a_listing_that_is_too_long_is_given_up(storage: Storage) -> None:
    blobs = Counting(storage)
    for number in range(200):
        storage.put(f"apps/orders/files/{number:03}", b"1")
    names = ["apps/orders/files/000", "apps/orders/files/199"]
    assert sizes(blobs, names, listed_from=2) == dict.fromkeys(names, 1)
    assert blobs.asked == {"list": 1, "head": 1}


def test_a_file_deleted_before_its_upload_is_reported(storage: Storage, tmp_path: Path) -> None:
    blobs = Counting(storage)
    files, _ = put(blobs, tmp_path, (1 << 20) + 5)
    files[0].path.unlink()
    with raises(NotFound, "upload-file-missing", path=str(files[0].path)):
        put_files(blobs, NAMES, files)
