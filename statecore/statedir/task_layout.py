"""Contents of a task's directory, or of ``global/``: its stores and the files beside them.

The layout of a store's directory shows whether it has segments, but not its kind (:mod:`statecore.formats.releases` has
both). Only names are read here, and the MANIFEST of a database without rows.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from statecore.errors import StatecoreError
from statecore.formats.checkpoint import store_checkpoint_file
from statecore.formats.releases import CHECKPOINT_FILE, PLAIN_PARENT, POSITION_SUFFIX
from statecore.formats.rocksdb_log import DATA_SUFFIXES
from statecore.formats.segments import Segmentation
from statecore.stores.rocksdb.directory import has_database, is_empty, is_interrupted_creation, is_unfinished_creation
from statecore.stores.rocksdb.directory_lock import writer_of
from statecore.system_errors import RUN_AS_APPLICATION, system_error

_TIME = re.compile(r"[+-]?[0-9]+")


@dataclass(frozen=True)
class Segment:
    """A segment of a store.

    Attributes:
        start: start of its interval in ms, from its name; ``None`` if the name is not a segment's.
    """

    path: Path
    start: int | None


@dataclass(frozen=True)
class StoreDirectory:
    """The directory of one store.

    Attributes:
        path: the directory: ``rocksdb/<store>`` or ``<store>`` in the task's.
        segmented: whether it has the layout for segments.
    """

    store: str
    path: Path
    segmented: bool

    @property
    def name(self) -> str:
        """The directory, relative to the task's."""
        return self.store if self.segmented else f"{PLAIN_PARENT}/{self.store}"

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Its current segments in order of time, without unfinished ones; none for a store that is one database.

        For unfinished ones see :mod:`statecore.stores.rocksdb.directory`. Raises ``Invalid`` without read
        access.
        """
        return tuple(segments_in(self.path, self.store)) if self.segmented else ()

    @property
    def databases(self) -> tuple[Path, ...]:
        """Its current databases: its own directory, or its segments in order of time.

        There are none before Kafka Streams has created one. Raises ``Invalid`` without read access.
        """
        if not self.segmented and not has_database(self.path):  # what has no time in its name is a copy of itself
            return tuple(one.path for one in segments_in(self.path, self.store) if one.start is not None)
        return tuple(databases_of(self.path))

    @property
    def checkpoint_file(self) -> Path:
        task_directory = self.path.parent if self.segmented else self.path.parent.parent
        return task_directory / store_checkpoint_file(self.store)

    @property
    def checkpoint(self) -> Path | None:
        """``.checkpoint_<store>``, if it exists."""
        return self.checkpoint_file if self.checkpoint_file.is_file() else None


def stores_in(task_directory: Path) -> list[StoreDirectory]:
    """The stores of a task (or of ``global/``), unsegmented ones first, by name. Raises ``Invalid``."""
    plain = [StoreDirectory(path.name, path, False) for path in directories_in(task_directory / PLAIN_PARENT)]
    others = [path for path in directories_in(task_directory) if not _is_no_store(path)]
    return plain + [StoreDirectory(path.name, path, True) for path in others]


def _is_no_store(path: Path) -> bool:
    """Whether a directory of a task is no store: the parent of stores, or in the place of an offset file.

    Kafka Streams lets a store of windows have the name of every such file but ``.checkpoint``; its segments show it.
    """
    if path.name in (PLAIN_PARENT, CHECKPOINT_FILE):
        return True
    store = path.name.removesuffix(POSITION_SUFFIX)
    is_position = store != path.name and (
        (path.parent / store).is_dir() or (path.parent / PLAIN_PARENT / store).is_dir()
    )
    if not is_position and not path.name.startswith(f"{CHECKPOINT_FILE}_") and path.name != f"{CHECKPOINT_FILE}.tmp":
        return False
    return not any(segment_start(name, path.name) is not None for name in entry_names(path))


def strays_among_segments(store: StoreDirectory) -> list[tuple[str, str]]:
    """Entries of a store's directory with which Kafka Streams opens none of its segments, each with the reason.

    It takes the character behind as many as the store's name has for the separator
    (``AbstractSegments.segmentIdFromSegmentName``), skips a name with ``-`` that has no date, and fails at others.
    """
    found = []
    for name in entry_names(store.path):
        separator, text = name[len(store.store) : len(store.store) + 1], name[len(store.store) + 1 :]
        if separator == "-" and segment_start(name, store.store) is None:
            continue
        if separator != "-" and not _TIME.fullmatch(text):
            found.append((name, "whose name is not that of a segment"))
        elif not (store.path / name).is_dir():
            found.append((name, "which is not a directory"))
    return found


def entry_names(path: Path) -> list[str]:
    """The names in a directory, sorted; none if it does not exist. Raises ``Invalid`` without read access."""
    try:
        return sorted(entry.name for entry in path.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise unreadable(path, error) from error


def segments_in(store_directory: Path, store: str) -> list[Segment]:
    """The segments of a store in order of time, those without a time in their name last. Raises ``Invalid``."""
    found = [Segment(path, segment_start(path.name, store)) for path in directories_in(store_directory)]
    found = [segment for segment in found if _is_there(segment.path, store_directory)]
    return sorted(found, key=lambda segment: (segment.start is None, segment.start or 0, segment.path.name))


def segment_start(name: str, store: str) -> int | None:
    """The time in ms in the name of a segment's directory, also in the forms of older versions; ``None`` otherwise.

    ``clicks.1795251600000`` now; ``clicks:1795251600000`` and ``clicks-202611201400`` (UTC) before.
    """
    if not name.startswith(store):
        return None
    separator, text = name[len(store) : len(store) + 1], name[len(store) + 1 :]
    if not text.isascii() or not text.isdigit():
        return None
    if separator == "." and text != str(int(text)):  # Kafka Streams opens the name without zeros
        return None
    if separator in (".", ":"):
        return int(text) if int(text) < 1 << 63 else None
    if separator == "-" and len(text) == 12:
        try:
            return int(datetime.strptime(text, "%Y%m%d%H%M").replace(tzinfo=UTC).timestamp() * 1000)
        except ValueError:
            return None
    return None


def opened_segment(name: str, store: str) -> str | None:
    """The segment that Kafka Streams opens for an entry of a store's directory; ``None`` if it takes it for none.

    It reads the time behind as many characters as the store's name and a separator have, whatever these are, and opens
    the segment of that time by its own name (``AbstractSegments.openExisting``).
    """
    separator, text = name[len(store) : len(store) + 1], name[len(store) + 1 :]
    return f"{store}.{int(text)}" if separator != "-" and _TIME.fullmatch(text) else None


def databases_of(store_directory: Path) -> list[Path]:
    """The databases of a store: its directory itself, or its segments in order of time."""
    if has_database(store_directory):
        return [store_directory] if _is_there(store_directory, store_directory) else []
    return [segment.path for segment in segments_in(store_directory, store_directory.name)]


def rows_without_current(store: StoreDirectory) -> dict[Path, frozenset[str]]:
    """Directories of a store with data files but without ``CURRENT``, and those files. Raises ``Invalid``.

    The store was deleted, or copied, in part: ``CURRENT`` is written before the first row. Rows that were never flushed
    are only in a log.
    """
    places = directories_in(store.path) if store.segmented else [store.path]
    found = {path: frozenset(_files_of_rows(path)) for path in places if not has_database(path)}
    return {path: names for path, names in found.items() if names}


def why_partially_deleted(place: StoreDirectory, segmentation: Segmentation | None = None) -> str:
    """Why a store has rows that no database reads: data files without ``CURRENT``; empty if it has none.

    An expired segment is no loss: a process was killed while it deleted that. Where Kafka Streams would open such a
    segment as an empty database, :func:`rows_without_current` is asked instead.

    Args:
        segmentation: how rows are segmented, where that is known.
    """
    half = rows_without_current(place)
    expired = half_expired(place, segmentation) if half else []
    lost = next((path for path in half if path not in expired), None)
    return "" if lost is None else f"{lost} has data files and no CURRENT: it was deleted, or copied, in part."


def half_expired(place: StoreDirectory, segmentation: Segmentation | None) -> list[Path]:
    """Partly deleted segments that had expired by the newest segment.

    Where the retention is not a multiple of the interval, a segment may have expired by a later time within the newest
    segment, which is unknown; such a segment counts as damage.
    """
    if not place.segmented or segmentation is None:
        return []
    half = rows_without_current(place)
    if not half:
        return []
    newest = max((segment.start or 0 for segment in place.segments), default=0)
    first = segmentation.first_live(newest) * segmentation.interval_ms
    starts = [(path, segment_start(path.name, place.store)) for path in half]
    return [path for path, start in starts if start is not None and start < first]


def _files_of_rows(path: Path) -> Iterator[str]:
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                suffix = Path(entry.name).suffix
                with suppress(FileNotFoundError):  # a process that has it open deletes files
                    if suffix in DATA_SUFFIXES or (suffix == ".log" and entry.stat().st_size > 0):
                        yield entry.name
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise unreadable(path, error) from error


def unfinished_in(store: StoreDirectory) -> list[Path]:
    """Directories left by interrupted creations of databases: of segments, or the store's own. Raises ``Invalid``."""
    places = [store.path]
    if store.segmented:
        places = [path for path in directories_in(store.path) if segment_start(path.name, store.store) is not None]
    return [path for path in places if _is_unfinished(path, store.path)]


