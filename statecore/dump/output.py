"""Writes decoded rows as JSON lines or Parquet, streaming and without loss.

JSON lines: one object per row; times in ms, bytes as hex, headers as objects, ``null`` for missing values. Parquet:
typed columns, times as timestamps in UTC, one row group every few megabytes.
"""

from __future__ import annotations

import statecore.extras.pipeline

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from statecore.dump.deserializers import finite
from statecore.dump.dump import MILLISECONDS
from statecore.errors import Invalid
from statecore.system_errors import system_error

_ROW_GROUP_BYTES = 32 << 20


def json_rows(batch: pa.RecordBatch, json_columns: Iterable[str] = ()) -> list[dict[str, Any]]:
    """The rows of a batch as JSON objects; ``json_columns`` contain JSON texts, which are parsed."""
    columns: dict[str, list[Any]] = {}
    for name in batch.schema.names:
        column = batch.column(name)
        if column.type == MILLISECONDS:
            column = column.cast(pa.int64())
        values = finite(column).to_pylist()
        if name in json_columns:
            values = [None if value is None else json.loads(value) for value in values]
        elif name == "headers":
            values = [None if value is None else [_header(one) for one in value] for value in values]
        elif pa.types.is_large_binary(column.type) or pa.types.is_binary(column.type):
            values = [None if value is None else value.hex() for value in values]
        columns[name] = values
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _header(header: dict[str, Any]) -> dict[str, Any]:
    value = header["value"]
    return {"key": header["key"], "value": None if value is None else value.hex()}


def write_json_lines(batches: Iterable[pa.RecordBatch], file: IO[bytes], json_columns: Iterable[str] = ()) -> int:
    """Write rows as JSON lines; returns their number."""
    count = 0
    encode = json.JSONEncoder(ensure_ascii=False).encode  # json.dumps would create an encoder for every row
    for batch in batches:
        rows = json_rows(batch, json_columns)
        file.write("".join(f"{encode(row)}\n" for row in rows).encode())
        count += len(rows)
    file.flush()
    return count


def write_parquet(batches: Iterable[pa.RecordBatch], schema: pa.Schema, file: IO[bytes], about: dict[str, str]) -> int:
    """Write rows as Parquet, with ``about`` in the schema's metadata; returns their number."""
    from pyarrow import parquet

    named = schema.with_metadata({f"statecore.{key}": value for key, value in about.items()})
    count, held, size = 0, list[pa.RecordBatch](), 0
    with parquet.ParquetWriter(file, named, compression="zstd") as writer:
        for batch in batches:
            held.append(batch.replace_schema_metadata(named.metadata))
            count, size = count + len(batch), size + batch.nbytes
            if size >= _ROW_GROUP_BYTES:
                writer.write_table(pa.Table.from_batches(held, named))
                held, size = [], 0
        if held:
            writer.write_table(pa.Table.from_batches(held, named))
    return count


@contextmanager
def atomic_file(path: Path, *, overwrite: bool) -> Iterator[IO[bytes]]:
    """A file that appears under its name only when it is complete; a pipe or device is never replaced."""
    if path.exists() and not overwrite:
        raise Invalid(
            f"{path} exists already.", code="file-exists", action="Name another file, or add --force to overwrite it."
        )
    is_replaced = path.is_file() or not path.exists()
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with (part if is_replaced else path).open("wb") as file:
            yield file
        if is_replaced:
            part.replace(path)
    except OSError as error:
        raise system_error(
            error,
            f"{path} cannot be written",
            action="Name another file with --output.",
            room="Free disk space there, or name another file.",
        ) from error
    finally:
        with suppress(OSError):  # keep the first error
            part.unlink(missing_ok=True)
