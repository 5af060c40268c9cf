"""A repository: blobs and pointers at a URL, with a repository descriptor.

URLs are ``s3://bucket/prefix`` (:mod:`statecore.objectstore.s3_location`) and ``file:///path``, a directory that all
machines share; with ``?copy=1`` no blob of it is a hard link of a file elsewhere
(:class:`statecore.objectstore.directory.Sharing`). The descriptor is put before anything else and read whenever the
repository is opened, so that a mistyped prefix is ``NotFound`` and not an empty repository, and a newer format is
refused by name. A lost or damaged one is restored with the id that heads and manifests carry.

A **replica** is a copy of another repository, with its id (:mod:`statecore.repository.copier`). Only copies write to
it, until it is promoted (:mod:`statecore.repository.promotion`).
"""

from __future__ import annotations

import shlex
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit
from weakref import WeakValueDictionary

from statecore import __version__
from statecore.documents import DocumentType, parse_json
from statecore.errors import Corrupted, Fenced, Invalid, NotFound, StatecoreError
from statecore.objectstore.base import DEFAULT_RETRIES, Blobs, RetryPolicy
from statecore.objectstore.directory import DirectoryBlobs, DirectoryPointers, Sharing
from statecore.objectstore.pointers import Pointers, PointerValue
from statecore.objectstore.probe import probe
from statecore.repository.head import HEAD
from statecore.repository.layout import APPLICATIONS, Layout
from statecore.repository.manifest import MANIFEST, VERSION
from statecore.repository.needs import NO_NEEDS, Needs

DESCRIPTOR_NAME = "repository.json"  # Name of the descriptor's blob
HASH = "sha256"  # The hash that names blobs, and is verified when they are read
_COPY = "copy=1"  # Query of a directory's URL: nothing in the repository is ever a hard link of a file elsewhere


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


DESCRIPTOR = DocumentType(
    "repository descriptor",
    VERSION,
    RepositoryDescriptor,
    "Use the release of statecore that made the repository, or make a new one at another place (statecore repo init) "
    "and publish the application there: statecore backup, or statecore restore with --repository.",
    is_open=True,
    is_sealed=True,
)


class ObjectStore(NamedTuple):
    """A place for blobs and pointers."""

    url: str  # the URL, as it can be given again
    blobs: Blobs
    pointers: Pointers
    probe: Callable[[], None]  # tests that it keeps what concurrent writers rely on