def _is_unfinished(path: Path, store_directory: Path) -> bool:
    if has_database(path):
        return is_unfinished_creation(path, _other_databases(path, store_directory))
    return is_interrupted_creation(path) and writer_of(path) is None


def _is_there(database: Path, store_directory: Path) -> bool:
    """Whether a directory is a database whose creation was not interrupted."""
    return has_database(database) and not is_unfinished_creation(database, _other_databases(database, store_directory))


def _other_databases(database: Path, store_directory: Path) -> Iterator[Path]:
    """The other databases of a store, of its task, and of the other tasks, finished or not.

    Other tasks tell nothing about a task that an older release has left: 4.3 and later delete ``.checkpoint`` at a
    start, and add ``offsets`` to every database that they open.
    """
    task = store_directory.parent.parent if store_directory.parent.name == PLAIN_PARENT else store_directory.parent
    of_task = [path for path in _databases_in(task) if path != database]
    yield from of_task
    if (task / CHECKPOINT_FILE).exists() or not all(map(is_empty, of_task)):
        return
    for directory in directories_in(task.parent):
        if directory != task:
            yield from _databases_in(directory)


def _databases_in(task_directory: Path) -> Iterator[Path]:
    for store in stores_in(task_directory):
        yield from (path for path in (store.path, *directories_in(store.path)) if has_database(path))


