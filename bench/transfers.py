"""Sending and bringing large files, each way warm and in turn: statecore, boto3's transfers, bare requests, the CRT.

::

    python -m bench.transfers                              4 files of 545 MiB (2 GB of state), 4 rounds, 3 minutes
    pip install awscrt; python -m bench.transfers          the AWS Common Runtime, boto3's other client, beside them
    python -m bench.transfers --write                      puts the table into bench/README.md

``bench.fetch`` measures what a user waits for, once, with whatever the page cache has by then. Here nothing but the
transfers is measured: the files and the objects are in the page cache before the clock starts, the order is turned
round with every round, and what is brought is forced to the disk by every way.

boto3 itself never takes the CRT to a server of one's own (it drops the endpoint), and its transfers take no
``IfNoneMatch``, without which two writers of one name overwrite each other. So the CRT is driven here as boto3 drives
it, with the endpoint put back, and sends without a condition. It is no dependency: nothing of statecore uses it.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.figures import put_between
from bench.plain import THREADS, get_objects, put_objects
from bench.process import machine
from statecore.filesystem import sync_tree
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.download import RemoteFile, download
from statecore.repository.manifest import Extent
from statecore.repository.repository import create_repository
from statecore.repository.upload import LocalFile, put_files
from tests.harness import s3_server
from tests.harness.s3_server import S3Server

BUCKET = "plain"
README = Path(__file__).with_name("README.md")


def main() -> int:
    """Send and bring the same files each way; print the medians."""
    parser = argparse.ArgumentParser(prog="python -m bench.transfers", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--files", type=int, default=4, help="files (default: 4)")
    parser.add_argument("--megabytes", type=int, default=545, help="MiB of each (default: 545)")
    parser.add_argument("--rounds", type=int, default=4, help="rounds, of which the medians count (default: 4)")
    parser.add_argument("--write", action="store_true", help="put the table into bench/README.md")
    given = parser.parse_args()
    os.environ.update(AWS_ACCESS_KEY_ID=s3_server.ACCESS, AWS_SECRET_ACCESS_KEY=s3_server.SECRET)
    with tempfile.TemporaryDirectory(prefix="statecore-bench-") as directory:
        scratch, server = Path(directory), S3Server(Path(directory) / "s3").start()
        try:
            files = [_random_file(scratch / f"file-{number}", given.megabytes << 20) for number in range(given.files)]
            found = _measured(server, files, scratch / "brought", given.rounds)
        finally:
            server.stop()
    size = given.files * (given.megabytes << 20)
    lines = [
        f"{machine()}; {given.files} files of {given.megabytes} MiB, medians of {given.rounds} rounds.",
        "",
        "| way | time | rate | CPU of the client |",
        "|---|---:|---:|---:|",
    ]
    lines += [
        f"| {name} | {seconds:.2f} s | {size / seconds / 1e6:,.0f} MB/s | {cpu:.2f} s |"
        for name, (seconds, cpu) in found.items()
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    if given.write:
        put_between(README, "transfers", text)
    return 0


def _random_file(path: Path, size: int) -> LocalFile:
    content = os.urandom(size)
    path.write_bytes(content)
    return LocalFile(path, sha256(content).hexdigest(), size)


def _measured(
    server: S3Server, files: Sequence[LocalFile], brought: Path, rounds: int
) -> dict[str, tuple[float, float]]:
    """Seconds, and CPU seconds of this process, of each way: the medians."""
    location = server.bucket("states").below("repository")
    server.bucket(BUCKET)
    create_repository(location.url)
    client = server.client()
    crt = None if find_spec("awscrt") is None else _crt(server.endpoint)
    spent: dict[str, list[tuple[float, float]]] = defaultdict(list)
    keys, paths = [(f"plain-{number}", file.bytes) for number, file in enumerate(files)], [file.path for file in files]

    def timed(ways: Sequence[tuple[str, Callable[[], Any]]], number: int) -> None:
        for name, work in ways if number % 2 == 0 else reversed(ways):
            shutil.rmtree(brought, ignore_errors=True)
            brought.mkdir()
            os.sync()
            cpu, began = _cpu(), time.monotonic()
            work()
            spent[name].append((time.monotonic() - began, _cpu() - cpu))

    for number in range(rounds):
        shelf = ApplicationRepository.open(location.url, f"round-{number}")
        extents: list[Extent] = []
        sent: list[tuple[str, Callable[[], Any]]] = [
            ("statecore, sent", lambda: extents.extend(put_files(shelf.blobs, shelf.names, files))),  # noqa: B023
            ("boto3's transfers, sent", lambda: _send(_classic(client), files)),
            ("boto3's bare requests, sent", lambda: put_objects(client, BUCKET, paths)),
        ]
        came: list[tuple[str, Callable[[], Any]]] = [
            ("statecore, brought", lambda: download(shelf, _wanted(files, extents), brought)),  # noqa: B023
            ("boto3's transfers, brought", lambda: _bring(_classic(client), files, brought)),
            ("boto3's bare requests, brought", lambda: get_objects(client, BUCKET, keys, brought)),
        ]
        if crt is not None:
            sent.append(("CRT, sent", lambda: _send(crt, files)))
            came.append(("CRT, brought", lambda: _bring(crt, files, brought)))
        timed(sent, number)
        timed(came, number)
        for blob in shelf.blobs.list(shelf.names.root):
            shelf.blobs.delete(blob.name)
    return {
        name: (statistics.median(one for one, _ in each), statistics.median(one for _, one in each))
        for name, each in spent.items()
    }


def _wanted(files: Sequence[LocalFile], extents: Sequence[Extent]) -> list[RemoteFile]:
    return [RemoteFile(file.sha256, extent, "A file") for file, extent in zip(files, extents, strict=True)]


def _crt(endpoint: str) -> Any:
    """boto3's manager of transfers by the CRT, at an endpoint."""
    import botocore.session
    from s3transfer import crt  # type: ignore[import-untyped]

    session = botocore.session.Session()
    credentials = crt.BotocoreCRTCredentialsWrapper(session.get_credentials()).to_crt_credentials_provider()
    client = crt.create_s3_crt_client("us-east-1", crt_credentials_provider=credentials, use_ssl=False)
    asking = {"region_name": "us-east-1", "endpoint_url": endpoint}
    return crt.CRTTransferManager(client, crt.BotocoreCRTRequestSerializer(session, asking))


def _classic(client: Any) -> Any:
    from boto3.s3.transfer import TransferConfig, create_transfer_manager

    return create_transfer_manager(client, TransferConfig(max_concurrency=THREADS, preferred_transfer_client="classic"))


def _send(manager: Any, files: Sequence[LocalFile]) -> None:
    for sent in [manager.upload(str(file.path), BUCKET, file.sha256) for file in files]:
        sent.result()


def _bring(manager: Any, files: Sequence[LocalFile], directory: Path) -> None:
    for came in [manager.download(BUCKET, file.sha256, str(directory / file.sha256)) for file in files]:
        came.result()
    sync_tree(directory)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())