class Repository(NamedTuple):
    """An open repository: its object store and its descriptor."""

    object_store: ObjectStore
    descriptor: RepositoryDescriptor

    @property
    def is_replica(self) -> bool:
        return self.descriptor.role is Role.REPLICA

    def check_primary(self) -> None:
        """Refuse with ``Invalid`` to publish to a replica, or to change its heads otherwise."""
        if self.is_replica:
            url = self.object_store.url
            raise Invalid(
                f"The repository at {url} is a replica of {self.descriptor.copy_of}, and only copies of that write to "
                "it.",
                code="repository-is-replica",
                action="Name the primary; or, if that is lost, see what makes this one the primary: "
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
    one = next(recorded_ids(object_store.blobs, object_store.pointers), None)
    if one is not None:
        raise _missing(object_store, f"{one.name} is of the repository {one.repository_id}")
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
    created = _create(object_store, source)
    found = created.repository.descriptor
    if object_store.url == source.object_store.url:
        raise _not_a_target(object_store, source, "it is the source itself")
    if found.id != source.descriptor.id:
        raise _not_a_target(object_store, source, f"it is the repository {found.id}")
    if found.role is not Role.REPLICA:
        raise _not_a_target(object_store, source, "it is a primary, to which jobs may have published")
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
        recorded = _recorded_id(object_store)  # raises where it is ambiguous
        if source is not None and recorded not in ("", source.descriptor.id):
            raise _not_a_target(object_store, source, f"its heads and manifests are of the repository {recorded}")
        object_store.probe()
        found, damaged = _usable_descriptor(object_store)  # another process may have made it since
    if found is not None:
        return CreatedRepository(Repository(object_store, found), is_new=False)
    recorded = _recorded_id(object_store)  # only after the descriptor was read: see check_descriptor_unchanged
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    descriptor = RepositoryDescriptor(recorded or str(uuid.uuid4()), HASH, now, __version__)
    if source is not None:
        origin = source.descriptor
        descriptor = replace(
            descriptor, id=origin.id, needs=origin.needs, role=Role.REPLICA, copy_of=source.object_store.url
        )
    content = DESCRIPTOR.encode(descriptor)
    if damaged is None:
        made = object_store.blobs.put_if_absent(DESCRIPTOR_NAME, content)
    else:
        made = object_store.pointers.swap(DESCRIPTOR_NAME, content, damaged.version) is not None
    return CreatedRepository(_open(object_store), is_new=made, is_id_restored=made and bool(recorded))


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
    return next(iter(by_id), "")


def _init(object_store: ObjectStore) -> str:
    return shlex.join(["statecore", "repo", "init", "--repository", object_store.url])


def _missing(object_store: ObjectStore, because: str) -> Corrupted:
    return Corrupted(
        f"The descriptor of the repository at {object_store.url} ({DESCRIPTOR_NAME}) is missing: {because}.",
        code="repository-descriptor-missing",
        action=f"Restore it, then run this again: {_init(object_store)}",
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
            action=f"Rebuild it with the id that heads and manifests carry: {_init(object_store)}",
            repository=object_store.url,
        ) from error
    found.needs.check_readable(f"The repository at {object_store.url}")
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


def object_store_of(url: str, retries: RetryPolicy = DEFAULT_RETRIES) -> ObjectStore:
    """The object store that a URL names; nothing is requested from it yet."""
    parts = urlsplit(url)
    if parts.scheme == "s3":
        from statecore.objectstore.s3 import S3Blobs, S3Pointers
        from statecore.objectstore.s3_location import S3Location, make_client
        from statecore.objectstore.s3_probe import probe as probe_s3

        location = S3Location.of_url(url)
        client = make_client(location, retries.attempts, retries.timeout)
        blobs, pointers = S3Blobs(location, client), S3Pointers(location, client)
        return ObjectStore(location.url, blobs, pointers, lambda: probe_s3(location, client))
    path = Path(unquote(parts.path))
    if parts.scheme != "file" or parts.netloc or parts.fragment or not path.is_absolute():
        raise Invalid(
            f"{url!a} is not the URL of a repository.",
            code="repository-url-invalid",
            action="Give s3://bucket/prefix, or file:///path of a directory that all machines share.",
            url=url,
        )
    if parts.query not in ("", _COPY):
        raise Invalid(
            f"{parts.query!a}: a repository in a directory has no such setting.",
            code="repository-url-invalid",
            action=f"Give {_COPY} after the question mark, for copies instead of hard links, or nothing.",
            settings=[parts.query],
        )
    if path == Path("/") or (path.exists() and not path.is_dir()):
        raise Invalid(
            f"{path} is {'the root directory' if path == Path('/') else 'not a directory'}, and cannot be a "
            "repository.",
            code="repository-url-invalid",
            action="Name a directory; it is created where it is missing.",
            path=str(path),
        )
    sharing = Sharing.CLONES_ONLY if parts.query else Sharing.CLONES_OR_LINKS
    given = path.as_uri() + (f"?{_COPY}" if parts.query else "")
    return ObjectStore(given, DirectoryBlobs(path, sharing), DirectoryPointers(path), lambda: _probe_directory(path))


def _probe_directory(path: Path) -> None:
    below = path / f"statecore-probe-{uuid.uuid4().hex}"
    try:
        probe(path.as_uri(), DirectoryBlobs(below), DirectoryPointers(below))
    except StatecoreError as error:
        what, action = (text.replace(str(below), str(path)) for text in (error.what, error.action))
        raise error.restated(what, action=action, directory=str(path)) from error
    finally:
        shutil.rmtree(below, ignore_errors=True)


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
        for blob in blobs.list(names.manifests):
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
