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

from statecore.documents import encode_json, parse_json
from statecore.errors import Corrupted, Invalid, NotFound, Retryable, StatecoreError
from statecore.objectstore.directory import DirectoryPointers
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.descriptor import DESCRIPTOR, DESCRIPTOR_NAME
from statecore.repository.maintenance.head_repair import plan_repair
from statecore.repository.manifest import MANIFEST
from statecore.repository.object_store import object_store_of
from statecore.repository.repository import (
    CreatedRepository,
    create_repository,
    create_repository_in,
    open_repository,
    opened_blobs,
    recorded_ids,
)
from tests.harness.filesystems import refusing, without_clones
from tests.harness.raising import raises
from tests.unit.repository.published import Publishing, flip


def url(path: Path) -> str:
    return path.as_uri()


def test_a_repository_is_made_once_and_opened_by_everybody(tmp_path: Path) -> None:
    made, now, _ = create_repository(url(tmp_path / "r"))
    again, later, _ = create_repository(url(tmp_path / "r"))
    assert (now, later) == (True, False)
    assert again.descriptor == made.descriptor == open_repository(url(tmp_path / "r")).descriptor
    assert made.descriptor.hash == "sha256"
    assert made.object_store.url == f"file://{tmp_path}/r"
    assert sorted(one.name for one in (tmp_path / "r").iterdir()) == [DESCRIPTOR_NAME, "~partial"], (
        "nothing of the probe"
    )
    other, *_ = create_repository(url(tmp_path / "another"))
    assert other.descriptor.id != made.descriptor.id


def test_an_open_repository_is_found_by_its_url(tmp_path: Path) -> None:
    given = url(tmp_path / "r")
    assert opened_blobs(given) is None
    made = create_repository(given).repository
    assert opened_blobs(made.object_store.url) is made.object_store.blobs
    again = open_repository(f"{given}?copy=1")
    assert opened_blobs(again.object_store.url) is again.object_store.blobs
    assert opened_blobs(given) is made.object_store.blobs, "to put files there is another thing"
    del made
    gc.collect()
    assert opened_blobs(given) is None


def test_a_directory_that_may_not_be_written_is_named_and_not_what_tests_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing(monkeypatch, "mkdir", errno.EACCES, lambda path: path.name.startswith("statecore-probe-"))
    with raises(Invalid, "permission-denied", directory=str(tmp_path / "r")) as caught:
        create_repository(url(tmp_path / "r"))
    assert str(tmp_path / "r") in caught.value.what
    assert "statecore-probe" not in f"{caught.value} {caught.value.context}"


def test_a_place_without_a_repository_is_not_found_and_stays_as_it_is(tmp_path: Path) -> None:
    with raises(NotFound, "repository-not-found", repository=url(tmp_path / "r")) as caught:
        open_repository(url(tmp_path / "r"))
    assert "statecore repo init --repository file://" in caught.value.action
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [({"version": 7}, "it has version 7, and this release supports 1"), ({"hash": "md5"}, "names blobs by md5")],
)
def test_another_format_is_refused_by_name(tmp_path: Path, changed: dict[str, object], said: str) -> None:
    create_repository(url(tmp_path))
    mark = tmp_path / DESCRIPTOR_NAME
    mark.write_bytes(encode_json(DESCRIPTOR.sealed({**json.loads(mark.read_text()), **changed})))
    for ask in (open_repository, create_repository):
        with pytest.raises(Invalid, match=said) as caught:
            ask(url(tmp_path))
        assert "release" in caught.value.action


def test_what_a_newer_release_adds_is_no_reason_to_refuse(tmp_path: Path) -> None:
    made, *_ = create_repository(url(tmp_path))
    mark = tmp_path / DESCRIPTOR_NAME
    mark.write_bytes(encode_json(DESCRIPTOR.sealed({**json.loads(mark.read_text()), "more": 1})))
    assert open_repository(url(tmp_path)).descriptor == made.descriptor


def test_every_flipped_bit_of_a_descriptor_is_damage_and_no_other_repository(tmp_path: Path) -> None:
    made, *_ = create_repository(url(tmp_path))
    mark = tmp_path / DESCRIPTOR_NAME
    whole = mark.read_bytes()
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        mark.write_bytes(damaged)
        with suppress(Corrupted):
            assert open_repository(url(tmp_path)).descriptor == made.descriptor, "of white space"


def made_while(path: Path, then: Callable[[], object]) -> CreatedRepository:
    """A repository that is made while something else happens, as the place is put to the test."""
    place = object_store_of(url(path))

    def probed() -> None:
        place.probe()
        then()

    return create_repository_in(place._replace(probe=probed))


