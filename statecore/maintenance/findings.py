"""What an inspection calls trouble, and what of it is damage."""

from __future__ import annotations

from typing import NamedTuple


class Trouble(NamedTuple):
    """Something that is wrong, in a sentence.

    Attributes:
        what: what was found, and what Kafka Streams will make of it.
        damage: whether only a restore mends it: rows that cannot be read, or that the application would miss without
            noticing, or with which it cannot start.
    """

    what: str
    damage: bool = False
