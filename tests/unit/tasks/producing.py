"""A producer for tests: a changelog partition in memory, with acknowledgements that come at a flush."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


@dataclass
class Sent:
    """A record, and its acknowledgement."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None
    headers: list[tuple[str, bytes]]
    offset: int
    error: Exception | None = None

    def get(self, timeout: float | None = None) -> Any:
        if self.error is not None:
            raise self.error
        return SimpleNamespace(offset=self.offset)


@dataclass
class ListedProducer:
    """Keeps what it is sent; ``failing`` is the error of the next records, ``refusing`` that of the next sends."""

    records: list[Sent] = field(default_factory=list)
    happened: list[str] = field(default_factory=list)
    failing: Exception | None = None
    refusing: Exception | None = None
    first: int = 0

    def send(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        headers: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Sent:
        if self.refusing is not None:
            raise self.refusing
        offset = self.first + len(self.records)
        self.records.append(Sent(topic, partition, key, value, timestamp_ms, headers, offset, self.failing))
        return self.records[-1]

    def flush(self, timeout: float | None = None) -> None:
        self.happened.append("flush")
