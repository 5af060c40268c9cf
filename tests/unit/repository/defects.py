"""Defects that there were, for what has to find them."""

from __future__ import annotations

from statecore.repository.manifest import StoreSnapshot
from statecore.repository.publish import rebase

_ABOVE = rebase._rebased


def taken_for_expired(
    theirs: StoreSnapshot, mine: StoreSnapshot, base: StoreSnapshot, tail: rebase.Tail
) -> StoreSnapshot:
    """A database that the base has, and the newest snapshot has not, counts as expired, with its tail."""
    done = _ABOVE(theirs, mine, base, tail)
    gone = {one.segment for one in base.databases} - {one.segment for one in theirs.databases}
    return rebase._with_databases(done, [one for one in done.databases if one.segment not in gone])
