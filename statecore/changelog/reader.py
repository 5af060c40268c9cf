"""The columnar changelog reader: reads an offset range exactly to its end into Arrow record batches, or fails.

::

    with Cluster("localhost:9092") as cluster:
        reader = ChangelogReader(cluster)
        for batch in reader.read(OffsetRange("orders-store-changelog", 0, 0, 1_000_000), IsolationLevel.READ_COMMITTED):
            ...                       # columns key, value, offset, timestamp
        reader.statistics             # counts, stream time, position

It reads what Kafka Streams would have restored from the range: control records never, records of aborted transactions
never under read_committed; records with a null key are delivered and counted.
"""

from __future__ import annotations

import statecore.extras.pipeline

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from statecore.changelog.cluster import Cluster
from statecore.changelog.decoder import DECODED_BYTES, RangeDecoder
from statecore.changelog.fetch import OFFSET_OUT_OF_RANGE, PartitionFetcher
from statecore.changelog.model import IsolationLevel, OffsetRange, ReadStatistics
from statecore.errors import Invalid, Reason
from statecore.stopwatch import Stopwatch

if TYPE_CHECKING:
    from statecore.changelog.wire import Fetched


@dataclass(frozen=True)
class ReaderOptions:
    """Options of a reader."""

    fetch_bytes: int = 8 << 20  # bytes of record data per request; a larger batch is still delivered
    max_wait: float = 0.5  # seconds a broker may wait for data
    # seconds without progress (broker gone, no leader, last stable offset below the range's end) after which the read
    # fails as Retryable
    stall_timeout: float = 60.0
    # decompressed bytes after which a record batch is delivered; bounds memory together with fetch_bytes
    decoded_bytes: int = DECODED_BYTES


class ChangelogReader:
    """Reads offset ranges of a cluster, one at a time.

    Args:
        cluster: the cluster; its idle connections are reused between ranges.
        options: options of the reads.
        watch: times the stage ``fetch``: receiving, or waiting for brokers.
    """

    def __init__(
        self, cluster: Cluster, options: ReaderOptions = ReaderOptions(), watch: Stopwatch | None = None
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._watch = watch or Stopwatch("")
        self._decoder: RangeDecoder | None = None

    @property
    def statistics(self) -> ReadStatistics:
        """Statistics of the latest read so far; complete once its iterator is exhausted."""
        return self._decoder.statistics if self._decoder is not None else ReadStatistics()

    def read(
        self, range: OffsetRange, isolation: IsolationLevel, *, headers: bool = False, topic_id: str | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Read a range.

        Args:
            range: the range; offsets below the log start are skipped (retention and DeleteRecords are legal).
            isolation: whether records of aborted transactions are left out.
            headers: also deliver the column `decoder.HEADERS_FIELD`.
            topic_id: the topic's id when the range was planned; a topic that was created again is refused.

        Yields:
            Batches of `decoder.CHANGELOG_SCHEMA` in offset order, usually one for each Fetch response, never empty.

        Raises:
            Retryable: no progress within ``stall_timeout``; under read_committed also a transaction open below the end.
            Invalid: the log ends below the range's end, was truncated below the read position, or the topic was
                created again.
            NotFound: the topic or partition does not exist.
            Corrupted: data is malformed or fails its checksum.
        """
        decoder = RangeDecoder(range, isolation, headers=headers, decoded_bytes=self._options.decoded_bytes)
        self._decoder = decoder
        return self._read(range, isolation, decoder, topic_id)

    def _read(
        self, range: OffsetRange, isolation: IsolationLevel, decoder: RangeDecoder, topic_id: str | None
    ) -> Iterator[pa.RecordBatch]:
        committed = isolation is IsolationLevel.READ_COMMITTED
        options = self._options
        position = range.start
        if position >= range.end:
            return
        fetcher = PartitionFetcher(
            self._cluster,
            range.topic_partition,
            committed=committed,
            fetch_bytes=options.fetch_bytes,
            max_wait=options.max_wait,
            stall_timeout=options.stall_timeout,
            topic_id=topic_id,
        )
        try:
            while position < range.end:
                with self._watch.on("fetch"):
                    fetched = fetcher.fetch(position)
                    if fetched.error == OFFSET_OUT_OF_RANGE:
                        position = self._resume(range, position, fetcher, decoder)
                        continue
                    if not len(fetched.records):
                        self._wait_for_data(range, position, fetched, fetcher, committed=committed)
                        continue
                following = decoder.scan(fetched.records, position, fetched.aborted)
                if following == position:
                    fetcher.enlarge(position)
                    continue
                fetcher.progress(decoder.leader_epoch)
                if following < range.end:
                    fetcher.prefetch(following)
                yield from decoder.batches()
                position = following
                decoder.reached(position)
        finally:
            fetcher.close()

    def _resume(self, range: OffsetRange, position: int, fetcher: PartitionFetcher, decoder: RangeDecoder) -> int:
        """Next position after OFFSET_OUT_OF_RANGE: the log start if that has moved."""
        tp = range.topic_partition
        now = self._cluster.log_offsets([tp])[tp]
        if now.log_start > position:
            fetcher.progress()
            decoder.moved(now.log_start)
            position = min(now.log_start, range.end)
            decoder.reached(position)
            return position
        if now.log_end < position:
            self._refuse_short(range, position, now.log_end)
        message = "the broker reports the offset out of range, though it is within the log"
        fetcher.wait(position, Reason(message, "offset-out-of-range"))
        return position

    def _wait_for_data(
        self, range: OffsetRange, position: int, fetched: Fetched, fetcher: PartitionFetcher, *, committed: bool
    ) -> None:
        """Wait after an empty response; at the deadline raise an error that names the cause."""
        if fetched.throttle:
            fetcher.wait(position, Reason("the broker throttles this client", "client-throttled"))
            return
        if fetched.high_watermark < range.end and fetcher.overdue(self._options.max_wait + 1):
            # A new leader's high watermark may lag briefly; what still lags now is lost.
            self._refuse_short(range, position, fetched.high_watermark)
        if committed and fetched.last_stable < range.end:
            why = Reason(
                f"a transaction that began at offset {fetched.last_stable} is still open below the range's end "
                f"{range.end} (last stable offset {fetched.last_stable}, log end {fetched.high_watermark})",
                "log-transaction-open",
                end=range.end,
                last_stable=fetched.last_stable,
                log_end=fetched.high_watermark,
            )
        else:
            why = Reason(
                f"the broker returns no data below the range's end {range.end} (log end {fetched.high_watermark})",
                "no-data-returned",
                end=range.end,
                log_end=fetched.high_watermark,
            )
        fetcher.wait(position, why)

    def _refuse_short(self, range: OffsetRange, position: int, log_end: int) -> None:
        raise Invalid(
            f"Topic {range.topic}, partition {range.partition}: the log ends at offset {log_end}, below the end "
            f"{range.end} of the range being read (position {position}): it was truncated, or the topic created again.",
            code="log-truncated",
            action="Plan again from the topic's present offsets.",
            topic=range.topic,
            partition=range.partition,
            offset=position,
            end=range.end,
            log_end=log_end,
        )
