"""Snapshots for tests, published as a job publishes them: files, task manifests, manifest, head."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

from statecore.documents import encode_json, parse_json
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.images.identity import image_identity
from statecore.images.model import Run, RunFormat
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.manifest import MANIFEST, StoredDatabase, StoredEnd, StoredRun, StoreSnapshot, TaskManifest
from statecore.repository.publish.publication import Publication, Published
from statecore.repository.publish.upload import LocalFile, put_files
from statecore.repository.repository import create_repository
from statecore.spec.model import ApplicationSpec
from statecore.spec.reader import read_spec

APPLICATION, STORE, TOPIC = "orders", "by-id", "orders-by-id-changelog"
READ_AT_MS = 1_700_000_000_000


def spec_of(application_id: str = APPLICATION) -> ApplicationSpec:
    """An application with one store."""
    return read_spec(
        f"application_id: {application_id}\nbootstrap_servers: localhost:9092\nprocessing_guarantee: at_least_once\n"
        f"subtopologies: {{0: {{stores: {{{STORE}: {{kind: key-value, changelog: {TOPIC}}}}}}}}}\n"
    )


class Publishing:
    """Publishes snapshots of an application of one store.

    Args:
        url: the repository, which is made where there is none.
        scratch: a directory for files.
        application_id: the application.

    Attributes:
        origin: what is said to make the next snapshots.
        first_second: when the first job began; each begins a minute after the one before.
    """

    def __init__(self, url: str, scratch: Path, application_id: str = APPLICATION) -> None:
        create_repository(url)
        self.app_repository = ApplicationRepository.open(url, application_id)
        self.spec = spec_of(application_id)
        self.origin = "restore"
        self.first_second = 1_700_000_000
        self._scratch = scratch
        self._numbers = count()

    def task_manifest(self, partition: int, end: int, *, content: bytes = b"", **changed: Any) -> TaskManifest:
        """A task whose store is one run up to an offset; the run's file is in the repository when this returns."""
        data = content or b"a run of %s %d up to %d" % (self.app_repository.application_id.encode(), partition, end)
        digest = sha256(data).hexdigest()
        file = self._scratch / digest
        file.write_bytes(data)
        (extent,) = put_files(
            self.app_repository.blobs, self.app_repository.names, [LocalFile(file, digest, len(data))]
        )
        run = Run(digest, RunFormat.SST, end, 0, 10, len(data), "0" * 32, "00", "ff", None, 0, end)
        identity = image_identity(
            StoreKind.KEY_VALUE, {None: (None, [run])}, {TopicPartition(TOPIC, partition): end - 1}
        )
        fields: dict[str, Any] = {
            "changelogs": (StoredEnd(TOPIC, partition, "a" * 32, end - 1, end, 0, end + 5, 3),),
            "isolation": "read_uncommitted",
            "read_at_ms": READ_AT_MS,
            "rows": end,
            "bytes": 10,
            "digest": "0" * 32,
            "databases": (StoredDatabase(None, (StoredRun(run, extent),)),),
            **changed,
        }
        store = StoreSnapshot(STORE, StoreKind.KEY_VALUE, identity, **fields)
        return TaskManifest(f"0_{partition}", (store,))

    def begin(self) -> Publication:
        """A job that has begun; the next one begins a minute later."""
        number = next(self._numbers)
        return Publication(
            self.app_repository,
            self.spec,
            request=f"request-{number}",
            origin=self.origin,
            clock=lambda: self.first_second + 60.0 * number,
            name=lambda: f"{number:08x}",
        )

    def publish(
        self,
        end: int,
        partitions: Sequence[int] = (0, 1),
        *,
        drops_other_tasks: bool = True,
        cluster_id: str = "",
        **changed: Any,
    ) -> Published:
        """Publish tasks up to an offset; brokers of a cluster were asked if an id is given."""
        job = self.begin()
        if cluster_id:
            job.check_cluster(cluster_id)
        done = job.publish(
            [self.task_manifest(partition, end, **changed) for partition in partitions],
            drops_other_tasks=drops_other_tasks,
        )
        assert done is not None
        return done

    def forge(self, snapshot: str, of: str, **changed: Any) -> str:
        """Put a manifest that is like another, but for some fields; its name."""
        document = parse_json(self.app_repository.blobs.get(self.app_repository.names.manifest(of)))
        name = self.app_repository.names.manifest(snapshot)
        forged = MANIFEST.sealed({**document, "snapshot": snapshot, **changed})
        assert self.app_repository.blobs.put_if_absent(name, encode_json(forged))
        return name


def flip(file: Path, at: int, bit: int = 0) -> None:
    """Turn one bit of a file, whatever else has links to it."""
    content = bytearray(file.read_bytes())
    content[at] ^= 1 << bit
    file.unlink()
    file.write_bytes(content)
