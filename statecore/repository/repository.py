"""A repository: a place for blobs and pointers with a mark that says what lies there.

::

    <url>/repository.json       the mark: format version, id, hash; made once by ``statecore init``, never changed

URLs are ``s3://bucket/prefix`` (:mod:`statecore.objectstore.s3_location`) and ``file:///path``, a directory that all
machines share; with ``?copy=1`` no blob of it is a second name of a file elsewhere
(:class:`statecore.objectstore.directory.Sharing`). The mark is put before anything else and looked for by whoever opens
the place, so that a mistyped prefix is ``NotFound`` and not an empty repository, and a newer format is refused by name.
A mark that is lost or damaged is put back with the id that heads and manifests carry
(:mod:`statecore.repository.repository_id_recovery`).
"""

from __future__ import annotations

import shlex
import shutil
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit
from weakref import WeakValueDictionary

from statecore import __version__
from statecore.documents import DocumentType
from statecore.errors import Corrupted, Fenced, Invalid, NotFound
from statecore.objectstore.base import PATIENT, Blobs, Patience
from statecore.objectstore.directory import DirectoryBlobs, Sharing
from statecore.objectstore.directory_pointers import DirectoryPointers
from statecore.objectstore.pointers import Pointed, Pointers
from statecore.objectstore.probe import probe
from statecore.repository.repository_id_recovery import carried_ids

MARK_NAME = "repository.json"
"""The name of the mark's blob."""

HASH = "sha256"
"""What names blobs, and is compared when they are read."""

_COPY = "copy=1"
"""Of a repository in a directory: nothing in it is ever a second name of a file elsewhere."""


@dataclass(frozen=True)
class RepositoryDescriptor:
    """What a repository says of itself.

    Attributes:
        id: random, and unlike that of any other repository.
        hash: what blobs are named by.
        made: when, in ISO 8601 and UTC.
        made_by: the release of statecore that made it.
    """

    id: str
    hash: str
    made: str
    made_by: str


MARK = DocumentType(
    "mark of a repository",
    0,
    RepositoryDescriptor,
    "Use the release of statecore that made the repository, or name another place.",
    is_open=True,
    is_sealed=True,
)


class Place(NamedTuple):
    """A place for blobs and pointers, whatever it is.

    Attributes:
        url: the place, as it can be given again.
        blobs: its blobs.
        pointers: its pointers.
        probe: puts it to the test.
    """

    url: str
    blobs: Blobs
    pointers: Pointers
    probe: Callable[[], None]


class Repository(NamedTuple):
    """A repository that was opened.

    Attributes:
        place: where it is.
        mark: what it says of itself.
    """

    place: Place
    mark: RepositoryDescriptor


class Made(NamedTuple):
    """A repository that somebody wanted to be there.

    Attributes:
        repository: the repository.
        now: whether its mark was put now.
        again: whether that has the id of one that was lost or damaged, because heads and manifests carry it.
    """

    repository: Repository
    now: bool
    again: bool = False


def open_repository(url: str, patience: Patience = PATIENT) -> Repository:
    """The repository at a URL.

    Args:
        url: of the repository.
        patience: how long its server may let this process wait.

    Raises:
        NotFound: there is none.
        Corrupted: there was one, and its mark is missing or damaged.
        Invalid: the URL names no place; the place cannot be used; what is there is of another format.
        Retryable: the place cannot be reached.
    """
    return _open(place_of(url, patience))


def _open(place: Place) -> Repository:
    found = _mark(place)
    if found is not None:
        _opened[place.url] = place.blobs
        return Repository(place, found)
    one = next(carried_ids(place.blobs, place.pointers), None)
    if one is not None:
        raise _missing(place, f"{one.name} is of the repository {one.repository}")
    raise NotFound(
        f"There is no repository at {place.url}.",
        code="repository-not-found",
        action=f"Check the URL, or make one there: {_init(place)}",
        repository=place.url,
    )


