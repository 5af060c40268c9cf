"""A mark that is lost or damaged is put back with the id that heads and manifests carry; no head is emptied."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from statecore.documents import encode_json, parse_json
from statecore.errors import Corrupted, Invalid, NotFound
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.head_repair import plan_repair
from statecore.repository.manifest import MANIFEST
from statecore.repository.repository import MARK, MARK_NAME, make_repository, open_repository
from statecore.repository.repository_id_recovery import recorded_ids
from tests.harness.raising import raises
from tests.unit.repository.published import Publishing, flip


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
def test_a_mark_is_put_back_with_the_id_that_was_lost(orders: Publishing, root: Path, loss: str) -> None:
    before = MARK.decode((root / MARK_NAME).read_bytes())
    LOSSES[loss](root / MARK_NAME)
    with pytest.raises(Corrupted) as caught:
        open_repository(root.as_uri())
    assert caught.value.code == f"repository-descriptor-{'missing' if loss == 'gone' else 'damaged'}"
    words = shlex.split(caught.value.action.partition(": ")[2])
    assert words == ["statecore", "init", "--repository", root.as_uri()]
    made = make_repository(root.as_uri())
    assert (made.now, made.again, made.repository.mark.id) == (True, True, before.id)
    for name in ("orders", "payments"):
        shelf = ApplicationRepository.at(root.as_uri(), name)
        assert plan_repair(shelf).wrong is None
        assert shelf.head().snapshots
    assert make_repository(root.as_uri())[1:] == (False, False)


def test_a_head_alone_carries_the_id(orders: Publishing, root: Path) -> None:
    before = open_repository(root.as_uri()).mark.id
    (root / MARK_NAME).unlink()
    for manifest in (root / "apps").rglob("*.json"):
        manifest.unlink()
    assert make_repository(root.as_uri()).repository.mark.id == before


def test_manifests_alone_carry_the_id_and_damaged_ones_carry_none(orders: Publishing, root: Path) -> None:
    before = open_repository(root.as_uri()).mark.id
    (root / MARK_NAME).unlink()
    for head in (root / "apps").glob("*/head"):
        flip(head, 40)
    manifests = sorted((root / "apps").rglob("*.json"))
    assert len(manifests) == 3
    for manifest in manifests[1:]:
        flip(manifest, 60)
    place = orders.shelf.repository.place
    assert [one.repository for one in recorded_ids(place.blobs, place.pointers)] == [before]
    assert make_repository(root.as_uri()).repository.mark.id == before


def test_where_nothing_carries_an_id_a_new_one_is_made(orders: Publishing, root: Path) -> None:
    before = open_repository(root.as_uri()).mark.id
    (root / MARK_NAME).unlink()
    for path in [*(root / "apps").glob("*/head"), *(root / "apps").rglob("*.json")]:
        path.unlink()
    with raises(NotFound, "repository-not-found"):
        open_repository(root.as_uri())
    made = make_repository(root.as_uri())
    assert (made.now, made.again) == (True, False)
    assert made.repository.mark.id != before


def test_where_ids_disagree_no_mark_is_made(orders: Publishing, root: Path) -> None:
    newest = orders.shelf.head().snapshots[0].snapshot
    forged = orders.forge("20231114T000000Z-00000009", newest, repository="another")
    (root / MARK_NAME).unlink()
    with raises(Invalid, "repository-ambiguous") as caught:
        make_repository(root.as_uri())
    assert f"{forged} of another" in caught.value.what
    assert caught.value.action.endswith(f": statecore init --repository {root.as_uri()}")
    assert not (root / MARK_NAME).exists()
    (root / forged).unlink()
    assert make_repository(root.as_uri()).again


def test_the_id_of_documents_of_a_newer_release_counts(orders: Publishing, root: Path) -> None:
    before = open_repository(root.as_uri()).mark.id
    (root / MARK_NAME).unlink()
    for path in sorted((root / "apps").rglob("*")):
        if path.is_file() and (path.name == "head" or path.suffix == ".json"):
            document = {name: value for name, value in parse_json(path.read_bytes()).items() if name != "seal"}
            path.unlink()
            path.write_bytes(encode_json(MANIFEST.sealed({**document, "version": 9})))
    assert make_repository(root.as_uri()).repository.mark.id == before


def test_a_head_is_not_emptied_because_the_mark_was_made_anew(orders: Publishing, root: Path) -> None:
    """As an older release does it, or somebody who copies the mark of another repository."""
    before, head = open_repository(root.as_uri()).mark, root / orders.shelf.names.head
    said = head.read_bytes()
    (root / MARK_NAME).write_bytes(MARK.encode(MARK.type("another", before.hash, before.made, before.made_by)))
    shelf = ApplicationRepository.at(root.as_uri(), "orders")
    for lost in (False, True):
        if lost:
            head.unlink()
        with raises(Invalid, "repository-id-mismatch", application_id="orders") as caught:
            plan_repair(shelf)
        assert before.id in caught.value.what
        assert "Nothing was changed" in caught.value.what
        assert f"delete {MARK_NAME} there and run init" in caught.value.action
        assert f"(statecore init --repository {root.as_uri()})" in caught.value.action
        assert caught.value.action.endswith(f": {shelf.repair} --apply")
        assert lost or head.read_bytes() == said
    head.write_bytes(said)
    (root / MARK_NAME).unlink()
    make_repository(root.as_uri())
    assert plan_repair(ApplicationRepository.at(root.as_uri(), "orders")).wrong is None
