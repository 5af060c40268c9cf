"""Ways into a repository: each file once, small ones together, and nothing that is not what its hash says."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.errors import Corrupted, Invalid, NotFound, Retryable
from statecore.objectstore.directory import DirectoryBlobs
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.blob_verification import NamedFile, missing_files
from statecore.repository.manifest import Extent
from statecore.repository.publish.upload import LocalFile, put_files, put_verified
from tests.harness.raising import raises
from tests.harness.simulated_store import Network, SimulatedBlobs, SimulatedPointers, Storage, flipped
from tests.unit.objectstore.implementations import IMPLEMENTATIONS
from tests.unit.repository.snapshots import APPLICATION, file_of, repository


def files_of(directory: Path, *sizes: int, seed: int = 0) -> list[LocalFile]:
    return [file_of(directory, random.Random((seed << 20) + at).randbytes(size)) for at, size in enumerate(sizes)]


def check(app_repository: ApplicationRepository, files: list[LocalFile], extents: list[Extent]) -> None:
    """Each file is where its extent says."""
    assert len(files) == len(extents)
    for file, extent in zip(files, extents, strict=True):
        assert extent.bytes == file.bytes
        assert sha256(app_repository.read(extent, "A file")).hexdigest() == file.sha256


LITTLE = {"small": 100, "pack_bytes": 250}
"""Files are small below 100 bytes, and packs full with 250."""


@pytest.mark.parametrize(
    ("sizes", "files", "packs"),
    [
        ((), 0, 0),
        ((10,), 1, 0),
        ((0,), 1, 0),
        ((10, 0, 20), 0, 1),
        ((99, 100), 2, 0),
        ((99, 98, 100, 101), 2, 1),
        ((99, 99, 99, 99, 99), 0, 3),
        ((50, 50, 50, 50, 50), 0, 1),
        ((500, 400, 300), 3, 0),
    ],
)
def test_small_files_share_blobs_and_large_ones_have_their_own(
    app_repository: ApplicationRepository,
    storage: Storage,
    tmp_path: Path,
    sizes: tuple[int, ...],
    files: int,
    packs: int,
) -> None:
    local = files_of(tmp_path, *sizes)
    check(app_repository, local, put_files(app_repository.blobs, app_repository.names, local, **LITTLE))
    kinds = [name.split("/")[2] for name in storage.blobs]
    assert (kinds.count("files"), kinds.count("packs")) == (files, packs)
    assert len(kinds) == files + packs


@settings(deadline=None, max_examples=40)
@given(sizes=st.lists(st.integers(0, 150), max_size=12), again=st.lists(st.integers(0, 11), max_size=4))
def test_every_put_file_is_in_its_extent(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], again: list[int]
) -> None:
    network = Network(Storage(), random.Random(0))
    app_repository = ApplicationRepository(repository(SimulatedBlobs(network), SimulatedPointers(network)), APPLICATION)
    local = files_of(tmp_path_factory.mktemp("files"), *sizes)
    local += [local[at] for at in again if at < len(local)]
    told: list[int] = []
    check(app_repository, local, put_files(app_repository.blobs, app_repository.names, local, told.append, **LITTLE))
    blobs = network.storage.blobs
    assert sum(told) == sum(len(content) for content, _ in blobs.values())
    assert sum(told) == sum({file.sha256: file.bytes for file in local}.values()), "no byte twice"
    # The same files in the same order are there already.
    before = dict(blobs)
    first = put_files(app_repository.blobs, app_repository.names, local, **LITTLE)
    assert first == put_files(app_repository.blobs, app_repository.names, list(local), **LITTLE)
    assert blobs == before


@pytest.mark.parametrize("sizes", [(0,), (10,), (10, 20), (1 << 20,), (1 << 20, 5), ((1 << 20) + 1, 1 << 20, 3, 4)])
def test_a_second_attempt_puts_nothing(
    app_repository: ApplicationRepository, storage: Storage, tmp_path: Path, sizes: tuple[int, ...]
) -> None:
    local = files_of(tmp_path, *sizes)
    first = put_files(app_repository.blobs, app_repository.names, local)
    before = dict(storage.blobs)
    assert put_files(app_repository.blobs, app_repository.names, local) == first
    assert storage.blobs == before
    check(app_repository, local, first)


@pytest.mark.parametrize("sizes", [(10,), (10, 20), ((1 << 20) + 1,)])
@pytest.mark.parametrize("change", [lambda content: content + b"x", lambda content: content[:-1], lambda _: b""])
def test_a_file_of_another_size_is_not_put(
    app_repository: ApplicationRepository, storage: Storage, tmp_path: Path, sizes: tuple[int, ...], change: object
) -> None:
    local = files_of(tmp_path, *sizes)
    local[-1].path.write_bytes(change(local[-1].path.read_bytes()))  # type: ignore[operator]
    with raises(Corrupted, "upload-file-changed") as caught:
        put_files(app_repository.blobs, app_repository.names, local)
    assert caught.value.context["path"] == str(local[-1].path)
    assert not storage.blobs


def test_a_small_file_with_other_bytes_is_not_put_into_a_pack(
    app_repository: ApplicationRepository, storage: Storage, tmp_path: Path
) -> None:
    local = files_of(tmp_path, 10, 20)
    local[0].path.write_bytes(bytes(10))
    with raises(Corrupted, "upload-file-changed", path=str(local[0].path)):
        put_files(app_repository.blobs, app_repository.names, local)
    assert not storage.blobs


@pytest.mark.parametrize("sizes", [(10, 20), ((1 << 20) + 1,), (1 << 20, 1 << 20)])
def test_a_file_that_is_gone_is_not_found(
    app_repository: ApplicationRepository, tmp_path: Path, sizes: tuple[int, ...]
) -> None:
    local = files_of(tmp_path, *sizes)
    local[-1].path.unlink()
    with raises(NotFound, "upload-file-missing", path=str(local[-1].path)):
        put_files(app_repository.blobs, app_repository.names, local)


@pytest.mark.parametrize("sizes", [(10,), (10, 20), ((1 << 20) + 1,)])
@pytest.mark.parametrize("damage", [lambda content: content[:-1], lambda content: flipped(content, 17)])
def test_a_damaged_blob_is_replaced_and_is_never_missing(
    app_repository: ApplicationRepository,
    storage: Storage,
    tmp_path: Path,
    sizes: tuple[int, ...],
    damage: Callable[[bytes], bytes],
) -> None:
    local = files_of(tmp_path, *sizes)
    (extent, *_) = put_files(app_repository.blobs, app_repository.names, local)
    storage.blobs[extent.blob] = (damage(storage.blobs[extent.blob][0]), 0.0)
    storage.deleted = lambda name: pytest.fail(f"{name} was deleted")
    check(app_repository, local, put_files(app_repository.blobs, app_repository.names, local))


@pytest.mark.parametrize("sizes", [(10,), (10, 20), ((1 << 20) + 1,)])
@pytest.mark.parametrize("damage", [lambda content: content[:-1], lambda content: flipped(content, 17)])
def test_a_damaged_blob_in_a_directory_is_replaced(
    tmp_path: Path, sizes: tuple[int, ...], damage: Callable[[bytes], bytes]
) -> None:
    local, blobs = files_of(tmp_path / "files", *sizes), DirectoryBlobs(tmp_path / "blobs")
    app_repository = ApplicationRepository(
        repository(blobs, SimulatedPointers(Network(Storage(), random.Random(0)))), APPLICATION
    )
    (extent, *_) = put_files(blobs, app_repository.names, local)
    path = blobs.local_path(extent.blob)
    content = damage(path.read_bytes())
    path.unlink()
    path.write_bytes(content)
    check(app_repository, local, put_files(blobs, app_repository.names, local))
    assert not list((tmp_path / "blobs" / "~partial").iterdir())


@pytest.mark.parametrize("damage", [lambda content: content, lambda content: content[:-1]])
def test_a_file_that_has_changed_since_it_was_hashed_never_replaces_a_blob(
    app_repository: ApplicationRepository, storage: Storage, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    """Nor one that is damaged itself: the damage would be in the newest blob."""
    local = files_of(tmp_path, (1 << 20) + 1)
    (extent,) = put_files(app_repository.blobs, app_repository.names, local)
    there = damage(storage.blobs[extent.blob][0])
    storage.blobs[extent.blob] = (there, 0.0)
    local[0].path.write_bytes(flipped(local[0].path.read_bytes(), 17))
    with raises(Corrupted, "upload-file-changed") as caught:
        put_files(app_repository.blobs, app_repository.names, local)
    assert caught.value.context["path"] == str(local[0].path)
    assert storage.blobs[extent.blob][0] == there


@pytest.mark.parametrize("size", [3 << 20, 40 << 20])
def test_a_server_keeps_its_blob_where_the_file_on_this_machine_is_the_damaged_one(tmp_path: Path, size: int) -> None:
    blobs = IMPLEMENTATIONS["s3"](tmp_path)
    app_repository = ApplicationRepository(
        repository(blobs, SimulatedPointers(Network(Storage(), random.Random(0)))), APPLICATION
    )
    local = files_of(tmp_path / "files", size)
    extents = put_files(blobs, app_repository.names, local)
    local[0].path.write_bytes(flipped(local[0].path.read_bytes(), 8 * (size // 2)))
    with raises(Corrupted, "upload-file-changed"):
        missing_files(blobs, {NamedFile(local[0].sha256, extents[0])}, {local[0].sha256: local[0].path})
    with raises(Corrupted, "upload-file-changed"):
        put_files(blobs, app_repository.names, local)
    check(app_repository, local, extents)


def test_a_blob_deleted_before_the_check_is_put(
    app_repository: ApplicationRepository, storage: Storage, network: Network
) -> None:
    """Another writer has deleted it, because it was of another size."""
    storage.put("apps/orders/packs/1", b"damaged")
    network.fault = (  # type: ignore[method-assign]
        lambda request, possible: storage.delete("apps/orders/packs/1") or "" if request == "head" else ""  # type: ignore[func-returns-value]
    )
    put_verified(app_repository.blobs, "apps/orders/packs/1", b"whole", 5, sha256(b"whole").hexdigest())
    assert storage.blobs["apps/orders/packs/1"][0] == b"whole"


def test_a_blob_that_hides_is_asked_for_again_and_given_up_in_the_end(
    app_repository: ApplicationRepository, storage: Storage, network: Network
) -> None:
    storage.put("a", b"whole")
    hidden = iter(["missing", "missing", ""])
    network.fault = lambda request, possible: next(hidden) if request == "head" else ""  # type: ignore[method-assign]
    put_verified(app_repository.blobs, "a", b"whole", 5, sha256(b"whole").hexdigest())
    network.fault = lambda request, possible: "missing" if request == "head" else ""  # type: ignore[method-assign]
    with raises(Retryable, "object-store-inconsistent", blob="a"):
        put_verified(app_repository.blobs, "a", b"whole", 5, sha256(b"whole").hexdigest())
    assert storage.blobs["a"][0] == b"whole"


@pytest.mark.parametrize("sizes", [(10,), (10, 20), (1 << 20, (1 << 20) + 1)])
def test_a_put_without_a_reply_is_an_error_and_the_next_attempt_finds_what_was_put(
    app_repository: ApplicationRepository, storage: Storage, network: Network, tmp_path: Path, sizes: tuple[int, ...]
) -> None:
    local = files_of(tmp_path, *sizes)
    network.fault = lambda request, possible: "timeout" if request == "put" else ""  # type: ignore[method-assign]
    with pytest.raises(Retryable):
        put_files(app_repository.blobs, app_repository.names, local)
    there = dict(storage.blobs)
    assert there
    del network.fault  # type: ignore[method-assign]
    check(app_repository, local, put_files(app_repository.blobs, app_repository.names, local))
    assert all(storage.blobs[name] == content for name, content in there.items())


def test_what_is_new_costs_a_request_a_blob_and_what_is_there_one_more(
    app_repository: ApplicationRepository, network: Network, tmp_path: Path
) -> None:
    local = files_of(tmp_path, *[100] * 100, 1 << 20, (1 << 20) + 1)
    asked: Counter[str] = Counter()
    network.fault = lambda request, _: asked.update([request]) or ""  # type: ignore[method-assign,func-returns-value]
    put_files(app_repository.blobs, app_repository.names, local)
    assert asked == {"put": 3}
    put_files(app_repository.blobs, app_repository.names, local)
    assert asked == {"put": 6, "head": 3}


def test_an_unreadable_small_file_is_reported(app_repository: ApplicationRepository, tmp_path: Path) -> None:
    local = files_of(tmp_path, 10, 20)
    local[0].path.unlink()
    local[0].path.mkdir()
    with raises(Invalid, "system-refused", path=str(local[0].path)):
        put_files(app_repository.blobs, app_repository.names, local)
