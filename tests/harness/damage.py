"""Damage to the directory of an application, the same each time: what crashes, disks, people and other tools leave.

``DAMAGES`` is a table by name. Each is inflicted on a golden directory (``tests.golden.directories``), which is without
findings before, and says which findings a doctor must have afterwards::

    application = unpacked(damage.directory, tmp_path)
    damage.inflict(application)
    # ... now a doctor must find damage.findings

The functions below the table's are for any database: they take its directory, and change it in place.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rocksdict import Options, Rdict

from statecore.formats.rocksdb_log import read_manifest

AT_LEAST_ONCE, EXACTLY_ONCE = "4.3.1-at-least-once-clean", "4.3.1-exactly-once-clean"
"""The golden directories that are damaged."""

TASK = "0_0"
PLAIN, STAMPED, WINDOWS, VERSIONS = "key-value", "timestamped-key-value", "timestamped-window", "versioned-key-value"
BUFFER, BUFFER_TASK = "grace-Buffer", "1_0"
GLOBAL_STORE = "global-table"
"""Stores that are damaged, and the tasks that they are in."""

_OFFSETS = "offsets"
_STATUS = b"status"
_UNKNOWN = -4
_DAY = 86_400
_FOOTER = 53
_SOMEBODY = 23_456

Inflict = Callable[[Path], None]


@dataclass(frozen=True)
class Damage:
    """One damage.

    Attributes:
        inflict: does it to an application's directory.
        findings: codes that a doctor must have then (``statecore.maintenance.catalogue``); none: it is harmless.
        directory: the golden directory that it is done to.
        needs: what the doctor needs to find it: ``spec``, ``scan``, ``brokers``, ``cleanup`` (that it is told a
            ``state.cleanup.dir.max.age.ms`` of a day).
        also: codes that may come with it.
        task: where it is, so that findings elsewhere are wrong; empty: in the whole application.
    """

    inflict: Inflict
    findings: tuple[str, ...]
    directory: str = AT_LEAST_ONCE
    needs: frozenset[str] = frozenset()
    also: frozenset[str] = field(default_factory=frozenset)
    task: str = TASK


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
    found = [database / f"{one.number:06}.sst" for one in files.values() if (one.family == _OFFSETS) == offsets]
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
        length = read_manifest(data[:length]).whole_bytes
    manifest.write_bytes(data[:length])
    return length


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
    put(database, _OFFSETS, _STATUS, status.to_bytes(8, signed=True))


def change_offsets(database: Path, change: Callable[[int], int | None]) -> None:
    """Changes every offset; one that becomes ``None`` is taken away."""
    with edited(database) as opened:
        family = opened.get_column_family(_OFFSETS)
        for key, value in list(family.items()):
            if key in (_STATUS, b"position"):
                continue
            offset = change(int.from_bytes(value, signed=True))
            if offset is None:
                del family[key]
            else:
                family[key] = offset.to_bytes(8, signed=True)
        family.close()


def offsets_of(database: Path) -> dict[str, int]:
    """The offsets of a database, by ``topic-partition``. It is copied to be read."""
    from tests.harness.directory import read_database

    rows = read_database(database)[_OFFSETS]
    return {
        key.decode(): int.from_bytes(value, signed=True) for key, value in rows if key not in (_STATUS, b"position")
    }


# Files beside the stores.


def write_checkpoint(file: Path, offsets: Mapping[str, int]) -> None:
    """Writes a file with offsets as Kafka Streams does; ``topic-partition`` to offset."""
    lines = [f"{topic} {partition} {offset}\n" for (topic, _, partition), offset in _split(offsets)]
    file.write_text(f"0\n{len(lines)}\n" + "".join(lines))


def make_older(application: Path, store: str = PLAIN, task: str = TASK, *, with_checkpoint: bool) -> None:
    """Makes one store of a task as Kafka Streams 4.2 has it: no family ``offsets``, its offset in ``.checkpoint``."""
    database = database_of(application, store, task)
    offsets = offsets_of(database)
    drop_family(database, _OFFSETS)
    if with_checkpoint:
        write_checkpoint(application / task / ".checkpoint", offsets)


def _checkpoint(application: Path, change: Callable[[int], int]) -> None:
    offsets = {name: change(offset) for name, offset in offsets_of(database_of(application, PLAIN)).items()}
    write_checkpoint(application / TASK / ".checkpoint", offsets)


def _older_segment_behind(application: Path) -> None:
    change_offsets(segments_of(application, WINDOWS)[0], lambda offset: offset - 2)


def _old_times(application: Path) -> None:
    before = (application / TASK).stat().st_mtime - 30 * _DAY
    os.utime(application / TASK, (before, before))


def _copy_task(application: Path) -> None:
    shutil.copytree(application / TASK, application / "7_0")


def _set_aside(application: Path) -> None:
    database = database_of(application, PLAIN)
    (database / "lost").mkdir()
    shutil.copy(tables_of(database)[0], database / "lost" / "000099.sst")


def _not_for_root(inflict: Inflict) -> Inflict:
    """Where root inflicts it, the directory is somebody else's before: root may use every file."""

    def inflict_on(application: Path) -> None:
        if os.geteuid() == 0:
            for path in (application, *application.rglob("*")):
                os.chown(path, _SOMEBODY, _SOMEBODY)
        inflict(application)

    return inflict_on


