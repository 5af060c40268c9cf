"""Reproducible damage to an application's directory, by crashes, disks, people and other tools: a table of cases.

``DAMAGES`` is a table by name. Each is inflicted on a golden directory (``tests.golden.directories``), which is without
findings before, and says which findings a doctor must have afterwards::

    application = unpacked(damage.directory, tmp_path)
    damage.inflict(application)
    # ... now a doctor must find damage.findings

What does it to a database or a file is in ``tests.harness.damage_functions``.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType

from statecore.formats.rocksdb_log import read_manifest
from tests.harness.damage_functions import (
    OFFSETS,
    PLAIN,
    STATUS,
    TASK,
    add_family,
    change_offsets,
    cut,
    cut_manifest,
    database_of,
    drop_family,
    edited,
    flip_in_data_block,
    flip_in_footer,
    flip_in_index,
    make_older,
    manifest_of,
    offsets_of,
    put,
    put_foreign_log,
    segments_of,
    set_status,
    tables_of,
    write_checkpoint,
)

AT_LEAST_ONCE, EXACTLY_ONCE = "4.4.0-at-least-once-clean", "4.4.0-exactly-once-clean"
OLDER = "4.2.0-exactly-once-clean"
"""The golden directories that are damaged."""

STAMPED, WINDOWS, VERSIONS = "timestamped-key-value", "timestamped-window", "versioned-key-value"
BUFFER, BUFFER_TASK = "grace-Buffer", "1_0"
GLOBAL_STORE = "global-table"
"""Stores that are damaged, and the tasks that they are in."""

_UNKNOWN = -4
_DAY = 86_400
_SOMEBODY = 23_456

Inflict = Callable[[Path], None]


@dataclass(frozen=True)
class Damage:
    """One damage.

    Attributes:
        inflict: does it to an application's directory.
        findings: codes that a doctor must have then (``statecore.doctor.finding_catalog``); none: it is harmless.
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


def _checkpoint(application: Path, change: Callable[[int], int]) -> None:
    offsets = {name: change(offset) for name, offset in offsets_of(database_of(application, PLAIN)).items()}
    write_checkpoint(application / TASK / ".checkpoint", offsets)


def _older_segment_behind(application: Path) -> None:
    change_offsets(segments_of(application, WINDOWS)[0], lambda offset: offset - 2)


def _rename_segment(application: Path, by_ms: int) -> None:
    """Renames the newest segment of a window store; an earlier name is one that none has."""
    newest = segments_of(application, WINDOWS)[-1]
    store, _, start = newest.name.rpartition(".")
    newest.rename(newest.with_name(f"{store}.{int(start) + by_ms}"))


def _copy_segment(application: Path) -> None:
    """Puts the newest segment of a window store in the place of the oldest, too."""
    oldest, *_, newest = segments_of(application, WINDOWS)
    shutil.rmtree(oldest)
    shutil.copytree(newest, oldest)


def _tables_renumbered(database: Path) -> None:
    """SST files that the MANIFEST does not name, in the place of those that it names; as in a copy while it ran."""
    for number, file in enumerate([*tables_of(database), *tables_of(database, offsets=True)]):
        file.rename(file.with_name(f"{900 + number:06}.sst"))


def _put_short(database: Path, key: bytes = b"zz", value: bytes = b"short") -> None:
    put(database, "keyValueWithTimestamp", key, value)


def _old_times(application: Path) -> None:
    before = (application / TASK).stat().st_mtime - 30 * _DAY
    os.utime(application / TASK, (before, before))


def _flushed_later(application: Path) -> None:
    """Files have the times at which they were flushed, and ``.checkpoint`` is of an hour before."""
    begun = []
    for manifest in (application / TASK).glob("**/MANIFEST-*"):
        for number, file in read_manifest(manifest.read_bytes()).files.items():
            begun.append(file.flushed_at)
            os.utime(manifest.parent / f"{number:06d}.sst", (file.flushed_at, file.flushed_at))
    before = min(begun) - 3600
    os.utime(application / TASK / ".checkpoint", (before, before))


def _copy_task(application: Path) -> None:
    shutil.copytree(application / TASK, application / "7_0")


def _of_another_engine(application: Path) -> None:
    (application / TASK / "index").mkdir()
    (application / TASK / "index" / "segments_1").write_bytes(b"of another engine")
    write_checkpoint(application / TASK / ".checkpoint_index", {f"{application.name}-index-changelog-0": 3})


