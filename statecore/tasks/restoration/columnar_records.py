"""Reads a changelog's records as rows with the columnar reader; needs the extra ``pipeline``."""

from __future__ import annotations

import statecore.extras.pipeline

from collections.abc import Iterator

from statecore.changelog.cluster import Cluster
from statecore.changelog.model import OffsetRange
from statecore.changelog.reader import ChangelogReader, ReaderOptions
from statecore.formats.key_value import put_on_timestamps
from statecore.formats.kinds import StoreKind
from statecore.formats.registry import row_format
from statecore.formats.row_format import Records
from statecore.isolation import IsolationLevel
from statecore.tasks.restoration.records import RestoredRows, log_start_moved, unfit_record


def read_rows(
    cluster: Cluster,
    span: OffsetRange,
    kind: StoreKind,
    isolation: IsolationLevel,
    *,
    topic_id: str | None,
    stall_timeout: float,
) -> Iterator[RestoredRows]:
    """The rows of an offset range, batch by batch; the last one reaches the range's end."""
    partition, row = span.topic_partition, row_format(kind)
    reader = ChangelogReader(cluster, ReaderOptions(stall_timeout=stall_timeout))
    headers = row.needs_headers
    for batch in reader.read(span, isolation, headers=headers, topic_id=topic_id):
        _check_start(reader, span)
        records = Records(batch["key"], batch["value"], batch["timestamp"], batch["headers"] if headers else None)
        wrong = row.check(records)
        if wrong is not None:
            raise unfit_record(kind, partition, batch["offset"][wrong.row].as_py(), wrong.why)
        values = row.row_values(records)
        if row.stamped:
            values = put_on_timestamps(values, records.timestamps)
        keys = row.row_keys(records.keys)
        pairs = zip(keys.to_pylist(), values.to_pylist(), strict=True)
        yield RestoredRows(
            ((key, value) for key, value in pairs if key is not None),
            len(keys) - keys.null_count,
            batch["offset"][-1].as_py() + 1,
        )
    _check_start(reader, span)
    yield RestoredRows((), 0, span.end)


def _check_start(reader: ChangelogReader, span: OffsetRange) -> None:
    moved = reader.statistics.log_start_moved_to
    if moved is not None:
        raise log_start_moved(span.topic_partition, moved)