def _zeroed(table: Path) -> None:
    table.write_bytes(bytes(table.stat().st_size))


def _to_table(inflict: Callable[[Path], object], store: str = STAMPED) -> Inflict:
    return lambda application: inflict(tables_of(database_of(application, store))[-1]) and None


def _to_database(inflict: Callable[[Path], object], store: str = STAMPED, task: str = TASK) -> Inflict:
    return lambda application: inflict(database_of(application, store, task)) and None


def _unlink(*, at: Callable[[Path], Path]) -> Callable[[Path], None]:
    return lambda database: at(database).unlink()


def _each(*names: str) -> Callable[[Path], None]:
    def remove(database: Path) -> None:
        for path in (path for name in names for path in database.glob(name)):
            path.unlink()

    return remove


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


_OFFSET_LOST = frozenset({"offset-missing", "store-not-closed"})
_SCAN, _SPEC, _BROKERS, _CLEANUP = (frozenset({name}) for name in ("scan", "spec", "brokers", "cleanup"))


def _of_files() -> dict[str, Damage]:
    unreadable = ("database-unreadable",)
    return {
        "bit-in-data-block": Damage(_to_table(flip_in_data_block), ("block-corrupt",), needs=_SCAN),
        "bit-in-data-block-of-offsets": Damage(
            _to_database(lambda path: flip_in_data_block(tables_of(path, offsets=True)[-1])), ("block-corrupt",)
        ),
        "bit-in-data-block-of-segment": Damage(_to_table(flip_in_data_block, WINDOWS), ("block-corrupt",), needs=_SCAN),
        "bit-in-footer": Damage(_to_table(flip_in_footer), unreadable),
        "bit-in-index": Damage(_to_table(flip_in_index), unreadable),
        "table-zeroed": Damage(_to_table(_zeroed), unreadable),
        "table-cut": Damage(_to_table(partial(cut, length=-60)), unreadable),
        "table-empty": Damage(_to_table(partial(cut, length=0)), unreadable),
        "table-missing": Damage(_to_table(Path.unlink), ("file-missing",)),
        "table-of-segment-missing": Damage(_to_table(Path.unlink, WINDOWS), ("file-missing",)),
        **{
            f"manifest-{name}": Damage(_to_database(how, store), ("manifest-truncated",), also=_OFFSET_LOST)
            for name, how, store in (
                ("cut-once", cut_manifest, STAMPED),
                ("cut-before-all-files", partial(cut_manifest, all_files=True), STAMPED),
                ("cut-between-records", partial(cut_manifest, between=True), STAMPED),
                ("of-segment-cut", cut_manifest, WINDOWS),
                ("of-versions-cut", partial(cut_manifest, between=True), VERSIONS),
            )
        },
        "manifest-empty": Damage(_to_database(lambda path: cut(manifest_of(path), 0)), unreadable),
        "manifest-missing": Damage(_to_database(_unlink(at=manifest_of)), ("file-missing",)),
        "current-empty": Damage(_to_database(lambda path: cut(path / "CURRENT", 0)), unreadable),
        "current-missing": Damage(_to_database(_each("CURRENT")), ("current-missing",)),
        "current-of-segment-missing": Damage(_to_database(_each("CURRENT"), WINDOWS), ("current-missing",)),
        "options-missing": Damage(_to_database(_each("OPTIONS-*")), ()),
        "files-set-aside": Damage(_set_aside, ("files-set-aside",)),
    }


def _of_bookkeeping() -> dict[str, Damage]:
    plain = {
        "status-open": Damage(_to_database(lambda path: set_status(path, 1)), ("store-not-closed",)),
        "offset-unknown": Damage(_to_database(_offset(lambda _: _UNKNOWN)), ("offset-unknown",)),
        "offset-unknown-of-versions": Damage(_to_database(_offset(lambda _: _UNKNOWN), VERSIONS), ("offset-unknown",)),
        "offset-missing": Damage(_to_database(_offset(lambda _: None)), ("offset-missing",)),
    }
    under_exactly_once = {
        f"{name}-exactly-once": Damage(one.inflict, one.findings, EXACTLY_ONCE) for name, one in plain.items()
    }
    in_global = partial(_to_database, store=GLOBAL_STORE, task="global")
    return {
        **plain,
        **under_exactly_once,
        "offset-past-end": Damage(
            _to_database(_offset(lambda offset: offset + 5)), ("offset-past-end",), needs=_BROKERS
        ),
        "offset-behind": Damage(_to_database(_offset(lambda offset: offset - 5)), ()),
        "segments-disagree": Damage(_older_segment_behind, ("segments-disagree",)),
        "segments-disagree-exactly-once": Damage(_older_segment_behind, ("segments-disagree",), EXACTLY_ONCE),
        "segments-missing": Damage(
            lambda path: [shutil.rmtree(one) for one in segments_of(path, WINDOWS)] and None,
            ("segment-missing",),
            EXACTLY_ONCE,
        ),
        "global-offset-unknown": Damage(
            in_global(_offset(lambda _: _UNKNOWN)), ("global-offset-unknown",), task="global"
        ),
        "global-status-open": Damage(
            in_global(lambda path: set_status(path, 1)), ("global-store-not-closed",), EXACTLY_ONCE, task="global"
        ),
        "offsets-family-missing": Damage(
            partial(make_older, with_checkpoint=False), ("half-migrated",), also=frozenset({"older-release"})
        ),
        "half-migrated": Damage(
            partial(make_older, with_checkpoint=True), ("half-migrated",), also=frozenset({"older-release"})
        ),
        "data-family-missing": Damage(
            _to_database(lambda path: drop_family(path, "keyValueWithTimestamp")),
            ("column-family-missing",),
            needs=_SPEC,
            also=frozenset({"kind-mismatch"}),
        ),
        "stray-family": Damage(
            _to_database(lambda path: add_family(path, "other-tool", (b"k", b"v"))), ("column-family-unknown",)
        ),
        "rows-in-older-family": Damage(
            _to_database(lambda path: put(path, "default", b"0-z", b"older")), ("older-rows",)
        ),
    }


