"""Features of the format that a reader or a writer of a document has to know, so that later releases may add some.

Unknown fields survive and are ignored. A feature that must not be ignored is named in ``needs`` of the repository
descriptor, the head or a manifest: who does not know it refuses the document, as of an unknown version. So a release
that cannot decrypt refuses to read, and one that does not honour a new rule of writers still reads.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from statecore.errors import Invalid

UNSUPPORTED = "format-unsupported"
ENCRYPTION = "encryption-1"  # Blobs and pointers are encrypted (statecore.repository.encryption)
READ_FEATURES: frozenset[str] = frozenset({ENCRYPTION})
WRITE_FEATURES: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Needs:
    """Features that a reader, or a writer, has to know."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()

    def and_also(self, other: Needs) -> Needs:
        """These features and those of another document."""
        return Needs(tuple(dict.fromkeys(self.read + other.read)), tuple(dict.fromkeys(self.write + other.write)))

    def check_readable(self, what: str) -> None:
        """Refuse what needs unknown features to be read; ``what`` begins a sentence: ``The head of orders``."""
        _check(what, self.read, READ_FEATURES, "read")

    def check_writable(self, what: str) -> None:
        """Refuse to write beside what needs unknown features of its writers."""
        self.check_readable(what)
        _check(what, self.write, WRITE_FEATURES, "written to")


NO_NEEDS = Needs()


def _check(what: str, needed: Collection[str], known: Collection[str], how: str) -> None:
    if unknown := sorted(set(needed) - set(known)):
        raise Invalid(
            f"{what} cannot be {how} by this release, which does not know {', '.join(unknown)}.",
            code=UNSUPPORTED,
            action="Use the release of statecore that wrote it, or a newer one.",
            features=unknown,
        )
