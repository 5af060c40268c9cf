"""Every implementation of the seam, each with a fresh place of its own."""

from __future__ import annotations

import atexit
import hashlib
import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from statecore.objectstore.base import Blobs
from statecore.objectstore.directory import DirectoryBlobs, DirectoryPointers, Sharing
from statecore.objectstore.encrypted import EncryptedBlobs, EncryptedPointers
from statecore.objectstore.frames import FrameCipher
from statecore.objectstore.pointers import Pointers
from statecore.objectstore.s3 import S3Blobs, S3Pointers
from statecore.objectstore.s3_location import S3Location
from tests.harness.http_blobs import BlobServer, HttpBlobs
from tests.harness.s3_server import ACCESS, REGION, SECRET, S3Server

_ENDPOINT, _BUCKET = "STATECORE_TESTS_S3", "conformance"


@cache
def _s3() -> S3Location:
    """A bucket of a real server, which the processes that this one starts use as well."""
    if _ENDPOINT not in os.environ:
        directory = tempfile.TemporaryDirectory(prefix="statecore-s3-")
        server = S3Server(Path(directory.name)).start()
        atexit.register(directory.cleanup)
        atexit.register(server.stop)
        server.bucket(_BUCKET)
        os.environ[_ENDPOINT] = server.endpoint
    os.environ.update(AWS_ACCESS_KEY_ID=ACCESS, AWS_SECRET_ACCESS_KEY=SECRET)
    return S3Location(_BUCKET, endpoint=os.environ[_ENDPOINT], region=REGION)


def _below(place: Path) -> S3Location:
    return _s3().below(hashlib.sha256(str(place).encode()).hexdigest()[:16])


@cache
def _cipher() -> FrameCipher:
    return FrameCipher(bytes(range(32)))


IMPLEMENTATIONS: dict[str, Callable[[Path], Blobs]] = {
    "directory": lambda place: DirectoryBlobs(place / "blobs"),
    "copying directory": lambda place: DirectoryBlobs(place / "blobs", Sharing.CLONES_ONLY),
    "http": lambda place: HttpBlobs(BlobServer(place / "blobs").port),  # ends with the process
    "s3": lambda place: S3Blobs(_below(place)),
    "encrypted directory": lambda place: EncryptedBlobs(DirectoryBlobs(place / "blobs"), _cipher),
    "encrypted s3": lambda place: EncryptedBlobs(S3Blobs(_below(place)), _cipher),
}

POINTERS: dict[str, Callable[[Path], Pointers]] = {
    "directory": lambda place: DirectoryPointers(place / "blobs"),
    "s3": lambda place: S3Pointers(_below(place)),
    "encrypted directory": lambda place: EncryptedPointers(DirectoryPointers(place / "blobs"), _cipher),
    "encrypted s3": lambda place: EncryptedPointers(S3Pointers(_below(place)), _cipher),
}
