"""A commit of a RocksDB store: builds and writes one ``WriteBatch`` over both column families."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from statecore.errors import Invalid
from statecore.formats.offsets import POSITION_KEY, STATUS_KEY, encode_int64, offset_key
from statecore.formats.position import encode_position
from statecore.stores.rocksdb.errors import translate
from statecore.stores.settings import Durability
from statecore.stores.write_buffer_store import Pending


def commit_batch(path: Path, pending: Pending, data: Any, meta: Any, known: Iterable[bytes]) -> Any:
    """A ``WriteBatch`` with rows, offsets and position; ``known`` keys are read only if all offsets are forgotten."""
    batch = _write_batch()(raw_mode=True)
    put, delete = batch.put, batch.delete
    staged = pending.staged.values
    for key, value in staged.items():
        if value is None:
            delete(key, data)
        else:
            put(key, value, data)
    if len(batch) != len(staged):  # it silently drops what it cannot hold
        raise Invalid(
            f"RocksDB does not take all rows of a commit to {path}.",
            code="commit-too-large",
            action="Abort, and write smaller rows.",
            store_path=str(path),
        )
    if pending.forget:
        for key in filter(STATUS_KEY.__ne__, known):
            delete(key, meta)
    for partition, offset in pending.offsets.items():
        if offset is None:
            delete(offset_key(partition), meta)
        else:
            put(offset_key(partition), encode_int64(offset), meta)
    if pending.moved and not pending.forget:
        put(POSITION_KEY, encode_position(pending.position), meta)
    return batch


def status_batch(status: int, meta: Any) -> Any:
    """A ``WriteBatch`` that only sets the status."""
    batch = _write_batch()(raw_mode=True)
    batch.put(STATUS_KEY, encode_int64(status), meta)
    return batch


def write(path: Path, database: Any, batch: Any, durability: Durability, written: list[None]) -> None:
    """Write a batch and append to ``written``, with no point in between at which a signal handler could run.

    Handlers run between two bytecode instructions. ``extend`` calls rocksdict and appends within one instruction.
    """
    step = map(database.write, (batch,), (_write_options(durability is Durability.SYNC),))
    try:
        written.extend(step)
    except Exception as error:
        if written or type(error) is not Exception:
            raise  # raised by a signal handler; rocksdict raises Exception itself
        raise translate(path, "Writing to", error) from error


@cache
def _write_batch() -> Any:
    from rocksdict import WriteBatch

    return WriteBatch


@cache
def _write_options(sync: bool) -> Any:
    from rocksdict import WriteOptions

    options = WriteOptions()  # with the log: see statecore.stores.rocksdb.store
    options.sync = sync
    return options
