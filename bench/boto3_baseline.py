"""Baseline of publish and fetch: boto3 alone uploads and downloads a snapshot's files with eight threads.

It is what publish and fetch are compared with, so it does what they must do for the same outcome and no more: what is
brought is written at its place and forced to the disk; nothing is hashed, named by what it holds, or sent on a
condition.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

THREADS = 8
PIECE = 8 << 20
"""Bytes of one request of a download; of a part of ``upload_file``, too, as boto3 has it."""


def put_objects(client: Any, bucket: str, files: Sequence[Path]) -> float:
    """Send each file as one object by one request, so many at once; the seconds that it took."""

    def put(number: int) -> None:
        with files[number].open("rb") as body:
            client.put_object(Bucket=bucket, Key=f"plain-{number}", Body=body)

    began = time.monotonic()
    with ThreadPoolExecutor(THREADS) as pool:
        for _ in pool.map(put, range(len(files))):
            pass
    return time.monotonic() - began


def upload_files(client: Any, bucket: str, files: Sequence[Path]) -> float:
    """Send each file as boto3's ``upload_file`` does, in parts, with so many threads for all; the seconds."""
    from boto3.s3.transfer import TransferConfig, create_transfer_manager

    began = time.monotonic()
    with create_transfer_manager(client, TransferConfig(max_concurrency=THREADS)) as manager:
        sent = [manager.upload(str(path), bucket, f"plain-{number}") for number, path in enumerate(files)]
        for one in sent:
            one.result()
    return time.monotonic() - began


def get_objects(client: Any, bucket: str, keys: Sequence[tuple[str, int]], directory: Path) -> float:
    """Bring objects in ranges, so many at once, write them and force them to the disk; the seconds.

    Args:
        client: a boto3 client.
        bucket: where they are.
        keys: key and bytes of each.
        directory: where they are brought; it is there, and empty.
    """
    pieces = [
        (number, start, min(size, start + PIECE))
        for number, (_, size) in enumerate(keys)
        for start in range(0, size, PIECE)
    ]

    def get(piece: tuple[int, int, int]) -> None:
        number, start, end = piece
        response = client.get_object(Bucket=bucket, Key=keys[number][0], Range=f"bytes={start}-{end - 1}")
        with closing(response["Body"]) as body:
            content = body.read()
        written = 0
        while written < len(content):
            written += os.pwrite(files[number].fileno(), content[written:] if written else content, start + written)

    def sync(file: Any) -> None:
        os.fsync(file.fileno())

    began = time.monotonic()
    with ExitStack() as stack, ThreadPoolExecutor(THREADS) as pool:
        files = [stack.enter_context((directory / str(number)).open("wb", buffering=0)) for number in range(len(keys))]
        for _ in pool.map(get, pieces):
            pass
        for _ in pool.map(sync, files):
            pass
    return time.monotonic() - began
