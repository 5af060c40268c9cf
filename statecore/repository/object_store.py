"""``ObjectStore``: the blobs and pointers at the URL of a repository, encrypted if the URL names a key.

URLs are ``s3://bucket/prefix`` (:mod:`statecore.objectstore.s3_location`) and ``file:///path``, a directory that all
machines share; with ``?copy=1`` no blob of it is a hard link of a file elsewhere
(:class:`statecore.objectstore.directory.Sharing`). ``encryption-key=...`` in the query of either says where the user's
key is (:mod:`statecore.objectstore.user_key`), and never the key itself.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from statecore.errors import Invalid, StatecoreError
from statecore.filesystem import file_id
from statecore.objectstore.base import DEFAULT_RETRIES, Blobs, RetryPolicy
from statecore.objectstore.directory import DirectoryBlobs, DirectoryPointers, Sharing
from statecore.objectstore.encrypted import EncryptedBlobs, EncryptedPointers
from statecore.objectstore.pointers import Pointers
from statecore.objectstore.probe import probe
from statecore.repository.encryption import NOT_ENCRYPTED, RepositoryKey, repository_key

_COPY = "copy=1"  # Query of a directory's URL: nothing in the repository is ever a hard link of a file elsewhere
_KEY = "encryption-key"  # Setting of a URL: where the user's key is


Place = tuple[str | int, ...]
"""Identifies a directory, or a bucket and prefix of a server; empty if it is not known, as of no directory yet."""


class ObjectStore(NamedTuple):
    """A place for blobs and pointers."""

    url: str  # the URL, as it can be given again
    blobs: Blobs
    pointers: Pointers
    probe: Callable[[], None]  # tests that it keeps what concurrent writers rely on
    key: RepositoryKey | None = None  # that of the data, where the URL says that they are encrypted
    place: Callable[[], Place] = lambda: ()  # identifies where they are, whatever options the URL has

    @property
    def url_without_key(self) -> str:
        """The URL without the place of the user's key, as a replica records it for everybody to read."""
        return _without_key(self.url)[0]

    def is_at(self, other: ObjectStore) -> bool:
        """Whether both are the same place, as far as that can be told."""
        place = self.place()
        return self.url_without_key == other.url_without_key or (bool(place) and place == other.place())


def object_store_of(url: str, retries: RetryPolicy = DEFAULT_RETRIES) -> ObjectStore:
    """The object store that a URL names; nothing is requested from it yet."""
    _check_characters(url)
    url, reference = _without_key(url)
    stored = _stored(url, retries)
    return stored if reference is None else _encrypted(stored, reference)


def _check_characters(url: str) -> None:
    """Refuse what a URL cannot have: Python leaves out a tab or a line end, and another place would be meant."""
    try:
        decoded = unquote(url, errors="strict")
    except UnicodeDecodeError:
        decoded = "\0"
    if "\0" in decoded or any(one < " " or one == "\x7f" for one in url):
        raise Invalid(
            f"{url!a} is not the URL of a repository: it has a character that cannot be in one.",
            code="repository-url-invalid",
            action="Give no tab or line end, and no % escapes of bytes that are no UTF-8 text.",
            url=ascii(url),
        )


def _without_key(url: str) -> tuple[str, str | None]:
    """A URL without the setting of the encryption key, and the setting."""
    parts = urlsplit(url)
    settings = parts.query.split("&")
    keys = [one.partition("=")[2] for one in settings if one.partition("=")[0] == _KEY]
    if len(keys) > 1:
        raise Invalid(
            f"The URL names {len(keys)} encryption keys.",
            code="repository-url-invalid",
            action=f"Give {_KEY} once.",
            settings=[_KEY],
        )
    rest = "&".join(one for one in settings if one.partition("=")[0] != _KEY)
    return (urlunsplit(parts._replace(query=rest)), unquote(keys[0])) if keys else (url, None)


def with_key(url: str, reference: str) -> str:
    """The URL of a repository, with another encryption key."""
    plain, _ = _without_key(url)
    return f"{plain}{'&' if '?' in plain else '?'}{_KEY}={quote(reference, safe=':/')}"


def _encrypted(stored: ObjectStore, reference: str) -> ObjectStore:
    url = with_key(stored.url, reference)
    key = repository_key(url, reference, stored.blobs)
    blobs = EncryptedBlobs(stored.blobs, key.cipher, NOT_ENCRYPTED)
    pointers = EncryptedPointers(stored.pointers, key.cipher, NOT_ENCRYPTED)
    return ObjectStore(url, blobs, pointers, stored.probe, key, stored.place)


def _stored(url: str, retries: RetryPolicy) -> ObjectStore:
    """The object store without encryption."""
    parts = urlsplit(url)
    if parts.scheme == "s3":
        from statecore.objectstore.s3 import S3Blobs, S3Pointers
        from statecore.objectstore.s3_location import S3Location, make_client, server_of
        from statecore.objectstore.s3_probe import probe as probe_s3

        location = S3Location.of_url(url)
        client = make_client(location, retries.attempts, retries.timeout)
        blobs, pointers = S3Blobs(location, client), S3Pointers(location, client)
        place = (server_of(client), location.bucket, location.prefix)
        return ObjectStore(location.url, blobs, pointers, lambda: probe_s3(location, client), place=lambda: place)
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
    return ObjectStore(
        given,
        DirectoryBlobs(path, sharing),
        DirectoryPointers(path),
        lambda: _probe_directory(path),
        place=lambda: _place_of(path),
    )


def _place_of(path: Path) -> Place:
    """Device and inode of a directory; empty if it is not there."""
    try:
        return file_id(path.stat())
    except OSError:
        return ()


def _probe_directory(path: Path) -> None:
    below = path / f"statecore-probe-{uuid.uuid4().hex}"
    try:
        probe(path.as_uri(), DirectoryBlobs(below), DirectoryPointers(below))
    except StatecoreError as error:
        what, action = (text.replace(str(below), str(path)) for text in (error.what, error.action))
        raise error.restated(what, action=action, directory=str(path)) from error
    finally:
        shutil.rmtree(below, ignore_errors=True)