def _copied_over(application: Path) -> None:
    shutil.rmtree(application / TASK)
    shutil.copytree(application / f"{TASK[:-1]}{1 - int(TASK[-1])}", application / TASK)


def _position_file_garbage(application: Path) -> None:
    (application / TASK / f"{PLAIN}.position").write_bytes(b"\0\xffnot a position\n")


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


def _of_two_formats(database: Path) -> None:
    """A store that keeps headers now, with rows with timestamps, and one of before there were any."""
    add_family(database, "keyValueWithTimestampAndHeaders")
    put(database, "default", b"0-z", b"older")


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


_MISPLACED, _MALFORMED = ("segment-misplaced",), ("rows-malformed",)
_NO_SEGMENT = frozenset({"segment-missing"})
_OFFSET_LOST = frozenset({"offset-missing", "store-not-closed"})
_SCAN, _SPEC, _BROKERS, _CLEANUP = (frozenset({name}) for name in ("scan", "spec", "brokers", "cleanup"))
_SPEC_SCAN = _SPEC | _SCAN


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
        "tables-missing": Damage(_to_database(_each("*.sst")), ("file-missing",)),
        "tables-of-segment-missing": Damage(_to_database(_each("*.sst"), WINDOWS), ("file-missing",)),
        "tables-of-another-moment": Damage(_to_database(_tables_renumbered), ("file-missing",), EXACTLY_ONCE),
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
        "manifest-of-older-cut-before-all-files": Damage(
            _to_database(partial(cut_manifest, all_files=True, between=True), PLAIN), ("manifest-truncated",), OLDER
        ),
        "manifest-empty": Damage(_to_database(lambda path: cut(manifest_of(path), 0)), unreadable),
        "manifest-missing": Damage(_to_database(_unlink(at=manifest_of)), ("file-missing",)),
        "current-empty": Damage(_to_database(lambda path: cut(path / "CURRENT", 0)), unreadable),
        "current-missing": Damage(_to_database(_each("CURRENT")), ("current-missing",)),
        "current-of-segment-missing": Damage(_to_database(_each("CURRENT"), WINDOWS), ("current-missing",)),
        "log-of-another": Damage(_to_database(put_foreign_log, PLAIN), ("log-foreign",)),
        "log-of-another-in-segment": Damage(_to_database(put_foreign_log, WINDOWS), ("log-foreign",), EXACTLY_ONCE),
        "options-missing": Damage(_to_database(_each("OPTIONS-*")), ()),
        "files-set-aside": Damage(_set_aside, ("files-set-aside",)),
    }