def _of_surroundings() -> dict[str, Damage]:
    buffer_file = f"{BUFFER_TASK}/.checkpoint_{BUFFER}"
    return {
        "checkpoint-behind": Damage(lambda path: _checkpoint(path, lambda offset: offset - 2), ("checkpoint-behind",)),
        "checkpoint-ahead": Damage(lambda path: _checkpoint(path, lambda offset: offset + 2), ("checkpoint-ahead",)),
        "checkpoint-stray": Damage(
            lambda path: write_checkpoint(path / TASK / ".checkpoint", {"nobody-changelog-0": 3}),
            ("checkpoint-stray",),
        ),
        "checkpoint-garbage": Damage(
            lambda path: (path / TASK / ".checkpoint").write_bytes(b"\0\xffnot offsets\n") and None,
            ("checkpoint-unreadable",),
        ),
        "checkpoint-of-store-garbage": Damage(
            lambda path: (path / buffer_file).write_text("0\n2\nonly one 3\n") and None,
            ("checkpoint-unreadable",),
            task=BUFFER_TASK,
        ),
        "checkpoint-of-store-missing": Damage(
            lambda path: (path / buffer_file).unlink(), ("offset-missing",), EXACTLY_ONCE, task=BUFFER_TASK
        ),
        "position-left": Damage(
            lambda path: write_checkpoint(path / TASK / f"{PLAIN}.position", {"in-0": 3}), ("position-leftover",)
        ),
        "foreign-file": Damage(
            _to_database(lambda path: (path / "rocksdict-config.json").write_text("{}")), ("foreign-file",)
        ),
        "modes-of-table": Damage(_not_for_root(_to_table(lambda path: path.chmod(0))), ("rights",)),
        "modes-of-directory": Damage(_not_for_root(_to_database(lambda path: path.chmod(0o500))), ("rights",)),
        "old-times": Damage(_old_times, ("cleaning-deletes",), needs=_CLEANUP),
        "store-undeclared": Damage(
            lambda path: shutil.copytree(database_of(path, PLAIN), path / TASK / "rocksdb" / "forgotten") and None,
            ("store-undeclared",),
            needs=_SPEC,
            task="",
        ),
        "store-absent": Damage(
            lambda path: [shutil.rmtree(database_of(path, PLAIN, f"0_{p}")) for p in range(2)] and None,
            ("store-absent",),
            needs=_SPEC,
            task="",
        ),
        "task-undeclared": Damage(_copy_task, ("task-undeclared",), needs=_SPEC, task="7_0"),
        "kind-mismatch": Damage(_stamped_as_plain, ("kind-mismatch",), needs=_SPEC, task=""),
    }


def _offset(change: Callable[[int], int | None]) -> Callable[[Path], None]:
    return lambda database: change_offsets(database, change)


def _stamped_as_plain(application: Path) -> None:
    """A database of a timestamped store where a plain one is declared."""
    target = database_of(application, PLAIN)
    kept = offsets_of(target)
    shutil.rmtree(target)
    shutil.copytree(database_of(application, STAMPED), target)
    with edited(target) as opened:
        family = opened.get_column_family(_OFFSETS)
        for key in [key for key in family.keys() if key not in (_STATUS, b"position")]:  # noqa: SIM118
            del family[key]
        for name, offset in kept.items():
            family[name.encode()] = offset.to_bytes(8, signed=True)
        family.close()


DAMAGES: Mapping[str, Damage] = MappingProxyType({**_of_files(), **_of_bookkeeping(), **_of_surroundings()})
"""Every damage by name. Each leads to its findings and to nothing else but notes."""


def damages(*needs: str) -> Sequence[str]:
    """The names of the damages that are found with no more than this at hand, for parametrized tests."""
    return [name for name, damage in DAMAGES.items() if damage.needs <= set(needs)]
