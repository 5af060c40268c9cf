"""A repository: that it is one, whose format is known, and what else a URL may name."""

from __future__ import annotations

import errno
import gc
import json
import os
import shlex
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from statecore.documents import encode_json
from statecore.errors import Corrupted, Invalid, NotFound
from statecore.objectstore.directory_pointers import DirectoryPointers
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.repository import (
    MARK,
    MARK_NAME,
    CreatedRepository,
    make_repository,
    make_repository_in,
    open_repository,
    opened_blobs,
    place_of,
)
from tests.harness.filesystems import without_clones
from tests.harness.raising import raises
from tests.unit.repository.published import Publishing


def url(path: Path) -> str:
    return path.as_uri()


def test_a_repository_is_made_once_and_opened_by_everybody(tmp_path: Path) -> None:
    made, now, _ = make_repository(url(tmp_path / "r"))
    again, later, _ = make_repository(url(tmp_path / "r"))
    assert (now, later) == (True, False)
    assert again.mark == made.mark == open_repository(url(tmp_path / "r")).mark
    assert made.mark.hash == "sha256"
    assert made.place.url == f"file://{tmp_path}/r"
    assert sorted(one.name for one in (tmp_path / "r").iterdir()) == [MARK_NAME, "~partial"], "nothing of the probe"
    other, *_ = make_repository(url(tmp_path / "another"))
    assert other.mark.id != made.mark.id


def test_the_blobs_of_a_repository_are_found_by_its_url_while_somebody_has_it_open(tmp_path: Path) -> None:
    given = url(tmp_path / "r")
    assert opened_blobs(given) is None
    made = make_repository(given).repository
    assert opened_blobs(made.place.url) is made.place.blobs
    again = open_repository(f"{given}?copy=1")
    assert opened_blobs(again.place.url) is again.place.blobs
    assert opened_blobs(given) is made.place.blobs, "to put files there is another thing"
    del made
    gc.collect()
    assert opened_blobs(given) is None


def test_a_place_without_a_repository_is_not_found_and_stays_as_it_is(tmp_path: Path) -> None:
    with raises(NotFound, "repository-not-found", repository=url(tmp_path / "r")) as caught:
        open_repository(url(tmp_path / "r"))
    assert "statecore init --repository file://" in caught.value.action
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"version": 7}, "it has version 7, and this release supports 0"),
        ({"hash": "md5"}, "names blobs by md5"),
    ],
)
def test_another_format_is_refused_by_name(tmp_path: Path, changed: dict[str, object], said: str) -> None:
    make_repository(url(tmp_path))
    mark = tmp_path / MARK_NAME
    mark.write_bytes(encode_json(MARK.sealed({**json.loads(mark.read_text()), **changed})))
    for ask in (open_repository, make_repository):
        with pytest.raises(Invalid, match=said) as caught:
            ask(url(tmp_path))
        assert "release" in caught.value.action


def test_what_a_newer_release_adds_is_no_reason_to_refuse(tmp_path: Path) -> None:
    made, *_ = make_repository(url(tmp_path))
    mark = tmp_path / MARK_NAME
    mark.write_bytes(encode_json(MARK.sealed({**json.loads(mark.read_text()), "more": 1})))
    assert open_repository(url(tmp_path)).mark == made.mark


def test_every_flipped_bit_of_a_mark_is_damage_and_no_other_repository(tmp_path: Path) -> None:
    made, *_ = make_repository(url(tmp_path))
    mark = tmp_path / MARK_NAME
    whole = mark.read_bytes()
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        mark.write_bytes(damaged)
        with suppress(Corrupted):
            assert open_repository(url(tmp_path)).mark == made.mark, "of white space"


def made_while(path: Path, then: Callable[[], object]) -> CreatedRepository:
    """A repository that is made while something else happens, as the place is put to the test."""
    place = place_of(url(path))

    def probed() -> None:
        place.probe()
        then()

    return make_repository_in(place._replace(probe=probed))


@pytest.mark.parametrize("left", [b"", b"damaged", None], ids=["empty", "damaged", "none"])
def test_of_two_who_make_a_damaged_mark_at_the_same_time_both_get_that_of_the_faster(
    tmp_path: Path, left: bytes | None
) -> None:
    if left is not None:
        (tmp_path / MARK_NAME).write_bytes(left)
    faster: list[CreatedRepository] = []
    slower = made_while(tmp_path, lambda: faster.append(make_repository(url(tmp_path))))
    assert (faster[0].now, slower.now) == (True, False)
    assert slower.repository.mark == faster[0].repository.mark == open_repository(url(tmp_path)).mark


