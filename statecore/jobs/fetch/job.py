"""One attempt of a fetch: what its phases share, and its report."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from types import MappingProxyType

from statecore.errors import Invalid, StatecoreError
from statecore.images.model import StoreDigest
from statecore.jobs.attempt import parsed_time, utc, utc_now
from statecore.jobs.context import JobContext
from statecore.jobs.fetch.digests import FetchedContents
from statecore.jobs.fetch.files import FetchedFiles
from statecore.jobs.fetch.plan import FetchPlan
from statecore.jobs.fetch.report import FETCH_REPORT, FETCH_SUFFIX, FetchedStore, FetchReport
from statecore.jobs.fetch.repositories import Repositories
from statecore.jobs.fetch.request import FetchRequest
from statecore.jobs.fetch.store_to_fetch import StoreToFetch
from statecore.jobs.job import Job
from statecore.jobs.job_home import home_of
from statecore.jobs.pipeline.image_tasks import ImageResult
from statecore.repository.download import DownloadResult

NOTHING_DOWNLOADED = DownloadResult(0, 0, 0, 0)


def activity(request: FetchRequest) -> str:
    return f"stores were fetched into {request.state_dir}"


class FetchJob(Job):
    """One attempt of a fetch.

    Attributes:
        spec: the application as the newest readable snapshot declares it.
        found: the snapshot that is fetched, of ``snapshots`` of ``repository``.
    """

    report_suffix = FETCH_SUFFIX

    def __init__(self, context: JobContext[FetchRequest], repositories: Repositories) -> None:
        super().__init__(context, home_of(context), activity(context.request))
        self.request, self.declared, self.directory = context.request, context.declared, context.directory
        self.repositories = repositories
        self._take_selected()
        self.spec = self.found.spec
        self.files = FetchedFiles(self.directory)

    def _take_selected(self) -> None:
        self.snapshots, self.found = self.repositories.snapshots, self.repositories.found
        self.repository = self.snapshots.repository
        self.contents = FetchedContents(self.repository)

    def skip(self, error: StatecoreError) -> None:
        """Continue with the next newest snapshot, which another repository may have."""
        self.repositories.skip(error)
        self._take_selected()

    def skip_unreadable(self, error: StatecoreError) -> None:
        """Continue as :meth:`Repositories.skip_unreadable` decides after files could not be read."""
        self.repositories.skip_unreadable(error)
        self._take_selected()

    def earlier_report(self) -> FetchReport | None:
        """The report of an earlier attempt of this request that began to place stores."""
        content = self.home.read(FETCH_SUFFIX)
        with suppress(Invalid):
            return None if content is None else FETCH_REPORT.decode(content)
        return None

    def has_begun(self, plan: FetchPlan) -> bool:
        """Whether an earlier attempt of this request began to place the stores of a plan."""
        earlier = self.earlier_report()
        return earlier is not None and earlier.plan_id == plan.plan_id

    def save_report(self, report: FetchReport) -> None:
        """Write a report beside those of other requests."""
        self.save(FETCH_SUFFIX, report.to_json())

    def finish_earlier_report(self) -> None:
        """Write the finish time of a killed attempt whose stores are in place."""
        earlier = self.earlier_report()
        if earlier is not None and not earlier.finished:
            self.save_report(replace(earlier, finished=utc_now()))

    def report(
        self,
        plan: FetchPlan,
        downloaded: DownloadResult = NOTHING_DOWNLOADED,
        images: Mapping[tuple[str, str], ImageResult] = MappingProxyType({}),
        notes: Sequence[str] = (),
        *,
        finished: bool = False,
    ) -> FetchReport:
        """The report so far; without images it is that of a plan, or of a fetch that found everything in place."""
        entry = plan.found.entry
        read_at_ms = entry.read_at_ms
        made = parsed_time(entry.created_at) if read_at_ms is None else datetime.fromtimestamp(read_at_ms / 1000, UTC)
        return FetchReport(
            **asdict(self.attempt),
            repository=self.repository.url,
            snapshot=entry.snapshot,
            snapshot_identity=entry.identity,
            created_at=entry.created_at,
            read_at=None if read_at_ms is None else utc(read_at_ms / 1000),
            age=0.0 if made is None else max(0.0, time.time() - made.timestamp()),
            placed=bool(images),
            plan_only=self.request.plan_only,
            plan_id=plan.plan_id,
            stores=tuple(
                _store_report(store, images.get(store.key), self.contents.of(store))
                for store in sorted(plan.stores, key=lambda store: store.key)
            ),
            kept=plan.kept,
            skipped_snapshots=tuple(self.snapshots.skipped),
            downloaded_bytes=downloaded.bytes,
            at_hand_bytes=downloaded.existing_bytes,
            notes=(*self.repositories.notes, *self.snapshots.notes(), *plan.notes, *notes),
            seconds=self.phases.elapsed,
            phases=dict(self.phases.wall),
            finished=utc_now() if finished else "",
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
        file_bytes=0 if store.placed_empty else store.snapshot.file_bytes,
        offsets={str(partition): offset for partition, offset in store.offsets.items()},
        restored_by_kafka_streams=store.placed_empty,
        seconds=0.0 if built is None else round(built.seconds, 3),
    )
