"""Requests as later jobs will declare theirs: shared fields, and some of their own."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from statecore.jobs.fields.catalog import LIMITS, OfApplication, Planned, Reading
from statecore.jobs.fields.declaration import declare
from statecore.jobs.fields.types import Choice, Seconds, Several, Size, Text, Whole
from statecore.jobs.restore.request import RestoreRequest


@dataclass(frozen=True, kw_only=True)
class RequestWithOneMore(RestoreRequest):
    """One edit: a field, its type, its default, and what is said of it."""

    pause: float = field(
        default=1.5,
        metadata=declare(
            Seconds(), title="Pause", help="how long to rest, at 50% of the way, between two stores", section=LIMITS
        ),
    )


class Depth(StrEnum):
    """How deep a look is."""

    OFFSETS = "offsets"
    ROWS = "rows"


@dataclass(frozen=True, kw_only=True)
class VerifyRequest(OfApplication, Reading, Planned):
    """Another job, of shared fields and its own of every kind."""

    samples: int = field(default=7, metadata=declare(Whole(), title="Samples", help="rows to look at"))
    sizes: tuple[int, ...] = field(default=(), metadata=declare(Several(Size()), title="Sizes", help="sizes"))
    topic: str = field(metadata=declare(Text("TOPIC"), title="Topic", help="what it is compared with"))
    depth: Depth = field(default=Depth.OFFSETS, metadata=declare(Choice(Depth), title="Depth", help="how deep"))
