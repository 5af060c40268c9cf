"""What boto3's other transfer client, the AWS Common Runtime (CRT), would save: the same files beside ours, one server.

::

    pip install awscrt                      it is no dependency: nothing of statecore uses it
    python -m bench.crt                     8 files of 64 MB, each way 4 times

boto3 itself never takes the CRT to a server of one's own (it drops the endpoint), and its transfers take no
``IfNoneMatch``, without which two writers of one name overwrite each other. So it is driven here as boto3 drives it,
with the endpoint put back, and sends without a condition. What it brings is forced to the disk, as what we bring is.
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
from pathlib import Path
from typing import Any

from bench.plain import THREADS
from bench.process import machine
from statecore.filesystem import sync_tree
from statecore.repository.download import Wanted, download
from statecore.repository.repository import make_repository
from statecore.repository.shelf import Shelf
from statecore.repository.upload import LocalFile, put_files
from tests.harness import s3_server
from tests.harness.s3_server import S3Server

BUCKET = "plain"


def main() -> int:
    """Send and bring the same files each way; print the medians."""
    parser = argparse.ArgumentParser(prog="python -m bench.crt", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--files", type=int, default=8, help="files (default: 8)")
    parser.add_argument("--megabytes", type=int, default=64, help="megabytes of each (default: 64)")
    parser.add_argument("--rounds", type=int, default=4, help="rounds, of which the medians count (default: 4)")
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
    print(f"{machine()}; {given.files} files of {given.megabytes} MiB, medians of {given.rounds} rounds.\n")
    print("| way | time | rate | CPU of the client |\n|---|---:|---:|---:|")
    for name, (seconds, cpu) in found.items():
        print(f"| {name} | {seconds:.2f} s | {size / seconds / 1e6:,.0f} MB/s | {cpu:.2f} s |")
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
    make_repository(location.url)
    manager, others = _crt(server.endpoint), server.client()
    spent: dict[str, list[tuple[float, float]]] = defaultdict(list)

    def timed(name: str, work: Callable[[], Any]) -> Any:
        os.sync()
        cpu, began = _cpu(), time.monotonic()
        result = work()
        spent[name].append((time.monotonic() - began, _cpu() - cpu))
        shutil.rmtree(brought, ignore_errors=True)
        brought.mkdir()
        return result

    for number in range(rounds):
        shelf = Shelf.at(location.url, f"round-{number}")
        timed("CRT, sent", lambda: _send(manager, files))
        timed("boto3's own, sent", lambda: _send(_classic(others), files))
        extents = timed("statecore, sent", lambda shelf=shelf: put_files(shelf.blobs, shelf.names, files))
        wanted = [Wanted(file.sha256, extent, "A file") for file, extent in zip(files, extents, strict=True)]
        timed("CRT, brought", lambda: _bring(manager, files, brought))
        timed("boto3's own, brought", lambda: _bring(_classic(others), files, brought))
        timed("statecore, brought", lambda shelf=shelf, wanted=wanted: download(shelf, wanted, brought))
    return {
        name: (statistics.median(one for one, _ in each), statistics.median(one for _, one in each))
        for name, each in spent.items()
    }


def _crt(endpoint: str) -> Any:
    """boto3's manager of transfers by the CRT, at an endpoint."""
    import botocore.session
    from s3transfer import crt

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
