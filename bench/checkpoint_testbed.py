"""A broker and an S3 server behind relays that count bytes, and the cost of work on them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.changelog import ChangelogSize, extend, fill, start_broker
from bench.checkpoint_figures import Work
from bench.process import Cost
from bench.relay import Relay
from bench.restoring import ENGINES, run, write_spec
from bench.s3_request_log import RequestLog
from bench.streams import STORE, changelog_topic, create_source
from statecore.repository.repository import create_repository
from tests.harness import s3_server
from tests.harness.s3_server import S3Server

STORES = {STORE: {"kind": "timestamped-key-value"}}


@dataclass(frozen=True)
class Testbed:
    """Where all of it happens.

    Attributes:
        servers: ``host:port`` of the broker itself.
        to_broker: the way to it.
        server: the S3 server, whose endpoint is the way to it.
        to_store: that way.
        scratch: a directory for everything else.
    """

    servers: str
    to_broker: Relay
    server: S3Server
    to_store: Relay
    scratch: Path

    @property
    def log(self) -> Path:
        """What the S3 server prints."""
        return self.server.root / "server.log"

    def repository(self, bucket: str) -> str:
        """The URL of a new repository."""
        url = self.server.bucket(bucket).below("states").url
        create_repository(url)
        return url

    def measured(self, work: Callable[[], tuple[Cost, dict[str, Any]]]) -> Work:
        """What something takes of the machine, the broker and the object store.

        Args:
            work: does it; its cost and its report.
        """
        asked, broker, store = RequestLog(self.log), self.to_broker.moved(), self.to_store.moved()
        cost, report = work()
        broker, store = self.to_broker.moved() - broker, self.to_store.moved() - store
        records = int(report["totals"]["records"])
        return Work(cost.wall, cost.cpu, records, broker.came, store.sent, store.came, asked.counts(), report["phases"])


@dataclass(frozen=True)
class Application:
    """An application of one store in four partitions, whose changelog the benchmark writes.

    Attributes:
        testbed: broker and S3 server.
        name: its id.
        size: of the changelog as it was at first.
        spec: its ``stores.yaml``.
    """

    testbed: Testbed
    name: str
    size: ChangelogSize
    spec: Path

    @staticmethod
    def filled(testbed: Testbed, name: str, records: int) -> Application:
        """One with so many records."""
        size = ChangelogSize(records)
        create_source(testbed.servers, name)
        fill(testbed.servers, changelog_topic(name), size)
        spec = write_spec(testbed.scratch / f"{name}.yaml", testbed.to_broker.address, name, STORES)
        return Application(testbed, name, size, spec)

    def change(self, records: int, seed: int) -> None:
        """Write so many more, of keys as they are there."""
        size = ChangelogSize(records, seed=seed, whole=self.size.records)
        extend(self.testbed.servers, changelog_topic(self.name), size)

    def rebuilt(self, url: str) -> Work:
        """A restore of the whole changelog, published as a snapshot, and nothing placed."""
        options = ("--spec", str(self.spec), "--repository", url, "--from", "none", *ENGINES["processes"])
        return self.testbed.measured(lambda: run("restore", *options))

    def checkpoint(self, url: str) -> Work:
        """A checkpoint, by a process of its own."""
        options = ("--spec", str(self.spec), "--repository", url, *ENGINES["processes"])
        return self.testbed.measured(lambda: run("checkpoint", *options))


@contextmanager
def testbed(scratch: Path) -> Iterator[Testbed]:
    """A broker and an S3 server, until the end; their credentials are in the environment meanwhile."""
    # Whoever is started finds them as on any machine, and nothing else that boto3 would look at.
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    os.environ.update(AWS_ACCESS_KEY_ID=s3_server.ACCESS, AWS_SECRET_ACCESS_KEY=s3_server.SECRET)
    with ExitStack() as stack:
        to_broker, to_store = Relay(), Relay()
        for relay in (to_broker, to_store):
            stack.callback(relay.stop)
        server = S3Server(scratch / "s3").start()
        stack.callback(server.stop)
        to_store.start(server.endpoint.removeprefix("http://"))
        server.endpoint = f"http://{to_store.address}"
        broker = start_broker(scratch / "broker", advertised_listeners=f"BROKER://{to_broker.address}")
        stack.callback(broker.stop)
        to_broker.start(broker.bootstrap_servers)
        yield Testbed(broker.bootstrap_servers, to_broker, server, to_store, scratch)
