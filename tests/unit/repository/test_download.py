"""Ways out of a repository: what comes is what its hash says, what came whole is kept, and memory is bounded."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import Capacity, Corrupted, Invalid, NotFound, Retryable, StatecoreError
from statecore.filesystem import file_sha256
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.download import PIECES_AT_ONCE, DownloadResult, RemoteFile, check_present
from statecore.repository.download import download as download_files
from statecore.repository.publish.upload import LocalFile, put_files
from statecore.repository.repository import create_repository
from tests.harness.raising import raises
from tests.harness.simulated_store import Network, SimulatedBlobs, SimulatedPointers, Storage, flipped
from tests.unit.repository.downloading_process import wanted_of
from tests.unit.repository.publish.test_upload import files_of
from tests.unit.repository.snapshots import APPLICATION, publication, repository, uploaded

SIZES = (0, 1, 999, 1000, 1001, 5000, 70_000, 33_333, 10, 20, 4096)


def download(
    app_repository: ApplicationRepository,
    wanted: Iterable[RemoteFile],
    directory: Path,
    *,
    piece_bytes: int = 1000,
    **more: Any,
) -> DownloadResult:
    return download_files(app_repository, wanted, directory, piece_bytes=piece_bytes, **more)


@pytest.fixture
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits for the disk."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def local(tmp_path: Path) -> list[LocalFile]:
    return files_of(tmp_path / "source", *SIZES)


@pytest.fixture
def wanted(app_repository: ApplicationRepository, local: list[LocalFile]) -> list[RemoteFile]:
    return put(app_repository, local)


def put(app_repository: ApplicationRepository, local: list[LocalFile], small: int = 10_000) -> list[RemoteFile]:
    extents = put_files(app_repository.blobs, app_repository.names, local, small=small)
    return [
        RemoteFile(file.sha256, extent, f"File {number}")
        for number, (file, extent) in enumerate(zip(local, extents, strict=True))
    ]


def there(directory: Path) -> dict[str, int]:
    """Size by name of what came, after it was looked at."""
    found = {path.name: path.stat().st_size for path in (directory / "files").iterdir()}
    assert all(file_sha256(directory / "files" / name) == name for name in found), "what is there is whole"
    return found


def partial(directory: Path) -> list[Path]:
    return list((directory / "partial").iterdir())


def test_every_file_comes_and_is_what_its_name_says(
    app_repository: ApplicationRepository, wanted: list[RemoteFile], tmp_path: Path
) -> None:
    told: list[int] = []
    done = download(app_repository, iter(wanted), tmp_path / "d", advance=told.append)
    assert there(tmp_path / "d") == {one.sha256: one.extent.bytes for one in wanted}
    assert done == DownloadResult(sum(SIZES), len(SIZES), 0, 0)
    assert sum(told) == sum(SIZES)
    assert partial(tmp_path / "d") == []


@pytest.mark.parametrize("piece", [1, 7, 50, 1 << 20])
def test_pieces_of_any_size_make_the_same_files(
    app_repository: ApplicationRepository, tmp_path: Path, piece: int
) -> None:
    wanted = put(app_repository, files_of(tmp_path / "source", 0, 1, 6, 7, 8, 49, 50, 51, 350, 14, 0), small=50)
    for some in (wanted, wanted[::-1], wanted[::2], [*wanted, *wanted]):
        directory = tmp_path / f"d{len(some)}{some[0].extent.bytes}{some[1].extent.bytes}"
        download(app_repository, some, directory, piece_bytes=piece)
        assert there(directory) == {one.sha256: one.extent.bytes for one in some}
        assert partial(directory) == []


def test_nothing_that_is_wanted_is_nothing_to_do(app_repository: ApplicationRepository, tmp_path: Path) -> None:
    assert download(app_repository, [], tmp_path / "d") == DownloadResult(0, 0, 0, 0)


def test_files_that_lie_side_by_side_come_in_one_request(
    app_repository: ApplicationRepository, network: Network, tmp_path: Path
) -> None:
    wanted = put(app_repository, files_of(tmp_path / "source", *[90] * 11))
    asked: list[str] = []
    network.fault = lambda request, possible: asked.append(request) or ""  # type: ignore[method-assign,func-returns-value]
    download(app_repository, wanted, tmp_path / "d")
    assert asked == ["get"]
    del asked[:]
    download(app_repository, wanted[::2], tmp_path / "e")
    assert asked == ["get"] * 6


def test_what_came_whole_is_kept_and_the_rest_comes(
    app_repository: ApplicationRepository, wanted: list[RemoteFile], tmp_path: Path
) -> None:
    download(app_repository, wanted[:6], tmp_path / "d")
    broken = tmp_path / "d" / "files" / wanted[3].sha256
    broken.write_bytes(broken.read_bytes()[:-1])
    told: list[int] = []
    done = download(app_repository, wanted, tmp_path / "d", advance=told.append)
    kept = sum(SIZES[:3]) + sum(SIZES[4:6])
    assert done == DownloadResult(sum(SIZES) - kept, len(SIZES) - 5, kept, 5)
    assert sum(told) == sum(SIZES)
    assert there(tmp_path / "d").keys() == {one.sha256 for one in wanted}
    assert download(app_repository, wanted, tmp_path / "d") == DownloadResult(0, 0, sum(SIZES), len(SIZES))


@pytest.mark.parametrize("copied", [False, True])
def test_files_of_this_machine_are_linked_or_copied_whole(
    app_repository: ApplicationRepository,
    wanted: list[RemoteFile],
    local: list[LocalFile],
    tmp_path: Path,
    copied: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    if copied:
        monkeypatch.setattr(os, "link", refuse)
    here = {file.sha256: file.path for file in local[:4]}
    done = download(app_repository, wanted, tmp_path / "d", local_files=here)
    assert done == DownloadResult(sum(SIZES[4:]), len(SIZES) - 4, sum(SIZES[:4]), 4)
    assert there(tmp_path / "d").keys() == {one.sha256 for one in wanted}
    linked = (tmp_path / "d" / "files" / local[3].sha256).samefile(local[3].path)
    assert linked is not copied
    assert partial(tmp_path / "d") == []


def test_a_file_of_this_machine_that_is_gone_comes(
    app_repository: ApplicationRepository, wanted: list[RemoteFile], tmp_path: Path
) -> None:
    done = download(app_repository, wanted, tmp_path / "d", local_files={wanted[2].sha256: tmp_path / "gone"})
    assert done == DownloadResult(sum(SIZES), len(SIZES), 0, 0)
    assert there(tmp_path / "d").keys() == {one.sha256 for one in wanted}


def test_a_copy_that_broke_off_is_no_file(
    app_repository: ApplicationRepository,
    wanted: list[RemoteFile],
    local: list[LocalFile],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only a complete file gets the name: one of the right size could not be told apart."""

    def copy(source: Path, target: Path) -> None:
        Path(target).write_bytes(bytes(Path(source).stat().st_size))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "link", copy)
    with raises(Capacity, "no-space") as caught:
        download(app_repository, wanted, tmp_path / "d", local_files={local[6].sha256: local[6].path})
    assert "are kept" in caught.value.action
    assert there(tmp_path / "d") == {}
    assert partial(tmp_path / "d") == []


