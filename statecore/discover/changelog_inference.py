"""Infers the changelog of a store from topics, topology and state directory.

=========================================================  ============================================================
evidence                                                   the changelog
=========================================================  ============================================================
its databases have the offset of one topic                 that topic
they were closed without an offset of any topic            ``none``: it is not logged; ``?`` if the default topic exists
``<application id>-<store>-changelog`` exists              that topic, the default
it does not, and the store is the table of a source topic  the source topic, as under ``topology.optimization``
else                                                       ``?``
=========================================================  ============================================================

A store is the table of a source topic if a processor named by ``StreamsBuilder.table`` (``KTABLE-SOURCE-…``) uses it
and is fed directly by that source (``TableSourceNode``). The description does not show whether the topology was
optimized, but the rows of a table are those of its topic in any case. A store of the Processor API beside a stream may
be unlogged, or restored from the stream's topic (``Topology.addReadOnlyStateStore``), and so may a store whose
processor has a custom name. Restoring it from that topic could add records that are no rows of it, so a person decides.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from statecore.discover.survey import DirectoryStore
from statecore.discover.topology import Subtopology
from statecore.spec.model import NO_CHANGELOG, UNKNOWN_CHANGELOG


class Changelog(NamedTuple):
    """The changelog of a store.

    Attributes:
        topic: the topic, ``none`` or ``?``.
        remark: a comment for the spec; empty for the default topic.
        candidates: possible changelogs, if it is ``?``.
    """

    topic: str
    remark: str = ""
    candidates: tuple[str, ...] = ()


def infer_changelog(
    store: str,
    default_changelog: str,
    existing: Collection[str],
    found: DirectoryStore | None,
    subtopology: Subtopology | None,
) -> Changelog:
    """Infer the changelog of a store."""
    if found is not None:
        named = sorted(topic for topic in found.topics if topic in existing)
        if len(named) == 1:
            return Changelog(named[0])
        if found.unlogged:
            return _of_no_offset(default_changelog, existing)
    if default_changelog in existing:
        return Changelog(default_changelog)
    tables = sorted(topic for topic in subtopology.tables_of(store) if topic in existing) if subtopology else []
    if len(tables) == 1:
        return Changelog(
            tables[0],
            f"restored from {tables[0]}, whose table it is, as {default_changelog} does not exist "
            "(topology.optimization); write 'changelog: none' if it is not logged",
        )
    candidates = [NO_CHANGELOG]
    if subtopology is not None:
        candidates += sorted(topic for topic in subtopology.possible_store_inputs(store) if topic in existing)
    other = "".join(f", {topic} if it is restored from that topic" for topic in candidates[1:])
    return Changelog(
        UNKNOWN_CHANGELOG,
        f"its changelog is unknown, {default_changelog} does not exist: 'changelog: none' if the application does not "
        f"log it{other}",
        tuple(candidates),
    )


def _of_no_offset(usual: str, existing: Collection[str]) -> Changelog:
    closed = "its databases were closed and have no offset"
    if usual not in existing:
        return Changelog(NO_CHANGELOG, f"not logged: {closed}, and {usual} does not exist")
    remark = f"{closed}, though {usual} exists: 'changelog: none' if the application does not log it any more"
    return Changelog(UNKNOWN_CHANGELOG, remark, (NO_CHANGELOG, usual))
