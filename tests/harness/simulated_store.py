"""An object store in memory that keeps the promises of the seam, and fails in all the ways that these leave open.

What fails, and how, is drawn from a seeded generator, so a seed is a run. Each request may

====================  =================================================================================================
fault                 what happens
====================  =================================================================================================
``refused``           a 5xx: nothing is done, ``Retryable``
``conflict``          a 409 to a write: nothing is done, ``Retryable``
``timeout``           a write is done, and its reply is lost: ``Retryable``
``late``              a write is still under way when its reply is given up: ``Retryable``, and it is done, under its
                      condition, some requests later
``truncated``         a read has fewer bytes than were asked for
``flipped``           a read has a wrong bit
``missing``           a blob that is there is not found, and is the next time
``stale``             a listing lacks what is new
``death``             the asking process dies, before the request or after it
====================  =================================================================================================

Where a reply is lost, a swap is unknown, as the protocol has it, or finds its own content and says so.
``missing`` and ``stale`` are more than the seam allows; there are servers that do it, and nothing may be lost then.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

from statecore.errors import Invalid, NotFound, Retryable
from statecore.objectstore.base import RESTORE_ARCHIVED, Blob, Blobs, checked_name, checked_range
from statecore.objectstore.checksum import Checksum
from statecore.objectstore.content import bytes_of, size_of
from statecore.objectstore.pointers import Pointers, PointerValue

WRITE_FAULTS = ("refused", "conflict", "timeout", "late", "death")
READ_FAULTS = ("refused", "flipped", "death")
GET_FAULTS = (*READ_FAULTS, "truncated", "missing")
HEAD_FAULTS = ("refused", "missing", "death")
LIST_FAULTS = ("refused", "stale", "death")


class Death(BaseException):
    """The asking process is dead: its memory is gone."""


@dataclass
class Storage:
    """What is kept, and outlives every process.

    Attributes:
        clock: seconds since the epoch.
        blobs: bytes and time by name.
        pointers: content by name.
        swapped: called with name and content when a pointer has another one.
        deleted: called with the name of a blob that was there.
        archived: names of blobs that are said to be archived.
        restored: those of them that can be read all the same.
    """

    clock: Callable[[], float] = lambda: 0.0
    blobs: dict[str, tuple[bytes, float]] = field(default_factory=dict)
    pointers: dict[str, bytes] = field(default_factory=dict)
    swapped: Callable[[str, bytes], None] = lambda _, __: None
    deleted: Callable[[str], None] = lambda _: None
    archived: set[str] = field(default_factory=set)
    restored: set[str] = field(default_factory=set)

    def put(self, name: str, content: bytes) -> bool:
        """Put a blob, if there is none of that name."""
        if name in self.blobs:
            return False
        self.blobs[name] = (content, self.clock())
        return True

    def replace(self, name: str, content: bytes) -> None:
        """Put a blob in the place of one, or of none."""
        self.blobs[name] = (content, self.clock())

    def delete(self, name: str) -> None:
        """Delete a blob, if there is one."""
        if self.blobs.pop(name, None) is not None:
            self.deleted(name)

    def swap(self, name: str, content: bytes, expected: str | None) -> str | None:
        """Replace a pointer that has the version."""
        now = self.pointers.get(name)
        if (None if now is None else version_of(now)) != expected:
            return None
        self.pointers[name] = content
        self.swapped(name, content)
        return version_of(content)


def version_of(content: bytes) -> str:
    """The version of a pointer with this content."""
    return sha256(content).hexdigest()[:16]


@dataclass
class Network:
    """The way to the storage, for all processes alike.

    Attributes:
        storage: what it leads to.
        chance: what faults are drawn from.
        rate: how probable it is that a request meets a fault.
        pause: called before each request: others may have their turn.
        met: how often each fault was met by each kind of request.
    """

    storage: Storage
    chance: Random
    rate: float = 0.0
    pause: Callable[[], None] = lambda: None
    met: Counter[tuple[str, str]] = field(default_factory=Counter)
    _under_way: list[Callable[[], Any]] = field(default_factory=list)

    def fault(self, request: str, possible: tuple[str, ...]) -> str:
        """The fault that a request meets; empty where it meets none."""
        self.pause()
        if self._under_way and self.chance.random() < 0.2:
            self._under_way.pop(self.chance.randrange(len(self._under_way)))()
        if self.chance.random() >= self.rate:
            return ""
        fault = self.chance.choice(possible)
        self.met[request, fault] += 1
        return fault

    def settle(self) -> None:
        """Let all that is still under way come to its end."""
        while self._under_way:
            self._under_way.pop(0)()

    def write(self, request: str, name: str, do: Callable[[], Any]) -> Any:
        """Do a write, or meet a fault."""
        fault = self.fault(request, WRITE_FAULTS)
        if fault in ("refused", "conflict"):
            raise _given_up(request, name)
        if fault == "late":
            self._under_way.append(do)
            raise _given_up(request, name)
        if fault == "death" and self.chance.random() < 0.5:
            raise Death
        done = do()
        if fault == "death":
            raise Death
        if fault == "timeout":
            if request == "swap" and done is not None and self.chance.random() < 0.5:
                return done  # sent again, refused, and found to be there
            raise _given_up(request, name)
        return done

    def read(self, request: str, name: str, possible: tuple[str, ...]) -> str:
        """The fault of a read that has to be seen to; others are raised."""
        fault = self.fault(request, possible)
        if fault == "refused":
            raise _given_up(request, name)
        if fault == "death":
            raise Death
        if fault == "missing":
            raise _none(name)
        return fault

    def damaged(self, content: bytes, fault: str) -> bytes:
        """What comes of some bytes on their way."""
        if not content:
            return content
        at = self.chance.randrange(len(content))
        if fault == "truncated":
            return content[:at]
        if fault == "flipped":
            return flipped(content, at * 8 + self.chance.randrange(8))
        return content


class SimulatedBlobs(Blobs):
    """Blobs behind a network that fails."""

    def __init__(self, network: Network) -> None:
        self._network = network

    @property
    def storage(self) -> Storage:
        """Where they are kept."""
        return self._network.storage

    def put_if_absent(self, name: str, content: bytes | Path) -> bool:
        """See :meth:`Blobs.put_if_absent`."""
        checked_name(name)
        if isinstance(content, Path) and not content.is_file():
            raise NotFound(
                f"There is no file {content} to be put.",
                code="upload-file-missing",
                action="Make it anew.",
                path=str(content),
            )
        data = bytes_of(content, 0, size_of(content))
        put = self._network.write("put", name, lambda: self._network.storage.put(name, data))
        return bool(put)

    def replace(self, name: str, content: bytes | Path) -> None:
        """See :meth:`Blobs.replace`."""
        data = bytes_of(content, 0, size_of(content))
        self._network.write("replace", checked_name(name), lambda: self._network.storage.replace(name, data))

    def get(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        """See :meth:`Blobs.get`."""
        checked_range(start, end)
        fault = self._network.read("get", checked_name(name), GET_FAULTS)
        storage = self._network.storage
        if name in storage.archived - storage.restored:
            raise Invalid(f"{name} is archived.", code="blob-archived", action=RESTORE_ARCHIVED, blob=name)
        return self._network.damaged(self._found(name)[0][start:end], fault)

    def head(self, name: str) -> Blob:
        """See :meth:`Blobs.head`."""
        self._network.read("head", checked_name(name), HEAD_FAULTS)
        content, modified = self._found(name)
        return Blob(name, len(content), modified, Checksum.of(content), name in self._network.storage.archived)

    def list(self, prefix: str = "") -> Iterator[Blob]:
        """See :meth:`Blobs.list`."""
        fault = self._network.read("list", prefix, LIST_FAULTS)
        storage = self._network.storage
        named = [(name, len(content), modified) for name, (content, modified) in storage.blobs.items()]
        if fault == "stale":
            named = named[: len(named) // 2]
        named += [(name, len(content), 0.0) for name, content in storage.pointers.items()]
        found = (Blob(*one) for one in sorted(named) if one[0].startswith(prefix))
        yield from (one._replace(is_archived=one.name in storage.archived) for one in found)

    def delete(self, name: str) -> None:
        """See :meth:`Blobs.delete`."""
        self._network.write("delete", checked_name(name), lambda: self._network.storage.delete(name))

    def local_path(self, name: str) -> None:
        """See :meth:`Blobs.local_path`; there is none."""
        self.head(name)

    def _found(self, name: str) -> tuple[bytes, float]:
        if name not in self._network.storage.blobs:
            raise _none(name)
        return self._network.storage.blobs[name]


class SimulatedDirectory(SimulatedBlobs):
    """Blobs that have files on this machine, and no checksums.

    Args:
        network: the way to them.
        directory: where the files are.
    """

    is_local = True

    def __init__(self, network: Network, directory: Path) -> None:
        super().__init__(network)
        self._directory = directory

    def head(self, name: str) -> Blob:
        """See :meth:`Blobs.head`."""
        return super().head(name)._replace(checksum=None)

    def local_path(self, name: str) -> Path:  # type: ignore[override]
        """See :meth:`Blobs.local_path`."""
        path = self._directory / sha256(name.encode()).hexdigest()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self._found(name)[0])
        return path


class SimulatedPointers(Pointers):
    """Pointers behind a network that fails."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def read(self, name: str) -> PointerValue | None:
        """See :meth:`Pointers.read`."""
        fault = self._network.read("read", checked_name(name), READ_FAULTS)
        content = self._network.storage.pointers.get(name)
        return None if content is None else PointerValue(self._network.damaged(content, fault), version_of(content))

    def swap(self, name: str, content: bytes, expected: str | None) -> str | None:
        """See :meth:`Pointers.swap`."""
        checked_name(name)
        done = self._network.write("swap", name, lambda: self._network.storage.swap(name, content, expected))
        return None if done is None else str(done)


def flipped(content: bytes, bit: int) -> bytes:
    """Some bytes, of which one bit is another."""
    at = bit // 8
    return content[:at] + bytes([content[at] ^ 1 << bit % 8]) + content[at + 1 :]


def all_flips(content: bytes) -> Iterator[bytes]:
    """Some bytes with each of their bits flipped, one at a time."""
    return map(flipped, itertools.repeat(content), range(len(content) * 8))


def _given_up(request: str, name: str) -> Retryable:
    return Retryable(f"The {request} of {name} had no reply.", code="object-store-unreachable", action="Try again.")


def _none(name: str) -> NotFound:
    return NotFound(f"There is no blob {name}.", code="blob-not-found", action="Check that this is the right location.")
