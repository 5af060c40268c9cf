"""The repository descriptor (``repository.json``): it says that a place is a repository, and has its id."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from statecore.documents import DocumentType, Fields, plain
from statecore.repository.manifest import VERSION
from statecore.repository.needs import NO_NEEDS, Needs

DESCRIPTOR_NAME = "repository.json"  # Name of the descriptor's blob
HASH = "sha256"  # The hash that names blobs, and is verified when they are read


class WrappedBy(StrEnum):
    """What encrypts a data key."""

    KEY = "key"  # a key of 32 bytes, in a file or a variable of the environment
    KMS = "kms"  # a key of AWS KMS


@dataclass(frozen=True)
class WrappedKey:
    """The data key of a repository, encrypted by a user's key (:mod:`statecore.objectstore.user_key`)."""

    by: WrappedBy  # what kind of key encrypts it
    ciphertext: str  # in base64


class Role(StrEnum):
    """What a repository is."""

    PRIMARY = "primary"  # jobs publish to it
    REPLICA = "replica"  # a copy of another one, to which only copies write


@dataclass(frozen=True)
class RepositoryDescriptor:
    """The repository descriptor."""

    id: str
    hash: str  # the hash that blobs are named by
    created_at: str  # when, in ISO 8601 and UTC
    statecore_release: str  # the release of statecore that made it
    needs: Needs = NO_NEEDS
    role: Role = Role.PRIMARY
    # URL of the repository that a replica is a copy of; of a primary: a promotion is under way. Else empty
    copy_of: str = ""
    encryption: WrappedKey | None = None  # the data key, where blobs and pointers are encrypted


def _fields(descriptor: RepositoryDescriptor) -> Fields:
    """Its fields; without encryption those of the releases that had none."""
    written: Fields = plain(descriptor)
    return {name: value for name, value in written.items() if (name, value) != ("encryption", None)}


DESCRIPTOR = DocumentType(
    "repository descriptor",
    VERSION,
    RepositoryDescriptor,
    "Use the release of statecore that made the repository, or make a new one at another place (statecore repo init) "
    "and publish the application there: statecore backup, or statecore restore with --repository.",
    is_open=True,
    is_sealed=True,
    form=_fields,
)
