"""What every implementation of the seam must do; see the text of ``statecore.objectstore.base``."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from statecore.errors import Invalid, NotFound
from statecore.objectstore.base import Blobs
from tests.harness.raising import raises
from tests.unit.objectstore.implementations import IMPLEMENTATIONS
from tests.unit.objectstore.putting_process import content

PART = st.text("abcXYZ019._=@+-", min_size=1, max_size=12).filter(lambda part: part not in (".", ".."))
NAME = st.lists(PART, min_size=1, max_size=3).map("/".join)


@pytest.fixture(params=sorted(IMPLEMENTATIONS))
def implementation(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def blobs(implementation: str, tmp_path: Path) -> Blobs:
    return IMPLEMENTATIONS[implementation](tmp_path)


def test_a_part_of_a_name_may_be_as_long_as_a_topics_name(blobs: Blobs) -> None:
    name = f"{'a' * 249}/{'b' * 249}"
    assert blobs.put_if_absent(name, b"bytes")
    assert blobs.get(name) == b"bytes"
    assert [blob.name for blob in blobs.list("a" * 249)] == [name]


@pytest.mark.parametrize("data", [b"", b"\0", b"bytes", bytes(range(256)) * 5000])
def test_what_was_put_is_read_back(blobs: Blobs, data: bytes, tmp_path: Path) -> None:
    assert blobs.put_if_absent("a/bytes", data) is True
    file = tmp_path / "file"
    file.write_bytes(data)
    assert blobs.put_if_absent("a/file", file) is True
    assert file.read_bytes() == data
    for name in ("a/bytes", "a/file"):
        assert blobs.get(name) == data
        assert blobs.head(name)[:2] == (name, len(data))
        path = blobs.local_path(name)
        assert path is None or path.read_bytes() == data


def test_a_part_may_be_as_long_as_the_name_of_a_topic(blobs: Blobs) -> None:
    """Kafka's limit, which Kafka Streams has for names of stores as well."""
    name = "/".join(("runs", "s" * 249, "t" * 249))
    assert blobs.put_if_absent(name, b"content")
    assert blobs.get(name) == b"content"
    assert [blob.name for blob in blobs.list("runs/")] == [name]


def test_the_first_of_a_name_stays(blobs: Blobs, tmp_path: Path) -> None:
    assert blobs.put_if_absent("name", b"first")
    file = tmp_path / "file"
    file.write_bytes(b"second")
    assert blobs.put_if_absent("name", b"second") is False
    assert blobs.put_if_absent("name", file) is False
    assert blobs.put_if_absent("name", b"first") is False
    assert blobs.get("name") == b"first"


def test_a_file_that_is_gone_afterwards_leaves_its_blob(blobs: Blobs, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"content")
    blobs.put_if_absent("name", file)
    file.unlink()
    assert blobs.get("name") == b"content"


def test_a_file_that_is_not_there_is_not_found_and_nothing_is_put(blobs: Blobs, tmp_path: Path) -> None:
    with raises(NotFound, "upload-file-missing"):
        blobs.put_if_absent("name", tmp_path / "absent")
    assert list(blobs.list()) == []


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(0, None, b"0123456789"), (3, None, b"3456789"), (0, 4, b"0123"), (4, 4, b""), (8, 99, b"89"), (99, None, b"")],
)
def test_a_range_has_the_bytes_between_its_ends(blobs: Blobs, start: int, end: int | None, expected: bytes) -> None:
    blobs.put_if_absent("digits", b"0123456789")
    assert blobs.get("digits", start, end) == expected


@pytest.mark.parametrize(("start", "end"), [(-1, None), (5, 4), (-2, -1)])
def test_a_range_that_cannot_be_is_refused(blobs: Blobs, start: int, end: int | None) -> None:
    blobs.put_if_absent("digits", b"0123456789")
    with raises(Invalid, "byte-range-invalid", start=start, end=end):
        blobs.get("digits", start, end)


def test_what_is_not_there_is_not_found(blobs: Blobs) -> None:
    blobs.put_if_absent("there", b"")
    for name in ("absent", "a/b/c", "ther", "there0"):
        for ask in (blobs.get, blobs.head, blobs.local_path):
            with raises(NotFound, "blob-not-found", blob=name):
                ask(name)
        blobs.delete(name)


def test_what_was_deleted_is_gone_and_its_name_is_free(blobs: Blobs) -> None:
    blobs.put_if_absent("a/b", b"first")
    blobs.delete("a/b")
    with pytest.raises(NotFound):
        blobs.get("a/b")
    assert list(blobs.list()) == []
    assert blobs.put_if_absent("a/b", b"second") is True
    assert blobs.get("a/b") == b"second"


def test_many_blobs_are_deleted_at_once_and_what_is_not_there_is_no_error(blobs: Blobs) -> None:
    names = [f"a/{number:04}" for number in range(30)]
    for name in names:
        blobs.put_if_absent(name, b"x")
    blobs.delete_all([*names[:20], "a/none", "b"])
    blobs.delete_all([])
    assert [blob.name for blob in blobs.list()] == names[20:]
    with raises(Invalid, "blob-name-invalid"):
        blobs.delete_all([names[20], "../up"])


