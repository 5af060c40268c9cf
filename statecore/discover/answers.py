"""Kinds and changelogs of stores given by a person, beforehand or on request."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from statecore.errors import Invalid
from statecore.formats.kinds import StoreKind
from statecore.spec.model import NO_CHANGELOG


@dataclass(frozen=True)
class Answers:
    """Kinds and changelogs given by a person.

    Attributes:
        kinds: store → its kind.
        changelogs: store → its changelog's topic, or ``none``.
    """

    kinds: Mapping[str, StoreKind] = field(default_factory=dict)
    changelogs: Mapping[str, str] = field(default_factory=dict)

    def check(self, stores: Collection[str], topics: Collection[str]) -> None:
        """Raise ``Invalid`` for answers about unknown stores or topics."""
        unknown = sorted({*self.kinds, *self.changelogs} - set(stores))
        if unknown:
            raise Invalid(
                f"An answer was given for {', '.join(unknown)}, and no such store was found.",
                code="store-unknown",
                action=f"Name one of {', '.join(sorted(stores))}.",
                stores=unknown,
            )

        absent = [topic for topic in self.changelogs.values() if topic != NO_CHANGELOG and topic not in topics]
        if absent:
            raise Invalid(
                f"There is no topic {', '.join(sorted(absent))}, which was given as changelog of a store.",
                code="topic-unknown",
                action="Name a topic of the cluster, or none for a store that is not logged.",
                topics=absent,
            )

    def merged(self, more: Answers) -> Answers:
        """These answers overridden by others."""
        return Answers({**self.kinds, **more.kinds}, {**self.changelogs, **more.changelogs})


NO_ANSWERS = Answers()
"""No answers."""


def parse_kind(text: str, store: str = "", among: Sequence[StoreKind] = ()) -> StoreKind:
    """The kind named by a person."""
    known = [str(kind) for kind in StoreKind if kind is not StoreKind.UNKNOWN]
    if text not in known:
        near = difflib.get_close_matches(text, known, n=1)
        raise Invalid(
            f"There is no kind of store {text!r}{f'; did you mean {near[0]}?' if near else '.'}",
            code="kind-unknown",
            action=f"Name one of {', '.join(known)}.",
            kind=text,
        )
    kind = StoreKind(text)
    if among and kind not in (*among, StoreKind.IN_MEMORY, StoreKind.CUSTOM):
        raise Invalid(
            f"{store} cannot be of the kind {kind}.",
            code="kind-mismatch",
            action=f"Name one of {', '.join(map(str, among))}.",
            store=store,
            kind=text,
        )
    return kind
