"""A repository: blobs and pointers at a URL, with a repository descriptor.

The descriptor is put before anything else that is named by a head, and read whenever the repository is opened, so that
a mistyped prefix is ``NotFound`` and not an empty repository, and a newer format is refused by name. A lost or damaged
one is restored with the id that heads and manifests carry.

A **replica** is a copy of another repository, with its id (:mod:`statecore.repository.maintenance.copier`). Only copies
write to it, until it is promoted (:mod:`statecore.repository.maintenance.promotion`).
"""

from __future__ import annotations

import shlex
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from statecore import __version__
from statecore.documents import DocumentType, parse_json
from statecore.errors import Corrupted, Fenced, Invalid, NotFound
from statecore.objectstore.base import DEFAULT_RETRIES, Blobs, RetryPolicy
from statecore.objectstore.pointers import Pointers, PointerValue
from statecore.repository.descriptor import DESCRIPTOR, DESCRIPTOR_NAME, HASH, RepositoryDescriptor, Role
from statecore.repository.encryption import ENCRYPTED, KEY_DOCUMENT_NAME, check_encryption, key_missing
from statecore.repository.head import HEAD
from statecore.repository.key_document import put_key_document, renew_key_document, unlock_by_key_document
from statecore.repository.layout import APPLICATIONS, Layout
from statecore.repository.manifest import MANIFEST
from statecore.repository.object_store import ObjectStore, object_store_of


class Repository(NamedTuple):
    """An open repository: its object store and its descriptor."""

    object_store: ObjectStore
    descriptor: RepositoryDescriptor

    @property
    def is_replica(self) -> bool:
        return self.descriptor.role is Role.REPLICA

    @property
    def key_advice(self) -> str:
        """What to add to ``copy_of`` for the URL of the primary, in parentheses; empty if it is not encrypted."""
        return "" if self.descriptor.encryption is None else " (add the encryption-key of the primary to its URL)"

    def check_primary(self) -> None:
        """Refuse with ``Invalid`` to publish to a replica, or to change its heads otherwise."""
        if self.is_replica:
            url = self.object_store.url
            raise Invalid(
                f"The repository at {url} is a replica of {self.descriptor.copy_of}, and only copies of that write to "
                "it.",
                code="repository-is-replica",
                action=f"Name the primary{self.key_advice}; or, if that is lost, see what makes this one the primary: "
                + shlex.join(["statecore", "repo", "promote-replica", "--repository", url]),
                repository=url,
                copy_of=self.descriptor.copy_of,
            )


class CreatedRepository(NamedTuple):
    """Result of :func:`create_repository`."""

    repository: Repository
    is_new: bool  # whether its descriptor was put now
    # whether that restores the id of a lost or damaged one, because heads and manifests carry it
    is_id_restored: bool = False


def open_repository(url: str, retries: RetryPolicy = DEFAULT_RETRIES) -> Repository:
    """Open the repository at a URL; ``retries`` bounds how long its server may let this process wait."""
    return _open(object_store_of(url, retries))


def _open(object_store: ObjectStore) -> Repository:
    found = _read_descriptor(object_store)
    if found is not None:
        _opened[object_store.url] = object_store.blobs
        return Repository(object_store, found)
    kept = unlock_by_key_document(object_store)
    if kept is not None:
        raise _missing(object_store, f"{KEY_DOCUMENT_NAME} is of the repository {kept.repository_id}")
    one = next(recorded_ids(object_store.blobs, object_store.pointers), None)
    if one is not None:
        raise _missing(object_store, f"{one.name} is of the repository {one.repository_id}")
    _refuse_unreadable(object_store)
    raise NotFound(
        f"There is no repository at {object_store.url}.",
        code="repository-not-found",
        action=f"Check the URL, or make one there: {_init(object_store)}",
        repository=object_store.url,
    )


def opened_blobs(url: str) -> Blobs | None:
    """The blobs of a repository that this process has open, which saves a slow new client; else ``None``."""
    return _opened.get(url)


_opened: WeakValueDictionary[str, Blobs] = WeakValueDictionary()


def create_repository(url: str) -> CreatedRepository:
    """Make a repository, if there is none; where only its descriptor is missing or damaged, restore that."""
    return create_repository_in(object_store_of(url))


def create_repository_in(object_store: ObjectStore) -> CreatedRepository:
    """Make a repository in an object store; see :func:`create_repository`."""
    return _create(object_store, None)