@pytest.mark.parametrize("left", [b"", b"damaged", None], ids=["empty", "damaged", "none"])
def test_two_concurrent_repairs_of_a_descriptor_get_the_first_one(tmp_path: Path, left: bytes | None) -> None:
    if left is not None:
        (tmp_path / DESCRIPTOR_NAME).write_bytes(left)
    faster: list[CreatedRepository] = []
    slower = made_while(tmp_path, lambda: faster.append(create_repository(url(tmp_path))))
    assert (faster[0].is_new, slower.is_new) == (True, False)
    assert slower.repository.descriptor == faster[0].repository.descriptor == open_repository(url(tmp_path)).descriptor


def test_a_damaged_descriptor_is_replaced_by_one_reader(tmp_path: Path) -> None:
    (tmp_path / DESCRIPTOR_NAME).write_bytes(b"damaged")
    faster: list[CreatedRepository] = []

    class Overtaken(DirectoryPointers):
        def swap(self, name: str, content: bytes, expected: str | None) -> str | None:
            faster.append(create_repository(url(tmp_path)))
            return super().swap(name, content, expected)

    slower = create_repository_in(object_store_of(url(tmp_path))._replace(pointers=Overtaken(tmp_path)))
    assert (faster[0].is_new, slower.is_new) == (True, False)
    assert slower.repository.descriptor == faster[0].repository.descriptor == open_repository(url(tmp_path)).descriptor


def test_an_id_published_during_the_probe_is_kept(tmp_path: Path) -> None:
    root, scratch = tmp_path / "r", tmp_path / "scratch"
    scratch.mkdir()
    publishing = Publishing(url(root), scratch)
    before = publishing.app_repository.repository.descriptor
    mark = (root / DESCRIPTOR_NAME).read_bytes()
    (root / DESCRIPTOR_NAME).write_bytes(b"")

    def publish() -> None:
        (root / DESCRIPTOR_NAME).write_bytes(mark)
        publishing.publish(10)
        (root / DESCRIPTOR_NAME).write_bytes(b"")

    made = made_while(root, publish)
    assert (made.is_id_restored, made.repository.descriptor.id) == (True, before.id)
    assert ApplicationRepository.open(url(root), publishing.app_repository.application_id).head().snapshots


def test_a_truncated_descriptor_is_no_empty_repository(tmp_path: Path) -> None:
    create_repository(url(tmp_path))
    (tmp_path / DESCRIPTOR_NAME).write_bytes(b'{"version": 0, "id')
    with raises(Corrupted, "repository-descriptor-damaged") as caught:
        open_repository(url(tmp_path))
    assert caught.value.action.endswith(f": statecore repo init --repository {url(tmp_path)}")
    assert create_repository(url(tmp_path))[1:] == (True, False), "nothing there has carried the id"
    assert list(tmp_path.iterdir())
    open_repository(url(tmp_path))


@pytest.mark.parametrize(
    "named", ["", "/srv/repository", "file:repository", "file://host/path", "http://host/p", "gs://b/p"]
)
def test_what_names_no_place_is_refused(named: str) -> None:
    with raises(Invalid, "repository-url-invalid", url=named) as caught:
        object_store_of(named)
    assert "file:///path" in caught.value.action


def test_a_path_with_spaces_is_printed_quoted_for_a_shell(tmp_path: Path) -> None:
    with pytest.raises(NotFound) as caught:
        open_repository(url(tmp_path / "two words?"))
    *_, word = shlex.split(caught.value.action)
    create_repository(word)
    assert (tmp_path / "two words?" / DESCRIPTOR_NAME).exists()


