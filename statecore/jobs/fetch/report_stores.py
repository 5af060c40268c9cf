"""Build the report of a fetch from what it has placed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime

from statecore.images.model import StoreDigest
from statecore.jobs.attempt import moment, utc
from statecore.jobs.bases.base import Key
from statecore.jobs.fetch.digests import FetchedContents
from statecore.jobs.fetch.plan import FetchPlan
from statecore.jobs.fetch.report import FetchedStore, FetchReport
from statecore.jobs.fetch.select import Snapshots
from statecore.jobs.fetch.store_to_fetch import StoreToFetch
from statecore.jobs.job import Job
from statecore.jobs.pipeline.image_tasks import ImageResult
from statecore.repository.download import DownloadResult

NOTHING_DOWNLOADED = DownloadResult(0, 0, 0, 0)


def fetch_report(
    job: Job,
    snapshots: Snapshots,
    contents: FetchedContents,
    todo: FetchPlan,
    downloaded: DownloadResult,
    images: Mapping[Key, ImageResult],
    notes: Sequence[str],
) -> FetchReport:
    """Report of a fetch so far; without images it is that of a plan, or of a fetch that found everything in place."""
    entry = todo.found.entry
    read_at_ms = entry.read_at_ms
    began = moment(entry.created_at) if read_at_ms is None else datetime.fromtimestamp(read_at_ms / 1000, UTC)
    return FetchReport(
        **asdict(job.attempt),
        repository=job.context.repository.url,
        snapshot=entry.snapshot,
        snapshot_identity=entry.identity,
        created_at=entry.created_at,
        read_at=None if read_at_ms is None else utc(read_at_ms / 1000),
        age=0.0 if began is None else max(0.0, time.time() - began.timestamp()),
        placed=bool(images),
        plan_only=job.context.request.plan_only,
        plan_id=todo.plan_id,
        stores=tuple(
            _store_report(store, images.get(store.key), contents.of(store))
            for store in sorted(todo.stores, key=lambda store: store.key)
        ),
        kept=todo.kept,
        passed_over=tuple(snapshots.passed_over),
        downloaded_bytes=downloaded.bytes,
        at_hand_bytes=downloaded.kept_bytes,
        notes=(*snapshots.notes(), *todo.notes, *notes),
        seconds=time.monotonic() - job.began,
        phases=dict(job.phases),
    )


def _store_report(store: StoreToFetch, built: ImageResult | None, known: StoreDigest | None) -> FetchedStore:
    content = (None if built is None else built.image.content) or known
    return FetchedStore(
        task=store.task,
        store=store.snapshot.store,
        kind=str(store.snapshot.kind),
        identity=store.snapshot.identity,
        rows=None if content is None else content.rows,
        bytes=None if content is None else content.bytes,
        digest=None if content is None else content.digest,
        file_bytes=0 if store.left else store.snapshot.file_bytes,
        offsets={str(partition): offset for partition, offset in store.offsets.items()},
        restored_by_kafka_streams=store.left,
        seconds=0.0 if built is None else round(built.seconds, 3),
    )
