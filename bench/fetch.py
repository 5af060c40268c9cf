"""What a repository costs, and what it saves: publish and fetch beside Kafka Streams' own restore and boto3 alone.

::

    python -m bench.fetch                             0.2, 1 and 2 GB of state: an hour, and 25 GB of disk in TMPDIR
    python -m bench.fetch --sizes 0.02                a quick look
    python -m bench.fetch --json                      all figures of all rounds
    python -m bench.fetch --write                     puts the tables into bench/README.md

The state is that of a timestamped key-value store in four partitions, 16 + 100 bytes a row, and ten records a row in
its changelog. One after another, on one broker and one S3 server (``tests/harness/s3_server.py``), are measured:

- Kafka Streams' own restore with two threads;
- ``statecore restore`` by two processes without a repository, with one in a directory, and with one in S3;
- ``put_files`` of the snapshot's files, and what boto3 alone takes to send them (``bench.boto3_baseline``);
- ``statecore fetch`` into an empty directory, Kafka Streams on what it placed, and what boto3 alone takes to bring the
  same blobs.

Before that, the requests are counted that a small snapshot takes in 4 and in 100 store partitions. Everything is
deleted when it was measured. What is written is forced to the disk before the next is measured; the objects lie in the
page cache for all who read them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.boto3_baseline import get_objects, put_objects, upload_files
from bench.changelog import ChangelogSize, fill, start_broker
from bench.fetch_figures import GIGABYTE, Requests, Round, requests_of, requests_table, size_tables
from bench.figures import put_between
from bench.process import ProcessTree, checked, measure, surroundings
from bench.restore import Filled, Setting, streams
from bench.restoring import ENGINES, Restored, fetch, restore, run, write_spec
from bench.s3_request_log import RequestLog
from bench.shapes import KEY_BYTES, WHOLE, Shape
from bench.small import Case, fill_case
from bench.streams import LONGEST, STORE, changelog_topic, create_source, source_topic
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.manifest import Extent
from statecore.repository.publish.upload import LocalFile, put_files
from statecore.repository.repository import create_repository
from tests.harness import s3_server, topics
from tests.harness.s3_server import S3Server

README = Path(__file__).with_name("README.md")
SHAPE = Shape("ten records a key", overwrites=0.9)
SMALL_PARTITIONS = (4, 100)
"""Store partitions of the snapshots of which only the requests are counted."""
SMALL_RECORDS = 100
"""Records of each of them."""
_STORES = {STORE: {"kind": "timestamped-key-value"}}


@dataclass(frozen=True)
class Place:
    """Where all of it happens.

    Attributes:
        servers: ``host:port`` of the broker.
        server: the S3 server.
        scratch: a directory for everything else.
    """

    servers: str
    server: S3Server
    scratch: Path

    @property
    def log(self) -> Path:
        """What the S3 server prints."""
        return self.server.root / "server.log"

    @contextmanager
    def repository(self, bucket: str) -> Iterator[str]:
        """The URL of a new repository in S3, whose objects are deleted at the end."""
        location = self.server.bucket(bucket).below("states")
        create_repository(location.url)
        try:
            yield location.url
        finally:
            self.empty(bucket)

    def empty(self, bucket: str) -> None:
        """Delete all objects of a bucket."""
        client = self.server.client()
        for key, _ in keys_of(client, bucket):
            client.delete_object(Bucket=bucket, Key=key)

    @contextmanager
    def directory(self, name: str) -> Iterator[Path]:
        """A new directory, which is deleted at the end; before, what others wrote is forced to the disk."""
        path = self.scratch / name
        path.mkdir()
        os.sync()
        try:
            yield path
        finally:
            shutil.rmtree(path)


@dataclass
class Written:
    """Bytes that a process tree has written: to files, copies included, and to pipes."""

    bytes: int = 0


class WriteWatch(ProcessTree):
    """Notes what the tree has written (``wchar``, in which that of ended children is, once a parent has waited)."""

    def __init__(self, written: Written, root: int) -> None:
        self._written = written
        super().__init__(root)

    def looked(self, processes: Set[int]) -> None:
        """Add up what all that live have written by now."""
        self._written.bytes = max(self._written.bytes, sum(map(_written_by, processes)))


def _written_by(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except OSError:  # it has just ended
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("wchar:")), 0)


def main() -> int:
    """Run the benchmark, print the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.fetch", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sizes", default="0.2,1,2", help="gigabytes of state, with commas (default: 0.2,1,2)")
    parser.add_argument("--rounds", type=int, default=1, help="rounds of each size, of which the medians count")
    parser.add_argument("--json", action="store_true", help="print every figure of every round, and no tables")
    parser.add_argument("--write", action="store_true", help="put the tables into bench/README.md")
    given = parser.parse_args()
    try:
        sizes = [float(size) for size in given.sizes.split(",") if size]
    except ValueError as error:
        parser.error(str(error))
    # Whoever is started finds them as on any machine, and nothing else that boto3 would look at.
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    os.environ.update(AWS_ACCESS_KEY_ID=s3_server.ACCESS, AWS_SECRET_ACCESS_KEY=s3_server.SECRET)
    with tempfile.TemporaryDirectory(prefix="statecore-bench-") as directory:
        scratch = Path(directory)
        room = max((SHAPE.room(records_of(size)) for size in sizes), default=0)
        if room > shutil.disk_usage(scratch).free:
            parser.error(f"{scratch} needs room for {room / 2**30:.1f} GiB; set TMPDIR, or ask for smaller sizes")
        broker, server = start_broker(scratch / "broker"), S3Server(scratch / "s3")
        try:
            place = Place(broker.bootstrap_servers, server.start(), scratch)
            # First, because whoever runs first on a machine compiles kernels, which no size is to pay for.
            small = [row for partitions in SMALL_PARTITIONS for row in small_requests(place, partitions)]
            measured = {size: measure_size(place, size, given.rounds) for size in sizes}
        finally:
            server.stop()
            broker.stop()
    rounds = "one round" if given.rounds == 1 else f"medians of {given.rounds} rounds"
    text = f"{surroundings()}; {rounds}.\n\n{size_tables(measured)}\n{requests_table([*requests_of(measured), *small])}"
    if given.json:
        every = {f"{size:g}": [asdict(one) for one in of] for size, of in measured.items()}
        print(
            json.dumps(
                {"surroundings": surroundings(), "sizes": every, "small": [asdict(one) for one in small]}, indent=2
            )
        )
    else:
        print(text, flush=True)
    if given.write:
        put_between(README, "fetch", text)
    return 0


