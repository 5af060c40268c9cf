"""Whether a place keeps what blobs and pointers stand on, asked before a repository is made there.

Some servers that speak S3 take conditions and ignore them, and some keep them only when nobody else asks at the same
time; some file systems have no locks. On each of these, two writers destroy each other's work and nothing says so. So
every promise is put to the test, with names that are deleted afterwards. What only S3 has is in :mod:`.s3_probe`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from statecore.errors import Invalid, NotFound, Retryable, StatecoreError
from statecore.objectstore.base import Blobs
from statecore.objectstore.pointers import Pointers

WRITERS, ROUNDS = 8, 12
"""Threads that write at once, and how often each does. An s3proxy, which looks at a condition and then writes without a
lock, lost 14 to 31 of 100 swaps of eight writers."""

_SWAPS = 4
_MOST_TRIES = 300
"""Tries of one swap; where conditions are kept each that is lost is another writer's, of whom there are few."""


def probe(place: str, blobs: Blobs, pointers: Pointers) -> None:
    """Put a place to the test.

    Args:
        place: its name, for messages.
        blobs: its blobs, below a prefix of their own.
        pointers: its pointers, below the same.

    Raises:
        Invalid: a promise is not kept, which is said; or there is no right to something.
        Capacity, Retryable: the place is full, or cannot be reached.
    """
    try:
        ensure(blobs.put_if_absent("once", b"first"), place, "did not keep a blob", "put")
        ensure(
            not blobs.put_if_absent("once", b"second"),
            place,
            "replaced a blob that was there (If-None-Match)",
            "conditional-create",
        )
        ensure(
            blobs.get("once") == b"first",
            place,
            "changed a blob although it said that it did not",
            "read-after-refused-write",
        )
        ensure([blob.name for blob in blobs.list()] == ["once"], place, "does not list what was put", "list")
        first = pointers.swap("pointer", b"1", None)
        ensure(first is not None, place, "did not make a pointer", "pointer-create")
        found = pointers.read("pointer")
        ensure(
            found is not None and found == (b"1", first),
            place,
            "gives another version (ETag) than it gave before",
            "stable-version",
        )
        ensure(
            pointers.swap("pointer", b"2", first) is not None,
            place,
            "does not know its own version (If-Match)",
            "known-version",
        )
        ensure(
            pointers.swap("pointer", b"3", first) is None,
            place,
            "replaced a pointer that had changed (If-Match)",
            "conditional-replace",
        )
        ensure(_creates_once(blobs), place, "let several writers make one blob at the same time", "concurrent-create")
        ensure(
            _loses_nothing(pointers),
            place,
            "lost a change of one of several writers at the same time",
            "concurrent-replace",
        )
        ensure(_deletes(blobs), place, "did not delete a blob", "delete")
    finally:
        with suppress(StatecoreError):  # what stays is small, and says by its name what it was
            for blob in blobs.list():
                blobs.delete(blob.name)


def ensure(kept: bool, place: str, otherwise: str, promise: str) -> None:
    """Go on only where a promise was kept: the context of the error has its name.

    Raises:
        Invalid: it was not.
    """
    if not kept:
        raise Invalid(
            f"{place} {otherwise}. Jobs would destroy each other's work there.",
            code="object-store-unsuitable",
            action="Use a place that keeps conditional writes and checksums: AWS S3 promises to, versitygw 1.8.0 was "
            "seen to, and so was a local file system.",
            place=place,
            promise=promise,
        )


def _deletes(blobs: Blobs) -> bool:
    blobs.delete("once")
    try:
        blobs.get("once")
    except NotFound:
        return True
    return False


def _creates_once(blobs: Blobs) -> bool:
    won: list[int] = []

    def create(who: int, stop: threading.Event) -> None:
        for number in range(ROUNDS):
            if stop.is_set():
                return
            if blobs.put_if_absent(f"race/{number}", b"%d" % who):
                won.append(number)

    _at_once(create)
    return sorted(won) == list(range(ROUNDS))


def _loses_nothing(pointers: Pointers) -> bool:
    def count(who: int, stop: threading.Event) -> None:
        for number in range(_SWAPS):
            mine = b"%d-%d" % (who, number)
            for _ in range(_MOST_TRIES):
                if stop.is_set():
                    return
                found = pointers.read("counter")
                names = [] if found is None else found.content.split()
                if mine in names:  # also after a reply that was lost
                    break
                with suppress(Retryable):
                    pointers.swap("counter", b" ".join([*names, mine]), None if found is None else found.version)

    _at_once(count)
    found = pointers.read("counter")
    return found is not None and len(set(found.content.split())) == WRITERS * _SWAPS


def _at_once(work: Callable[[int, threading.Event], None]) -> None:
    """Have several threads begin something at the same moment; raises what one of them raised, and stops the others."""
    barrier, stop, failed = threading.Barrier(WRITERS), threading.Event(), list[BaseException]()

    def begin(who: int) -> None:
        try:
            barrier.wait()
            work(who, stop)
        except BaseException as error:
            failed.append(error)
            stop.set()

    threads = [
        threading.Thread(target=begin, args=(who,), name="statecore-probe", daemon=True) for who in range(WRITERS)
    ]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    finally:
        stop.set()
        for thread in threads:  # nobody puts anything while what is there is deleted
            thread.join()
    if failed:
        raise failed[0]
