"""Messages of Kafka's protocol that kafka-python lacks, made from Kafka's own JSON files.

The files are those of kafka-clients 4.4.0 (``common/message``), unchanged. A class has the name of its file. Importing
this package imports kafka-python.
"""

from __future__ import annotations

from kafka.protocol.api_message import ApiMessage


class StreamsGroupDescribeRequest(ApiMessage, load_json=__name__):  # type: ignore[call-arg]
    """API key 89: asks the coordinator of streams groups to describe them (KIP-1071, KIP-1331)."""


class StreamsGroupDescribeResponse(ApiMessage, load_json=__name__):  # type: ignore[call-arg]
    """The answer. It registers itself under the API key, by a weak reference: this module keeps it."""