def records_of(size: float) -> int:
    """Records of a changelog of which so many gigabytes of keys and values are left."""
    rows = size * GIGABYTE / (KEY_BYTES + SHAPE.value_bytes)
    return max(1, round(rows / (1 - SHAPE.overwrites) / WHOLE)) * WHOLE


def measure_size(place: Place, size: float, rounds: int) -> list[Round]:
    """All rounds of one size, on a changelog that is made for them and deleted again."""
    records, application = records_of(size), f"bench-fetch-{size:g}"
    create_source(place.servers, application)
    seconds = fill(place.servers, changelog_topic(application), ChangelogSize(records, shape=SHAPE))
    say(f"{size:g} GB: {records:,} records produced in {seconds:.0f} s")
    at = Filled(Setting(records, shape=SHAPE), place.servers, application, place.scratch)
    found = [_round(place, at, f"{size:g}-gb-{turn}".replace(".", "-"), turn) for turn in range(rounds)]
    for topic in (changelog_topic(application), source_topic(application)):
        topics.delete(place.servers, topic)
    return found


def _round(place: Place, at: Filled, name: str, turn: int) -> Round:
    """All figures of one size, once."""
    own = streams(at, 2)
    say(f"{name}: Kafka Streams {own.without_startup:.1f} s")
    spec = write_spec(at.scratch / "stores.yaml", at.servers, at.application, _STORES)
    alone, written = _restored(place, at, spec)
    with place.directory("repository") as directory:
        create_repository(directory.as_uri())
        with place.directory("state") as state:
            in_directory, more = _restored(place, at, spec, directory.as_uri(), state)
            linked = shared_bytes(directory, state)
        files = snapshot_files(ApplicationRepository.open(directory.as_uri(), at.application), directory / "cut")
        sent = _sent(place, at.application, files, name, turn)
    with place.repository(name) as url:
        asked = RequestLog(place.log)
        in_s3, _ = _restored(place, at, spec, url)
        published_by = asked.counts()
        came: dict[str, Any] = {}
        steps: list[Callable[[], Mapping[str, Any]]] = [
            lambda: _fetched(place, at, url),
            lambda: {"get_objects": _plainly_brought(place, name, files)},
        ]
        for step in steps if turn % 2 == 0 else reversed(steps):
            came |= step()
    one = Round(
        records=at.setting.records,
        state_bytes=alone.state_bytes,
        files=len(files),
        file_bytes=sum(file.bytes for file in files),
        streams=own.without_startup,
        alone=alone.cost.wall,
        with_s3=in_s3.cost.wall,
        with_directory=in_directory.cost.wall,
        alone_mb=alone.cost.peak_mb,
        with_s3_mb=in_s3.cost.peak_mb,
        with_directory_mb=in_directory.cost.peak_mb,
        copied=more - written,
        linked=linked,
        published_by=published_by,
        **sent,
        **came,
    )
    say(f"{name}: {one}")
    return one


