"""Validation of changelog batches before they are used."""

from __future__ import annotations

import statecore.extras.pipeline

import pyarrow as pa

from statecore.errors import Invalid
from statecore.formats.row_format import Records, RowFormat
from statecore.formats.topic_partition import TopicPartition


def checked_records(batch: pa.RecordBatch, form: RowFormat, changelog: TopicPartition | None) -> Records:
    """Records of a batch, after checking that they can belong to a store of the format."""
    records = Records(
        batch.column("key"),
        batch.column("value"),
        batch.column("timestamp"),
        batch.column("headers") if form.needs_headers else None,
    )
    misfit = form.check(records)
    if misfit is None:
        return records
    offset = int(batch.column("offset")[misfit.row].as_py())
    place = f"offset {offset}" if changelog is None else f"{changelog} offset {offset}"
    where = {} if changelog is None else {"topic": changelog.topic, "partition": changelog.partition}
    raise Invalid(
        f"The record at {place} {misfit.why}: it is not a record of a {form.kind.value} store.",
        code="record-kind-mismatch",
        action="Check the store's kind and changelog in the spec; nothing was changed.",
        **where,
        offset=offset,
        kind=form.kind.value,
    )


def last_offset(batch: pa.RecordBatch) -> int:
    """Offset of the last record of a batch that is not empty."""
    return int(batch.column("offset")[batch.num_rows - 1].as_py())
