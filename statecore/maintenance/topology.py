"""The text of ``Topology.describe()``: which subtopology has which stores, and which topic a table reads.

::

    Topologies:
       Sub-topology: 0
        Source: KSTREAM-SOURCE-0000000000 (topics: [flights])
          --> KSTREAM-AGGREGATE-0000000002
        Processor: KSTREAM-AGGREGATE-0000000002 (stores: [latest, counts])
          --> none
          <-- KSTREAM-SOURCE-0000000000

       Sub-topology: 1 for global store (will not generate tasks)
        Source: KSTREAM-SOURCE-0000000003 (topics: [products])
          --> KTABLE-SOURCE-0000000004
        Processor: KTABLE-SOURCE-0000000004 (stores: [products-store])
          --> none
          <-- KSTREAM-SOURCE-0000000003

The numbers are the ones in task ids. The text says neither kinds nor changelogs, but Kafka Streams names what it makes
itself in ways of its own (``KStreamImpl``, ``KTableImpl``, ``OuterStreamJoinStoreFactory``), and names tell something.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from statecore.errors import Invalid

_SUBTOPOLOGY = re.compile(r"\s*Sub-topology: (\d+)( for global store)?")
_SOURCE = re.compile(r"\s*Source:\s+(\S+) \(topics: \[?(.*?)\]?\)\s*$")
_PROCESSOR = re.compile(r"\s*Processor:\s+(\S+) \(stores: \[(.*)\]\)\s*$")
_TABLE_SOURCE = re.compile(r"KTABLE-SOURCE-[0-9]{10}")
_UPSTREAM = re.compile(r"\s*<-- (.*)$")


@dataclass(frozen=True)
class Subtopology:
    """One subtopology.

    Attributes:
        number: as in its task ids.
        is_global: whether it only fills a global store.
        stores: store → the topics of the sources directly above its processors.
        processors: store → the names of the processors that use it.
        sources: the names of its source nodes.
    """

    number: int
    is_global: bool
    stores: dict[str, set[str]] = field(default_factory=dict)
    processors: dict[str, set[str]] = field(default_factory=dict)
    sources: set[str] = field(default_factory=set)

    def may_be_global_table(self, store: str) -> bool:
        """Whether ``globalTable`` could have made this: ``StreamsBuilder`` names source and processor so.

        Its ``addGlobalStore`` names them alike; ``Topology.addGlobalStore`` gives them the application's own names.
        """
        return all(
            _TABLE_SOURCE.fullmatch(processor) or f"{processor}-source" in self.sources
            for processor in self.processors.get(store, ())
        )


def parse_topology(text: str, source: str = "<topology>") -> list[Subtopology]:
    """The subtopologies of a description.

    Raises:
        Invalid: no subtopology is in the text.
    """
    found: list[Subtopology] = []
    topics: dict[str, set[str]] = {}
    stores: list[str] = []
    for line in text.splitlines():
        if match := _SUBTOPOLOGY.match(line):
            found.append(Subtopology(int(match[1]), match[2] is not None))
            topics, stores = {}, []
        elif not found:
            continue
        elif match := _SOURCE.match(line):
            topics[match[1]] = _names(match[2])
            found[-1].sources.add(match[1])
            stores = []
        elif match := _PROCESSOR.match(line):
            stores = sorted(_names(match[2]))
            for store in stores:
                found[-1].stores.setdefault(store, set())
                found[-1].processors.setdefault(store, set()).add(match[1])
        elif match := _UPSTREAM.match(line):
            for store in stores:
                for node in _names(match[1]):
                    found[-1].stores[store] |= topics.get(node, set())
    if not found:
        raise Invalid(
            f"{source} holds no line 'Sub-topology: <number>'.",
            action="Save what the application prints for topology.describe() into a file, and give that file.",
            source=source,
        )
    return found


def _names(text: str) -> set[str]:
    return {name.strip() for name in text.split(",") if name.strip() and name.strip() != "none"}
