"""Reads and writes offset files outside the stores: ``.checkpoint``, ``.checkpoint_<store>``, ``<store>.position``.

A file is replaced as a whole (``.tmp``, fsync, rename, fsync of the directory) and deleted when empty, like
``OffsetCheckpoint.write``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from statecore.errors import StatecoreError
from statecore.filesystem import open_regular, remove_durably, write_durably
from statecore.formats.checkpoint import MAX_BYTES, decode_checkpoint, encode_checkpoint, position_file, too_large
from statecore.formats.position import Position, offsets_of_position, position_of_offsets
from statecore.formats.topic_partition import TopicPartition
from statecore.stores.base import StateStore
from statecore.system_errors import system_error


def read_offsets(file: Path, *, last_wins: bool = False) -> dict[TopicPartition, int]:
    """The offsets in a checkpoint file, decoded as by ``decode_checkpoint``; empty if there is none."""
    try:
        with open_regular(file) as opened:
            data = opened.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise _failed("read", file, error) from error
    if len(data) > MAX_BYTES:
        raise too_large(file.stat().st_size, str(file))
    return decode_checkpoint(data, str(file), last_wins=last_wins)


def write_offsets(file: Path, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace a checkpoint file durably; without offsets delete it."""
    if not offsets:
        remove_offsets(file)
        return
    data = encode_checkpoint(offsets)
    try:
        write_durably(file, data)
    except OSError as error:
        raise _failed("written", file, error) from error


def remove_offsets(file: Path) -> None:
    """Delete a checkpoint file durably, if it exists."""
    try:
        remove_durably(file)
    except OSError as error:
        raise _failed("deleted", file, error) from error


def read_position(directory: Path, store: str) -> Position:
    """The position in ``<store>.position``; empty if there is no such file."""
    return position_of_offsets(read_offsets(directory / position_file(store)))


def write_position(directory: Path, store: str, position: Position) -> None:
    """Replace ``<store>.position`` durably; an empty position deletes it."""
    write_offsets(directory / position_file(store), offsets_of_position(position))


def adopt_position(store: StateStore, position: Position) -> None:
    """Add a file's position to a store; its next commit publishes it. -4 means unknown, like no entry."""
    for topic, partitions in position.items():
        for partition, offset in partitions.items():
            if offset >= 0:
                store.update_position(topic, partition, offset)


def _failed(what: str, file: Path, error: OSError) -> StatecoreError:
    return system_error(
        error,
        f"{file} cannot be {what}",
        action="Check that the directory exists and that this user may read and write it.",
        file=str(file),
        why=error.strerror or str(error),
    )