@pytest.mark.parametrize(("query", "same"), [("", True), ("?copy=1", False)])
def test_files_on_the_same_disk_are_linked_unless_copies_are_asked_for(
    tmp_path: Path, query: str, same: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_clones(monkeypatch)
    place = create_repository(url(tmp_path / "r") + query)[0].object_store
    assert place.url == url(tmp_path / "r") + query
    (tmp_path / "file").write_bytes(b"bytes")
    object_store_of(place.url).blobs.put_if_absent("file", tmp_path / "file")
    assert (tmp_path / "r" / "file").samefile(tmp_path / "file") is same


@pytest.mark.parametrize("query", ["copy", "copy=yes", "x=1", "copy=1&x=1"])
def test_what_is_no_setting_of_a_directory_is_refused(tmp_path: Path, query: str) -> None:
    with raises(Invalid, "repository-url-invalid", settings=[query]) as caught:
        object_store_of(f"{url(tmp_path)}?{query}")
    assert "copy=1" in caught.value.action


def test_a_location_in_s3_is_printed_with_its_access_options() -> None:
    given = "s3://bucket/p?endpoint=http://127.0.0.1:1&region=r&encryption=AES256"
    assert object_store_of(given).url == given


@pytest.mark.parametrize("path", ["/", __file__])
def test_what_is_no_directory_of_its_own_is_refused(path: str) -> None:
    with raises(Invalid, "repository-url-invalid", path=path):
        create_repository(f"file://{path}")


@pytest.mark.parametrize(
    ("number", "kind", "code"),
    [(errno.ENOTSUP, Invalid, "object-store-unsuitable"), (errno.ENOLCK, Retryable, "disk-failed")],
)
def test_a_file_system_without_locks_is_refused_before_anything_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[StatecoreError], code: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", refuse)
    with raises(kind, code):
        create_repository(url(tmp_path / "r"))
    assert not (tmp_path / "r" / DESCRIPTOR_NAME).exists()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "repository"


@pytest.fixture
def orders(root: Path, tmp_path: Path) -> Publishing:
    """An application with two snapshots, beside another with one."""
    for name in ("payments", "orders"):
        (tmp_path / name).mkdir()
        publishing = Publishing(root.as_uri(), tmp_path / name, name)
        publishing.publish(10)
    publishing.publish(20)
    return publishing


LOSSES: dict[str, Callable[[Path], object]] = {
    "gone": Path.unlink,
    "empty": lambda mark: mark.write_bytes(b""),
    "truncated": lambda mark: mark.write_bytes(mark.read_bytes()[:-9]),
    "other": lambda mark: mark.write_text("[]"),
    "lacking": lambda mark: mark.write_text('{"version": 0, "hash": "sha256"}'),
    "unversioned": lambda mark: mark.write_text('{"id": "x", "hash": "sha256"}'),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_descriptor_is_restored_with_the_lost_id(orders: Publishing, root: Path, loss: str) -> None:
    before = DESCRIPTOR.decode((root / DESCRIPTOR_NAME).read_bytes())
    LOSSES[loss](root / DESCRIPTOR_NAME)
    with pytest.raises(Corrupted) as caught:
        open_repository(root.as_uri())
    assert caught.value.code == f"repository-descriptor-{'missing' if loss == 'gone' else 'damaged'}"
    words = shlex.split(caught.value.action.partition(": ")[2])
    assert words == ["statecore", "repo", "init", "--repository", root.as_uri()]
    made = create_repository(root.as_uri())
    assert (made.is_new, made.is_id_restored, made.repository.descriptor.id) == (True, True, before.id)
    for name in ("orders", "payments"):
        app_repository = ApplicationRepository.open(root.as_uri(), name)
        assert plan_repair(app_repository).problem is None
        assert app_repository.head().snapshots
    assert create_repository(root.as_uri())[1:] == (False, False)


def test_a_head_alone_carries_the_id(orders: Publishing, root: Path) -> None:
    before = open_repository(root.as_uri()).descriptor.id
    (root / DESCRIPTOR_NAME).unlink()
    for manifest in (root / "apps").rglob("*.json"):
        manifest.unlink()
    assert create_repository(root.as_uri()).repository.descriptor.id == before


def test_foreign_names_among_the_manifests_carry_no_id_and_are_left_alone(orders: Publishing, root: Path) -> None:
    before = orders.app_repository.repository.descriptor.id
    manifests = root / orders.app_repository.names.manifests
    foreign = [manifests / name for name in ("my notes.txt", "README.md")]
    for path in foreign:
        path.write_text("mine")
    (root / DESCRIPTOR_NAME).unlink()
    (root / orders.app_repository.names.head).unlink()
    assert create_repository(root.as_uri()).repository.descriptor.id == before
    assert all(path.exists() for path in foreign)


def test_a_place_that_has_nothing_but_foreign_names_is_one_for_a_new_repository(tmp_path: Path) -> None:
    foreign = tmp_path / "apps/orders/manifests/my notes.txt"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("mine")
    assert create_repository(tmp_path.as_uri()).is_new
    assert foreign.exists()


def test_manifests_alone_carry_the_id_and_damaged_ones_carry_none(orders: Publishing, root: Path) -> None:
    before = open_repository(root.as_uri()).descriptor.id
    (root / DESCRIPTOR_NAME).unlink()
    for head in (root / "apps").glob("*/HEAD"):
        flip(head, 40)
    manifests = sorted((root / "apps").rglob("*.json"))
    assert len(manifests) == 3
    for manifest in manifests[1:]:
        flip(manifest, 60)
    place = orders.app_repository.repository.object_store
    assert [one.repository_id for one in recorded_ids(place.blobs, place.pointers)] == [before]
    assert create_repository(root.as_uri()).repository.descriptor.id == before


def test_where_nothing_carries_an_id_a_new_one_is_made(orders: Publishing, root: Path) -> None:
    before = open_repository(root.as_uri()).descriptor.id
    (root / DESCRIPTOR_NAME).unlink()
    for path in [*(root / "apps").glob("*/HEAD"), *(root / "apps").rglob("*.json")]:
        path.unlink()
    with raises(NotFound, "repository-not-found"):
        open_repository(root.as_uri())
    made = create_repository(root.as_uri())
    assert (made.is_new, made.is_id_restored) == (True, False)
    assert made.repository.descriptor.id != before


def test_contradicting_ids_create_no_descriptor(orders: Publishing, root: Path) -> None:
    newest = orders.app_repository.head().snapshots[0].snapshot
    forged = orders.forge("20231114T000000Z-00000009", newest, repository_id="another")
    (root / DESCRIPTOR_NAME).unlink()
    with raises(Invalid, "repository-ambiguous") as caught:
        create_repository(root.as_uri())
    assert f"{forged} of another" in caught.value.what
    assert caught.value.action.endswith(f": statecore repo init --repository {root.as_uri()}")
    assert not (root / DESCRIPTOR_NAME).exists()
    (root / forged).unlink()
    assert create_repository(root.as_uri()).is_id_restored


def test_the_id_of_documents_of_a_newer_release_counts(orders: Publishing, root: Path) -> None:
    before = open_repository(root.as_uri()).descriptor.id
    (root / DESCRIPTOR_NAME).unlink()
    for path in sorted((root / "apps").rglob("*")):
        if path.is_file() and (path.name == "head" or path.suffix == ".json"):
            document = {name: value for name, value in parse_json(path.read_bytes()).items() if name != "seal"}
            path.unlink()
            path.write_bytes(encode_json(MANIFEST.sealed({**document, "version": 9})))
    assert create_repository(root.as_uri()).repository.descriptor.id == before


def test_recreating_the_descriptor_does_not_empty_a_head(orders: Publishing, root: Path) -> None:
    """As an older release does it, or somebody who copies the mark of another repository."""
    before, head = open_repository(root.as_uri()).descriptor, root / orders.app_repository.names.head
    said = head.read_bytes()
    (root / DESCRIPTOR_NAME).write_bytes(
        DESCRIPTOR.encode(DESCRIPTOR.type("another", before.hash, before.created_at, before.statecore_release))
    )
    app_repository = ApplicationRepository.open(root.as_uri(), "orders")
    for lost in (False, True):
        if lost:
            head.unlink()
        with raises(Invalid, "repository-id-mismatch", application_id="orders") as caught:
            plan_repair(app_repository)
        assert before.id in caught.value.what
        assert "Nothing was changed" in caught.value.what
        assert f"delete {DESCRIPTOR_NAME} there and run init" in caught.value.action
        assert f"(statecore repo init --repository {root.as_uri()})" in caught.value.action
        assert caught.value.action.endswith(f": {app_repository.repair_command} --apply")
        assert lost or head.read_bytes() == said
    head.write_bytes(said)
    (root / DESCRIPTOR_NAME).unlink()
    create_repository(root.as_uri())
    assert plan_repair(ApplicationRepository.open(root.as_uri(), "orders")).problem is None


@pytest.mark.parametrize("head", [b"not JSON", None])
def test_a_place_with_documents_that_nobody_can_read_is_no_place_for_a_new_repository(
    tmp_path: Path, head: bytes | None
) -> None:
    """As of an encrypted repository that lost both documents with its key."""
    url = (tmp_path / "repository").as_uri()
    there = tmp_path / "repository/apps/orders"
    (there / "manifests").mkdir(parents=True)
    (there / "manifests/20261123T010203Z-5f3a9c21.json").write_bytes(b"\x00sealed")
    if head is not None:
        (there / "HEAD").write_bytes(head)
    for action in (open_repository, create_repository):
        with raises(Corrupted, "repository-descriptor-missing"):
            action(url)
    assert not (tmp_path / "repository/repository.json").exists()
