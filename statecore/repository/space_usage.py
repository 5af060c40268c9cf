"""What history costs: the bytes that a snapshot holds, and no newer one does.

Each file is counted once, at the newest snapshot that names it. So what all but the newest hold is what the repository
has beyond the newest state: runs that a fold has replaced, segments that have expired, bases before the last rebuild.
An older snapshot may name some of these files as well, and then they stay when the newer of the two is let go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from statecore.repository.verification import PartKey, VerifiedSnapshot, key_of

Files = Mapping[str, int]
"""Bytes of some files, by hash."""


def held_bytes(found: Sequence[VerifiedSnapshot], files: Mapping[PartKey, Files]) -> list[VerifiedSnapshot]:
    """Snapshots, each with the bytes of the files that it names and no newer one does; 0 for the newest.

    Args:
        found: snapshots, newest first, from the newest on.
        files: the files of each part that can be read.

    Returns:
        The same; with ``None`` where nobody can tell, because this one or a newer one is damaged.
    """
    counted: set[str] = set()
    seen: set[PartKey] = set()
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
