"""From which topic Kafka Streams restores a store, as far as topics, topology and state directory tell it.

=========================================================  ============================================================
what is seen                                               the changelog
=========================================================  ============================================================
its databases have the offset of one topic                 that topic
they were closed, and have no offset of any topic          ``none``: it is not logged; ``?`` if the usual topic exists
``<application id>-<store>-changelog`` exists              that topic, the usual one
it does not, and the store is the table of a source topic  the source topic, as under ``topology.optimization``
else                                                       ``?``
=========================================================  ============================================================

A store is the table of a source topic when a processor that ``StreamsBuilder.table`` has named (``KTABLE-SOURCE-…``)
has it and is fed by that source directly (``TableSourceNode``). Whether the topology was optimised the description does
not say; but the rows of a table are those of its topic in any case. A store of the Processor API beside a stream may be
unlogged, or restored from the stream's topic (``Topology.addReadOnlyStateStore``), and so may be one whose processor
has a name of the application's own: records that are no rows of it would be put into it, so a person decides that.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from statecore.discover.survey import FoundStore
from statecore.discover.topology import Subtopology
from statecore.spec.model import NO_CHANGELOG, UNKNOWN_CHANGELOG


class Changelog(NamedTuple):
    """What a store is restored from.

    Attributes:
        topic: the topic, ``none`` or ``?``.
        remark: what a person should know of it; empty when it is the usual one.
        candidates: what it may be, when it is ``?``.
    """

    topic: str
    remark: str = ""
    candidates: tuple[str, ...] = ()


def changelog_of(
    store: str, usual: str, existing: Collection[str], found: FoundStore | None, subtopology: Subtopology | None
) -> Changelog:
    """Decide.

    Args:
        store: the store's name.
        usual: the topic it would have by its name.
        existing: the topics that exist.
        found: its directory, if it was looked for and is there.
        subtopology: its part of the topology's description, if there is one.
    """
    if found is not None:
        named = sorted(topic for topic in found.topics if topic in existing)
        if len(named) == 1:
            return Changelog(named[0])
        if found.unlogged:
            return _of_no_offset(usual, existing)
    if usual in existing:
        return Changelog(usual)
    tables = sorted(topic for topic in subtopology.tables_of(store) if topic in existing) if subtopology else []
    if len(tables) == 1:
        return Changelog(
            tables[0],
            f"restored from {tables[0]}, whose table it is, as {usual} does not exist (topology.optimization); write "
            "'changelog: none' if it is not logged",
        )
    candidates = [NO_CHANGELOG]
    if subtopology is not None:
        candidates += sorted(topic for topic in subtopology.perhaps_restored_from(store) if topic in existing)
    other = "".join(f", {topic} if it is restored from that topic" for topic in candidates[1:])
    return Changelog(
        UNKNOWN_CHANGELOG,
        f"its changelog is not to be seen, {usual} does not exist: 'changelog: none' if the application does not log "
        f"it{other}",
        tuple(candidates),
    )


def _of_no_offset(usual: str, existing: Collection[str]) -> Changelog:
    closed = "its databases were closed and have no offset"
    if usual not in existing:
        return Changelog(NO_CHANGELOG, f"not logged: {closed}, and {usual} does not exist")
    remark = f"{closed}, though {usual} exists: 'changelog: none' if the application does not log it any more"
    return Changelog(UNKNOWN_CHANGELOG, remark, (NO_CHANGELOG, usual))
