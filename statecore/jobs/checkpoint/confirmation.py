"""Whether a snapshot to which nothing is to be appended is confirmed: published again, with later read positions.

Schedule and job ask the same function, and it asks what a publication would change
(:meth:`statecore.repository.manifest.ReadPosition.is_later_than`). Otherwise the schedule could find a checkpoint due,
tick after tick, that has nothing to publish.
"""

from __future__ import annotations

from collections.abc import Mapping

from statecore.errors import Reason
from statecore.formats.integers import min_known
from statecore.repository.manifest import Manifest, ReadPosition
from statecore.spec.units import format_duration

_SHARE_OF_RETENTION = 4
"""A snapshot is confirmed when this part of the time that deletes are kept has passed since it was complete."""


def reason_to_confirm(
    newest: Manifest | None, read_positions: Mapping[str, ReadPosition], delete_retention_ms: int | None
) -> Reason | None:
    """Why read positions of unchanged tasks are worth a publication of their own; ``None`` if they are not.

    Args:
        newest: the newest snapshot.
        read_positions: by task; all of one time.
        delete_retention_ms: shortest delete retention of the changelogs now; ``None`` if deletes stay for ever.
    """
    confirmed = [
        (known, read_positions[known.task])
        for known in (() if newest is None else newest.task_manifests)
        if known.task in read_positions and read_positions[known.task].is_later_than(known)
    ]
    if not confirmed:
        return None
    lowered = [
        position.delete_retention_ms
        for known, position in confirmed
        if position.delete_retention_ms is not None
        and known.delete_retention_ms is not None
        and position.delete_retention_ms < known.delete_retention_ms
    ]
    if lowered:
        return Reason(
            f"nothing is new, and delete retention was lowered to {format_duration(min(lowered))}",
            "retention-lowered",
            retention_ms=min(lowered),
        )
    if delete_retention_ms is None:
        return None
    retention = f"deletes are kept for {format_duration(delete_retention_ms)}"
    oldest_ms = min_known(known.read_at_ms for known, _ in confirmed)
    if oldest_ms is None:
        return Reason(
            f"nothing is new, since an unknown time, and {retention}",
            "base-age-unknown",
            retention_ms=delete_retention_ms,
        )
    age_ms = confirmed[0][1].at_ms - oldest_ms
    if age_ms <= delete_retention_ms // _SHARE_OF_RETENTION:
        return None
    return Reason(
        f"nothing is new, confirmed {age_ms / 1000:,.0f} s ago, and {retention}",
        "confirmation-due",
        retention_ms=delete_retention_ms,
    )
