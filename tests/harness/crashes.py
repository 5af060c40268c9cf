"""Moments at which an application is killed that need more than a feed: which databases were flushed, and which not.

Each lets a ``VersionedApplication`` live until the moment and says what it answered last; ``Fleet.kill`` ends it.
"""

from __future__ import annotations

from tests.harness.fed_application import Answers
from tests.harness.fleet import VersionedApplication
from tests.harness.flushing import flush, flush_global

DISAGREEING, PARTITION = "timestamped-window", 0
"""The store of ``SMALL``, and the partition of it, whose segments disagree."""


def segments_in_disagreement(world: VersionedApplication, version: str) -> Answers:
    """The newest segment of one store is ahead of the older one, which has been changed, too (``SMALL``).

    What RocksDB does when the memory of the segment that is written to most is full.
    """
    first, second, third = world.portions()
    with world.on(version):
        world.feed([*first, *second])
    running = world.start(version)
    world.feed(third)
    newest = max((world.directory / f"0_{PARTITION}" / DISAGREEING).iterdir()).name
    if flush(running, lambda *one: one == (DISAGREEING, PARTITION, newest)) != [newest]:
        raise RuntimeError(f"{newest} is not open")
    return world.answers(running)


def global_store_not_closed(world: VersionedApplication, version: str) -> Answers:
    """A global store with status 1, flushed since its last clean close."""
    first, second, third = world.portions()
    with world.on(version):
        world.feed(first)
    running = world.start(version)
    world.feed(second)
    if not flush_global(running):
        raise RuntimeError("there is no global store")
    world.feed(third)
    return world.answers(running)
