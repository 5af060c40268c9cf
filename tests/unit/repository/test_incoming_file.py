"""A file on its way: whatever the order of its pieces, what is hashed is the file from its beginning to its end."""

from __future__ import annotations

import errno
import itertools
import os
import random
import tempfile
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.errors import Capacity
from statecore.filesystem import FileState
from statecore.repository.incoming_file import IncomingFile
from tests.harness.raising import raises


def cut(content: bytes, ends: list[int]) -> list[tuple[int, memoryview]]:
    """The pieces of a file that end at these places, and where each begins."""
    places = sorted({0, len(content), *(end % max(1, len(content)) for end in ends)})
    view = memoryview(content)
    return [(low, view[low:high]) for low, high in itertools.pairwise(places)] or [(0, view)]


@settings(deadline=None)
@given(content=st.binary(max_size=300), ends=st.lists(st.integers(0, 300), max_size=12), chance=st.randoms())
def test_pieces_in_any_order_make_the_file_and_its_hash(content: bytes, ends: list[int], chance: random.Random) -> None:
    pieces = cut(content, ends)
    chance.shuffle(pieces)
    with tempfile.TemporaryDirectory() as directory:
        file = IncomingFile(len(content), Path(directory))
        whole = [file.take(start, piece) for start, piece in pieces]
        assert whole == [False] * (len(pieces) - 1) + [True], "it is whole once, with the last piece"
        assert file.sha256 == sha256(content).hexdigest()
        file.finish(Path(directory) / "final")
        file.discard()
        assert [(path.name, path.read_bytes()) for path in Path(directory).iterdir()] == [("final", content)]


def test_pieces_that_come_at_once_are_hashed_in_their_order(tmp_path: Path) -> None:
    chance = random.Random(7)
    for number in range(20):
        content = chance.randbytes(200_000)
        pieces = cut(content, [chance.randrange(200_000) for _ in range(60)])
        chance.shuffle(pieces)
        file = IncomingFile(len(content), tmp_path)
        with ThreadPoolExecutor(8) as pool:
            whole = list(pool.map(lambda piece, file=file: file.take(*piece), pieces))
        assert sum(whole) == 1
        assert file.sha256 == sha256(content).hexdigest()
        file.finish(tmp_path / str(number))
        assert (tmp_path / str(number)).read_bytes() == content


def test_what_is_not_finished_is_taken_away_also_where_nothing_came(tmp_path: Path) -> None:
    begun, untouched = IncomingFile(10, tmp_path), IncomingFile(10, tmp_path)
    assert not begun.take(5, memoryview(b"later"))
    assert len(list(tmp_path.iterdir())) == 1
    begun.discard()
    untouched.discard()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_forced_to_the_disk_has_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    file = IncomingFile(3, tmp_path)
    assert file.take(0, memoryview(b"abc"))
    monkeypatch.setattr(os, "fsync", full)
    with raises(Capacity, "no-space"):
        file.finish(tmp_path / "final")
    file.discard()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("pause", "is_told"), [(0, False), (1_000_000, False), (10**9, True)])
def test_a_finished_file_records_its_state_so_that_later_writes_show(tmp_path: Path, pause: int, is_told: bool) -> None:
    def clock() -> int:
        (path,) = tmp_path.iterdir()
        return path.stat().st_mtime_ns + pause

    file = IncomingFile(3, tmp_path, clock=clock)
    assert file.take(0, memoryview(b"abc"))
    moment = file.finish(tmp_path / "final")
    assert (moment is not None) is is_told
    assert moment == FileState.of(tmp_path / "final", clock)
