"""Files of sorted records: every record of an offset range, by key and then by offset, ready to be mapped.

Numbers are little-endian int64, so that a mapped file is read in place::

    magic         8 bytes  "SCVERS01"
    header        keys K, records N, bytes of keys, bytes of values, three zeros
    key offsets   K + 1    where each key starts in ``keys``; keys ascend bytewise, each once
    first records K + 1    the first record of each key
    timestamps    N        record timestamps in ms: validFrom
    stream times  N        greatest timestamp of the range up to and with this record
    places        N + 1    twice the start of the value in ``values``, plus one for a tombstone
    keys          bytes    zeros follow up to a multiple of eight
    values        bytes    in the order of the records

Offsets are not in the file: only the order of a key's records matters, and its stream time gives each record all
that it needs of other keys' records.
"""

from __future__ import annotations

import statecore.extras.pipeline

from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from statecore.filesystem import sync_file
from statecore.images.digest import EMPTY
from statecore.images.mapped_runs import check_present, check_unchanged, damaged
from statecore.images.model import RunFile, RunFormat
from statecore.system_errors import write_error

_MAGIC = int.from_bytes(b"SCVERS01", "little")
_HEADER_WORDS = 8
# As for SST files: larger writes take more system time.
_WRITE_BYTES = 128 << 10

Numbers = npt.NDArray[np.int64]


class SortedRecords(NamedTuple):
    """The parts of a file without its values; see the module's docstring."""

    key_offsets: Numbers
    keys: npt.NDArray[np.uint8]
    first_records: Numbers
    timestamps: Numbers
    stream_times: Numbers
    places: Numbers


class MappedRecords(NamedTuple):
    """A mapped file of sorted records."""

    records: SortedRecords
    values: npt.NDArray[np.uint8]


def write_records(path: Path, records: SortedRecords, values: Iterable[npt.NDArray[np.uint8]]) -> RunFile:
    """Write a file durably, consuming ``values`` in turn; its digest is that of no rows, since these are records."""
    key_bytes, value_bytes = int(records.key_offsets[-1]), int(records.places[-1] >> 1)
    header = [_MAGIC, len(records.key_offsets) - 1, len(records.timestamps), key_bytes, value_bytes, 0, 0, 0]
    padding = np.zeros(-key_bytes % 8, np.uint8)
    digest = sha256()
    try:
        path.unlink(missing_ok=True)
        with path.open("xb", buffering=0) as file:
            for part in (
                np.array(header, "<i8"),
                records.key_offsets,
                records.first_records,
                records.timestamps,
                records.stream_times,
                records.places,
                records.keys,
                padding,
            ):
                _write(file, digest, part)
            for part in values:
                _write(file, digest, part)
        sync_file(path)
    except OSError as error:
        raise write_error(path, error) from error
    tombstones = int(np.count_nonzero(records.places[:-1] & 1))
    return RunFile(
        path=path,
        format=RunFormat.RECORDS,
        rows=len(records.timestamps),
        deletes=tombstones,
        bytes=key_bytes + value_bytes,
        file_bytes=path.stat().st_size,
        sha256=digest.hexdigest(),
        digest=EMPTY,
        min_key=records.keys[: records.key_offsets[1]].tobytes().hex(),
        max_key=records.keys[records.key_offsets[-2] :].tobytes().hex(),
    )


def map_records(run: RunFile) -> MappedRecords:
    """Map the file of a run after verifying size and hash."""
    check_present(run)
    check_unchanged(run)
    data = np.memmap(run.path, np.uint8, "r")
    magic, keys, records, key_bytes, value_bytes, *_ = data[: 8 * _HEADER_WORDS].view("<i8").tolist()
    if magic != _MAGIC:
        raise damaged(run, "is not a file of sorted records")
    at = 8 * _HEADER_WORDS
    parts = []
    for count in (keys + 1, keys + 1, records, records, records + 1):
        parts.append(np.asarray(data[at : at + 8 * count]).view(np.int64))
        at += 8 * count
    key_offsets, first_records, timestamps, stream_times, places = parts
    key_data = np.asarray(data[at : at + key_bytes])
    at += key_bytes + -key_bytes % 8
    return MappedRecords(
        SortedRecords(key_offsets, key_data, first_records, timestamps, stream_times, places),
        np.asarray(data[at : at + value_bytes]),
    )


def _write(file: Any, digest: Any, part: npt.NDArray[Any]) -> None:
    view = memoryview(part.view(np.uint8).data)
    digest.update(view)
    while len(view):
        view = view[file.write(view[:_WRITE_BYTES]) :]
