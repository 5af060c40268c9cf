"""Tests whether a location keeps the guarantees of blobs and pointers, before a repository is created there.

Some S3-compatible servers accept conditions and ignore them, some honour them only without concurrency; some file
systems have no locks. There, two writers silently destroy each other's work. So every guarantee is tested, with names
that are deleted afterwards. :mod:`.s3_probe` has the tests for S3 only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from statecore.errors import Invalid, NotFound, Retryable, StatecoreError
from statecore.objectstore.base import Blobs
from statecore.objectstore.pointers import Pointers

WRITERS, ROUNDS = 8, 12
"""Concurrent writer threads, and writes of each. An s3proxy, which checks a condition and then writes without a lock,
lost 14 to 31 of 100 swaps of eight writers."""

_SWAPS = 4
_MOST_TRIES = 300
"""Tries of one swap; if conditions are honoured, each lost one is another writer's, of whom there are few."""


def probe(place: str, blobs: Blobs, pointers: Pointers) -> None:
    """Test a location; blobs and pointers are below its own prefix."""
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
            "changed a blob although it refused the write",
            "read-after-refused-write",
        )
        ensure([blob.name for blob in blobs.list()] == ["once"], place, "does not list what was put", "list")
        first = pointers.swap("pointer", b"1", None)
        ensure(first is not None, place, "did not create a pointer", "pointer-create")
        found = pointers.read("pointer")
        ensure(
            found is not None and found == (b"1", first),
            place,
            "returned another version (ETag) than before",
            "stable-version",
        )
        ensure(
            pointers.swap("pointer", b"2", first) is not None,
            place,
            "rejected its own version (If-Match)",
            "known-version",
        )
        ensure(
            pointers.swap("pointer", b"3", first) is None,
            place,
            "replaced a pointer that had changed (If-Match)",
            "conditional-replace",
        )
        ensure(_creates_once(blobs), place, "let several concurrent writers create one blob", "concurrent-create")
        ensure(
            _replaces_atomically(pointers),
            place,
            "lost a change of one of several concurrent writers",
            "concurrent-replace",
        )
        ensure(_deletes(blobs), place, "did not delete a blob", "delete")
    finally:
        with suppress(StatecoreError):  # leftovers are small, and their names tell their origin
            for blob in blobs.list():
                blobs.delete(blob.name)


def ensure(holds: bool, place: str, otherwise: str, promise: str) -> None:
    """Raise unless a guarantee holds; the error's context names it."""
    if not holds:
        raise Invalid(
            f"{place} {otherwise}. Concurrent jobs would destroy each other's work there.",
            code="object-store-unsuitable",
            action="Use a location with conditional writes and checksums: AWS S3 guarantees them; versitygw 1.8.0 and "
            "local file systems passed this test.",
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


def _replaces_atomically(pointers: Pointers) -> bool:
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
    """Run ``work`` in several threads started simultaneously; raise the first error and stop the others."""
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
        for thread in threads:  # no puts during the cleanup
            thread.join()
    if failed:
        raise failed[0]
