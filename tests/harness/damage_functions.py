"""Functions that damage a database, or a file beside it, in place.

Each takes the directory of a database, or a file, and does the same to the same bytes every time. Which of them make
the damages that a doctor must find is in ``tests.harness.damage_cases``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rocksdict import Options, Rdict

from statecore.formats.rocksdb_log import read_manifest
from tests.harness.directory import read_database

TASK, PLAIN = "0_0", "key-value"
"""A task, and a store of it, that are damaged where no other is named."""

OFFSETS = "offsets"
STATUS = b"status"

_FOOTER = 53


def database_of(application: Path, store: str, task: str = TASK, segment: int = 0) -> Path:
    """A store's database; of one with segments the oldest, or the one of that place in the order of time."""
    plain = application / task / "rocksdb" / store
    return plain if plain.is_dir() else segments_of(application, store, task)[segment]


def segments_of(application: Path, store: str, task: str = TASK) -> list[Path]:
    """The segments of a store in the order of time."""
    return sorted((application / task / store).iterdir(), key=lambda path: int(path.name.rpartition(".")[2]))


# Files of a database.


def manifest_of(database: Path) -> Path:
    """The MANIFEST that CURRENT names."""
    return database / (database / "CURRENT").read_text().strip()


def tables_of(database: Path, *, offsets: bool = False) -> list[Path]:
    """The SST files with rows, the oldest first, or those of the family ``offsets``, as the MANIFEST says."""
    files = read_manifest(manifest_of(database).read_bytes()).files
    found = [database / f"{one.number:06}.sst" for one in files.values() if (one.family == OFFSETS) == offsets]
    if not found:
        raise ValueError(f"{database} has no such SST file")
    return sorted(found)


def flip_bit(path: Path, at: int, bit: int = 0) -> None:
    """Flips one bit; ``at`` counts from the end where it is negative."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


def flip_in_data_block(table: Path) -> None:
    """Flips a bit of the first row's bytes: the first data block begins the file."""
    flip_bit(table, 8)


def flip_in_footer(table: Path) -> None:
    """Flips a bit of the magic number that ends every SST file."""
    flip_bit(table, -3)


