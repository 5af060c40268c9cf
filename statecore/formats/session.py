"""Rows of session stores.

Key, in the changelog and in the store, the session's end before its start (``SessionKeySchema.writeBinary``)::

    ┌───────────────┬──────────────────────────┬────────────────────────────┐
    │ key           │ session end, int64 ms    │ session start, int64 ms    │      big-endian
    └───────────────┴──────────────────────────┴────────────────────────────┘

    6b30 000001a1fd566cb0 000001a1fd5664e0

Neither is negative, and no session ends before it starts (``SessionWindow``). The segment of a row is that of its
session's end. Values::

    kind                     changelog value      row value
    -----------------------  -------------------  --------------------------------------------------------
    session                  aggregate            aggregate
    headers-session          aggregate            headers  o  aggregate   (:mod:`statecore.formats.headers`)
"""

from __future__ import annotations

import statecore.extras.pipeline

import pyarrow as pa

from statecore.formats.columns import cut, first_misfit, first_of, int64_array, require, require_length
from statecore.formats.headers import HeadersFormat
from statecore.formats.kinds import StoreKind
from statecore.formats.row_format import Misfit, Numbers, Records, RowFormat, int64_at
from statecore.formats.rows.keys import SESSION_BYTES as SUFFIX_BYTES
from statecore.formats.window import misfit_of_timed_keys


class SessionFormat(RowFormat):
    """Rows of plain session stores."""

    time_at = key_time_at = -SUFFIX_BYTES

    def check(self, records: Records) -> Misfit | None:
        return first_misfit(misfit_of_session_keys(self, records), super().check(records))

    def key_columns(self, keys: pa.Array) -> dict[str, pa.Array]:
        require_length(self.kind, keys, SUFFIX_BYTES, "key")
        times = session_columns(self.kind, int64_at(keys, -8), int64_at(keys, -SUFFIX_BYTES))
        return {"key": cut(keys, back=SUFFIX_BYTES), **times}


class HeadersSessionFormat(HeadersFormat, SessionFormat):
    """Rows of session stores with headers."""


def misfit_of_session_keys(row_format: RowFormat, records: Records) -> Misfit | None:
    """First record whose key is not a session key, or ``None``; null keys are skipped."""
    misfit = misfit_of_timed_keys(row_format, records, SUFFIX_BYTES, "session")
    if misfit is not None:
        return misfit
    # Both -1 where the key is null.
    starts, ends = int64_at(records.keys, -8), int64_at(records.keys, -SUFFIX_BYTES)
    row = first_of((starts > ends) | (starts < -1) | (starts == -1) & (ends != -1))
    return None if row is None else Misfit(row, f"has a key whose session starts at {starts[row]}, ends at {ends[row]}")


def session_columns(kind: StoreKind, starts: Numbers, ends: Numbers) -> dict[str, pa.Array]:
    """Columns of session times. Raises ``Corrupted`` for a session that cannot exist."""
    require(kind, (starts < 0) | (starts > ends), "has a key whose session ends before it starts, or starts before 0")
    return {"session_start": int64_array(starts), "session_end": int64_array(ends)}


FORMATS: dict[StoreKind, type[RowFormat]] = {
    StoreKind.SESSION: SessionFormat,
    StoreKind.HEADERS_SESSION: HeadersSessionFormat,
}