def _of_bookkeeping() -> dict[str, Damage]:
    plain = {
        "status-open": Damage(_to_database(lambda path: set_status(path, 1)), ("store-not-closed",)),
        "status-of-one-byte": Damage(
            _to_database(lambda path: put(path, OFFSETS, STATUS, b"\0")), ("store-not-closed",)
        ),
        "offset-unknown": Damage(_to_database(_offset(lambda _: _UNKNOWN)), ("offset-unknown",)),
        "offset-unknown-of-versions": Damage(_to_database(_offset(lambda _: _UNKNOWN), VERSIONS), ("offset-unknown",)),
        "offset-missing": Damage(_to_database(_offset(lambda _: None)), ("offset-missing",)),
        "offset-before-first": Damage(_to_database(_offset(lambda _: -1)), ("offset-unknown",)),
        "offset-invalid": Damage(_to_database(_offset(lambda _: -7)), ("offset-invalid",)),
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
        "task-of-another": Damage(_copied_over, ("offset-foreign",)),
        "task-of-another-exactly-once": Damage(_copied_over, ("offset-foreign",), EXACTLY_ONCE),
        "offset-behind": Damage(_to_database(_offset(lambda offset: offset - 5)), ()),
        "segments-disagree": Damage(_older_segment_behind, ("segments-disagree",)),
        "segments-disagree-exactly-once": Damage(_older_segment_behind, ("segments-disagree",), EXACTLY_ONCE),
        "segments-missing": Damage(
            lambda path: [shutil.rmtree(one) for one in segments_of(path, WINDOWS)] and None,
            ("segment-missing",),
            EXACTLY_ONCE,
        ),
        "segment-renamed": Damage(partial(_rename_segment, by_ms=-600_000), _MISPLACED, needs=_SPEC),
        "segment-renamed-to-a-later-time": Damage(partial(_rename_segment, by_ms=600_000), _MISPLACED, needs=_SPEC),
        "segment-renamed-between-intervals": Damage(partial(_rename_segment, by_ms=1), _MISPLACED, needs=_SPEC),
        "segment-copied-over-another": Damage(_copy_segment, _MISPLACED),
        "key-too-short": Damage(_to_database(partial(_put_short, key=b"short"), WINDOWS), _MALFORMED, needs=_SPEC_SCAN),
        "value-too-short": Damage(_to_database(_put_short), _MALFORMED, needs=_SCAN),
        "key-of-another-segment": Damage(
            _to_database(partial(_put_short, key=b"k" + bytes(12), value=bytes(9)), WINDOWS),
            _MISPLACED,
            needs=_SPEC_SCAN,
        ),
        "global-offset-unknown": Damage(
            in_global(_offset(lambda _: _UNKNOWN)), ("global-offset-unknown",), task="global"
        ),
        "global-offset-negative": Damage(in_global(_offset(lambda _: -1)), ("global-offset-unknown",), task="global"),
        "global-status-open": Damage(
            in_global(lambda path: set_status(path, 1)), ("global-store-not-closed",), EXACTLY_ONCE, task="global"
        ),
        "offsets-family-missing": Damage(
            partial(make_older, with_checkpoint=False), ("half-migrated",), also=frozenset({"older-release"})
        ),
        "half-migrated": Damage(
            partial(make_older, with_checkpoint=True), ("half-migrated",), also=frozenset({"older-release"})
        ),
        "position-garbage": Damage(
            _to_database(lambda path: put(path, OFFSETS, b"position", b"\7garbage")), ("database-unreadable",)
        ),
        "data-family-missing": Damage(
            _to_database(lambda path: drop_family(path, "keyValueWithTimestamp")),
            ("column-family-missing",),
            needs=_SPEC,
            also=frozenset({"kind-mismatch"}),
        ),
        "grace-buffer-restored": Damage(
            _to_database(miskeyed, BUFFER, BUFFER_TASK), ("grace-buffer-miskeyed",), task=BUFFER_TASK
        ),
        "grace-buffer-restored-exactly-once": Damage(
            _to_database(miskeyed, BUFFER, BUFFER_TASK), ("grace-buffer-miskeyed",), EXACTLY_ONCE, task=BUFFER_TASK
        ),
        "stray-family": Damage(
            _to_database(lambda path: add_family(path, "other-tool", (b"k", b"v"))), ("column-family-unknown",)
        ),
        "rows-in-two-older-families": Damage(_to_database(_of_two_formats), ("older-rows-misread",)),
        "rows-in-older-family": Damage(
            _to_database(lambda path: put(path, "default", b"0-z", b"older")), ("older-rows",)
        ),
    }


def _of_surroundings() -> dict[str, Damage]:
    buffer_file = f"{BUFFER_TASK}/.checkpoint_{BUFFER}"
    return {
        "checkpoint-behind": Damage(lambda path: _checkpoint(path, lambda offset: offset - 2), ("checkpoint-behind",)),
        "checkpoint-ahead": Damage(lambda path: _checkpoint(path, lambda offset: offset + 2), ("checkpoint-ahead",)),
        "rows-after-checkpoint": Damage(
            _flushed_later, ("rows-after-checkpoint",), OLDER, also=frozenset({"older-release", *_NO_SEGMENT})
        ),
        "checkpoint-stray": Damage(
            lambda path: write_checkpoint(path / TASK / ".checkpoint", {"nobody-changelog-0": 3}),
            ("checkpoint-stray",),
        ),
        "store-gone-with-its-offset-left": Damage(
            lambda path: shutil.rmtree(path / TASK / "rocksdb" / PLAIN), ("checkpoint-stray",), OLDER
        ),
        "buffer-gone-with-its-offset-left": Damage(
            lambda path: shutil.rmtree(path / BUFFER_TASK / BUFFER), ("checkpoint-stray",), task=BUFFER_TASK
        ),
        "store-of-another-engine": Damage(_of_another_engine, ("store-unread",)),
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
            lambda path: (path / buffer_file).unlink(),
            ("offset-missing",),
            EXACTLY_ONCE,
            task=BUFFER_TASK,
            also=frozenset({"grace-buffer-miskeyed"}),  # the start wipes the task
        ),
        "position-left": Damage(
            lambda path: write_checkpoint(path / TASK / f"{PLAIN}.position", {"in-0": 3}), ("position-leftover",)
        ),
        "position-file-garbage": Damage(_position_file_garbage, ("checkpoint-unreadable",)),
        "position-file-garbage-of-older": Damage(
            _position_file_garbage, ("checkpoint-unreadable",), OLDER, also=frozenset({"older-release", *_NO_SEGMENT})
        ),
        "foreign-file": Damage(_to_database(lambda path: (path / "notes.txt").write_text("{}")), ("foreign-file",)),
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
        "kind-mismatch": Damage(stamped_as_plain, ("kind-mismatch",), needs=_SPEC),
    }


