"""``statecore dump``: print the rows of a store, decoded."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from statecore.cli.output import Output
from statecore.cli.request_options import path_of

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console

    from statecore.dump.dump import Dump

DOCUMENT_VERSION = 1  # Of the ``--json`` document

_TABLE_ROWS = 50
_COUNTING_SECONDS = 2.0
_SHOWN_CHARACTERS = 400
_NARROWEST = 16
"""Minimum width of a key or value in a table; below it, rows are printed as blocks."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from statecore.formats.kinds import StoreKind

    kinds = [kind.value for kind in StoreKind if kind.can_be_built]
    parser.add_argument("--state-dir", required=True, type=path_of, metavar="DIR", help="the application's state.dir")
    parser.add_argument(
        "--application-id", metavar="ID", help="Kafka Streams' application.id (default: that of the spec)"
    )
    parser.add_argument(
        "--spec", type=path_of, metavar="FILE", help="the application's stores.yaml, with the store's kind"
    )
    what = parser.add_argument_group("what to print")
    what.add_argument("--store", required=True, metavar="NAME", help="the store")
    what.add_argument(
        "--task",
        action="append",
        default=[],
        metavar="TASK",
        help="only these tasks, such as 0_1, or global; repeat the option for each (default: every task)",
    )
    what.add_argument(
        "--kind", choices=kinds, metavar="KIND", help="the store's kind, if it cannot be detected from its directory"
    )
    what.add_argument("--prefix", type=_bytes, default=b"", metavar="HEX", help="only keys that begin with these bytes")
    what.add_argument("--limit", type=_count, metavar="N", help=f"at most N rows (default: {_TABLE_ROWS} in a table)")
    how = parser.add_argument_group("how")
    serdes = "hex, string, long, integer, short, double, float, boolean, uuid, bytes, or module:function"
    how.add_argument("--key", metavar="SERDE", help=f"deserializer of keys: {serdes} (default: hex; parquet: bytes)")
    how.add_argument("--value", metavar="SERDE", help="deserializer of values, as for --key")
    how.add_argument(
        "--format",
        choices=("table", "jsonl", "parquet"),
        default="table",
        help="table for people, JSON lines or Parquet for programs (default: table)",
    )
    how.add_argument("--output", type=path_of, metavar="FILE", help="output file (default: stdout)")
    how.add_argument("--force", action="store_true", help="overwrite the output file")


def run(arguments: argparse.Namespace, output: Output) -> int:
    from statecore.errors import missing_option

    if arguments.format == "parquet" and arguments.output is None and not output.json:
        raise missing_option("Parquet cannot be printed.", "Name a file with --output.", "output")
    dump = _prepared(arguments, as_document=output.json and arguments.output is None)
    about = {"application_id": _application(arguments), "store": dump.store, "kind": str(dump.kind)}
    if arguments.output is not None:
        rows = _write(arguments, dump, about)
        output.say(f"{arguments.output}: {rows:,} rows of {dump.store} ({dump.kind})")
        output.document(
            {
                "version": DOCUMENT_VERSION,
                **about,
                "rows": rows,
                "output": str(arguments.output),
                "format": arguments.format,
            }
        )
        return 0
    if output.json:
        limit = _TABLE_ROWS if arguments.limit is None else arguments.limit
        taken = list(limited(dump.batches(), limit + 1))
        output.document({"version": DOCUMENT_VERSION, **about, **_document(dump, taken, limit)})
    elif arguments.format == "jsonl":
        from statecore.dump.output import write_json_lines

        write_json_lines(limited(dump.batches(), arguments.limit), sys.stdout.buffer, _json_columns(dump))
    else:
        show(dump, _TABLE_ROWS if arguments.limit is None else arguments.limit)
    return 0


def _application(arguments: argparse.Namespace) -> str:
    from statecore.errors import missing_option
    from statecore.spec.reader import load_spec

    if arguments.application_id is not None:
        return str(arguments.application_id)
    if arguments.spec is None:
        raise missing_option("No application was named.", "Give --application-id or --spec.", "application_id")
    return load_spec(arguments.spec).application_id


def _prepared(arguments: argparse.Namespace, *, as_document: bool) -> Dump:
    from statecore.dump.deserializers import find_deserializer
    from statecore.dump.dump import Dump, find_store, kind_of
    from statecore.formats.kinds import StoreKind
    from statecore.spec.model import segmentation_of
    from statecore.spec.reader import load_spec
    from statecore.statedir.store_places import application_directory, check_application

    usual = "bytes" if arguments.format == "parquet" and not as_document else "hex"
    key = find_deserializer(arguments.key or usual, "key")
    value = find_deserializer(arguments.value or usual, "value")
    spec = load_spec(arguments.spec) if arguments.spec else None
    name = _application(arguments)
    check_application(spec, name)
    places = find_store(application_directory(arguments.state_dir, name), arguments.store, arguments.task, spec)
    kind = kind_of(places, StoreKind(arguments.kind) if arguments.kind else None, spec)
    declared = spec and spec.store(arguments.store)
    segmentation = segmentation_of(declared) if declared else None
    return Dump(arguments.store, kind, places, key, value, arguments.prefix, segmentation)


