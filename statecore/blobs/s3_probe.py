"""Whether a server keeps what blobs and pointers stand on, asked before a repository is made there.

Some servers that speak S3 take conditions and ignore them, some keep them only when nobody else asks at the same time,
and some take bytes that are not what their checksum says. On each of these, two writers destroy each other's work and
nothing says so. So every promise is put to the test with objects that are deleted afterwards.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from statecore.blobs.s3 import S3Blobs
from statecore.blobs.s3_errors import s3_error, status_of
from statecore.blobs.s3_location import S3Location, make_client
from statecore.blobs.s3_pointers import S3Pointers
from statecore.errors import Invalid, StatecoreError

PREFIX = "statecore-probe"
"""Below it lie the objects of the probe."""

WRITERS, ROUNDS = 8, 12
"""Threads that write at once, and how often each does. An s3proxy, which looks at a condition and then writes without a
lock, lost 14 to 31 of 100 swaps of eight writers."""

_REFUSED = 400


def probe(location: S3Location, client: Any = None) -> None:
    """Put a server to the test.

    Args:
        location: where the repository is to be.
        client: a boto3 client; one is made.

    Raises:
        Invalid: the server does not keep a promise, which is said; or there is no such bucket, or no right to it.
        Retryable: it cannot be reached.
    """
    client = make_client(location) if client is None else client
    below = location.below(PREFIX, uuid.uuid4().hex)
    blobs, pointers = S3Blobs(below, client), S3Pointers(below, client)
    try:
        _ensure(blobs.put_if_absent("once", b"first"), location, "did not keep an object")
        _ensure(not blobs.put_if_absent("once", b"second"), location, "ignores If-None-Match: it replaced an object")
        _ensure(blobs.get("once") == b"first", location, "changed an object although it said that it did not")
        version = pointers.swap("pointer", b"1", None)
        _ensure(version is not None, location, "did not make an object under If-None-Match")
        _ensure(pointers.swap("pointer", b"2", version) is not None, location, "does not take its own ETag in If-Match")
        stale = pointers.swap("pointer", b"3", version)
        _ensure(stale is None, location, "ignores If-Match: it replaced an object that had changed")
        _ensure(_refuses_wrong_checksums(below, client), location, "takes bytes that are not what their checksum says")
        _ensure(_creates_once(blobs), location, "let several writers make one object at the same time")
        _ensure(_loses_nothing(pointers), location, "lost a change of one of several writers at the same time")
    finally:
        with suppress(StatecoreError):  # what stays is small, and says by its name what it was
            for blob in blobs.list():
                blobs.delete(blob.name)


def _ensure(kept: bool, location: S3Location, otherwise: str) -> None:
    if not kept:
        raise Invalid(
            f"The server of {location} {otherwise}. Two jobs would destroy each other's work there.",
            action="Use a server that keeps conditional writes and checksums: AWS S3 promises to, versitygw 1.8.0 was "
            "seen to. Or name a directory that all machines share.",
            location=str(location),
        )


def _refuses_wrong_checksums(location: S3Location, client: Any) -> bool:
    from botocore.exceptions import BotoCoreError, ClientError

    of = {"Bucket": location.bucket, "Key": location.key("damaged")}
    try:
        client.put_object(Body=b"some bytes", ChecksumCRC32="AAAAAA==", **of)
    except ClientError as error:
        if status_of(error) != _REFUSED:
            raise s3_error(location, "put", "damaged", error) from error
    except BotoCoreError as error:
        raise s3_error(location, "put", "damaged", error) from error
    else:
        return False
    try:
        client.head_object(**of)
    except ClientError as error:
        return status_of(error) == 404
    return False


def _creates_once(blobs: S3Blobs) -> bool:
    won = [0] * ROUNDS

    def create(who: int) -> None:
        for number in range(ROUNDS):
            if blobs.put_if_absent(f"race/{number}", b"%d" % who):
                won[number] += 1  # not atomic; but where only one wins nobody else adds to it

    _at_once(create)
    return won == [1] * ROUNDS


def _loses_nothing(pointers: S3Pointers) -> bool:
    def count(who: int) -> None:
        for number in range(ROUNDS // 3):
            while True:
                found = pointers.read("counter")
                now = 0 if found is None else int(found.content.split()[0])
                mine = b"%d by %d %d" % (now + 1, who, number)
                if pointers.swap("counter", mine, None if found is None else found.version) is not None:
                    break

    _at_once(count)
    found = pointers.read("counter")
    return found is not None and int(found.content.split()[0]) == WRITERS * (ROUNDS // 3)


def _at_once(work: Callable[[int], None]) -> None:
    """Have several threads begin something at the same moment; raises what one of them raised."""
    barrier, failed = threading.Barrier(WRITERS), list[BaseException]()

    def begin(who: int) -> None:
        try:
            barrier.wait()
            work(who)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=begin, args=(who,), name="statecore-probe") for who in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