def opened_blobs(url: str) -> Blobs | None:
    """The blobs of a repository that somebody in this process has open; ``None`` where nobody has.

    A client of an object store takes longer to make than most requests, and has connections of its own.

    Args:
        url: as :attr:`Place.url` has it.
    """
    return _opened.get(url)


_opened: WeakValueDictionary[str, Blobs] = WeakValueDictionary()


def make_repository(url: str) -> Made:
    """Make a repository, if there is none; of one whose mark is missing or damaged the mark alone.

    Returns:
        The repository, and whether it was made now.

    Raises:
        Invalid: the URL names no place; the place cannot be used, or does not keep what writers need to work at the
            same time; what is there is of another format; or the mark is lost, and what is there is of several
            repositories.
        Capacity, Retryable: the place is full, or cannot be reached.
    """
    return make_repository_in(place_of(url))


def make_repository_in(place: Place) -> Made:
    """The same in a place that the caller has; see :func:`make_repository`."""
    found, _ = _usable_mark(place)
    if found is None:
        _carried_id(place)  # which may refuse
        place.probe()
        found, damaged = _usable_mark(place)  # somebody else may have made it meanwhile
    if found is not None:
        return Made(Repository(place, found), now=False)
    carried = _carried_id(place)  # after the mark was looked at: see refuse_another_mark
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    content = MARK.encode(RepositoryDescriptor(carried or str(uuid.uuid4()), HASH, now, __version__))
    if damaged is None:
        made = place.blobs.put_if_absent(MARK_NAME, content)
    else:
        made = place.pointers.swap(MARK_NAME, content, damaged.version) is not None
    return Made(_open(place), now=made, again=made and bool(carried))


def refuse_another_descriptor(repository: Repository) -> None:
    """Refuse to go on in a repository that has become another one since it was opened: nobody would find what is named.

    Whoever names something asks this when a document that carries the id is there, and before a head names it. Whoever
    makes a mark looks first that there is none, then for that id. So one of the two sees the other.

    Raises:
        Fenced: the mark has another id.
        Corrupted: there is no mark, or it is damaged.
        Invalid, Retryable: nobody could look.
    """
    place, before = repository.place, repository.mark.id
    found = _mark(place)
    if found is None:
        raise _missing(place, f"this job began in the repository {before}")
    if found.id != before:
        raise Fenced(
            f"The place {place.url} was the repository {before} when this job began, and is the repository {found.id} "
            "now.",
            code="repository-replaced",
            action="Look who has made or copied a mark there (statecore init), and start a new job (under a new "
            "request id).",
            repository=place.url,
            repository_id=before,
            found_repository_id=found.id,
        )


def _carried_id(place: Place) -> str:
    """The id that everything in a place without a mark carries; empty where nothing does.

    Raises:
        Invalid: some of it carries another one.
    """
    by_id: dict[str, str] = {}
    for one in carried_ids(place.blobs, place.pointers):
        by_id.setdefault(one.repository, one.name)
    if len(by_id) > 1:
        each = ", ".join(f"{name} of {one}" for one, name in sorted(by_id.items()))
        raise Invalid(
            f"{place.url} has no mark ({MARK_NAME}) that can be read, and what is there is of {len(by_id)} "
            f"repositories: {each}. Nobody can tell which of them it is.",
            code="repository-ambiguous",
            action="Move the heads and manifests of the others away, or put a copy of the mark back, then run this "
            f"again: {_init(place)}",
            repository=place.url,
            repository_ids=sorted(by_id),
        )
    return next(iter(by_id), "")


def _init(place: Place) -> str:
    return shlex.join(["statecore", "init", "--repository", place.url])


def _missing(place: Place, because: str) -> Corrupted:
    return Corrupted(
        f"The mark of the repository at {place.url} ({MARK_NAME}) is missing: {because}.",
        code="repository-descriptor-missing",
        action=f"Put it back, then run this again: {_init(place)}",
        repository=place.url,
    )