def create_replica(object_store: ObjectStore, source: Repository) -> CreatedRepository:
    """Make a replica of a repository, if there is none. Raises ``Invalid`` if there is anything else."""
    source.descriptor.needs.check_writable(f"The repository at {source.object_store.url}")
    key, key_of_source = object_store.key, source.object_store.key
    if key is None and key_of_source is not None:
        raise key_missing(object_store.url)
    if key is not None and key_of_source is None:
        raise _not_a_target(object_store, source, "its URL names an encryption key, and the source is not encrypted")
    created = _create(object_store, source)
    found = created.repository.descriptor
    found.needs.check_writable(f"The repository at {object_store.url}")
    if object_store.is_at(source.object_store):  # after a test of the place, which may have made a part of its path
        raise _not_a_target(object_store, source, "it is the source itself")
    if found.id != source.descriptor.id:
        raise _not_a_target(object_store, source, f"it is the repository {found.id}")
    if found.role is not Role.REPLICA:
        raise _not_a_target(object_store, source, "it is a primary, to which jobs may have published")
    if key is not None and key_of_source is not None and key.data_key != key_of_source.data_key:
        raise _not_a_target(object_store, source, "its data key is another one")
    return created


def _not_a_target(object_store: ObjectStore, source: Repository, why: str) -> Invalid:
    return Invalid(
        f"{object_store.url} cannot be a replica of the repository {source.descriptor.id} at "
        f"{source.object_store.url}: {why}. Nothing was changed.",
        code="copy-target-invalid",
        action="Name an empty place, or a replica of this repository.",
        repository=object_store.url,
        source=source.object_store.url,
    )


def _create(object_store: ObjectStore, source: Repository | None) -> CreatedRepository:
    """Make a repository; with a source a replica of it."""
    found, _ = _usable_descriptor(object_store)
    if found is None:
        unlock_by_key_document(object_store)
        recorded = _recorded_id(object_store)  # raises where it is ambiguous
        if source is not None and recorded not in ("", source.descriptor.id):
            raise _not_a_target(object_store, source, f"its heads and manifests are of the repository {recorded}")
        object_store.probe()
        found, damaged = _usable_descriptor(object_store)  # another process may have made it since
    if found is not None:
        if found.encryption is not None:
            renew_key_document(object_store)
        return CreatedRepository(Repository(object_store, found), is_new=False)
    recorded = _recorded_id(object_store)  # only after the descriptor was read: see check_descriptor_unchanged
    content = DESCRIPTOR.encode(_new_descriptor(object_store, recorded, source))
    if damaged is None:
        made = object_store.blobs.put_if_absent(DESCRIPTOR_NAME, content)
    else:
        made = object_store.pointers.swap(DESCRIPTOR_NAME, content, damaged.version) is not None
    return CreatedRepository(_open(object_store), is_new=made, is_id_restored=made and bool(recorded))


def _new_descriptor(object_store: ObjectStore, recorded: str, source: Repository | None) -> RepositoryDescriptor:
    """The descriptor to put; where it is encrypted, its data key is durable before."""
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    descriptor = RepositoryDescriptor(recorded or str(uuid.uuid4()), HASH, now, __version__)
    if source is not None:
        origin = source.descriptor
        descriptor = replace(
            descriptor,
            id=origin.id,
            needs=origin.needs,
            role=Role.REPLICA,
            copy_of=source.object_store.url_without_key,
        )
    if object_store.key is None:
        return descriptor
    key = None if source is None or source.object_store.key is None else source.object_store.key.data_key
    kept = put_key_document(object_store, object_store.key, descriptor.id, key)
    needs = ENCRYPTED if source is None else descriptor.needs
    return replace(descriptor, id=kept.repository_id, needs=needs, encryption=kept.encryption)


def check_descriptor_unchanged(repository: Repository) -> None:
    """Refuse to continue in an object store that has become another repository since it was opened.

    A publisher calls this once a document that carries the id exists, and before a head names it. A process that makes
    a descriptor first checks that there is none, then reads that id. So one of the two detects the other.
    """
    object_store, before = repository.object_store, repository.descriptor
    found = _read_descriptor(object_store)
    if found is not None:
        found.needs.check_writable(f"The repository at {object_store.url}")
    if found is None:
        raise _missing(object_store, f"this job began in the repository {before.id}")
    if (found.id, found.role) != (before.id, before.role):
        raise Fenced(
            f"The place {object_store.url} was the repository {before.id} ({before.role}) when this job began, and is "
            f"the repository {found.id} ({found.role}) now.",
            code="repository-replaced",
            action="Check which process made or copied a repository descriptor there (statecore repo init, copy or "
            "promote-replica), and start a new job (under a new request id).",
            repository=object_store.url,
            repository_id=before.id,
            found_repository_id=found.id,
        )


def _recorded_id(object_store: ObjectStore) -> str:
    """The id that everything in an object store without a descriptor carries; empty where nothing does."""
    by_id: dict[str, str] = {}
    for one in recorded_ids(object_store.blobs, object_store.pointers):
        by_id.setdefault(one.repository_id, one.name)
    if len(by_id) > 1:
        each = ", ".join(f"{name} of {one}" for one, name in sorted(by_id.items()))
        raise Invalid(
            f"{object_store.url} has no readable repository descriptor ({DESCRIPTOR_NAME}), and its content is of "
            f"{len(by_id)} repositories: {each}. Which of them it is cannot be told.",
            code="repository-ambiguous",
            action="Move the heads and manifests of the others away, or restore a copy of the descriptor, then run "
            f"this again: {_init(object_store)}",
            repository=object_store.url,
            repository_ids=sorted(by_id),
        )
    if not by_id:
        _refuse_unreadable(object_store)
    return next(iter(by_id), "")


