"""The data key of an encrypted repository (``docs/repository-format.md``, Encryption).

::

    user's key ──encrypts──▶ data key ──encrypts──▶ blobs and pointers below apps/
                             in repository.json, and again in encryption.json

So a rotation of the user's key writes two small documents, and either of them alone is enough to open the repository.
Both are readable without a key, and say nothing about the state of applications.
"""

from __future__ import annotations

import base64
import os
import threading
from dataclasses import dataclass

from statecore.errors import Invalid, NotFound
from statecore.objectstore.base import Blobs
from statecore.objectstore.frames import FrameCipher
from statecore.objectstore.user_key import UserKey
from statecore.objectstore.user_keys import user_key_of
from statecore.objectstore.xaes import KEY_BYTES
from statecore.repository.descriptor import DESCRIPTOR, DESCRIPTOR_NAME, RepositoryDescriptor, WrappedBy, WrappedKey
from statecore.repository.needs import ENCRYPTION, Needs

KEY_DOCUMENT_NAME = "encryption.json"  # Name of the blob with the second copy of the encrypted data key
NOT_ENCRYPTED = (DESCRIPTOR_NAME, KEY_DOCUMENT_NAME)
_CHANGED = "Nothing was changed."


@dataclass(frozen=True)
class KeyDocument:
    """The data key again, from which a lost repository descriptor is rebuilt."""

    repository_id: str
    encryption: WrappedKey


class RepositoryKey:
    """The data key of a repository, as far as this process knows it.

    Once it is known it stays: a job that runs when the user's key is rotated ends as it began.

    Args:
        url: the repository.
        user_key: encrypts the data key.
        blobs: those of the repository, to read its descriptor where the key is used first.
    """

    def __init__(self, url: str, user_key: UserKey, blobs: Blobs) -> None:
        self._url, self.user_key, self._blobs = url, user_key, blobs
        self._data_key: bytes | None = None
        self._cipher: FrameCipher | None = None
        self._lock = threading.RLock()

    def cipher(self) -> FrameCipher:
        """The cipher of blobs and pointers; a process that has not opened the repository reads its descriptor."""
        with self._lock:
            if self._cipher is None:
                try:
                    descriptor = DESCRIPTOR.decode(self._blobs.get(DESCRIPTOR_NAME))
                except NotFound as error:
                    raise NotFound(
                        f"There is no repository at {self._url}.",
                        code="repository-not-found",
                        action="Check the URL.",
                        repository=self._url,
                    ) from error
                check_encryption(self._url, self, descriptor)
            assert self._cipher is not None
            return self._cipher

    @property
    def data_key(self) -> bytes:
        assert self._data_key is not None, "it is decrypted when the repository is opened"
        return self._data_key

    def unlock(self, repository_id: str, wrapped: WrappedKey) -> None:
        """Decrypt the data key, unless it is known."""
        with self._lock:
            if self._data_key is None:
                self.adopt(unwrapped(self.user_key, repository_id, wrapped))

    def adopt(self, data_key: bytes) -> None:
        """Use a data key: a new one, or that of a primary."""
        with self._lock:
            self._data_key, self._cipher = data_key, FrameCipher(data_key)


def repository_key(url: str, reference: str, blobs: Blobs) -> RepositoryKey:
    """The key of the repository at a URL; ``reference`` says where the user's key is."""
    return RepositoryKey(url, user_key_of(reference), blobs)


def new_data_key() -> bytes:
    return os.urandom(KEY_BYTES)


def wrapped(user_key: UserKey, repository_id: str, data_key: bytes) -> WrappedKey:
    """Encrypt a data key."""
    by = WrappedBy.KMS if user_key.reference.startswith("kms:") else WrappedBy.KEY
    return WrappedKey(by, base64.b64encode(user_key.encrypt(data_key, repository_id)).decode())


def unwrapped(user_key: UserKey, repository_id: str, wrapped: WrappedKey) -> bytes:
    """Decrypt a data key. Raises ``Invalid`` if another key has encrypted it."""
    is_kms = user_key.reference.startswith("kms:")
    try:
        ciphertext = base64.b64decode(wrapped.ciphertext, validate=True)
    except ValueError:
        ciphertext = b""
    if is_kms is not (wrapped.by is WrappedBy.KMS):
        raise user_key.wrong(repository_id)
    return user_key.decrypt(ciphertext, repository_id)


def check_encryption(url: str, key: RepositoryKey | None, descriptor: RepositoryDescriptor) -> None:
    """Decrypt the data key of a repository; refuse one whose URL lacks its key, or names one without need."""
    if descriptor.encryption is None:
        if key is not None:
            raise not_encrypted(url)
    elif key is None:
        raise key_missing(url)
    else:
        key.unlock(descriptor.id, descriptor.encryption)


def key_missing(url: str) -> Invalid:
    """The error for an encrypted repository whose URL names no key."""
    return Invalid(
        f"The repository at {url} is encrypted, and its URL does not say where the key is. {_CHANGED}",
        code="encryption-key-missing",
        action="Add encryption-key=file:/path, encryption-key=env:NAME or encryption-key=kms:KEY to the URL, after a "
        "question mark or &.",
        repository=url,
    )


def not_encrypted(url: str) -> Invalid:
    """The error for a repository that is not encrypted, and whose URL names a key."""
    return Invalid(
        f"The repository at {url} is not encrypted, and its URL names an encryption key. {_CHANGED}",
        code="repository-not-encrypted",
        action="Leave encryption-key out of the URL; or make an encrypted repository at another place (statecore repo "
        "init), and publish there.",
        repository=url,
    )


ENCRYPTED = Needs(read=(ENCRYPTION,))
"""The needs of an encrypted repository."""