def _mark(place: Place) -> RepositoryDescriptor | None:
    try:
        content = place.blobs.get(MARK_NAME)
    except NotFound:
        return None
    return _decoded(place, content)


def _usable_mark(place: Place) -> tuple[RepositoryDescriptor | None, Pointed | None]:
    """The mark, or the damaged one that is in its place, if any: the one document that is both a blob and a pointer."""
    found = place.pointers.read(MARK_NAME)
    if found is None:
        return None, None
    try:
        return _decoded(place, found.content), None
    except Corrupted:
        return None, found


def _decoded(place: Place, content: bytes) -> RepositoryDescriptor:
    try:
        found = MARK.decode(content)
    except Invalid as error:
        if MARK.seal_holds(content):  # of a version that this release does not know
            error.context.setdefault("repository", place.url)
            raise
        raise Corrupted(
            f"The mark of the repository at {place.url} ({MARK_NAME}) is damaged: {error.what}",
            code="repository-descriptor-damaged",
            action=f"Make it anew; it gets the id that heads and manifests carry: {_init(place)}",
            repository=place.url,
        ) from error
    if found.hash != HASH:
        raise Invalid(
            f"The repository at {place.url} names blobs by {found.hash}, and this release knows {HASH}.",
            code="format-unsupported",
            action=MARK.action,
            repository=place.url,
            expected=HASH,
            found=found.hash,
        )
    return found


def place_of(url: str, patience: Patience = PATIENT) -> Place:
    """The place that a URL names; nothing is asked of it yet.

    Args:
        url: of the place.
        patience: how long its server may let this process wait.

    Raises:
        Invalid: it names none.
        MissingExtra: it is in S3, and boto3 is not installed.
    """
    parts = urlsplit(url)
    if parts.scheme == "s3":
        from statecore.objectstore.s3 import S3Blobs
        from statecore.objectstore.s3_location import S3Location, make_client
        from statecore.objectstore.s3_pointers import S3Pointers
        from statecore.objectstore.s3_probe import probe as probe_s3

        location = S3Location.of_url(url)
        client = make_client(location, patience.attempts, patience.timeout)
        blobs, pointers = S3Blobs(location, client), S3Pointers(location, client)
        return Place(location.url, blobs, pointers, lambda: probe_s3(location, client))
    path = Path(unquote(parts.path))
    if parts.scheme != "file" or parts.netloc or parts.fragment or not path.is_absolute():
        raise Invalid(
            f"{url!a} names no place for a repository.",
            code="repository-url-invalid",
            action="Give s3://bucket/prefix, or file:///path of a directory that all machines share.",
            url=url,
        )
    if parts.query not in ("", _COPY):
        raise Invalid(
            f"{parts.query!a}: no such setting of a repository in a directory.",
            code="repository-url-invalid",
            action=f"Give {_COPY} behind the question mark, for copies instead of hard links, or nothing.",
            settings=[parts.query],
        )
    if path == Path("/") or (path.exists() and not path.is_dir()):
        raise Invalid(
            f"{path} is {'the root directory' if path == Path('/') else 'no directory'}, and no place for a "
            "repository.",
            code="repository-url-invalid",
            action="Name a directory; it is made where it is missing.",
            path=str(path),
        )
    sharing = Sharing.CLONES if parts.query else Sharing.ROOM
    given = path.as_uri() + (f"?{_COPY}" if parts.query else "")
    return Place(given, DirectoryBlobs(path, sharing), DirectoryPointers(path), lambda: _probe_directory(path))


def _probe_directory(path: Path) -> None:
    below = path / f"statecore-probe-{uuid.uuid4().hex}"
    try:
        probe(path.as_uri(), DirectoryBlobs(below), DirectoryPointers(below))
    finally:
        shutil.rmtree(below, ignore_errors=True)
