"""The shapes of changelog that are measured: how large values are, how often keys come again, how batches are packed.

Keys are always 16 bytes and 2 % of the records tombstones. Every shape differs from the first in one thing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bench.codecs import CODECS

KEY_BYTES = 16
PRODUCER_BATCH = 16_000
"""Bytes of records that Kafka's producer packs into one batch by default (``batch.size``), before compression."""
WHOLE = 20_000
"""Counts of records are multiples of this, which makes whole batches in four partitions in every shape."""
MOST_BYTES = 4 << 30
"""Bytes of keys and values of one shape's topic, at most: of large values there are fewer records."""
_RECORD_OVERHEAD = 8
_COMPRESSED_TO = 0.55
"""What is left of records on disk, at most, where a codec compresses them."""
_STATE_COPIES = 4.5


@dataclass(frozen=True)
class Shape:
    """What records of a changelog look like.

    Attributes:
        name: in tables.
        value_bytes: bytes of a value, at most 8,000.
        overwrites: the share of records whose key has been there before, roughly: keys are drawn at random from as
            many as would be left. With none, every key comes once.
        codec: how batches are compressed, a key of ``bench.codecs.CODECS``.
    """

    name: str
    value_bytes: int = 100
    overwrites: float = 0.75
    codec: str = "lz4"

    def __post_init__(self) -> None:
        """Refuse what the generator cannot lay out."""
        if not 1 <= self.value_bytes <= 8_000 or not 0 <= self.overwrites < 1 or self.codec not in CODECS:
            raise ValueError(f"no such changelog can be made: {self}")

    @property
    def batch_records(self) -> int:
        """Records of one batch: about what Kafka's producer makes of them, and a divisor of 5,000."""
        wanted = PRODUCER_BATCH / (KEY_BYTES + self.value_bytes + _RECORD_OVERHEAD)
        return min((one for one in range(1, 5_001) if 5_000 % one == 0), key=lambda one: abs(one - wanted))

    def keys(self, records: int) -> int:
        """Distinct keys that so many records are drawn from."""
        return records if not self.overwrites else max(1, round(records * (1 - self.overwrites)))

    def records(self, wanted: int) -> int:
        """So many records, or as many as ``MOST_BYTES`` allow, in whole batches; never none."""
        most = MOST_BYTES // (KEY_BYTES + self.value_bytes)
        return max(1, round(min(wanted, most) / WHOLE)) * WHOLE

    def room(self, records: int) -> int:
        """Bytes of disk that a comparison takes: the topic, and a state that lies there several times for a while."""
        row = KEY_BYTES + self.value_bytes + _RECORD_OVERHEAD
        log = 1.0 if self.codec == "none" else _COMPRESSED_TO
        return int(row * (records * log + self.keys(records) * _STATE_COPIES))


SHAPES: Mapping[str, Shape] = {
    "plain": Shape("100-byte values, 75 % overwrites, lz4"),
    "small": Shape("40-byte values", value_bytes=40),
    "large": Shape("4 KB values", value_bytes=4_096),
    "once": Shape("no overwrites", overwrites=0.0),
    "often": Shape("95 % overwrites", overwrites=0.95),
    "zstd": Shape("zstd", codec="zstd"),
    "none": Shape("not compressed", codec="none"),
    "snappy": Shape("snappy", codec="snappy"),
    "gzip": Shape("gzip", codec="gzip"),
}
"""By the word that chooses them; the first is what the others differ from."""

PLAIN = SHAPES["plain"]