def test_every_flipped_bit_of_a_small_file_is_found(
    app_repository: ApplicationRepository, storage: Storage, tmp_path: Path
) -> None:
    (one,) = put(app_repository, files_of(tmp_path / "source", 30))
    content = storage.blobs[one.extent.blob][0]
    for bit in range(len(content) * 8):
        storage.blobs[one.extent.blob] = (flipped(content, bit), 0.0)
        with raises(Corrupted, "blob-damaged", blob=one.extent.blob, start=one.extent.start, bytes=30):
            download(app_repository, [one], tmp_path / "d")
        assert there(tmp_path / "d") == {}
        assert partial(tmp_path / "d") == []


@pytest.mark.usefixtures("no_sync")
def test_a_thousand_flipped_bits_are_found_each_in_the_file_that_has_it(
    app_repository: ApplicationRepository, storage: Storage, wanted: list[RemoteFile], tmp_path: Path
) -> None:
    chance = random.Random(1)
    whole = dict(storage.blobs)
    for number in range(1000):
        hit = chance.choice([one for one in wanted if one.extent.bytes])
        at = hit.extent
        bit = (at.start + chance.randrange(at.bytes)) * 8 + chance.randrange(8)
        storage.blobs[at.blob] = (flipped(whole[at.blob][0], bit), 0.0)
        directory = tmp_path / f"d{number % 10}"
        (directory / "files" / hit.sha256).unlink(missing_ok=True)
        with raises(Corrupted, "blob-damaged", blob=at.blob, start=at.start, bytes=at.bytes):
            download(app_repository, [hit], directory, piece_bytes=8 << 20)
        assert not (directory / "files" / hit.sha256).exists()
        storage.blobs[at.blob] = whole[at.blob]
    download(app_repository, wanted, tmp_path / "d0")
    assert there(tmp_path / "d0").keys() == {one.sha256 for one in wanted}


