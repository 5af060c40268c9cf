"""The data key is encrypted with another key: the old one opens nothing then, and nothing else changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from statecore.cli.main import main
from statecore.errors import Fenced, Invalid
from statecore.faults import KEY_ROTATION_POINTS, FaultInjected, InjectedFault
from statecore.objectstore.pointers import Pointers, PointerValue
from statecore.objectstore.user_key import UserKey
from statecore.objectstore.user_keys import user_key_of
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.descriptor import DESCRIPTOR, DESCRIPTOR_NAME
from statecore.repository.encryption import KEY_DOCUMENT_NAME
from statecore.repository.key_document import KEY_DOCUMENT
from statecore.repository.maintenance.key_rotation import plan_rotation, rotate
from statecore.repository.object_store import object_store_of
from statecore.repository.repository import (
    create_replica,
    create_repository,
    create_repository_in,
    open_repository,
)
from tests.harness.raising import raises
from tests.unit.repository.encrypted import encrypted_url, key_file, rewrite_sealed, stored_files
from tests.unit.repository.published import APPLICATION, Publishing
from tests.unit.repository.snapshots import fetched


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "repository"


@pytest.fixture
def orders(root: Path, tmp_path: Path) -> Publishing:
    made = Publishing(encrypted_url(root), tmp_path)
    made.publish(10)
    return made


@pytest.fixture
def new_key(tmp_path: Path) -> UserKey:
    return user_key_of(f"file:{key_file(tmp_path / 'new')}")


def check_rotated(root: Path) -> None:
    with raises(Invalid, "encryption-key-wrong"):
        open_repository(encrypted_url(root))
    new = encrypted_url(root, "new")
    assert fetched(ApplicationRepository.open(new, APPLICATION))
    (root / DESCRIPTOR_NAME).unlink()
    with raises(Invalid, "encryption-key-wrong"):
        create_repository(encrypted_url(root))
    assert create_repository(new).is_id_restored, "from the key document alone"


def test_the_new_key_opens_it_and_the_old_one_does_not(orders: Publishing, root: Path, new_key: UserKey) -> None:
    before, url = stored_files(root), orders.app_repository.url
    plan = plan_rotation(url, new_key)
    assert (plan.is_resumed, plan.url) == (False, encrypted_url(root, "new"))
    assert stored_files(root) == before
    rotate(plan)
    after = stored_files(root)
    assert {name for name in after if after[name] != before[name]} == {DESCRIPTOR_NAME, KEY_DOCUMENT_NAME}
    orders.publish(20)  # a job that has it open goes on
    check_rotated(root)


@pytest.mark.parametrize("point", KEY_ROTATION_POINTS)
def test_a_killed_one_is_gone_on_with(orders: Publishing, root: Path, new_key: UserKey, point: str) -> None:
    url = orders.app_repository.url
    with pytest.raises(FaultInjected):
        rotate(plan_rotation(url, new_key), InjectedFault(point))
    plan = plan_rotation(url, new_key)
    assert plan.is_resumed
    rotate(plan)
    check_rotated(root)


LATER = {"read": ["encryption-1"], "write": ["later"]}


@pytest.mark.parametrize("of", ["key document", "descriptor"])
@pytest.mark.parametrize("is_killed", [False, True])
def test_what_a_newer_release_has_to_write_is_refused_before_anything_changes(
    orders: Publishing, root: Path, new_key: UserKey, of: str, is_killed: bool
) -> None:
    """Else the descriptor would have the new key, and the document that is to rebuild it the old one."""
    url = orders.app_repository.url
    if is_killed:
        with pytest.raises(FaultInjected):
            rotate(plan_rotation(url, new_key), InjectedFault(*KEY_ROTATION_POINTS))
    if of == "descriptor":
        rewrite_sealed(root / DESCRIPTOR_NAME, DESCRIPTOR, needs=LATER)
    else:
        rewrite_sealed(root / KEY_DOCUMENT_NAME, KEY_DOCUMENT, version=2)
    before = stored_files(root)
    with raises(Invalid, "format-unsupported"):
        rotate(plan_rotation(url, new_key))
    assert stored_files(root) == before


def test_a_descriptor_that_a_newer_release_changed_since_the_plan_stays(
    orders: Publishing, root: Path, new_key: UserKey
) -> None:
    plan = plan_rotation(orders.app_repository.url, new_key)
    rewrite_sealed(root / DESCRIPTOR_NAME, DESCRIPTOR, needs=LATER)
    before = stored_files(root)
    with raises(Invalid, "format-unsupported", features=["later"]):
        rotate(plan)
    assert stored_files(root) == before


def test_init_goes_on_with_a_killed_one_as_well(orders: Publishing, root: Path, new_key: UserKey) -> None:
    with pytest.raises(FaultInjected):
        rotate(plan_rotation(orders.app_repository.url, new_key), InjectedFault(*KEY_ROTATION_POINTS))
    create_repository(encrypted_url(root, "new"))
    check_rotated(root)


def test_a_killed_one_whose_descriptor_is_lost_then_is_undone_and_run_again(
    orders: Publishing, root: Path, new_key: UserKey, capfd: pytest.CaptureFixture[str]
) -> None:
    """The key document is all that is left, and the rotation had not come to it."""
    url, new = orders.app_repository.url, encrypted_url(root, "new")
    with pytest.raises(FaultInjected):
        rotate(plan_rotation(url, new_key), InjectedFault(*KEY_ROTATION_POINTS))
    (root / DESCRIPTOR_NAME).unlink()
    before = stored_files(root)
    for ask in (open_repository, create_repository):
        with raises(Invalid, "encryption-key-wrong", key=new_key.reference) as caught:
            ask(new)
        assert "the one before it" in caught.value.action
    assert stored_files(root) == before
    assert main(["repo", "init", "--repository", url]) == 0
    said = capfd.readouterr().out.splitlines()
    assert said[-1].startswith(f"file:{root.parent / 'key'} opens it; if a rotation to another key was killed")
    plan = plan_rotation(url, new_key)
    assert not plan.is_resumed
    rotate(plan)
    check_rotated(root)


def test_of_two_rotations_one_is_done(orders: Publishing, root: Path, new_key: UserKey, tmp_path: Path) -> None:
    url = orders.app_repository.url
    other = user_key_of(f"file:{key_file(tmp_path / 'other')}")
    plans = [plan_rotation(url, key) for key in (new_key, other)]
    rotate(plans[0])
    with raises(Fenced, "repository-replaced"):
        rotate(plans[1])
    check_rotated(root)


@pytest.mark.parametrize("key_document", [b"damaged", None])
def test_an_init_that_a_rotation_overtakes_does_not_bring_the_old_key_back(
    orders: Publishing, root: Path, new_key: UserKey, key_document: bytes | None
) -> None:
    (root / KEY_DOCUMENT_NAME).unlink()
    if key_document is not None:
        (root / KEY_DOCUMENT_NAME).write_bytes(key_document)
    stored = object_store_of(orders.app_repository.url)
    done: list[None] = []

    class Overtaken(Pointers):
        def read(self, name: str) -> PointerValue | None:
            return stored.pointers.read(name)

        def swap(self, name: str, content: bytes, expected: str | None) -> str | None:
            if not done:
                done.append(rotate(plan_rotation(orders.app_repository.url, new_key)))
            return stored.pointers.swap(name, content, expected)

    create_repository_in(stored._replace(pointers=Overtaken()))
    assert done
    check_rotated(root)


def test_the_same_key_is_no_new_one(orders: Publishing, root: Path) -> None:
    """Else an operator would take the only key for the old one."""
    before, key = stored_files(root), orders.app_repository.repository.object_store.key
    assert key is not None
    with raises(Invalid, "encryption-key-invalid"):
        plan_rotation(orders.app_repository.url, key.user_key)
    assert stored_files(root) == before


@pytest.mark.parametrize("wrong", ["old", "new", "both"])
def test_a_key_that_cannot_be_used_changes_nothing(
    orders: Publishing, root: Path, new_key: UserKey, wrong: str
) -> None:
    before = stored_files(root)
    url = orders.app_repository.url if wrong == "new" else encrypted_url(root, "third")
    key = user_key_of("file:/no/such/key") if wrong != "old" else new_key
    with raises(Invalid, "encryption-key-unreadable" if wrong == "new" else "encryption-key-wrong"):
        plan_rotation(url, key)
    assert stored_files(root) == before


def test_only_an_encrypted_repository_has_a_key_to_rotate(tmp_path: Path, root: Path, new_key: UserKey) -> None:
    create_repository((tmp_path / "plain").as_uri())
    with raises(Invalid, "repository-not-encrypted"):
        plan_rotation((tmp_path / "plain").as_uri(), new_key)
    create_repository(encrypted_url(root))
    with raises(Invalid, "encryption-key-missing"):
        plan_rotation(root.as_uri(), new_key)


def test_a_replica_is_rotated_by_itself(orders: Publishing, root: Path, new_key: UserKey, tmp_path: Path) -> None:
    target = encrypted_url(tmp_path / "replica", "key of the replica")
    create_replica(object_store_of(target), open_repository(orders.app_repository.url))
    rotate(plan_rotation(target, new_key))
    open_repository(encrypted_url(tmp_path / "replica", "new"))
    open_repository(orders.app_repository.url)
