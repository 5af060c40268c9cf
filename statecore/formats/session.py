"""Rows of session stores.

Key, in the changelog and in the store, the session's end before its start (``SessionKeySchema.writeBinary``)::

    ┌───────────────┬──────────────────────────┬────────────────────────────┐
    │ key           │ session end, int64 ms    │ session start, int64 ms    │      big-endian
    └───────────────┴──────────────────────────┴────────────────────────────┘

The segment of a row is that of its session's end. Values::

    kind                     changelog value      row value
    -----------------------  -------------------  --------------------------
    session                  aggregate            aggregate
    headers-session          aggregate            headers  o  aggregate
"""

from __future__ import annotations

from statecore.formats.kinds import StoreKind
from statecore.formats.row_format import Misfit, Records, RowFormat
from statecore.formats.window import misfit_of_timed_keys

SUFFIX_BYTES = 16
"""Bytes of session end and start behind the key."""


class SessionFormat(RowFormat):
    """Rows of plain session stores."""

    time_at = key_time_at = -SUFFIX_BYTES

    def check(self, records: Records) -> Misfit | None:
        """See :meth:`RowFormat.check`."""
        return misfit_of_timed_keys(self, records.keys, SUFFIX_BYTES, "session")


FORMATS: dict[StoreKind, type[RowFormat]] = {StoreKind.SESSION: SessionFormat}
