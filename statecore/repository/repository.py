"""A repository: a place for blobs and pointers with a mark that says what lies there.

::

    <url>/repository.json       the mark: format version, id, hash; made once by ``statecore init``, never changed

URLs are ``s3://bucket/prefix`` (:mod:`statecore.blobs.s3_location`) and ``file:///path``, a directory that all machines
share; with ``?copy=1`` no blob of it is a second name of a file elsewhere (:class:`statecore.blobs.directory.Sharing`).
The mark is put before anything else and looked for by whoever opens the place, so that a mistyped prefix is
``NotFound`` and not an empty repository, and a newer format is refused by name.
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

from statecore import __version__
from statecore.blobs.base import Blobs
from statecore.blobs.directory import DirectoryBlobs, Sharing
from statecore.blobs.directory_pointers import DirectoryPointers
from statecore.blobs.pointers import Pointers
from statecore.blobs.probe import probe
from statecore.documents import DocumentType
from statecore.errors import Invalid, NotFound

MARK_NAME = "repository.json"
"""The name of the mark's blob."""

HASH = "sha256"
"""What names blobs, and is compared when they are read."""

_COPY = "copy=1"
"""Of a repository in a directory: nothing in it is ever a second name of a file elsewhere."""


@dataclass(frozen=True)
class Mark:
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
    Mark,
    "Use the release of statecore that made the repository, or name another place.",
    is_open=True,
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
    mark: Mark


def open_repository(url: str) -> Repository:
    """The repository at a URL.

    Raises:
        NotFound: there is none.
        Invalid: the URL names no place; the place cannot be used; what is there is of another format.
        Retryable: the place cannot be reached.
    """
    place = place_of(url)
    found = _mark(place)
    if found is None:
        raise NotFound(
            f"There is no repository at {place.url}.",
            action=f"Check the URL, or make one there: statecore init --repository {shlex.quote(place.url)}",
            repository=place.url,
        )
    return Repository(place, found)


def make_repository(url: str) -> tuple[Repository, bool]:
    """Make a repository, if there is none.

    Returns:
        The repository, and whether it was made now.

    Raises:
        Invalid: the URL names no place; the place cannot be used, or does not keep what writers need to work at the
            same time; what is there is of another format.
        Capacity, Retryable: the place is full, or cannot be reached.
    """
    place = place_of(url)
    found = _mark(place)
    if found is not None:
        return Repository(place, found), False
    place.probe()
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    mark = Mark(str(uuid.uuid4()), HASH, now, __version__)
    made = place.blobs.put_if_absent(MARK_NAME, MARK.encode(mark))
    return (Repository(place, mark), True) if made else (open_repository(url), False)


def _mark(place: Place) -> Mark | None:
    try:
        found = MARK.decode(place.blobs.get(MARK_NAME))
    except NotFound:
        return None
    except Invalid as error:
        error.context.setdefault("repository", place.url)
        raise
    if found.hash != HASH:
        raise Invalid(
            f"The repository at {place.url} names blobs by {found.hash}, and this release knows {HASH}.",
            action=MARK.action,
            repository=place.url,
        )
    return found


def place_of(url: str) -> Place:
    """The place that a URL names; nothing is asked of it yet.

    Raises:
        Invalid: it names none.
        MissingExtra: it is in S3, and boto3 is not installed.
    """
    parts = urlsplit(url)
    if parts.scheme == "s3":
        from statecore.blobs.s3 import S3Blobs
        from statecore.blobs.s3_location import S3Location, make_client
        from statecore.blobs.s3_pointers import S3Pointers
        from statecore.blobs.s3_probe import probe as probe_s3

        location = S3Location.of_url(url)
        client = make_client(location)
        blobs, pointers = S3Blobs(location, client), S3Pointers(location, client)
        return Place(location.url, blobs, pointers, lambda: probe_s3(location, client))
    path = Path(unquote(parts.path))
    if parts.scheme != "file" or parts.netloc or parts.fragment or not path.is_absolute():
        raise Invalid(
            f"{url!a} names no place for a repository.",
            action="Give s3://bucket/prefix, or file:///path of a directory that all machines share.",
        )
    if parts.query not in ("", _COPY):
        raise Invalid(
            f"{parts.query!a}: no such setting of a repository in a directory.",
            action=f"Give {_COPY} behind the question mark, for copies instead of hard links, or nothing.",
        )
    if path == Path("/") or (path.exists() and not path.is_dir()):
        raise Invalid(
            f"{path} is {'the root directory' if path == Path('/') else 'no directory'}, and no place for a "
            "repository.",
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