def _replaced(path: Path, by: Callable[[Path], object]) -> None:
    """Puts something else in the place of a file or directory, or where none is."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    by(path)


def _dangling(path: Path) -> None:
    path.symlink_to("/nowhere/at/all")


def _in_place_of(by: Callable[[Path], object], *parts: str) -> Inflict:
    return lambda application: _replaced(application.joinpath(*parts), by)


def _of_database(by: Callable[[Path], object], at: Callable[[Path], Path]) -> Inflict:
    return lambda application: _replaced(at(database_of(application, PLAIN)), by)


def _among_segments(name: str, by: Callable[[Path], object]) -> Inflict:
    return lambda application: by(segments_of(application, WINDOWS)[-1].with_name(name)) and None


def _options_of_another(database: Path) -> None:
    other = next(database.with_name(STAMPED).glob("OPTIONS-*"))
    shutil.copy(other, database / "OPTIONS-900000")


def _of_types() -> dict[str, Damage]:
    """Something else than a file, or than a directory, and entries that belong nowhere."""
    wrong, stray, unreadable = ("wrong-file-type",), ("segment-stray",), ("checkpoint-unreadable",)
    process_file = "kafka-streams-process-metadata"
    last_segment = f"{WINDOWS}.1357035000000"
    return {
        "lock-is-directory": Damage(_in_place_of(Path.mkdir, ".lock"), wrong, task=""),
        "lock-is-pipe": Damage(_in_place_of(os.mkfifo, ".lock"), wrong, task=""),
        "process-file-is-directory": Damage(_in_place_of(Path.mkdir, process_file), wrong, task=""),
        "process-file-dangling": Damage(_in_place_of(_dangling, process_file), wrong, task=""),
        "task-is-file": Damage(_in_place_of(Path.touch, TASK), wrong, task=""),
        "global-is-file": Damage(_in_place_of(Path.touch, "global"), wrong, task=""),
        "task-of-too-great-a-number": Damage(
            lambda path: shutil.copytree(path / TASK, path / f"{TASK[:-1]}2147483648") and None,
            ("task-name-invalid",),
            task="",
        ),
        "task-of-another-name": Damage(lambda path: (path / "0_00").mkdir(), ("foreign-file",), task=""),
        "stores-are-a-file": Damage(_in_place_of(Path.touch, TASK, "rocksdb"), wrong),
        "store-is-file": Damage(_in_place_of(Path.touch, TASK, "rocksdb", PLAIN), wrong),
        "windows-are-a-file": Damage(_in_place_of(Path.touch, TASK, WINDOWS), wrong),
        "checkpoint-is-directory": Damage(_in_place_of(Path.mkdir, TASK, ".checkpoint"), unreadable),
        "checkpoint-is-pipe": Damage(_in_place_of(os.mkfifo, TASK, ".checkpoint"), unreadable),
        "position-is-directory": Damage(_in_place_of(Path.mkdir, TASK, f"{PLAIN}.position"), unreadable),
        "position-is-pipe": Damage(_in_place_of(os.mkfifo, TASK, f"{PLAIN}.position"), unreadable),
        "database-lock-is-directory": Damage(_of_database(Path.mkdir, lambda path: path / "LOCK"), wrong),
        "database-lock-dangling": Damage(_of_database(_dangling, lambda path: path / "LOCK"), wrong),
        "database-lock-is-pipe": Damage(_of_database(os.mkfifo, lambda path: path / "LOCK"), wrong),
        "identity-is-directory": Damage(_of_database(Path.mkdir, lambda path: path / "IDENTITY"), wrong),
        "identity-is-pipe": Damage(_of_database(os.mkfifo, lambda path: path / "IDENTITY"), wrong),
        "table-is-directory": Damage(_of_database(Path.mkdir, lambda path: tables_of(path)[-1]), wrong),
        "table-is-pipe": Damage(_of_database(os.mkfifo, lambda path: tables_of(path)[-1]), wrong),
        "manifest-is-pipe": Damage(_of_database(os.mkfifo, manifest_of), wrong),
        "current-is-pipe": Damage(_of_database(os.mkfifo, lambda path: path / "CURRENT"), ("current-missing",)),
        "log-is-pipe": Damage(_of_database(os.mkfifo, lambda path: path / "000099.log"), wrong),
        "segment-file": Damage(_among_segments("notes.txt", Path.touch), stray),
        "segment-dot-file": Damage(_among_segments(".DS_Store", Path.touch), stray),
        "segment-pipe": Damage(_among_segments("pipe", os.mkfifo), stray),
        "segment-is-file": Damage(_among_segments(last_segment, Path.touch), stray),
        "segment-dangling": Damage(_among_segments(last_segment, _dangling), stray),
        "segment-backup": Damage(_among_segments(f"{last_segment}.bak", Path.mkdir), stray),
        "segment-backup-older": Damage(_among_segments("x", Path.touch), stray, OLDER),
    }


def _harmless() -> dict[str, Damage]:
    """What Kafka Streams does not read, or reads as if it were not there."""
    return {
        "manifest-with-zeros": Damage(
            _to_database(lambda path: manifest_of(path).write_bytes(manifest_of(path).read_bytes() + bytes(4096))), ()
        ),
        "position-with-more-behind-it": Damage(
            _to_database(lambda path: put(path, OFFSETS, b"position", bytes(5) + b"junk")), ()
        ),
        "options-of-another": Damage(_to_database(_options_of_another, PLAIN), ()),
        "options-is-pipe": Damage(_of_database(os.mkfifo, lambda path: max(path.glob("OPTIONS-*"))), ()),
        "offsets-with-another-key": Damage(_to_database(lambda path: put(path, OFFSETS, b"note", b"hello")), ()),
        "offsets-with-another-value": Damage(_to_database(lambda path: put(path, OFFSETS, b"note-1", b"hey")), ()),
        "store-backup": Damage(_to_database(lambda path: shutil.copytree(path, f"{path}.bak")), ()),
        "store-backup-damaged": Damage(
            _to_database(lambda path: tables_of(Path(shutil.copytree(path, f"{path}.bak")))[-1].unlink()), ()
        ),
        "store-backup-open": Damage(
            _to_database(lambda path: set_status(Path(shutil.copytree(path, f"{path}.old")), 1)), (), EXACTLY_ONCE
        ),
        "windows-backup": Damage(
            lambda path: shutil.copytree(path / TASK / WINDOWS, path / TASK / f"{WINDOWS}.old") and None, ()
        ),
        "segment-without-date": Damage(_among_segments(f"{WINDOWS}-old", Path.mkdir), ()),
        "segment-empty": Damage(_among_segments(f"{WINDOWS}.1357035000000", Path.mkdir), ()),
        "name-not-utf8": Damage(lambda path: (path / TASK / os.fsdecode(b"\xff\xfe")).touch(), ("foreign-file",)),
        "lost-and-found": Damage(lambda path: (path / TASK / "lost+found").mkdir(), (), EXACTLY_ONCE),
        "lock-points-to-new-file": Damage(_in_place_of(lambda path: path.symlink_to("new"), ".lock"), (), task=""),
    }


def _offset(change: Callable[[int], int | None]) -> Callable[[Path], None]:
    return lambda database: change_offsets(database, change)


def miskeyed(database: Path) -> None:
    """Gives the rows of a grace buffer the keys and values that Kafka Streams' own restore gives them."""
    with edited(database) as opened:
        for key, value in list(opened.items()):
            del opened[key]
            opened[key[:1] + key[-12:-4] + key[:-12] + key[-4:]] = value + bytes(8)


def stamped_as_plain(application: Path, task: str = TASK) -> None:
    """A database of a timestamped store where a plain one is declared."""
    target = database_of(application, PLAIN, task)
    kept = offsets_of(target)
    shutil.rmtree(target)
    shutil.copytree(database_of(application, STAMPED, task), target)
    with edited(target) as opened:
        family = opened.get_column_family(OFFSETS)
        for key in [key for key in family.keys() if key not in (STATUS, b"position")]:  # noqa: SIM118
            del family[key]
        for name, offset in kept.items():
            family[name.encode()] = offset.to_bytes(8, signed=True)
        family.close()


DAMAGES: Mapping[str, Damage] = MappingProxyType(
    {**_of_files(), **_of_bookkeeping(), **_of_surroundings(), **_of_types(), **_harmless()}
)
"""Every damage by name. Each leads to its findings and to nothing else but notes."""
