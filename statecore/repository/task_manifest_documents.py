"""Parts of manifests as they lie in a repository: each is compressed JSON, one after the other in one blob.

A part says much the same of each of its runs. As JSON for people a store of six runs took 6 KB, and a window of 26
segments 136 KB; compressed it is a quarter and a sixth of that. What is left are hashes, digests and keys, which
nothing makes smaller. Measured and left out, because a part should be readable with nothing but zlib: a dictionary of
the names of fields (a fifth less of a part of 1.6 KB, nothing of a large one), and JSON without the fields that have
their default (6 % and less).

Each part is compressed by itself, because it is read by itself. What decompression gives is bounded: a few KB could
else fill the memory of whoever reads them.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from statecore.documents import compact, kept
from statecore.errors import Corrupted, Invalid
from statecore.repository.manifest import PART, Extent, TaskManifest, TaskManifestReference

DOCUMENT_BYTES = 32 << 20
"""The largest document of a part before it is compressed; about 50,000 runs."""

_LEVEL = 6
"""Of zlib. Level 9 takes twice the time for 2 % less, level 1 half of it for 12 % more."""


def joined_parts(
    parts: Sequence[tuple[TaskManifest, Mapping[str, Any] | None]], *, most: int = DOCUMENT_BYTES
) -> tuple[bytes, tuple[TaskManifestReference, ...]]:
    """The documents of some parts, one after the other, and where each of them lies, in a blob that has no name yet.

    Args:
        parts: the parts, each with the document that it replaces, if it does.
        most: bytes of the largest document before it is compressed.

    Raises:
        Invalid: one is larger than whoever reads it would take.
    """
    content = bytearray()
    references = []
    for part, before in parts:
        document = _document(part, before, most)
        extent = Extent("", len(content), len(document))
        digest = sha256(document).hexdigest()
        known = part.cut_ms, part.horizon_ms
        references.append(TaskManifestReference(part.task, part.identity, digest, extent, part.file_bytes, *known))
        content += document
    return bytes(content), tuple(references)


def opened(document: bytes, what: str, action: str, *, most: int = DOCUMENT_BYTES, **context: Any) -> bytes:
    """The JSON of a part that was read.

    Args:
        document: its bytes, which were compared with their hash.
        what: what it is, for messages.
        action: what to do where it cannot be used.
        most: bytes that it may have.
        context: names as fields, for machines.

    Raises:
        Corrupted: it is not compressed, broke off, is followed by something else, or gives more than any part has.
    """
    stream = zlib.decompressobj()
    try:
        content = stream.decompress(document, most + 1)
    except zlib.error as error:
        raise Corrupted(
            f"{what} cannot be decompressed: {error}.",
            code="manifest-malformed",
            action=action,
            reason="not-compressed",
            **context,
        ) from error
    if len(content) > most:
        raise Corrupted(
            f"{what} is larger than {most:,} bytes, which no part is.",
            code="manifest-malformed",
            action=action,
            reason="too-large",
            **context,
        )
    if not stream.eof or stream.unused_data:
        why = "has something else behind it" if stream.eof else "broke off"
        reason = "trailing-data" if stream.eof else "truncated"
        raise Corrupted(f"{what} {why}.", code="manifest-malformed", action=action, reason=reason, **context)
    return content


def _document(part: TaskManifest, before: Mapping[str, Any] | None, most: int) -> bytes:
    fields = PART.to_json(part)
    if before is not None:
        fields |= PART.unknown(before)
        fields["stores"] = kept(fields["stores"], before["stores"], "store")
    content = compact(fields)
    if len(content) > most:
        runs = sum(len(database.runs) for store in part.stores for database in store.databases)
        raise Invalid(
            f"What a snapshot would say of task {part.task} takes {len(content):,} bytes ({runs:,} runs), and nobody "
            f"reads more than {most:,}.",
            code="manifest-too-large",
            action="Make the stores of this task anew, of fewer runs: statecore restore of the whole application.",
            task=part.task,
            bytes=len(content),
            runs=runs,
        )
    return zlib.compress(content, _LEVEL)
