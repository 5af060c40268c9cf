"""The key of a user, which encrypts the data key of a repository, and nothing else.

A reference says where it is, on each machine that opens the repository::

    file:/etc/statecore/key     a file with 32 bytes in base64, which only its owner and its group may read
    env:NAME                    the same, in a variable of the environment
    kms:alias/statecore         a key of AWS KMS, by id, ARN or alias; it never leaves the service

A data key is bound to its repository: encrypted for another one it cannot be decrypted.
"""

from __future__ import annotations

import base64
import binascii
import os
import stat
from abc import ABC, abstractmethod
from pathlib import Path

from statecore.errors import Invalid
from statecore.objectstore.xaes import KEY_BYTES, NONCE_BYTES, TAG_BYTES, Xaes256Gcm

_OTHERS = stat.S_IRWXO
_MAKE = f"(umask 077; openssl rand -base64 {KEY_BYTES} > FILE)"


class UserKey(ABC):
    """A user's key; nothing is read before it is used.

    Attributes:
        reference: where it is.
    """

    def __init__(self, reference: str) -> None:
        self.reference = reference

    @abstractmethod
    def encrypt(self, data_key: bytes, repository_id: str) -> bytes:
        """The data key of a repository, encrypted."""

    @abstractmethod
    def decrypt(self, encrypted: bytes, repository_id: str) -> bytes:
        """The inverse of :meth:`encrypt`. Raises ``Invalid``, ``encryption-key-wrong``, if another key encrypted it."""

    def wrong(self, repository_id: str) -> Invalid:
        """The error for a data key that another key has encrypted."""
        return Invalid(
            f"The key {self.reference} does not decrypt the data key of the repository {repository_id}.",
            code="encryption-key-wrong",
            action="Name the key that the repository was made with, or that of its last rotation (statecore repo "
            "rotate-key).",
            key=self.reference,
            repository_id=repository_id,
        )


class BytesKey(UserKey):
    """A key of 32 bytes."""

    def encrypt(self, data_key: bytes, repository_id: str) -> bytes:
        nonce = os.urandom(NONCE_BYTES)
        return nonce + Xaes256Gcm(self._key()).encrypt(nonce, data_key, _associated(repository_id))

    def decrypt(self, encrypted: bytes, repository_id: str) -> bytes:
        nonce, sealed = encrypted[:NONCE_BYTES], encrypted[NONCE_BYTES:]
        xaes = Xaes256Gcm(self._key())
        data_key = xaes.decrypt(nonce, sealed, _associated(repository_id)) if len(sealed) > TAG_BYTES else None
        if data_key is None or len(data_key) != KEY_BYTES:
            raise self.wrong(repository_id)
        return data_key

    def _key(self) -> bytes:
        try:
            key = base64.b64decode(self._text().strip(), validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if len(key) != KEY_BYTES:
            raise Invalid(
                f"{self.reference} does not have a key of {KEY_BYTES} bytes in base64.",
                code="encryption-key-invalid",
                action=f"Restore it, or make one for a new repository: {_MAKE}.",
                key=self.reference,
            )
        return key

    @abstractmethod
    def _text(self) -> str: ...


class FileKey(BytesKey):
    """A key in a file."""

    def _text(self) -> str:
        path = Path(self.reference.partition(":")[2])
        try:
            with path.open() as file:
                mode = os.fstat(file.fileno()).st_mode
                text = file.read(1024)
        except UnicodeDecodeError:
            return ""
        except OSError as error:
            raise Invalid(
                f"The encryption key {path} cannot be read: {error.strerror}.",
                code="encryption-key-unreadable",
                action=f"Put it there on every machine that opens the repository. To make one for a new repository: "
                f"{_MAKE}.",
                key=self.reference,
            ) from error
        if mode & _OTHERS:
            raise Invalid(
                f"Every user of this machine may use the encryption key {path} (mode {stat.filemode(mode)}).",
                code="encryption-key-exposed",
                action=f"Take their rights away: chmod o= {path}. If others may have read it, rotate it (statecore "
                "repo rotate-key).",
                key=self.reference,
            )
        return text


class EnvironmentKey(BytesKey):
    """A key in a variable of the environment."""

    def _text(self) -> str:
        name = self.reference.partition(":")[2]
        if name not in os.environ:
            raise Invalid(
                f"The variable {name} of the environment, which has the encryption key, is not set.",
                code="encryption-key-unreadable",
                action="Set it for every process that opens the repository, on executors, too.",
                key=self.reference,
            )
        return os.environ[name]


def _associated(repository_id: str) -> bytes:
    return f"statecore data key of {repository_id}".encode()
