"""Encrypts the data key of a repository with another key of the user.

::

    descriptor      swapped for one with the data key encrypted by the new key: the old one opens nothing any more
    key document    the same

The data key stays, so no blob is written again, and jobs that have the repository open go on. A rotation that was
killed in between is gone on with by the next.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from statecore.errors import Invalid
from statecore.faults import NO_FAULTS, FaultPoints
from statecore.objectstore.user_key import UserKey
from statecore.repository.descriptor import RepositoryDescriptor, WrappedKey
from statecore.repository.encryption import not_encrypted, unwrapped, wrapped
from statecore.repository.key_document import read_key_document, renew_key_document
from statecore.repository.maintenance.descriptor_change import change_descriptor
from statecore.repository.object_store import object_store_of, with_key
from statecore.repository.repository import Repository, open_repository


@dataclass(frozen=True)
class KeyRotation:
    """A rotation, planned or done."""

    repository: Repository
    before: str  # where the old key is
    after: str  # where the new one is
    # whether an earlier rotation had swapped the descriptor already, and only the key document may lack the new key
    is_resumed: bool
    encryption: WrappedKey  # the data key, encrypted by the new key

    @property
    def url(self) -> str:
        """The URL of the repository with the new key."""
        return with_key(self.repository.object_store.url, self.after)


def plan_rotation(url: str, new_key: UserKey) -> KeyRotation:
    """Open a repository with its old key, and try the new one. Nothing is changed.

    Raises:
        Invalid: the repository is not encrypted, one of the keys cannot be used, or a newer release has to rotate it.
    """
    old = object_store_of(url).key
    if old is None:
        open_repository(url)  # says that there is none, or that it is encrypted and the URL has no key
        raise not_encrypted(url)
    if old.user_key.reference == new_key.reference:
        raise Invalid(
            f"The old and the new key are the same: {new_key.reference}. Nothing was changed.",
            code="encryption-key-invalid",
            action="Give the reference of another key; of two files keep both until the rotation is done.",
            repository=url,
        )
    try:
        repository = open_repository(url)
    except Invalid as error:
        if error.code != "encryption-key-wrong":
            raise
        try:
            repository = open_repository(with_key(url, new_key.reference))
        except Invalid:
            raise error from None
        _check_writable(repository)
        begun = repository.descriptor.encryption
        assert begun is not None
        return KeyRotation(repository, old.user_key.reference, new_key.reference, True, begun)
    _check_writable(repository)
    key, repository_id = repository.object_store.key, repository.descriptor.id
    assert key is not None
    encryption = wrapped(new_key, repository_id, key.data_key)
    if unwrapped(new_key, repository_id, encryption) != key.data_key:
        raise new_key.wrong(repository_id)
    return KeyRotation(repository, old.user_key.reference, new_key.reference, False, encryption)


def rotate(rotation: KeyRotation, faults: FaultPoints = NO_FAULTS) -> None:
    if not rotation.is_resumed:
        change_descriptor(rotation.repository, lambda found: _with_key(found, rotation))
        faults.reach("rotate-key.after-descriptor")
    renew_key_document(rotation.repository.object_store)


def _check_writable(repository: Repository) -> None:
    """Refuse a repository of which a newer release has to write one of the two documents: else one is left behind."""
    repository.descriptor.needs.check_writable(f"The repository at {repository.object_store.url}")
    read_key_document(repository.object_store)


def _with_key(found: RepositoryDescriptor, rotation: KeyRotation) -> RepositoryDescriptor | None:
    """The descriptor with the new key; ``None`` if another process has rotated the key since."""
    if found.encryption not in (rotation.repository.descriptor.encryption, rotation.encryption):
        return None
    return replace(found, encryption=rotation.encryption)