def test_what_is_damaged_is_replaced_and_what_is_gone_is_put(blobs: Blobs, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"whole")
    for name, damaged, whole in (("a/b", b"other", b"whole"), ("a/c", b"shorter", file), ("d", None, b"whole")):
        if damaged is not None:
            blobs.put_if_absent(name, damaged)
        blobs.replace(name, whole)
        blobs.replace(name, whole)
        assert blobs.get(name) == b"whole"
    assert [blob.size for blob in blobs.list()] == [5, 5, 5]
    with raises(NotFound, "upload-file-missing"):
        blobs.replace("a/b", tmp_path / "absent")
    assert blobs.get("a/b") == b"whole"
    with raises(Invalid, "blob-name-invalid", value="'a//b'"):
        blobs.replace("a//b", b"")


@pytest.mark.parametrize("data", [b"", b"bytes", bytes(range(256)) * 5000])
def test_a_checksum_is_of_the_bytes_that_are_there(blobs: Blobs, data: bytes) -> None:
    blobs.put_if_absent("name", data)
    found = blobs.head("name").checksum
    assert found is None or found == blobs.checksum_of("name", data, found.part)


def test_a_listing_has_the_names_with_the_prefix_in_order(blobs: Blobs) -> None:
    names = ["a/10", "a/9", "a/9.x", "a-b", "ab/c", "b", "B", "a/d/e"]
    for name in names:
        blobs.put_if_absent(name, name.encode())
    before = time.time() - 3600
    for prefix in ("", "a", "a/", "a/9", "a/d", "ab/c", "c", "z/z"):
        found = list(blobs.list(prefix))
        assert [blob.name for blob in found] == sorted(name for name in names if name.startswith(prefix))
        assert all(blob.size == len(blob.name) and blob.modified > before for blob in found)


@pytest.mark.parametrize(
    "name",
    ["", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "./a", "a b", "a\0", "a\n", "ä", "a\\b", "x" * 250, "a/*", 7],
)
def test_a_name_that_cannot_be_is_refused(blobs: Blobs, name: str) -> None:
    with raises(Invalid, "blob-name-invalid"):
        blobs.put_if_absent(name, b"")
    for ask in (blobs.get, blobs.head, blobs.local_path, blobs.delete):
        with raises(Invalid, "blob-name-invalid"):
            ask(name)
    assert list(blobs.list()) == []


@given(contents=st.dictionaries(NAME, st.binary(max_size=100), max_size=8))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_blobs_are_kept_apart(implementation: str, tmp_path_factory: pytest.TempPathFactory, contents) -> None:
    blobs = IMPLEMENTATIONS[implementation](tmp_path_factory.mktemp("blobs"))
    kept = {
        name: data
        for name, data in contents.items()
        if not any(other.startswith(name + "/") or name.startswith(other + "/") for other in contents)
    }
    for name, data in kept.items():
        assert blobs.put_if_absent(name, data)
    assert {blob.name: blobs.get(blob.name) for blob in blobs.list()} == kept


def test_of_many_who_put_one_name_at_once_one_wins(blobs: Blobs, tmp_path: Path) -> None:
    for number in range(20):
        name, barrier, won = f"race/{number}", threading.Barrier(8), []

        def put(who: int, name: str = name, barrier: threading.Barrier = barrier, won: list[int] = won) -> None:
            mine: bytes | Path = bytes([who]) * 10_000
            if who % 2:
                file = tmp_path / f"{name.replace('/', '-')}-{who}"
                file.write_bytes(bytes([who]) * 10_000)
                mine = file
            barrier.wait(60)
            if blobs.put_if_absent(name, mine):
                won.append(who)

        threads = [threading.Thread(target=put, args=(who,)) for who in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert blobs.get(name) == bytes(won) * 10_000


def test_a_killed_writer_leaves_complete_blobs_and_all_acknowledged_ones(implementation: str, tmp_path: Path) -> None:
    blobs = IMPLEMENTATIONS[implementation](tmp_path)  # first, lest the process starts an S3 server of its own
    words = [sys.executable, "-m", "tests.unit.objectstore.putting_process", implementation, str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = [int(process.stdout.readline()) for _ in range(20)]
        process.kill()
        told += [int(line) for line in process.stdout.read().split()]
    found = {int(blob.name.partition("/")[2]): blobs.get(blob.name) for blob in blobs.list()}
    assert set(told) <= set(found) <= {*told, len(told)}
    assert all(data == content(number) for number, data in found.items())


def test_the_next_part_of_names_is_listed_without_the_rest(blobs: Blobs) -> None:
    for name in ("apps/a/1", "apps/a/b/2", "apps/a-b/3", "apps/c/4", "apps/file", "apples/d/5"):
        blobs.put_if_absent(name, b"")
    assert sorted(blobs.directories("apps")) == ["a", "a-b", "c"]
    assert list(blobs.directories("apps/a")) == ["b"]
    assert list(blobs.directories("nothing")) == []
