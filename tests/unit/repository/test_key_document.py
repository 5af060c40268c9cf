"""The two documents that have the data key: either is rebuilt from the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from statecore.errors import Corrupted, Invalid
from statecore.objectstore.user_keys import user_key_of
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.descriptor import DESCRIPTOR, DESCRIPTOR_NAME
from statecore.repository.encryption import KEY_DOCUMENT_NAME
from statecore.repository.key_document import KEY_DOCUMENT, check_key_document
from statecore.repository.maintenance.key_rotation import plan_rotation, rotate
from statecore.repository.maintenance.verification_record import Level
from statecore.repository.maintenance.verify import verify_applications
from statecore.repository.object_store import object_store_of
from statecore.repository.repository import create_repository, create_repository_in, open_repository
from tests.harness.raising import raises
from tests.unit.repository.encrypted import encrypted_url, key_file, rewrite_sealed, stored_files
from tests.unit.repository.published import APPLICATION, Publishing
from tests.unit.repository.snapshots import fetched


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "repository"


@pytest.fixture
def url(root: Path, tmp_path: Path) -> str:
    url = encrypted_url(root)
    Publishing(url, tmp_path).publish(10)
    return url


def test_both_have_the_same_key(root: Path, url: str) -> None:
    document = KEY_DOCUMENT.decode((root / KEY_DOCUMENT_NAME).read_bytes())
    descriptor = DESCRIPTOR.decode((root / DESCRIPTOR_NAME).read_bytes())
    assert (document.repository_id, document.encryption) == (descriptor.id, descriptor.encryption)


@pytest.mark.parametrize("content", [None, b"", b"{}", b"damaged"])
@pytest.mark.parametrize("name", [DESCRIPTOR_NAME, KEY_DOCUMENT_NAME])
def test_a_lost_one_is_rebuilt(root: Path, url: str, name: str, content: bytes | None) -> None:
    before, kept = open_repository(url).descriptor, stored_files(root)
    (root / name).unlink()
    if content is not None:
        (root / name).write_bytes(content)
    if name == DESCRIPTOR_NAME:
        code = "missing" if content is None else "damaged"
        with raises(Corrupted, f"repository-descriptor-{code}", repository=url):
            open_repository(url)
    else:
        open_repository(url)
    made = create_repository(url)
    assert (made.is_new, made.is_id_restored) == ((True, True) if name == DESCRIPTOR_NAME else (False, False))
    assert (made.repository.descriptor.id, made.repository.descriptor.encryption) == (before.id, before.encryption)
    after = stored_files(root)
    assert {name: one for name, one in after.items() if name != DESCRIPTOR_NAME} == {
        name: one for name, one in kept.items() if name != DESCRIPTOR_NAME
    }
    assert fetched(ApplicationRepository.open(url, APPLICATION))


@pytest.mark.parametrize("content", [None, b"", b"{}", b"damaged"])
def test_a_verification_misses_the_key_document(root: Path, url: str, content: bytes | None) -> None:
    """Nothing else reads it until the descriptor is lost, too."""

    def codes() -> list[str]:
        (report,) = verify_applications(open_repository(url), None, Level.DOCUMENTS)
        return [one.error.code for one in report.damaged]

    assert codes() == []
    (root / KEY_DOCUMENT_NAME).unlink()
    if content is not None:
        (root / KEY_DOCUMENT_NAME).write_bytes(content)
    assert codes() == ["key-document-lost"]
    create_repository(url)
    assert codes() == []


def test_a_verification_finds_a_key_document_of_before_a_rotation(root: Path, url: str, tmp_path: Path) -> None:
    before = (root / KEY_DOCUMENT_NAME).read_bytes()
    rotate(plan_rotation(url, user_key_of(f"file:{key_file(tmp_path / 'new')}")))
    rotated = encrypted_url(root, "new")
    object_store = open_repository(rotated).object_store
    after = (root / KEY_DOCUMENT_NAME).read_bytes()
    (root / KEY_DOCUMENT_NAME).write_bytes(before)
    with raises(Corrupted, "key-document-lost"):
        check_key_document(object_store, lambda _: None)
    check_key_document(object_store, lambda _: (root / KEY_DOCUMENT_NAME).write_bytes(after))  # it was going on


def test_where_both_are_lost_nothing_is_made_in_their_place(root: Path, url: str) -> None:
    lost = (root / KEY_DOCUMENT_NAME).read_bytes()
    for name in (DESCRIPTOR_NAME, KEY_DOCUMENT_NAME):
        (root / name).unlink()
    before = stored_files(root)
    for ask in (open_repository, create_repository):
        with raises(Corrupted, "encryption-key-lost", repository=url):
            ask(url)
    assert stored_files(root) == before
    (root / KEY_DOCUMENT_NAME).write_bytes(lost)
    create_repository(url)
    assert fetched(ApplicationRepository.open(url, APPLICATION))


def test_a_place_with_a_key_document_alone_is_not_made_a_repository_without_encryption(root: Path, url: str) -> None:
    (root / DESCRIPTOR_NAME).unlink()
    (root / KEY_DOCUMENT_NAME).write_bytes(b"damaged")
    with raises(Invalid, "encryption-key-missing"):
        create_repository(root.as_uri())
    assert not (root / DESCRIPTOR_NAME).exists()


@pytest.mark.parametrize("key", ["key", "another"])
def test_of_two_that_make_one_at_once_both_use_the_data_key_of_the_first(tmp_path: Path, root: Path, key: str) -> None:
    slower = object_store_of(encrypted_url(root))
    faster = []

    def probed() -> None:
        slower.probe()
        made = create_repository(encrypted_url(root, key))
        faster.append(made.repository)
        (root / DESCRIPTOR_NAME).unlink()  # it is not there yet

    racing = slower._replace(probe=probed)
    if key != "key":
        with raises(Invalid, "encryption-key-wrong"):
            create_repository_in(racing)
        return
    made = create_repository_in(racing).repository
    assert made.descriptor.id == faster[0].descriptor.id
    faster[0].object_store.blobs.put_if_absent("apps/a", b"content")
    assert made.object_store.blobs.get("apps/a") == b"content"


def test_one_of_a_newer_release_is_left_alone(root: Path, url: str) -> None:
    rewrite_sealed(root / KEY_DOCUMENT_NAME, KEY_DOCUMENT, version=9)
    (root / DESCRIPTOR_NAME).unlink()
    before = stored_files(root)
    with raises(Invalid, "format-unsupported"):
        create_repository(url)
    assert stored_files(root) == before


def test_beside_a_descriptor_that_a_newer_release_has_to_write_none_is_written(root: Path, url: str) -> None:
    rewrite_sealed(root / DESCRIPTOR_NAME, DESCRIPTOR, needs={"read": ["encryption-1"], "write": ["later"]})
    assert not create_repository(url).is_new, "there is nothing to write"
    (root / KEY_DOCUMENT_NAME).unlink()
    before = stored_files(root)
    with raises(Invalid, "format-unsupported", features=["later"]):
        create_repository(url)
    assert stored_files(root) == before
