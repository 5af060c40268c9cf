"""Makes the golden task directories of older versions of Kafka Streams, as they lie on the disk after a clean close.

``python -m tests.golden.make_older`` fetches each version's jars (``tests.harness.jars``), runs ``two_stores`` on it
under exactly-once against the broker of the normal version, and writes
``tests/golden/kafka-streams-<version>-task.tar.gz``: task ``0_1``, with its RocksDB directories, ``.checkpoint`` and
the ``.position`` of each store.

What both hold: 20 records in two portions, each a transaction of its own, so that the changelog is
``10 records, marker, 10 records, marker`` and the last applied offset 20; keys 0 to 8 with the values of the second
portion, and no key 9, which the second portion deletes.

The archive is packed the same way each time (names sorted, one time, one owner, RocksDB's own log and lock left out).
Its content still differs from run to run: RocksDB writes identities and times of its own into its files.
"""

from __future__ import annotations

import gzip
import io
import sys
import tarfile
import tempfile
from pathlib import Path

from statecore.formats.checkpoint import decode_checkpoint
from tests.golden.make import HERE, KEEPS
from tests.harness import topics
from tests.harness.applications import two_stores
from tests.harness.broker import Broker
from tests.harness.streams import StreamsApplication, StreamsFailed, StreamsJvm
from tests.harness.topics import Record

APPLICATIONS = {"3.9.1": "old391", "4.2.0": "old420"}
"""Version and application id. 3.9 is the last of its major version, 4.2 the last with offsets beside the stores."""

TASK = "0_1"
TIME = 1_357_034_400_000
"""Time of the first record: 2013-01-01 10:00 UTC."""

_PARTITION = 1
_KEYS = 10
_LAST_OFFSET = 20
_COMMIT_INTERVAL_MS = 10_000  # so that hardly ever one falls into a portion: each is to be one transaction
_MODIFIED = 1_700_000_000
_LEFT_OUT = {"LOCK", "LOG"}


class OlderApplication(StreamsApplication):
    """Closed as every version of Kafka Streams can be: those before 4.2 have other options, or none."""

    def close(self, timeout: float = 30.0) -> None:
        """Closes it cleanly; it stays a member of its group until its session ends."""
        if not self._streams.close(self.jvm.jvm.java.time.Duration.ofMillis(int(timeout * 1000))):
            raise StreamsFailed(f"{self.application_id} did not close in {timeout} s:\n{self.jvm.log_tail()}")


def portions() -> list[list[Record]]:
    """The input: every key, then every key again, the last one deleted."""
    made = []
    for turn in range(2):
        numbers = range(turn * _KEYS, (turn + 1) * _KEYS)
        made.append([Record(b"key-%d" % (n % _KEYS), b"v%d" % n, _PARTITION, TIME + n) for n in numbers])
    made[-1][-1] = Record(b"key-%d" % (_KEYS - 1), None, _PARTITION, TIME + 2 * _KEYS - 1)
    return made


def make(broker: Broker, base: Path, version: str) -> bytes:
    """Runs one version and returns its archive."""
    servers, application_id = broker.bootstrap_servers, APPLICATIONS[version]
    source = f"{application_id}-in"
    topics.create(servers, source, 2)
    with StreamsJvm(base / f"streams-{version}.log", streams_version=version) as jvm:
        application = OlderApplication(
            jvm, application_id, servers, base / "state", two_stores(source), commit_interval_ms=_COMMIT_INTERVAL_MS
        )
        with application:
            for portion in portions():
                topics.produce(servers, source, portion, linger_ms=200)  # one batch: it is read at once
                topics.wait_until_consumed(servers, application_id, [source])
    task = application.directory / TASK
    found = decode_checkpoint((task / ".checkpoint").read_bytes(), "")
    if set(found.values()) != {_LAST_OFFSET}:
        raise RuntimeError(f"a portion was cut into two transactions, run it again: {found}")
    return pack(task)


def pack(task: Path) -> bytes:
    """The directory as a ``.tar.gz``, the same bytes for the same files."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile("", "wb", fileobj=packed, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for path in sorted([task, *task.rglob("*")]):
            if path.name in _LEFT_OUT or path.name.startswith("LOG.old"):
                continue
            entry = archive.gettarinfo(path, str(path.relative_to(task.parent)))
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mtime = _MODIFIED
            entry.mode = 0o755 if path.is_dir() else 0o644
            archive.addfile(entry, io.BytesIO(path.read_bytes()) if path.is_file() else None)
    return packed.getvalue()


def main() -> None:
    """Makes every archive."""
    with tempfile.TemporaryDirectory(prefix="statecore-golden-") as scratch:
        base = Path(scratch)
        with Broker(base / "broker", settings=KEEPS) as broker:
            for version in APPLICATIONS:
                target = HERE / f"kafka-streams-{version}-task.tar.gz"
                target.write_bytes(make(broker, base, version))
                print(f"{target.name}: {target.stat().st_size} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