def _write(arguments: argparse.Namespace, dump: Dump, about: dict[str, str]) -> int:
    from statecore.dump.output import atomic_file, write_json_lines, write_parquet

    with atomic_file(arguments.output, overwrite=arguments.force) as file:
        if arguments.format == "parquet":
            return write_parquet(limited(dump.batches(), arguments.limit), dump.schema, file, about)
        if arguments.format == "jsonl":
            return write_json_lines(limited(dump.batches(), arguments.limit), file, _json_columns(dump))
        from rich.console import Console

        with open(file.fileno(), "w", encoding="utf-8", closefd=False) as text:
            return show(dump, arguments.limit or _TABLE_ROWS, Console(file=text, width=200, highlight=False))


def _json_columns(dump: Dump) -> list[str]:
    return [name for name, one in (("key", dump.key), ("value", dump.value)) if one.is_json]


def _document(dump: Dump, taken: Sequence[pa.RecordBatch], limit: int) -> dict[str, Any]:
    from statecore.dump.output import json_rows

    rows = [row for batch in taken for row in json_rows(batch, _json_columns(dump))]
    return {"rows": rows[:limit], "more": len(rows) > limit}


def limited(batches: Iterable[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    left = limit
    for batch in batches:
        if left is None:
            yield batch
            continue
        if left > 0:
            yield batch.slice(0, left)
        left -= len(batch)
        if left <= 0:
            return


def show(dump: Dump, limit: int, console: Console | None = None, *, counting_seconds: float = _COUNTING_SECONDS) -> int:
    """Print rows as a table, or as blocks if a table does not fit; then the number of further rows."""
    from statecore.cli.output import result_console

    console = console or result_console()
    batches = dump.batches()
    names = [name for name in dump.schema.names if name != "partition"]  # part of the task id
    rows: list[list[str]] = []
    more = 0
    for batch in batches:
        taken = batch.slice(0, limit - len(rows))
        rows += _texts(taken, names)
        more += len(batch) - len(taken)
        if more or len(rows) == limit:
            break
    left = _left(batches, more, counting_seconds) if len(rows) == limit else ("", 0)
    console.print(f"{dump.store}: {dump.kind}, keys as {dump.key.name}, values as {dump.value.name}", markup=False)
    if rows:
        natural = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
        fixed = sum(width for name, width in zip(names, natural, strict=True) if name not in _FOLDED)
        folded = [min(width, _NARROWEST) for name, width in zip(names, natural, strict=True) if name in _FOLDED]
        if fixed + sum(folded) + 2 * len(names) <= console.width:
            _table(console, names, rows)
        else:
            _blocks(console, names, rows)
    console.print(_summary(len(rows), *left, dump), markup=False)
    return len(rows)


_FOLDED = frozenset({"key", "value", "headers"})


def _left(batches: Iterator[pa.RecordBatch], more: int, seconds: float) -> tuple[str, int]:
    """The number of rows that were not shown, and ``more than`` if counting took too long."""
    until = time.monotonic() + seconds
    for batch in batches:
        more += len(batch)
        if time.monotonic() > until:
            return "more than ", more
    return "", more


def _summary(shown: int, how: str, more: int, dump: Dump) -> str:
    if not shown and not more:
        return "no rows" + (" with this prefix" if dump.prefix else "")
    rows = f"{shown:,} row{'s' if shown != 1 else ''}"
    if not more:
        return rows
    about = f" (about {dump.estimate():,} rows in all, by RocksDB's estimate)" if how else ""
    return f"{rows}, and {how}{more:,} more{about}; --limit shows more, --format jsonl all"


def _table(console: Console, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0))
    for name in names:
        table.add_column(name, overflow="fold", no_wrap=name not in _FOLDED)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


def _blocks(console: Console, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print each row as a block, one line per column."""
    from rich.table import Table
    from rich.text import Text

    for row in rows:
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True, style="dim")
        table.add_column(overflow="fold")
        for name, cell in zip(names, row, strict=True):
            table.add_row(name, Text(cell))
        console.print(table)
        console.print()


def _texts(batch: pa.RecordBatch, names: Sequence[str]) -> list[list[str]]:
    from statecore.dump.dump import TIMES
    from statecore.dump.output import json_rows

    return [[_text(row[name], time=name in TIMES) for name in names] for row in json_rows(batch)]


def _text(value: Any, *, time: bool) -> str:
    if value is None:
        return "-"
    if time:
        return iso(value)
    if isinstance(value, list):
        return ", ".join(f"{one['key']}={one['value']}" for one in value) or "-"
    text = str(value) if value != "" else "(empty)"
    if len(text) > _SHOWN_CHARACTERS:
        return f"{text[:_SHOWN_CHARACTERS]}... ({len(text):,} characters; --format jsonl shows all)"
    return text


def iso(milliseconds: int) -> str:
    """A time as ISO 8601 in UTC: ``2026-11-20T14:00:00.000Z``; as ``… ms`` if it is out of range."""
    try:
        text = datetime.fromtimestamp(milliseconds // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms"
    return f"{text}.{milliseconds % 1000:03}Z"


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of rows")
    return int(text)


def _bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not hex, such as 6b30") from None
