"""The seam between those who make and read blobs and wherever these are kept: a directory, or an object store.

A blob is bytes under a name, written once and never changed; one that is damaged may be replaced by what it was. What
every implementation MUST do, and one conformance suite holds (``tests/unit/objectstore/test_conformance.py``):

**Names** are one or more parts with ``/`` between them; a part is not empty, not ``.`` or ``..``, and has letters,
digits and ``._=@+-`` only, up to 249 of them: as many as a topic's name may have, and more than a store's. Others are
refused as ``Invalid`` before anything is done. A name that is the directory of another (``a`` and ``a/b``) MUST NOT be
used; object stores would take it and directories cannot.

**Atomic.** A blob MUST be seen whole or not at all, by everybody, whatever dies meanwhile. Of several who put one name
at the same time exactly one MUST win, and the others are told that the blob was there.

**Durable.** When ``put_if_absent`` has returned, the blob MUST survive the loss of power, its name as well. So a blob
that is put last, and names others, is the mark by which a group of them is complete.

**Consistent.** What was put MUST be found at once by ``get``, ``head`` and ``list`` of everybody; what was deleted MUST
NOT be.

**Errors.** ``NotFound``: there is no such blob. ``Invalid``: a name or range that cannot be, or missing rights; to try
again is in vain. ``Capacity``: no room. ``Retryable``: everything else. Damage is seen by who knows the hash: no
implementation looks into a blob.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from statecore.errors import Invalid
from statecore.objectstore.checksum import Checksum

_PART = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._=@+-]{1,249}")


class Blob(NamedTuple):
    """What a listing says of a blob.

    Attributes:
        name: its name.
        size: bytes.
        modified: when it was put, in seconds since the epoch, by the clock of whoever keeps it.
        checksum: of its bytes when they were put; ``None`` where whoever keeps it has none. A listing has none.
    """

    name: str
    size: int
    modified: float
    checksum: Checksum | None = None


class Patience(NamedTuple):
    """How long the server of a place may let a process wait; a directory has none.

    Attributes:
        attempts: how often a request is sent at most.
        timeout: seconds after which an answer of which nothing comes counts as lost.
    """

    attempts: int = 8
    timeout: float = 60.0


PATIENT = Patience()
"""That of a job that has hours of work to lose."""


class Blobs(ABC):
    """Blobs by name; see the module's text for what each method MUST do."""

    @abstractmethod
    def put_if_absent(self, name: str, content: bytes | Path) -> bool:
        """Keep bytes, or a finished file of this machine, under a name.

        A file is not changed and stays where it is; nobody may write into it afterwards, because a directory on its
        file system may keep it as a second name of the same bytes.

        Returns:
            Whether it was put; ``False`` when there is a blob of that name, whatever it holds.

        Raises:
            NotFound: there is no such file.
            Invalid, Capacity, Retryable: see the module's text; nothing was put.
        """

    def replace(self, name: str, content: bytes | Path) -> None:
        """Put bytes in the place of a blob that is damaged, or where there is none.

        Of several who do so at the same time any may be the last, so all of them MUST have the same bytes: a blob that
        is named by its hash may be replaced, and no other. Everybody sees the old blob or the new one; only an
        implementation that cannot do that shows none for a moment.

        Raises:
            NotFound: there is no such file.
            Invalid, Capacity, Retryable: see the module's text.
        """
        while not self.put_if_absent(name, content):
            self.delete(name)

    @abstractmethod
    def get(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        """The bytes of a blob from ``start`` to before ``end``, or to its end; fewer where it ends before.

        Raises:
            NotFound: there is no such blob.
            Invalid: ``start`` is negative, or ``end`` before it.
        """

    @abstractmethod
    def head(self, name: str) -> Blob:
        """What a listing would say of one blob, and its checksum.

        Raises:
            NotFound: there is no such blob.
        """

    @abstractmethod
    def list(self, prefix: str = "") -> Iterator[Blob]:
        """All blobs whose name begins with ``prefix``, in order of their names' bytes."""

    def directories(self, above: str) -> Iterator[str]:
        """What the next part can be in names that begin with ``above/`` and go on after it, each once, in no order.

        An implementation that can tell without looking at each blob should.

        Args:
            above: one or more parts of a name.
        """
        yield from dict.fromkeys(
            rest.split("/")[0]
            for blob in self.list(f"{checked_name(above)}/")
            if "/" in (rest := blob.name.removeprefix(f"{above}/"))
        )

    @abstractmethod
    def delete(self, name: str) -> None:
        """Delete a blob; none there is fine. Who reads it meanwhile gets all of it, or ``NotFound``."""

    @abstractmethod
    def local_path(self, name: str) -> Path | None:
        """A file of this machine that is the blob, to be linked or read and never written to; ``None`` without one.

        Raises:
            NotFound: there is no such blob.
        """


def checked_name(name: str) -> str:
    """The name, if it can be one.

    Raises:
        Invalid: it cannot.
    """
    if not isinstance(name, str) or not all(map(_PART.fullmatch, name.split("/"))):
        raise Invalid(
            f"{name!a} is no name of a blob.",
            code="blob-name-invalid",
            action="Use letters, digits and ._=@+- in parts of up to 249, with / between them.",
            value=ascii(name),
        )
    return name


def checked_range(start: int, end: int | None) -> None:
    """Refuse a range that cannot be.

    Raises:
        Invalid: it begins before 0, or ends before it begins.
    """
    if start < 0 or (end is not None and end < start):
        raise Invalid(
            f"A blob has no bytes from {start} to {end}.",
            code="byte-range-invalid",
            action="Give 0 <= start <= end.",
            start=start,
            end=end,
        )
