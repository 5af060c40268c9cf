"""What encryption costs: files put into a repository and downloaded again, with and without it, in S3 and a directory.

::

    python -m bench.encryption                512 MB in files of 64 MB, three rounds: some minutes, and 3 GB in TMPDIR
    python -m bench.encryption --megabytes 32 --rounds 1

Repositories with and without encryption take turns. The best round of each counts; CPU is that of this process alone,
the S3 server (``tests/harness/s3_server.py``) takes its own.
"""

from __future__ import annotations

import argparse
import base64
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.download import RemoteFile, download
from statecore.repository.object_store import with_key
from statecore.repository.publish.upload import LocalFile, hash_files, put_files
from statecore.repository.repository import create_repository
from tests.harness import s3_server
from tests.harness.s3_server import ACCESS, SECRET

MEGABYTE = 1_000_000
_FILE_BYTES = 64 * MEGABYTE


@dataclass(frozen=True)
class Cost:
    """One way through once.

    Attributes:
        wall: seconds.
        cpu: CPU seconds of this process.
    """

    wall: float
    cpu: float


def measured(work: Callable[[], object]) -> Cost:
    wall, cpu = time.monotonic(), time.process_time()
    work()
    return Cost(time.monotonic() - wall, time.process_time() - cpu)


def round_trip(url: str, files: Sequence[LocalFile], scratch: Path) -> tuple[Cost, Cost]:
    """Put files into a new repository, and download them."""
    create_repository(url)
    application = ApplicationRepository.open(url, "bench")
    os.sync()
    put = measured(lambda: put_files(application.blobs, application.names, files))
    extents = put_files(application.blobs, application.names, files)
    remote = [RemoteFile(file.sha256, extent, "a file") for file, extent in zip(files, extents, strict=True)]
    os.sync()
    try:
        return put, measured(lambda: download(application, remote, scratch / "downloaded"))
    finally:
        shutil.rmtree(scratch / "downloaded")


def table(megabytes: int, found: dict[tuple[str, bool], list[tuple[Cost, Cost]]]) -> str:
    """Megabytes a second of the best round, and CPU seconds a gigabyte."""
    lines = ["| | put, MB/s | CPU s/GB | download, MB/s | CPU s/GB |", "|---|---|---|---|---|"]
    for (place, is_encrypted), rounds in found.items():
        cells = [f"{place}, encrypted" if is_encrypted else place]
        for costs in zip(*rounds, strict=True):
            cells.append(f"{megabytes / min(one.wall for one in costs):,.0f}")
            cells.append(f"{min(one.cpu for one in costs) / megabytes * 1000:.1f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


@contextmanager
def _places(scratch: Path) -> Iterator[dict[str, Callable[[str], str]]]:
    """The URL of a new repository by its name, of each kind of place."""
    os.environ.update(AWS_ACCESS_KEY_ID=ACCESS, AWS_SECRET_ACCESS_KEY=SECRET)
    with s3_server.serving() as server:
        yield {
            "S3": lambda name: server.bucket("bench").below(name).url,
            "directory": lambda name: (scratch / name).as_uri() + "?copy=1",
        }


def _files(directory: Path, megabytes: int) -> list[LocalFile]:
    directory.mkdir()
    sizes = [min(_FILE_BYTES, megabytes * MEGABYTE - at) for at in range(0, megabytes * MEGABYTE, _FILE_BYTES)]
    paths = [directory / str(number) for number in range(len(sizes))]
    for path, size in zip(paths, sizes, strict=True):
        path.write_bytes(os.urandom(size))
    return list(hash_files(paths).values())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="What encryption of a repository costs.")
    parser.add_argument("--megabytes", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="statecore-bench-") as directory, _places(Path(directory)) as places:
        scratch, key = Path(directory), Path(directory) / "key"
        key.write_bytes(base64.b64encode(os.urandom(32)))
        key.chmod(0o600)
        files = _files(scratch / "files", given.megabytes)
        found: dict[tuple[str, bool], list[tuple[Cost, Cost]]] = {}
        for turn in range(given.rounds):
            for place, url_of in places.items():
                for is_encrypted in (False, True):
                    plain = url_of(f"{place}-{turn}-{is_encrypted}".lower())
                    url = with_key(plain, f"file:{key}") if is_encrypted else plain
                    found.setdefault((place, is_encrypted), []).append(round_trip(url, files, scratch))
        print(table(given.megabytes, found))


if __name__ == "__main__":
    main()