def flip_in_index(table: Path) -> None:
    """Flips a bit of the index, found through the footer (format 5) or the list of blocks (format 6)."""
    start, size = index_block(table.read_bytes())
    flip_bit(table, start + size // 2)


def index_block(table: bytes) -> tuple[int, int]:
    """Where the index of an SST file begins, and how long it is."""
    footer = table[-_FOOTER:]
    version = int.from_bytes(footer[-12:-8], "little")
    if version < 6:
        at = 1
        numbers = []
        for _ in range(4):
            number, at = _varint(footer, at)
            numbers.append(number)
        return numbers[2], numbers[3]
    size = int.from_bytes(footer[13:17], "little")
    end = len(table) - _FOOTER
    blocks = table[end - size - 5 : end]
    name = b"rocksdb.index"
    at = blocks.index(name) + len(name)
    start, at = _varint(blocks, at)
    size, _ = _varint(blocks, at)
    return start, size


def cut(path: Path, length: int) -> None:
    """Cuts a file to a length; so much off its end where that is negative."""
    data = path.read_bytes()
    path.write_bytes(data[:length])


def cut_manifest(database: Path, *, all_files: bool = False, between: bool = False) -> int:
    """Cuts the MANIFEST so that it names fewer files; returns the length.

    Args:
        database: its directory.
        all_files: so that it names none; else as late as can be.
        between: where a record ends, so that nothing in what is left is torn; else within one.
    """
    manifest = manifest_of(database)
    data = manifest.read_bytes()
    whole = len(read_manifest(data).files)
    named = [len(read_manifest(data[:length]).files) for length in range(len(data) + 1)]
    length = max(at for at, files in enumerate(named) if files < whole and (files == 0 or not all_files))
    if between:
        length = read_manifest(data[:length]).valid_bytes
    manifest.write_bytes(data[:length])
    return length


def put_foreign_log(database: Path) -> None:
    """Puts rows of another database in the place of the log, which Kafka Streams leaves empty."""
    with tempfile.TemporaryDirectory() as other:
        opened = Rdict(other, _options())
        opened[b"foreign"] = b"from another database"
        opened.flush_wal(True)
        (log,) = Path(other).glob("*.log")
        content = log.read_bytes()
        opened.close()
    (own,) = database.glob("*.log")
    own.write_bytes(content)


# Rows and families, through RocksDB.


@contextmanager
def edited(database: Path) -> Iterator[Any]:
    """A database opened for writing; afterwards all is flushed, and nothing of the tool that opened it is left."""
    names = Rdict.list_cf(str(database))
    options = {name: _options() for name in names}
    before = set(database.iterdir())
    opened = Rdict(str(database), _options(), options)
    try:
        yield opened
        for name in Rdict.list_cf(str(database)):
            family = opened.get_column_family(name)
            family.flush()
            family.close()
    finally:
        opened.close()
    for path in set(database.iterdir()) - before:
        if path.name == "rocksdict-config.json" or path.name.startswith("LOG.old"):
            path.unlink()


def drop_family(database: Path, name: str) -> None:
    """Drops a column family with its rows."""
    with edited(database) as opened:
        opened.drop_column_family(name)


def add_family(database: Path, name: str, row: tuple[bytes, bytes] | None = None) -> None:
    """Adds a column family, perhaps with a row."""
    with edited(database) as opened:
        family = opened.create_column_family(name, _options())
        if row is not None:
            family[row[0]] = row[1]
        family.close()


def put(database: Path, family: str, key: bytes, value: bytes) -> None:
    """Puts a row into a family."""
    with edited(database) as opened:
        found = opened.get_column_family(family)
        found[key] = value
        found.close()


def set_status(database: Path, status: int) -> None:
    """Sets what the store says of how it was closed: 0 cleanly, 1 not."""
    put(database, OFFSETS, STATUS, status.to_bytes(8, signed=True))


def change_offsets(database: Path, change: Callable[[int], int | None]) -> None:
    """Changes every offset; one that becomes ``None`` is taken away."""
    with edited(database) as opened:
        family = opened.get_column_family(OFFSETS)
        for key, value in list(family.items()):
            if key in (STATUS, b"position"):
                continue
            offset = change(int.from_bytes(value, signed=True))
            if offset is None:
                del family[key]
            else:
                family[key] = offset.to_bytes(8, signed=True)
        family.close()


def offsets_of(database: Path) -> dict[str, int]:
    """The offsets of a database, by ``topic-partition``. It is copied to be read."""
    rows = read_database(database)[OFFSETS]
    return {key.decode(): int.from_bytes(value, signed=True) for key, value in rows if key not in (STATUS, b"position")}


# Files beside the stores.


def write_checkpoint(file: Path, offsets: Mapping[str, int]) -> None:
    """Writes a file with offsets as Kafka Streams does; ``topic-partition`` to offset."""
    lines = [f"{topic} {partition} {offset}\n" for (topic, _, partition), offset in _split(offsets)]
    file.write_text(f"0\n{len(lines)}\n" + "".join(lines))


def make_older(application: Path, store: str = PLAIN, task: str = TASK, *, with_checkpoint: bool) -> None:
    """Makes one store of a task as Kafka Streams 4.2 has it: no family ``offsets``, its offset in ``.checkpoint``."""
    database = database_of(application, store, task)
    offsets = offsets_of(database)
    drop_family(database, OFFSETS)
    if with_checkpoint:
        write_checkpoint(application / task / ".checkpoint", offsets)


def _options() -> Options:
    options = Options(raw_mode=True)
    options.set_disable_auto_compactions(True)
    return options


def _split(offsets: Mapping[str, int]) -> Iterator[tuple[tuple[str, str, str], int]]:
    for name, offset in offsets.items():
        yield name.rpartition("-"), offset  # type: ignore[misc]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return value, at
