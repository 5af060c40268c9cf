"""Computes what history costs: the bytes that a snapshot needs and no newer one does.

Each file is counted once, at the newest snapshot that names it. So the sum over all but the newest is what the
repository has beyond the newest state: runs replaced by compactions, expired segments, bases before the last rebuild.
An older snapshot may name some of these files as well, and then they stay when the newer of the two is forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from statecore.repository.verification import TaskManifestKey, VerifiedSnapshot, key_of

Files = Mapping[str, int]
"""Bytes of files, by hash."""


def held_bytes(found: Sequence[VerifiedSnapshot], files: Mapping[TaskManifestKey, Files]) -> list[VerifiedSnapshot]:
    """Add to each snapshot the bytes of the files that no newer one names; 0 for the newest.

    Returns:
        The snapshots; with ``None`` where the bytes are unknown, because this one or a newer one is damaged.
    """
    counted: set[str] = set()
    seen: set[TaskManifestKey] = set()
    held: list[VerifiedSnapshot] = []
    is_known = True
    for number, one in enumerate(found):
        is_known = is_known and not one.damage and one.manifest is not None
        if one.manifest is None or not is_known:
            held.append(one)
            continue
        new = {key_of(part) for part in one.manifest.value.parts} - seen
        seen |= new
        total = 0
        for part in new:
            for digest, size in files[part].items():
                total += 0 if digest in counted else size
                counted.add(digest)
        held.append(one._replace(held_bytes=total if number else 0))
    return held
