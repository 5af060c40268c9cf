"""Answers of a real broker (4.4.0), as they came over the wire behind their headers.

Version 0 is what brokers before 4.4 speak.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from statecore.changelog.protocol import StreamsGroupDescribeResponse


def streams_group_bytes(version: int) -> bytes:
    """The group ``shop``: two processes, each with one thread and standby tasks of the other."""
    return (Path(__file__).parent / f"streams-group-v{version}.bin").read_bytes()


def streams_group_response(version: int) -> Any:
    """The same, decoded."""
    response = StreamsGroupDescribeResponse.decode(streams_group_bytes(version), version=version)
    response._header = None  # kafka-python leaves it unset, and then does not encode the message
    return response


TOPOLOGY = """\
Topologies:
   Sub-topology: 0
    Source: KSTREAM-SOURCE-0000000000 (topics: [in-stream])
      --> apart-repartition-filter, KSTREAM-TOTABLE-0000000001
    Processor: apart-repartition-filter (stores: [])
      --> apart-repartition-sink
      <-- KSTREAM-SOURCE-0000000000
    Processor: KSTREAM-TOTABLE-0000000001 (stores: [unlogged])
      --> none
      <-- KSTREAM-SOURCE-0000000000
    Sink: apart-repartition-sink (topic: apart-repartition)
      <-- apart-repartition-filter

  Sub-topology: 1
    Source: apart-repartition-source (topics: [apart-repartition])
      --> KSTREAM-AGGREGATE-0000000005
    Processor: KSTREAM-AGGREGATE-0000000005 (stores: [counts])
      --> none
      <-- apart-repartition-source

  Sub-topology: 2
    Source: KSTREAM-SOURCE-0000000006 (topics: [in-table])
      --> KTABLE-SOURCE-0000000007
    Processor: KTABLE-SOURCE-0000000007 (stores: [profile])
      --> none
      <-- KSTREAM-SOURCE-0000000006

  Sub-topology: 3 for global store (will not generate tasks)
    Source: KSTREAM-SOURCE-0000000008 (topics: [in-global])
      --> KTABLE-SOURCE-0000000009
    Processor: KTABLE-SOURCE-0000000009 (stores: [products])
      --> none
      <-- KSTREAM-SOURCE-0000000008

"""
"""What ``Topology.describe()`` printed for the same application."""