def test_a_damaged_file_does_not_spoil_those_beside_it_in_the_pack(
    app_repository: ApplicationRepository, storage: Storage, tmp_path: Path
) -> None:
    wanted = put(app_repository, files_of(tmp_path / "source", 100, 100, 100))
    blob = wanted[1].extent.blob
    storage.blobs[blob] = (flipped(storage.blobs[blob][0], 150 * 8), 0.0)
    with raises(Corrupted, "blob-damaged", blob=blob, start=100, bytes=100):
        download(app_repository, wanted, tmp_path / "d")
    assert there(tmp_path / "d").keys() <= {wanted[0].sha256, wanted[2].sha256}
    download(app_repository, [wanted[0], wanted[2]], tmp_path / "d")
    assert len(there(tmp_path / "d")) == 2


@pytest.mark.parametrize("number", range(len(SIZES)))
def test_a_blob_that_is_missing_is_damage_and_names_the_file(
    app_repository: ApplicationRepository, storage: Storage, wanted: list[RemoteFile], tmp_path: Path, number: int
) -> None:
    one = wanted[number]
    del storage.blobs[one.extent.blob]
    if not one.extent.bytes:  # nobody needs the blob for it
        assert download(app_repository, [one], tmp_path / "d").files == 1
        return
    with raises(Corrupted, "blob-missing", repository="memory:///", blob=one.extent.blob):
        download(app_repository, [one], tmp_path / "d")
    assert there(tmp_path / "d") == {}


@pytest.mark.parametrize("cut", [1, 500, 1000, 1500, 69_999])
def test_a_blob_that_is_shorter_than_its_manifest_says_is_damage(
    app_repository: ApplicationRepository, storage: Storage, wanted: list[RemoteFile], tmp_path: Path, cut: int
) -> None:
    one = next(one for one in wanted if one.extent.bytes == 70_000)
    storage.blobs[one.extent.blob] = (storage.blobs[one.extent.blob][0][:-cut], 0.0)
    with raises(Corrupted, "blob-truncated", blob=one.extent.blob, start=0, bytes=70_000):
        download(app_repository, [one], tmp_path / "d")
    assert there(tmp_path / "d") == {}
    assert partial(tmp_path / "d") == []


def test_an_extent_that_is_another_files_is_found(
    app_repository: ApplicationRepository, wanted: list[RemoteFile], tmp_path: Path
) -> None:
    one, other = wanted[2], wanted[4]
    for extent in (other.extent, replace(one.extent, start=one.extent.start + 1), replace(one.extent, bytes=998)):
        with raises(Corrupted, "blob-damaged", blob=extent.blob, start=extent.start, bytes=extent.bytes):
            download(app_repository, [replace(one, extent=extent)], tmp_path / "d")


def test_a_plan_finds_archived_files_that_are_not_restored(
    app_repository: ApplicationRepository, storage: Storage, wanted: list[RemoteFile]
) -> None:
    blob = wanted[2].extent.blob
    storage.archived.add(blob)
    with raises(Invalid, "blob-archived", blob=blob):
        check_present(app_repository, wanted)
    storage.restored.add(blob)
    check_present(app_repository, wanted)