def test_a_damaged_mark_is_replaced_by_one_of_those_who_have_read_it(tmp_path: Path) -> None:
    (tmp_path / MARK_NAME).write_bytes(b"damaged")
    faster: list[CreatedRepository] = []

    class Overtaken(DirectoryPointers):
        def swap(self, name: str, content: bytes, expected: str | None) -> str | None:
            faster.append(make_repository(url(tmp_path)))
            return super().swap(name, content, expected)

    slower = make_repository_in(place_of(url(tmp_path))._replace(pointers=Overtaken(tmp_path)))
    assert (faster[0].now, slower.now) == (True, False)
    assert slower.repository.mark == faster[0].repository.mark == open_repository(url(tmp_path)).mark


def test_an_id_that_somebody_published_while_the_place_was_put_to_the_test_is_kept(tmp_path: Path) -> None:
    root, scratch = tmp_path / "r", tmp_path / "scratch"
    scratch.mkdir()
    publishing = Publishing(url(root), scratch)
    before = publishing.shelf.repository.mark
    mark = (root / MARK_NAME).read_bytes()
    (root / MARK_NAME).write_bytes(b"")

    def publish() -> None:
        (root / MARK_NAME).write_bytes(mark)
        publishing.publish(10)
        (root / MARK_NAME).write_bytes(b"")

    made = made_while(root, publish)
    assert (made.again, made.repository.mark.id) == (True, before.id)
    assert ApplicationRepository.at(url(root), publishing.shelf.application_id).head().snapshots


def test_a_torn_mark_is_no_empty_place(tmp_path: Path) -> None:
    make_repository(url(tmp_path))
    (tmp_path / MARK_NAME).write_bytes(b'{"version": 0, "id')
    with raises(Corrupted, "repository-descriptor-damaged") as caught:
        open_repository(url(tmp_path))
    assert caught.value.action.endswith(f": statecore init --repository {url(tmp_path)}")
    assert make_repository(url(tmp_path))[1:] == (True, False), "nothing there has carried the id"
    assert list(tmp_path.iterdir())
    open_repository(url(tmp_path))


@pytest.mark.parametrize(
    "named",
    ["", "/srv/repository", "file:repository", "file://host/path", "http://host/p", "gs://b/p"],
)
def test_what_names_no_place_is_refused(named: str) -> None:
    with raises(Invalid, "repository-url-invalid", url=named) as caught:
        place_of(named)
    assert "file:///path" in caught.value.action


def test_a_path_with_spaces_is_one_and_is_said_so_that_a_shell_reads_it(tmp_path: Path) -> None:
    with pytest.raises(NotFound) as caught:
        open_repository(url(tmp_path / "two words?"))
    *_, word = shlex.split(caught.value.action)
    make_repository(word)
    assert (tmp_path / "two words?" / MARK_NAME).exists()


@pytest.mark.parametrize(("query", "same"), [("", True), ("?copy=1", False)])
def test_files_on_the_same_disk_are_linked_unless_copies_are_asked_for(
    tmp_path: Path, query: str, same: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_clones(monkeypatch)
    place = make_repository(url(tmp_path / "r") + query)[0].place
    assert place.url == url(tmp_path / "r") + query
    (tmp_path / "file").write_bytes(b"bytes")
    place_of(place.url).blobs.put_if_absent("file", tmp_path / "file")
    assert (tmp_path / "r" / "file").samefile(tmp_path / "file") is same


@pytest.mark.parametrize("query", ["copy", "copy=yes", "x=1", "copy=1&x=1"])
def test_what_is_no_setting_of_a_directory_is_refused(tmp_path: Path, query: str) -> None:
    with raises(Invalid, "repository-url-invalid", settings=[query]) as caught:
        place_of(f"{url(tmp_path)}?{query}")
    assert "copy=1" in caught.value.action


def test_a_place_in_s3_is_said_with_how_it_is_reached() -> None:
    given = "s3://bucket/p?endpoint=http://127.0.0.1:1&region=r&encryption=AES256"
    assert place_of(given).url == given


@pytest.mark.parametrize("path", ["/", __file__])
def test_what_is_no_directory_of_its_own_is_refused(path: str) -> None:
    with raises(Invalid, "repository-url-invalid", path=path):
        make_repository(f"file://{path}")


def test_a_file_system_without_locks_is_refused_before_anything_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", refuse)
    with raises(Invalid, "system-refused"):
        make_repository(url(tmp_path / "r"))
    assert not (tmp_path / "r" / MARK_NAME).exists()
