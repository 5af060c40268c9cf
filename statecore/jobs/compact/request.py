"""Request of a compaction."""

from __future__ import annotations

from dataclasses import dataclass, field

from statecore.jobs.fields.catalog import REPOSITORY_HELP, WHERE, OfSpec, Planned, repository_url


@dataclass(frozen=True, kw_only=True)
class CompactRequest(OfSpec, Planned):
    """A request to merge runs of the newest snapshot of one application."""

    repository: str = field(metadata=repository_url(REPOSITORY_HELP, section=WHERE))