def test_an_unreachable_store_is_not_reported_damaged(
    app_repository: ApplicationRepository, network: Network, wanted: list[RemoteFile], tmp_path: Path
) -> None:
    network.fault = lambda request, possible: "refused"  # type: ignore[method-assign]
    with raises(Retryable, "object-store-unreachable"):
        download(app_repository, wanted, tmp_path / "d")
    assert there(tmp_path / "d").keys() <= {sha256(b"").hexdigest()}
    assert partial(tmp_path / "d") == []


def test_a_failure_ends_the_others_soon(
    app_repository: ApplicationRepository, storage: Storage, tmp_path: Path
) -> None:
    wanted = put(app_repository, files_of(tmp_path / "source", 200_000, 150_000))
    del storage.blobs[wanted[0].extent.blob]
    told: list[int] = []
    with raises(Corrupted, "blob-missing", blob=wanted[0].extent.blob):
        download(app_repository, wanted, tmp_path / "d", advance=told.append, piece_bytes=10)
    assert sum(told) < 150_000, "nobody waits for the whole of another file"
    assert there(tmp_path / "d") == {}
    assert partial(tmp_path / "d") == []


def test_as_many_pieces_are_on_their_way_whatever_the_sizes(tmp_path: Path) -> None:
    piece, most = 1000, PIECES_AT_ONCE
    held = [0, 0]
    guard = threading.Lock()
    is_second_there = threading.Event()

    def change(by: int) -> None:
        with guard:
            held[0] += by
            held[1] = max(held)
            if held[0] > piece:
                is_second_there.set()

    class Counting(SimulatedBlobs):
        def get(self, name: str, start: int = 0, end: int | None = None) -> bytes:
            content = super().get(name, start, end)
            assert len(content) <= piece
            change(len(content))
            assert is_second_there.wait(60)  # the first piece stays on its way until there is another
            return content

    network = Network(Storage(), random.Random(0))
    app_repository = ApplicationRepository(repository(Counting(network), SimulatedPointers(network)), APPLICATION)
    wanted = put(app_repository, files_of(tmp_path / "source", *[100_000] * 6, *[900] * 50))
    download(app_repository, wanted, tmp_path / "d", advance=lambda came: change(-came))
    assert len(there(tmp_path / "d")) == len(wanted)
    assert piece < held[1] <= most * piece


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def denied(*_: object) -> None:
    raise OSError(errno.EACCES, os.strerror(errno.EACCES))


@pytest.mark.parametrize(
    ("refuse", "kind", "code"), [(full, Capacity, "no-space"), (denied, Invalid, "permission-denied")]
)
@pytest.mark.parametrize("what", ["mkdir", "fsync", "link"])
def test_what_the_disk_refuses_is_one_of_the_kinds_and_leaves_nothing(
    app_repository: ApplicationRepository,
    wanted: list[RemoteFile],
    local: list[LocalFile],
    tmp_path: Path,
    what: str,
    refuse: Callable[..., None],
    kind: type[StatecoreError],
    code: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "d" / "files").mkdir(parents=True)
    monkeypatch.setattr(os, what, refuse)
    with raises(kind, code):
        download(app_repository, wanted, tmp_path / "d", local_files={local[0].sha256: local[0].path})
    assert there(tmp_path / "d") == {}
    assert what == "mkdir" or partial(tmp_path / "d") == []


