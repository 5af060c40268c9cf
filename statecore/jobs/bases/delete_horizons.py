"""What newer snapshots saw of how long deletes are kept: it counts for an older one, which is read behind as well."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from statecore.errors import Corrupted
from statecore.repository.head import SnapshotEntry
from statecore.repository.manifest import Manifest


def horizons_since(newer: Iterable[SnapshotEntry], manifest: Callable[[SnapshotEntry], Manifest]) -> dict[str, int]:
    """By task the least time for which deletes were kept when some snapshots were made, as far as they say it.

    Args:
        newer: the snapshots.
        manifest: reads the manifest of one; one that is damaged says nothing.
    """
    found: dict[str, int] = {}
    for entry in newer:
        try:
            parts = manifest(entry).parts
        except Corrupted:
            continue
        for part in parts:
            if part.horizon_ms is not None:
                found[part.task] = min(part.horizon_ms, found.get(part.task, part.horizon_ms))
    return found
