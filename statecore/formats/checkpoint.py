"""The text format of offset files: ``.checkpoint``, ``.checkpoint_<store>`` and ``<store>.position``.

One format in all versions from 0.10 to 4.4.0 (``OffsetCheckpoint``), UTF-8, one line an entry::

    0                                        version
    2                                        number of entries
    orders-clicks-changelog 0 3144           topic, partition, offset
    orders-profile-changelog 0 -4            -4: the offset is not known (OFFSET_UNKNOWN)

The meaning of the offset depends on the file. Task directories: last applied offset of a changelog.
``global/.checkpoint``: next offset of a source topic. ``.position``: greatest offset seen of an input topic.

Files are read as Kafka Streams reads them: lines end with LF, CR or CR LF, fields are separated by any white space, a
negative offset other than -4 is skipped and the number of entries taken to be one less. A file that Kafka Streams would
accept but cannot have written is refused: a partition named twice, a negative partition, a topic name that Kafka does
not allow (a NUL left by a torn write), digits other than ASCII, a file above :data:`MAX_BYTES`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from statecore.errors import Corrupted, Invalid
from statecore.formats.integers import INT32_MAX, INT64_MAX
from statecore.formats.offsets import OFFSET_UNKNOWN, is_offset
from statecore.formats.releases import CHECKPOINT_FILE, POSITION_SUFFIX
from statecore.formats.topic_partition import TopicPartition, is_topic_name

MAX_BYTES = 16 << 20
"""Largest file size: an entry has at most 249 + 10 + 19 characters, and a task has no 50 000 stores."""

_VERSION = 0
_LINE_END = re.compile(r"\r\n|\r|\n")
_WHITE_SPACE = re.compile(r"[ \t\x0b\f]+")  # Java's \s without the line ends
_NUMBER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_SHOWN = 80


def store_checkpoint_file(store: str) -> str:
    """Name of the offset file of a store that does not manage its offsets (since 4.3): ``.checkpoint_<store>``."""
    return f"{CHECKPOINT_FILE}_{store}"


def position_file(store: str) -> str:
    """Name of a store's position file: ``<store>.position``."""
    return f"{store}{POSITION_SUFFIX}"


def encode_checkpoint(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Encode offsets, by topic and partition. Kafka Streams deletes the file instead of writing an empty one."""
    lines = [str(_VERSION), str(len(offsets))]
    for (topic, partition), offset in sorted(offsets.items()):
        if not is_topic_name(topic) or not 0 <= partition <= INT32_MAX:
            raise _unwritable(topic, partition, offset, "that is not a partition of a topic")
        if not is_offset(offset):
            raise _unwritable(topic, partition, offset, "that is not an offset")
        lines.append(f"{topic} {partition} {offset}")
    return ("\n".join(lines) + "\n").encode()


def decode_checkpoint(data: bytes, source: str, *, last_wins: bool = False) -> dict[TopicPartition, int]:
    """Decode offsets, -4 included; other negative ones are skipped, as by Kafka Streams. ``source`` names the file.

    With ``last_wins`` a partition that is named twice is one entry with the last offset, as in Kafka Streams.
    """
    if len(data) > MAX_BYTES:
        raise too_large(len(data), source)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise _corrupted(source, f"byte {error.start} is not UTF-8") from error
    lines = _LINE_END.split(text)
    if not lines[-1]:
        lines.pop()  # a line end closes a line; it does not begin another
    if len(lines) < 2:
        raise _corrupted(source, f"it has {len(lines)} lines; version and number of entries take two")
    version = _number(lines[0], INT32_MAX)
    if version != _VERSION:
        raise _corrupted(source, f"its version is {_shown(lines[0])}, not {_VERSION}")
    expected = _number(lines[1], INT32_MAX)
    if expected is None:
        raise _corrupted(source, f"line 2 is not a number of entries: {_shown(lines[1])}")
    offsets: dict[TopicPartition, int] = {}
    skipped = 0
    for number, line in enumerate(lines[2:], start=3):
        partition, offset = _entry(line, number, source)
        if offset < 0 and offset != OFFSET_UNKNOWN:
            skipped += 1
        elif partition in offsets and not last_wins:
            raise _corrupted(source, f"line {number} names {partition} a second time")
        else:
            offsets[partition] = offset
    if len(offsets) + skipped != expected:
        raise _corrupted(source, f"it states {expected} entries but has {len(offsets) + skipped}")
    return offsets


def too_large(size: int, source: str) -> Corrupted:
    """Error for a file larger than :data:`MAX_BYTES`; such a file need not be read."""
    return _corrupted(source, f"it has {size} bytes, more than {MAX_BYTES}")


def _entry(line: str, number: int, source: str) -> tuple[TopicPartition, int]:
    fields = _WHITE_SPACE.split(line)
    while fields and not fields[-1]:
        fields.pop()  # trailing white space is ignored
    if len(fields) != 3:
        raise _corrupted(source, f"line {number} is not 'topic partition offset': {_shown(line)}")
    partition, offset = _number(fields[1], INT32_MAX), _number(fields[2], INT64_MAX)
    if not is_topic_name(fields[0]) or partition is None or partition < 0 or offset is None:
        raise _corrupted(source, f"line {number} is not 'topic partition offset': {_shown(line)}")
    return TopicPartition(fields[0], partition), offset


def _number(text: str, greatest: int) -> int | None:
    if not _NUMBER.fullmatch(text) or len(text.lstrip("+-0")) > len(str(greatest)):
        return None
    sign = -1 if text.startswith("-") else 1
    value = sign * int(text.lstrip("+-0") or "0")
    return value if -greatest - 1 <= value <= greatest else None


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")


def _corrupted(source: str, why: str) -> Corrupted:
    return Corrupted(
        f"{source} cannot be read: {why}.",
        code="checkpoint-file-damaged",
        action="Restore an intact copy, or delete the file; a store without another copy of its offset is then"
        " restored from the start of its changelog.",
        file=source,
        why=why,
    )


def _unwritable(topic: str, partition: int, offset: int, why: str) -> Invalid:
    return Invalid(
        f"Topic {_shown(topic)}, partition {partition}, offset {offset} cannot be written to a checkpoint file: {why}.",
        code="checkpoint-entry-invalid",
        action="Give an offset of 0 or more, or -4 if it is unknown; nothing was written.",
        topic=topic,
        partition=partition,
        offset=offset,
    )