@pytest.mark.parametrize("die_after", [1, 2, 40, 80, 120])
def test_a_download_after_a_kill_resumes_from_complete_data(tmp_path: Path, die_after: int) -> None:
    url, directory = (tmp_path / "r").as_uri(), tmp_path / "d"
    app_repository = ApplicationRepository(create_repository(url)[0], APPLICATION)
    ends = {"0_0": {"left": 300, "right": 300}, "0_1": {"left": 100}}
    publication(app_repository).publish(
        uploaded(app_repository, tmp_path / "runs", ends, bytes_=12_000), drops_other_tasks=True
    )
    words = [sys.executable, "-m", "tests.unit.repository.downloading_process", url, str(directory), "1000"]
    killed = subprocess.run([*words, str(die_after)], timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL
    kept = there(directory)
    wanted = wanted_of(app_repository)
    done = download(app_repository, wanted, directory)
    assert (done.existing, done.files) == (len(kept), len(wanted) - len(kept))
    assert done.existing_bytes + done.bytes == 14 * 12_000
    assert len(there(directory)) == 14
    if die_after == 120:
        assert kept, "there was something to go on with"


class Faulty(SimulatedBlobs):
    """Reads fail by a seed and by what is read and how often, whatever thread comes first."""

    def __init__(self, network: Network, seed: int, rate: float) -> None:
        super().__init__(network)
        self.seed, self.rate = seed, rate
        self.times: dict[tuple[str, int], int] = {}
        self.met: set[str] = set()

    def get(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        """See :meth:`Blobs.get`."""
        nth = self.times[name, start] = self.times.get((name, start), 0) + 1
        chance = random.Random(f"{self.seed} {name} {start} {nth}")
        content = super().get(name, start, end)
        if chance.random() >= self.rate:
            return content
        fault = chance.choice(["refused", "missing", "truncated", "flipped"])
        self.met.add(fault)
        if fault == "refused":
            raise Retryable("no reply", code="test-error", action="Try again.")
        if fault == "missing":
            raise NotFound("not there", code="test-error", action="Look.")
        at = chance.randrange(len(content))
        return content[:at] if fault == "truncated" else flipped(content, at * 8 + chance.randrange(8))


def goes_on_until_it_is_whole(seed: int, directory: Path, local: list[LocalFile]) -> set[str]:
    """Download again and again from a store that fails: what is there is whole each time, and in the end it is all."""
    chance = random.Random(seed)
    network = Network(Storage(), chance)
    quiet = ApplicationRepository(repository(SimulatedBlobs(network), SimulatedPointers(network)), APPLICATION)
    wanted = put(quiet, local)
    blobs = Faulty(network, seed, chance.choice([0.02, 0.1, 0.3]))
    app_repository = ApplicationRepository(repository(blobs, SimulatedPointers(network)), APPLICATION)
    kept = 0
    for _ in range(500):
        try:
            done = download(app_repository, wanted, directory, piece_bytes=20_000)
        except (Corrupted, Retryable):
            assert len(there(directory)) >= kept, f"seed {seed}"
            kept = len(there(directory))
        else:
            assert done.existing >= kept, f"seed {seed}"
            break
    else:
        raise AssertionError(f"seed {seed}: it does not come to an end")
    assert there(directory).keys() == {one.sha256 for one in wanted}, f"seed {seed}"
    assert partial(directory) == [], f"seed {seed}"
    return blobs.met


def campaign(seeds: range, directory: Path, local: list[LocalFile]) -> set[str]:
    met: set[str] = set()
    for seed in seeds:
        met |= goes_on_until_it_is_whole(seed, directory / str(seed), local)
    return met


@pytest.mark.usefixtures("no_sync")
def test_a_download_resumes_after_any_failure_until_it_is_complete(local: list[LocalFile], tmp_path: Path) -> None:
    assert campaign(range(40), tmp_path, local) == {"refused", "missing", "truncated", "flipped"}


@pytest.mark.long
@pytest.mark.usefixtures("no_sync")
def test_a_download_resumes_until_it_is_complete_in_a_thousand_runs(local: list[LocalFile], tmp_path: Path) -> None:
    campaign(range(1_000_000, 1_001_000), tmp_path, local)


def test_where_nothing_is_kept_a_full_disk_does_not_promise_it(
    app_repository: ApplicationRepository, wanted: list[RemoteFile], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    for keeps in (True, False):
        with raises(Capacity, "no-space") as caught:
            download(app_repository, wanted, tmp_path / "d", keeps=keeps)
        assert ("are kept" in caught.value.action) is keeps
        assert ("TMPDIR" in caught.value.action) is not keeps
