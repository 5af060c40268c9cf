"""Encodes task manifests: zlib-compressed JSON, each by itself, concatenated in one blob.

A task manifest repeats much for each run; compressed it takes a sixth to a quarter. Rejected, because it should be
readable with nothing but zlib: a dictionary of field names (a fifth less) and JSON without default values (6 %). The
size after decompression is bounded, because a few KB could otherwise fill the reader's memory.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from statecore.documents import compact, preserve_unknown
from statecore.errors import Corrupted, Invalid
from statecore.repository.manifest import TASK_MANIFEST, Extent, TaskManifest, TaskManifestReference

DOCUMENT_BYTES = 32 << 20  # Largest uncompressed task manifest; about 50,000 runs
BOUND_BYTES = 64  # Longest key bound of a run: keys of 900 KB would fill a task manifest with a few runs
_LEVEL = 6  # zlib's level. Level 9 takes twice the time for 2 % less, level 1 half of it for 12 % more.


def encode_task_manifests(
    task_manifests: Sequence[tuple[TaskManifest, Mapping[str, Any] | None]], *, most: int = DOCUMENT_BYTES
) -> tuple[bytes, tuple[TaskManifestReference, ...]]:
    """Encode task manifests into one blob that has no name yet; its bytes and the references."""
    content = bytearray()
    references = []
    for task_manifest, before in task_manifests:
        document = _document(task_manifest, before, most)
        extent = Extent("", len(content), len(document))
        digest = sha256(document).hexdigest()
        known = task_manifest.read_at_ms, task_manifest.delete_retention_ms
        references.append(
            TaskManifestReference(
                task_manifest.task, task_manifest.identity, digest, extent, task_manifest.file_bytes, *known
            )
        )
        content += document
    return bytes(content), tuple(references)


def decompress(document: bytes, what: str, action: str, *, most: int = DOCUMENT_BYTES, **context: Any) -> bytes:
    """Decompress a task manifest."""
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
            f"{what} is larger than {most:,} bytes, the limit of a task manifest.",
            code="manifest-malformed",
            action=action,
            reason="too-large",
            **context,
        )
    if not stream.eof or stream.unused_data:
        why = "is followed by other data" if stream.eof else "is truncated"
        reason = "trailing-data" if stream.eof else "truncated"
        raise Corrupted(f"{what} {why}.", code="manifest-malformed", action=action, reason=reason, **context)
    return content


def _lower_bound(key: str) -> str:
    """A key in hex that is not greater, of at most :data:`BOUND_BYTES`."""
    return key[: 2 * BOUND_BYTES]


def _upper_bound(key: str) -> str:
    """A key in hex that is not less, of at most :data:`BOUND_BYTES`; the key itself if there is none."""
    if len(key) <= 2 * BOUND_BYTES:
        return key
    above = int(key[: 2 * BOUND_BYTES], 16) + 1
    return key if above >> (8 * BOUND_BYTES) else f"{above:0{2 * BOUND_BYTES}x}"


def _document(task_manifest: TaskManifest, before: Mapping[str, Any] | None, most: int) -> bytes:
    fields = TASK_MANIFEST.to_json(task_manifest)
    for run in (stored["run"] for store in fields["stores"] for of in store["databases"] for stored in of["runs"]):
        run["min_key"], run["max_key"] = _lower_bound(run["min_key"]), _upper_bound(run["max_key"])
    if before is not None:
        fields |= TASK_MANIFEST.unknown(before)
        fields["stores"] = preserve_unknown(fields["stores"], before["stores"], "store")
    content = compact(fields)
    if len(content) > most:
        runs = sum(len(database.runs) for store in task_manifest.stores for database in store.databases)
        raise Invalid(
            f"The task manifest of task {task_manifest.task} takes {len(content):,} bytes ({runs:,} runs), and the "
            f"limit is {most:,}.",
            code="manifest-too-large",
            action="Rebuild the stores of this task with fewer runs: statecore restore of the whole application.",
            task=task_manifest.task,
            bytes=len(content),
            runs=runs,
        )
    return zlib.compress(content, _LEVEL)