def directories_in(path: Path) -> list[Path]:
    """The directories in a directory, by name; none if it does not exist. Raises ``Invalid`` without read access."""
    try:
        with os.scandir(path) as entries:
            return sorted(Path(entry.path) for entry in entries if Path(entry.path).is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError) -> StatecoreError:
    """The error for a directory that this process may not read."""
    return system_error(error, f"{path} cannot be read", action=RUN_AS_APPLICATION, path=str(path))


def names_in(task_directory: Path) -> list[str]:
    """Every name in a task's directory, stores without segments as ``rocksdb/<store>``; sorted."""
    names = [entry.name for entry in os.scandir(task_directory) if entry.name != PLAIN_PARENT]
    if (task_directory / PLAIN_PARENT).is_dir():
        names += [f"{PLAIN_PARENT}/{entry.name}" for entry in os.scandir(task_directory / PLAIN_PARENT)]
    return sorted(names)


def store_of(task_directory: Path, name: str) -> str:
    """The store that a directory, or a file beside the stores, belongs to; the name itself if it is no such file."""
    if (task_directory / name).is_dir():
        return name.removeprefix(f"{PLAIN_PARENT}/")
    if name.startswith(f"{CHECKPOINT_FILE}_"):
        return name.removeprefix(f"{CHECKPOINT_FILE}_").removesuffix(".tmp")
    return name.removesuffix(POSITION_SUFFIX)
