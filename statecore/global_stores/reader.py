"""Reads the logs' offsets and the records of a round for a global store."""

from __future__ import annotations

import statecore.extras.pipeline

from collections.abc import Mapping
from pathlib import Path

from statecore.changelog.cluster import Cluster
from statecore.changelog.model import LogOffsets, OffsetRange
from statecore.changelog.reader import ChangelogReader, ReaderOptions
from statecore.errors import Invalid
from statecore.formats.registry import row_format
from statecore.formats.topic_partition import TopicPartition
from statecore.global_stores.retry_policy import UnusableRecord
from statecore.global_stores.settings import GlobalSettings, GlobalTable
from statecore.images.model import BaseDatabases
from statecore.images.runs import RunBuilder


class TopicEnds:
    """Offsets of a topic's logs at one time, and the ends of leader epochs that were known before."""

    def __init__(
        self, cluster: Cluster, topic: str, partitions: int, epochs: Mapping[int, int], *, exactly_once: bool
    ) -> None:
        found = cluster.log_offsets(TopicPartition(topic, partition) for partition in range(partitions))
        self.logs: dict[int, LogOffsets] = {at.partition: log for at, log in found.items()}  # by partition
        # by partition, the offset before which all can be read
        self.ends = {at: log.last_stable if exactly_once else log.log_end for at, log in self.logs.items()}
        later = {
            TopicPartition(topic, at): epochs[at]
            for at, log in self.logs.items()
            if 0 <= epochs.get(at, -1) < log.leader_epoch
        }
        # by partition with a new leader epoch, where the one before ended
        self.epoch_ends = {at.partition: end for at, end in cluster.epoch_ends(later).items()}

    @property
    def epochs(self) -> dict[int, int]:
        """Leader epochs by partition, for the next time."""
        return {at: log.leader_epoch for at, log in self.logs.items()}


class LogStartMoved(Exception):
    """Records were deleted before they were read."""


class RoundReader:
    """Reads the records of one round into one run with the last write of each key."""

    def __init__(self, table: GlobalTable, settings: GlobalSettings, cluster: Cluster, directory: Path) -> None:
        self._table, self._settings, self._directory = table, settings, directory
        self._reader = ChangelogReader(cluster, ReaderOptions(stall_timeout=settings.stall_timeout))
        self.records = 0  # Records read

    def read(self, spans: list[OffsetRange], topic_id: str, *, first: bool) -> list[Path]:
        """Read ranges of partitions into at most one file; none where no row is left."""
        for left in self._directory.iterdir():
            left.unlink()
        builder = RunBuilder(
            self._table.kind,
            self._directory,
            memory_budget=self._settings.memory_budget,
            base=BaseDatabases.NONE if first else BaseDatabases.ALL,
            store=self._table.name,
        )
        headers = row_format(self._table.kind).needs_headers
        for span in spans:
            for batch in self._reader.read(span, self._settings.isolation, headers=headers, topic_id=topic_id):
                try:
                    builder.add(batch)
                except Invalid as error:
                    raise UnusableRecord(
                        f"{self._table.topic}, partition {span.partition}: {error.what}",
                        code=error.code,
                        action=error.action,
                        **{**error.context, "topic": self._table.topic, "partition": span.partition},
                    ) from error
            seen = self._reader.statistics
            if seen.log_start_moved_to is not None:
                raise LogStartMoved
            self.records += seen.records
        return [run.path for run in builder.finish()]