def _restored(
    place: Place, at: Filled, spec: Path, repository: str | None = None, into: Path | None = None
) -> tuple[Restored, int]:
    """A restore by two processes, and the bytes that they wrote; what it placed is deleted unless it was said where."""
    if into is None:
        with place.directory("state") as state:
            return _restored(place, at, spec, repository, state)
    options = [*ENGINES["processes"], *([] if repository is None else ["--repository", repository])]
    written = Written()
    found = restore(spec, into, *options, watch=partial(WriteWatch, written))
    if found.report["totals"]["records"] != at.setting.records:
        raise RuntimeError(f"statecore read {found.report['totals']['records']} records, not {at.setting.records}")
    say(f"restore, repository {repository}: {found.cost.wall:.1f} s, {found.report['phases']}")
    return found, written.bytes


def _sent(place: Place, application: str, files: Sequence[LocalFile], name: str, turn: int) -> dict[str, Any]:
    """Seconds of each way to send the files of a snapshot."""
    bucket, paths = f"{name}-sent", [file.path for file in files]
    location, client = place.server.bucket(bucket), place.server.client()
    create_repository(location.url)
    app_repository = ApplicationRepository.open(location.url, application)

    def publish() -> float:
        began = time.monotonic()
        put_files(app_repository.blobs, app_repository.names, files)
        return time.monotonic() - began

    ways: dict[str, Callable[[], float]] = {
        "put": publish,
        "put_objects": lambda: put_objects(client, bucket, paths),
        "upload_files": lambda: upload_files(client, bucket, paths),
    }
    found = {}
    for way in ways if turn % 2 == 0 else reversed(ways):
        os.sync()
        found[way] = ways[way]()
        place.empty(bucket)
    return found


def _fetched(place: Place, at: Filled, url: str) -> dict[str, Any]:
    """A fetch, and Kafka Streams on what it placed."""
    with place.directory("state") as state:
        asked = RequestLog(place.log)
        cost, report = fetch(url, at.application, state)
        fetched_by = asked.counts()
        command = [sys.executable, "-m", "bench.streams", "start", "--bootstrap-servers", at.servers]
        command += ["--application-id", at.application, "--state-dir", str(state), "--threads", "2"]
        started = json.loads(checked(measure(command, timeout=LONGEST)).stdout)
    return {
        "fetch": cost.wall,
        "inside": report["seconds"],
        "phases": report["phases"],
        "fetch_mb": cost.peak_mb,
        "started": started["restore_seconds"],
        "started_records": started["records"],
        "running": started["running_seconds"],
        "fetched_by": fetched_by,
    }


