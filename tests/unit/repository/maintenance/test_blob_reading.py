"""Reading files in a repository: wrong, short and missing bytes, in pieces and together."""

from __future__ import annotations

from hashlib import sha256
from random import Random

import pytest

from statecore.errors import Retryable
from statecore.repository.blob_verification import NamedFile
from statecore.repository.maintenance.blob_reading import damaged_files
from statecore.repository.manifest import Extent
from tests.harness.raising import raises
from tests.harness.simulated_store import Network, SimulatedBlobs, Storage, flipped

SIZES = (10, 0, 25, 1, 64, 8, 0, 3)


@pytest.fixture
def blobs(storage: Storage, network: Network) -> SimulatedBlobs:
    for name in ("a", "b"):
        storage.put(name, Random(name).randbytes(200))
    return SimulatedBlobs(network)


def files_of(storage: Storage, blob: str, gap: int = 0) -> list[NamedFile]:
    """Files one after the other in a blob, with so many bytes between them."""
    found, at = [], 0
    for size in SIZES:
        content = storage.blobs[blob][0][at : at + size]
        found.append(NamedFile(sha256(content).hexdigest(), Extent(blob, at, size)))
        at += size + gap
    return found


@pytest.mark.parametrize("gap", [0, 2])
@pytest.mark.parametrize("piece", [1, 7, 8, 64, 1000])
def test_every_wrong_byte_is_found_in_its_file(blobs: SimulatedBlobs, storage: Storage, piece: int, gap: int) -> None:
    files = files_of(storage, "a", gap) + files_of(storage, "b", gap)
    told: list[int] = []
    assert damaged_files(blobs, files, told.append, piece_bytes=piece) == {}
    assert sum(told) == 2 * sum(SIZES)
    for one in files:
        if one.extent.bytes:
            content, at = storage.blobs[one.extent.blob]
            storage.blobs[one.extent.blob] = (flipped(content, 8 * (one.extent.start + one.extent.bytes - 1)), at)
            assert damaged_files(blobs, files, piece_bytes=piece) == {one: "blob-damaged"}
            storage.blobs[one.extent.blob] = (content, at)


@pytest.mark.parametrize("piece", [7, 64, 1000])
def test_short_and_missing_blobs_damage_only_their_files(blobs: SimulatedBlobs, storage: Storage, piece: int) -> None:
    files, others = files_of(storage, "a"), files_of(storage, "b")
    storage.blobs["a"] = (storage.blobs["a"][0][:99], 0.0)
    found = damaged_files(blobs, files + others, piece_bytes=piece)
    assert {one for one in found if one.extent.bytes} == set(files[4:]) - {files[6]}
    assert {one.extent.blob for one in found} == {"a"}
    assert set(found.values()) == {"blob-truncated"}
    storage.archived.add("a")
    assert damaged_files(blobs, files + others, piece_bytes=piece) == dict.fromkeys(files, "blob-archived")
    storage.archived.clear()
    del storage.blobs["a"]
    assert damaged_files(blobs, files + others, piece_bytes=piece) == dict.fromkeys(files, "blob-missing")


def test_a_disk_that_cannot_read_it_is_damage_and_no_answer_is_not(
    blobs: SimulatedBlobs, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, code = files_of(storage, "a"), "disk-failed"

    def fails(*_: object) -> bytes:
        raise Retryable("No.", code=code, action="Wait.")

    monkeypatch.setattr(blobs, "get", fails)
    assert set(damaged_files(blobs, files)) == set(files)
    code = "object-store-unreachable"
    with raises(Retryable, code):
        damaged_files(blobs, files)
