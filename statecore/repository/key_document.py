"""The key document (``encryption.json``): the encrypted data key once more, beside the repository descriptor.

Where the descriptor is lost it is rebuilt with this key, and where this document is lost, from the descriptor. A
repository that is made writes this document first, and its id is that of the repository: of several processes that make
one at once, all go on with the same data key.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from typing import NamedTuple

from statecore.documents import DocumentType
from statecore.errors import Corrupted, Invalid, StatecoreError
from statecore.objectstore.pointers import PointerValue
from statecore.repository.descriptor import DESCRIPTOR, DESCRIPTOR_NAME
from statecore.repository.encryption import (
    KEY_DOCUMENT_NAME,
    KeyDocument,
    RepositoryKey,
    key_missing,
    new_data_key,
    wrapped,
)
from statecore.repository.layout import APPLICATIONS
from statecore.repository.manifest import VERSION
from statecore.repository.object_store import ObjectStore

KEY_DOCUMENT = DocumentType(
    "encryption key", VERSION, KeyDocument, "Use a newer release of statecore.", is_open=True, is_sealed=True
)


class ReadKeyDocument(NamedTuple):
    """What is in the place of a key document."""

    document: KeyDocument | None  # None where there is none, or a damaged one
    pointer: PointerValue | None


def read_key_document(object_store: ObjectStore) -> ReadKeyDocument:
    """Read the key document. Raises ``Invalid`` if a newer release wrote it."""
    found = object_store.pointers.read(KEY_DOCUMENT_NAME)
    if found is None:
        return ReadKeyDocument(None, None)
    document = KEY_DOCUMENT.read_intact(found.content)
    return ReadKeyDocument(None if document is None else document.value, found)


_ROTATION = 2.0  # Seconds in which a rotation that has replaced the descriptor comes to the document


def check_key_document(object_store: ObjectStore, sleep: Callable[[float], object] = time.sleep) -> None:
    """Raise ``Corrupted`` if the key document of an encrypted repository does not say what the descriptor says."""
    wrong = _key_document_defect(object_store)
    if wrong == _STALE:
        sleep(_ROTATION)
        wrong = _key_document_defect(object_store)
    if wrong:
        raise Corrupted(
            f"{KEY_DOCUMENT_NAME} at {object_store.url} {wrong}: it is the second copy of the encrypted data key. If "
            f"{DESCRIPTOR_NAME} were lost now, nothing could be decrypted by the present key.",
            code="key-document-lost",
            action=f"Write it again from {DESCRIPTOR_NAME}: "
            + shlex.join(["statecore", "repo", "init", "--repository", object_store.url]),
            repository=object_store.url,
        )


_STALE = "has another data key, or an older encryption of it"


def _key_document_defect(object_store: ObjectStore) -> str:
    descriptor = DESCRIPTOR.decode(object_store.blobs.get(DESCRIPTOR_NAME))
    document, pointer = read_key_document(object_store)
    if descriptor.encryption is None:
        return ""
    if document is None:
        return "is missing" if pointer is None else "is damaged"
    return "" if document == KeyDocument(descriptor.id, descriptor.encryption) else _STALE


def unlock_by_key_document(object_store: ObjectStore) -> KeyDocument | None:
    """Decrypt the data key of a repository without a descriptor; ``None`` where there is nothing encrypted.

    Raises:
        Invalid: it is encrypted, and the URL names no key, or a wrong one.
        Corrupted: there are applications, and no data key.
    """
    document, pointer = read_key_document(object_store)
    if object_store.key is None:
        if pointer is not None:
            raise key_missing(object_store.url)
    elif document is not None:
        try:
            object_store.key.unlock(document.repository_id, document.encryption)
        except Invalid as error:
            raise _wrong(error) from error
    elif next(object_store.blobs.directories(APPLICATIONS), None) is not None:
        raise _lost(object_store)
    return document


def put_key_document(
    object_store: ObjectStore, key: RepositoryKey, repository_id: str, data_key: bytes | None = None
) -> KeyDocument:
    """Put the key document of a new repository, with a data key or a new one; the document that is there then."""
    data_key = data_key or new_data_key()
    mine = KeyDocument(repository_id, wrapped(key.user_key, repository_id, data_key))
    while True:
        document, pointer = read_key_document(object_store)
        if document is not None:
            key.unlock(document.repository_id, document.encryption)
            return document
        version = None if pointer is None else pointer.version
        if object_store.pointers.swap(KEY_DOCUMENT_NAME, KEY_DOCUMENT.encode(mine), version) is not None:
            key.adopt(data_key)
            return mine


def renew_key_document(object_store: ObjectStore) -> None:
    """Let the key document say what the descriptor of an encrypted repository says.

    The descriptor is read after the document that is swapped. So an older one never overtakes a rotation. Raises
    ``Invalid`` if it has to be written, and only a newer release may do so.
    """
    while True:
        document, pointer = read_key_document(object_store)
        descriptor = DESCRIPTOR.decode(object_store.blobs.get(DESCRIPTOR_NAME))
        if descriptor.encryption is None:
            return
        wanted, version = (
            KeyDocument(descriptor.id, descriptor.encryption),
            None if pointer is None else pointer.version,
        )
        if document == wanted:
            return
        descriptor.needs.check_writable(f"The repository at {object_store.url}")
        if object_store.pointers.swap(KEY_DOCUMENT_NAME, KEY_DOCUMENT.encode(wanted), version) is not None:
            return


def _wrong(error: Invalid) -> StatecoreError:
    """The error for a key that does not open the document; a rotation that was killed had not come to it."""
    if error.code != "encryption-key-wrong":
        return error
    return error.restated(
        f"{error.what} {DESCRIPTOR_NAME} is lost, so only {KEY_DOCUMENT_NAME} has that data key, encrypted by the key "
        "that a completed rotation has left.",
        action="Name that key: if a rotation was killed, the one before it. Rebuild the descriptor with it (statecore "
        "repo init), and rotate again (statecore repo rotate-key).",
    )


def _lost(object_store: ObjectStore) -> Corrupted:
    return Corrupted(
        f"Neither {DESCRIPTOR_NAME} nor {KEY_DOCUMENT_NAME} at {object_store.url} can be read. Without the data key in "
        "them nothing there can be decrypted.",
        code="encryption-key-lost",
        action=f"Restore one of them: an earlier version of the object, or {KEY_DOCUMENT_NAME} of a replica, which the "
        "key of the replica opens. If there is none, make a repository at another place, and publish there.",
        repository=object_store.url,
    )
