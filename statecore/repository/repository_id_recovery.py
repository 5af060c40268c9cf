"""Recovers the id of a repository whose descriptor is lost: every head and every manifest repeats it.

With another id in the descriptor, all content would belong to another repository. So the id is looked for before a
descriptor is made.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from statecore.documents import DocumentType, parse_json
from statecore.errors import Invalid, NotFound
from statecore.objectstore.base import Blobs
from statecore.objectstore.pointers import Pointers
from statecore.repository.head import HEAD
from statecore.repository.layout import APPLICATIONS, Layout
from statecore.repository.manifest import MANIFEST


class RecordedId(NamedTuple):
    """A repository id, and the name of the head or manifest that carries it."""

    repository: str
    name: str


def recorded_ids(blobs: Blobs, pointers: Pointers) -> Iterator[RecordedId]:
    """The ids that heads and manifests carry, heads first; damaged documents are skipped."""
    applications = []
    for name in sorted(blobs.directories(APPLICATIONS)):
        with suppress(Invalid):  # no application can have that id
            applications.append(Layout(name))
    for names in applications:
        found = pointers.read(names.head)
        yield from _recorded(HEAD, names.head, None if found is None else found.content)
    for names in applications:
        for blob in blobs.list(names.manifests):
            with suppress(NotFound):  # deleted since
                yield from _recorded(MANIFEST, blob.name, blobs.get(blob.name))


def _recorded(kind: DocumentType[Any], name: str, content: bytes | None) -> Iterator[RecordedId]:
    """The id in a document of any version, if its seal holds."""
    if (
        content is not None
        and kind.seal_holds(content)
        and isinstance(found := parse_json(content).get("repository"), str)
    ):
        yield RecordedId(found, name)
