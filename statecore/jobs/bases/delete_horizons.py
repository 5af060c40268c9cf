"""Delete retention recorded by newer snapshots, which applies to the tail of an older one as well."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from statecore.errors import Corrupted
from statecore.repository.head import SnapshotEntry
from statecore.repository.manifest import Manifest


def horizons_since(newer: Iterable[SnapshotEntry], manifest: Callable[[SnapshotEntry], Manifest]) -> dict[str, int]:
    """Shortest delete retention by task that some snapshots recorded."""
    found: dict[str, int] = {}
    for entry in newer:
        try:
            references = manifest(entry).task_manifests
        except Corrupted:
            continue
        for reference in references:
            if reference.delete_retention_ms is not None:
                found[reference.task] = min(
                    reference.delete_retention_ms, found.get(reference.task, reference.delete_retention_ms)
                )
    return found
