"""``Blobs``, the interface of immutable objects in a directory or an object store.

A blob is bytes under a name, written once and never changed; a damaged one may be replaced by its original content.
Requirements on every implementation, checked by one conformance suite (``tests/unit/objectstore/test_conformance.py``):

**Names** are one or more parts separated by ``/``; a part is not empty, not ``.`` or ``..``, and has only letters,
digits and ``._=@+-``, up to 249 of them: as many as a topic's name may have, and more than a store's. Others are
refused as ``Invalid`` before anything is done. A name that is the directory of another (``a`` and ``a/b``) MUST NOT be
used; object stores would accept it and directories cannot.

**Atomic.** A blob MUST be visible whole or not at all, to all readers, whatever fails meanwhile. Of several concurrent
puts of one name exactly one MUST win, and the others are told that the blob exists.

**Durable.** When ``put_if_absent`` has returned, the blob and its name MUST survive a power loss. So a blob that is put
last and names others marks a group of them as complete.

**Consistent.** After a put, ``get``, ``head`` and ``list`` of all clients MUST find the blob at once; after a delete
they MUST NOT.

**Errors.** ``NotFound``: there is no such blob. ``Invalid``: an invalid name or range, or missing permissions; a retry
cannot help. ``Capacity``: no space left. ``Retryable``: everything else. Damage is detected by callers that know the
hash: no implementation inspects blobs.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from statecore.errors import Invalid
from statecore.objectstore.checksum import Checksum
from statecore.objectstore.content import Content

LONGEST_PART = 249
"""Characters of the longest part of a name."""

_PART = re.compile(rf"(?!\.{{1,2}}\Z)[A-Za-z0-9._=@+-]{{1,{LONGEST_PART}}}")


class Blob(NamedTuple):
    """An entry of a listing.

    Attributes:
        modified: when it was put, in seconds since the epoch, by the clock of the object store.
        checksum: of its bytes when they were put; ``None`` if the object store has none, and in listings.
        is_archived: whether the object store says that it was moved to an archive, so that a read may be refused.
    """

    name: str
    size: int
    modified: float
    checksum: Checksum | None = None
    is_archived: bool = False


RESTORE_ARCHIVED = (
    "Restore the archived objects in the object store, copy them to a storage class that is read at once, and remove "
    "the lifecycle rule that archives them. Nothing is lost: neither forget nor publish anything because of it."
)
"""What to do about blobs that are archived."""


class RetryPolicy(NamedTuple):
    """Retries and timeouts of requests to a server; a directory ignores them.

    Attributes:
        attempts: maximum number of times a request is sent.
        timeout: seconds without data after which an answer counts as lost.
    """

    attempts: int = 8
    timeout: float = 60.0


DEFAULT_RETRIES = RetryPolicy()
"""For a job that has hours of work to lose."""

SCHEDULED_RETRIES = RetryPolicy(attempts=5, timeout=20.0)
"""For a job by schedule, which holds a slot that others wait for: 100 s of silence, and the pauses between."""

SHORT_RETRIES = RetryPolicy(attempts=2, timeout=10.0)
"""For what only looks, and can look again: 20 s of silence."""


class Blobs(ABC):
    """Blobs by name; the module lists the requirements on each method.

    Attributes:
        is_local: whether its bytes are on a file system of this machine, so that to read them costs no request.
    """

    is_local: bool = False

    @abstractmethod
    def put_if_absent(self, name: str, content: Content) -> bool:
        """Store bytes, or a finished local file, under a name.

        A file is not changed and stays where it is; do not write to it afterwards, because a directory on the same file
        system may keep it as a hard link.

        Returns:
            Whether it was put; ``False`` if a blob of that name exists, whatever it contains.
        """

    def replace(self, name: str, content: Content) -> None:
        """Overwrite a damaged blob, or create it.

        Of several concurrent calls any may be the last, so all MUST have the same bytes: only a blob named by its hash
        may be replaced. Readers see the old blob or the new one; only an implementation that cannot do that shows none
        for a moment.
        """
        while not self.put_if_absent(name, content):
            self.delete(name)

    @abstractmethod
    def get(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        """The bytes of a blob from ``start`` to before ``end``, or to its end; fewer if it is shorter."""

    @abstractmethod
    def head(self, name: str) -> Blob:
        """Metadata of one blob, with its checksum."""

    @abstractmethod
    def list(self, prefix: str = "") -> Iterator[Blob]:
        """All blobs whose name begins with ``prefix``, in byte order of their names.

        What others have put may be among them, under names that no blob may have.
        """

    def directories(self, above: str) -> Iterator[str]:
        """The distinct next parts of names that begin with ``above/`` and continue after that part, in no order."""
        yield from dict.fromkeys(
            rest.split("/")[0]
            for blob in self.list(f"{checked_name(above)}/")
            if "/" in (rest := blob.name.removeprefix(f"{above}/"))
        )

    @abstractmethod
    def delete(self, name: str) -> None:
        """Delete a blob, if it exists. A concurrent reader gets all of it, or ``NotFound``."""

    def delete_all(self, names: Sequence[str]) -> None:
        """Delete up to a thousand blobs, if they exist. After an error some of them may be deleted."""
        for name in names:
            self.delete(name)

    def delete_leftovers(self, before: float, *, apply: bool = True) -> Sequence[int]:  # noqa: ARG002
        """Delete what killed writers have left that is no blob, and was last written to before a time.

        Returns:
            The bytes of each; of a store that hides such things, or deletes them by itself, none.
        """
        return []

    def keeps_versions(self) -> bool:
        """Whether a deleted blob is only hidden, and its bytes stay; false where the store does not tell."""
        return False

    @abstractmethod
    def local_path(self, name: str) -> Path | None:
        """A local file that is the blob, to be linked or read and never written to; ``None`` if there is none."""

    def checksum_of(self, name: str, content: Content, part: int) -> Checksum:  # noqa: ARG002
        """The checksum, by parts of ``part`` bytes, that :meth:`head` gives if the blob has this content."""
        return Checksum.of(content, part)

    def hash_in_name(self, sha256: str) -> str:
        """What the name of a blob has in place of the SHA-256 of its content; another text if that is secret."""
        return sha256


def is_name(name: str) -> bool:
    """Whether a blob may have this name."""
    return isinstance(name, str) and all(map(_PART.fullmatch, name.split("/")))


def checked_name(name: str) -> str:
    if not is_name(name):
        raise Invalid(
            f"{name!a} is not a valid blob name.",
            code="blob-name-invalid",
            action="Use letters, digits and ._=@+- in parts of up to 249, with / between them.",
            value=ascii(name),
        )
    return name


def checked_range(start: int, end: int | None) -> None:
    if start < 0 or (end is not None and end < start):
        raise Invalid(
            f"Bytes {start} to {end} are not a valid range.",
            code="byte-range-invalid",
            action="Give 0 <= start <= end.",
            start=start,
            end=end,
        )