def _plainly_brought(place: Place, bucket: str, files: Sequence[LocalFile]) -> float:
    """Seconds that plain downloads of the blobs of a snapshot take."""
    client = place.server.client()
    keys = [(key, size) for key, size in keys_of(client, bucket) if "/files/" in key or "/packs/" in key]
    found, wanted = sum(size for _, size in keys), sum(file.bytes for file in files)
    if found != wanted:
        raise RuntimeError(f"the blobs of the snapshot have {found} bytes, and its files {wanted}")
    with place.directory("plain") as directory:
        return get_objects(client, bucket, keys, directory)


def small_requests(place: Place, partitions: int) -> Iterator[Requests]:
    """The requests of a snapshot of small store partitions: of the restores that publish it, and of its fetch."""
    case = Case(f"requests-{partitions}", f"{partitions} small store partitions", [STORE], partitions)
    fill_case(place.servers, case, partitions, SMALL_RECORDS)
    spec, application = case.spec(place.scratch, place.servers), case.application
    for alone in (False, True):
        with place.repository(f"small-{partitions}-{alone:d}") as url, place.directory("state") as state:
            options = ["--spec", str(spec), "--repository", url, *ENGINES["processes"]]
            asked = RequestLog(place.log)
            run("restore", *options, *([] if alone else ["--state-dir", str(state)]))
            nothing = ", nothing placed" if alone else ""
            yield Requests(f"restore with S3, {case.said}{nothing}", asked.counts())
            if alone:
                asked = RequestLog(place.log)
                fetch(url, application, state)
                yield Requests(f"fetch, {case.said}", asked.counts())
    topics.delete(place.servers, case.changelog(STORE))


def snapshot_files(app_repository: ApplicationRepository, cut: Path) -> list[LocalFile]:
    """The files of the newest snapshot of a repository in a directory, largest first.

    Args:
        app_repository: the snapshots.
        cut: where those are put that lie in packs.
    """
    newest = app_repository.head().newest
    if newest is None:
        raise RuntimeError(f"{app_repository.url} has no snapshot")
    cut.mkdir(exist_ok=True)
    found: dict[str, LocalFile] = {}
    for read in app_repository.task_manifests(app_repository.manifest(newest).value.task_manifests).values():
        for sha256, extent in (each for store in read.manifest.stores for each in store.extents):
            found[sha256] = LocalFile(_file_of(app_repository, extent, cut / sha256), sha256, extent.bytes)
    return sorted(found.values(), key=lambda file: -file.bytes)


def _file_of(app_repository: ApplicationRepository, extent: Extent, cut: Path) -> Path:
    path = app_repository.blobs.local_path(extent.blob)
    if path is not None and path.stat().st_size == extent.bytes:
        return path
    cut.write_bytes(app_repository.read(extent, "A file"))
    return cut


def shared_bytes(one: Path, other: Path) -> int:
    """Bytes of the files below a directory that lie below another one, too, as the same files."""
    there = {(status.st_dev, status.st_ino) for _, status in _files_below(other)}
    return sum(status.st_size for _, status in _files_below(one) if (status.st_dev, status.st_ino) in there)


def _files_below(directory: Path) -> Iterator[tuple[Path, os.stat_result]]:
    return ((path, path.stat()) for path in directory.rglob("*") if path.is_file())


def keys_of(client: Any, bucket: str) -> list[tuple[str, int]]:
    """Key and bytes of every object of a bucket."""
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket)
    return [(found["Key"], found["Size"]) for page in pages for found in page.get("Contents", ())]


def say(line: str) -> None:
    """Tell who waits."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