def _refuse_unreadable(object_store: ObjectStore) -> None:
    """Refuse a place without a descriptor whose heads and manifests cannot be read, as those of a lost key."""
    for name in sorted(object_store.blobs.directories(APPLICATIONS)):
        with suppress(Invalid):
            names = Layout(name)
            there = [object_store.pointers.read(names.head), next(names.listed(object_store.blobs, "manifests"), None)]
            if any(one is not None for one in there):
                raise Corrupted(
                    f"{object_store.url} has no repository descriptor ({DESCRIPTOR_NAME}), but files of {name}, of "
                    "which no head and no manifest can be read: they are damaged, or encrypted by another key.",
                    code="repository-descriptor-missing",
                    action="Nothing is lost yet. If it is encrypted, add its encryption-key to the URL, and put copies "
                    f"of {DESCRIPTOR_NAME} and encryption.json back. For a new repository take another place.",
                    repository=object_store.url,
                    application_id=name,
                )


_OF_A_REPLICA = "If it is a replica, copy to it again instead (statecore repo copy)."


def _init(object_store: ObjectStore) -> str:
    return shlex.join(["statecore", "repo", "init", "--repository", object_store.url])


def _missing(object_store: ObjectStore, because: str) -> Corrupted:
    return Corrupted(
        f"The descriptor of the repository at {object_store.url} ({DESCRIPTOR_NAME}) is missing: {because}.",
        code="repository-descriptor-missing",
        action=f"{_OF_A_REPLICA} Else restore it, then run this again: {_init(object_store)}",
        repository=object_store.url,
    )


def _read_descriptor(object_store: ObjectStore) -> RepositoryDescriptor | None:
    try:
        content = object_store.blobs.get(DESCRIPTOR_NAME)
    except NotFound:
        return None
    return _decoded(object_store, content)


def _usable_descriptor(object_store: ObjectStore) -> tuple[RepositoryDescriptor | None, PointerValue | None]:
    """The descriptor, or the damaged document in its place; the one document that is both a blob and a pointer."""
    found = object_store.pointers.read(DESCRIPTOR_NAME)
    if found is None:
        return None, None
    try:
        return _decoded(object_store, found.content), None
    except Corrupted:
        return None, found


def _decoded(object_store: ObjectStore, content: bytes) -> RepositoryDescriptor:
    try:
        found = DESCRIPTOR.decode(content)
    except Invalid as error:
        if DESCRIPTOR.seal_holds(content):  # a version that this release does not know
            error.context.setdefault("repository", object_store.url)
            raise
        raise Corrupted(
            f"The descriptor of the repository at {object_store.url} ({DESCRIPTOR_NAME}) is damaged: {error.what}",
            code="repository-descriptor-damaged",
            action=f"{_OF_A_REPLICA} Else rebuild it with the id that heads and manifests carry: {_init(object_store)}",
            repository=object_store.url,
        ) from error
    found.needs.check_readable(f"The repository at {object_store.url}")
    check_encryption(object_store.url, object_store.key, found)
    if found.hash != HASH:
        raise Invalid(
            f"The repository at {object_store.url} names blobs by {found.hash}, and this release knows {HASH}.",
            code="format-unsupported",
            action=DESCRIPTOR.action,
            repository=object_store.url,
            expected=HASH,
            found=found.hash,
        )
    return found


class RecordedId(NamedTuple):
    """A repository id, and the name of the head or manifest that carries it."""

    repository_id: str
    name: str


def recorded_ids(blobs: Blobs, pointers: Pointers) -> Iterator[RecordedId]:
    """The ids that heads and manifests carry, heads first; damaged documents are skipped."""
    applications = []
    for name in sorted(blobs.directories(APPLICATIONS)):
        with suppress(Invalid):  # no application can have that id
            applications.append(Layout(name))
    for names in applications:
        found = pointers.read(names.head)
        yield from _recorded(HEAD, names.head, None if found is None else found.content)
    for names in applications:
        for blob in names.listed(blobs, "manifests"):
            with suppress(NotFound):  # deleted since
                yield from _recorded(MANIFEST, blob.name, blobs.get(blob.name))


def _recorded(kind: DocumentType[Any], name: str, content: bytes | None) -> Iterator[RecordedId]:
    """The id in a document of any version, if its seal holds."""
    if (
        content is not None
        and kind.seal_holds(content)
        and isinstance(found := parse_json(content).get("repository_id"), str)
    ):
        yield RecordedId(found, name)
