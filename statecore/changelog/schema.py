"""Arrow schema of a decoded changelog batch."""

from __future__ import annotations

import statecore.extras.pipeline

import pyarrow as pa

CHANGELOG_SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.int64(), nullable=False),
    ]
)
"""Columns of a decoded batch, in offset order. Null keys and values are nulls; timestamps are in ms since the epoch."""

HEADERS_FIELD = pa.field("headers", pa.binary(), nullable=False)
"""Optional column: each record's headers as on the wire, ``varint(count) {varint(len) key varint(len or -1)
value}*``."""
