"""Where the databases of a global store lie while it is built anew, and how they are moved: by renames alone.

::

    <application>/global/rocksdb/<store>            whole, or not there
    <application>/.statecore/
      global-new/<store>                            half built; nobody opens it but who builds it
      global-new/<store>@runs/                      runs on their way into it, or into the live one
      global-old/<store>@0                          set aside, whole but old: shown to who asks for stale rows
      global-unusable/<store>@0                     set aside, damaged or not closed
      global-topics.json                            the topics' ids that the stores are built of

Killed at any moment, ``global/`` has a whole store or none, and who starts next (Kafka Streams too) builds none or all.
What was set aside goes when the rebuilt store is in its place and verified, or at the next start that finds it there.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from statecore.documents import DocumentType
from statecore.errors import Invalid
from statecore.faults import FaultPoints
from statecore.filesystem import discard_tree, sync_file, write_durably
from statecore.formats.kinds import StoreKind
from statecore.formats.releases import GLOBAL
from statecore.placement.state_directory import StateDirectory
from statecore.placement.work_directory import GLOBAL_NEW, GLOBAL_OLD, GLOBAL_TOPICS, GLOBAL_UNUSABLE
from statecore.system_errors import system_error


class GlobalPlaces:
    """The places of one global store.

    Args:
        directory: the application's state directory, locked.
        store: the store.
        kind: what it is.
        faults: points at which a test lets the process die.
    """

    def __init__(self, directory: StateDirectory, store: str, kind: StoreKind, faults: FaultPoints) -> None:
        self._directory, self._store, self._faults = directory, store, faults
        self.live = directory.store_path(GLOBAL, store, kind)
        """Where Kafka Streams looks for it."""
        self.new = directory.work_path / GLOBAL_NEW / store
        """Where it is built."""
        self.runs = directory.work_path / GLOBAL_NEW / f"{store}@runs"
        """Where runs are written."""

    def clear(self) -> None:
        """Delete what is half built, and make the directories that building needs.

        Raises:
            Invalid: there is no right to it.
            Capacity: no room.
        """
        self._check()
        discard_tree(self.new)
        discard_tree(self.runs)
        self._make(self.runs)

    def set_aside(self, *, trusted: bool) -> None:
        """Move the live store out of ``global/``, durably; it may be open.

        Args:
            trusted: whether its rows are whole.
        """
        self._check()
        aside = self._directory.work_path / (GLOBAL_OLD if trusted else GLOBAL_UNUSABLE)
        self._make(aside)
        taken = {path.name for path in aside.iterdir()}
        number = next(number for number in range(len(taken) + 1) if f"{self._store}@{number}" not in taken)
        target = aside / f"{self._store}@{number}"
        self._faults.reach("global.before-aside")
        self._move(self.live, target)
        self._faults.reach("global.after-aside")

    def place(self) -> None:
        """Move the store that was built, closed and durable, to where Kafka Streams looks for it."""
        self._check()
        self._make(self.live.parent)
        self._faults.reach("global.before-place")
        self._move(self.new, self.live)
        self._faults.reach("global.after-place")

    def set_aside_before(self) -> Path | None:
        """The newest store that was set aside whole and is still there."""
        found = self._aside(GLOBAL_OLD)
        return max(found, key=lambda path: path.stat().st_mtime) if found else None

    def discard_aside(self) -> None:
        """Delete what was set aside."""
        self._check()
        for path in (*self._aside(GLOBAL_OLD), *self._aside(GLOBAL_UNUSABLE)):
            discard_tree(path)

    def _aside(self, name: str) -> list[Path]:
        return list((self._directory.work_path / name).glob(f"{self._store}@*"))

    def _check(self) -> None:
        self._directory.check_locked()

    def _move(self, source: Path, target: Path) -> None:
        try:
            source.rename(target)
            sync_file(target.parent)
            sync_file(source.parent)
        except OSError as error:
            raise _refused(target, error) from error

    def _make(self, path: Path) -> None:
        if path.is_dir():
            return
        self._make(path.parent)
        try:
            path.mkdir(exist_ok=True)
            self._directory.ownership.give(path)
            sync_file(path.parent)
        except OSError as error:
            raise _refused(path, error) from error


def _refused(path: Path, error: OSError) -> Exception:
    return system_error(
        error,
        f"{path} cannot be made",
        action="Run as the user that the application runs as.",
        path=str(path),
    )


@dataclass(frozen=True)
class _Topics:
    """The ids of the topics.

    Attributes:
        topics: by store, the topic and its id, 32 hex digits.
    """

    topics: dict[str, tuple[str, str]]


_DOCUMENT = DocumentType("record of global topics", 1, _Topics, action="Delete it; the stores are built anew.")


class RememberedTopics:
    """Which topics, by id, the stores in ``global/`` are built of: nothing in a store says it.

    Args:
        directory: the application's state directory, locked.
        faults: points at which a test lets the process die.
    """

    def __init__(self, directory: StateDirectory, faults: FaultPoints) -> None:
        self._directory, self._faults = directory, faults
        self._path = directory.work_path / GLOBAL_TOPICS
        self._topics: dict[str, tuple[str, str]] = {}
        self.unreadable = False
        """Whether a file is there that says nothing any more."""
        with suppress(FileNotFoundError):
            try:
                self._topics = dict(_DOCUMENT.decode(self._path.read_bytes()).topics)
            except (Invalid, OSError) as error:
                if isinstance(error, FileNotFoundError):
                    raise
                self.unreadable = True

    def of(self, store: str, topic: str) -> str | None:
        """The id of the topic that a store is built of; ``None`` where nobody knows it, or it was another topic."""
        name, topic_id = self._topics.get(store, ("", ""))
        return topic_id if name == topic else None

    def remember(self, store: str, topic: str, topic_id: str) -> None:
        """Write down that a store, which is in its place, is built of a topic.

        Raises:
            Capacity, Invalid: it cannot be written.
        """
        if self._topics.get(store) == (topic, topic_id) and not self.unreadable:
            return
        self._directory.check_locked()
        topics = {**self._topics, store: (topic, topic_id)}
        self._faults.reach("global.before-topics")
        try:
            write_durably(self._path, _DOCUMENT.encode(_Topics(topics)))
            self._directory.ownership.give(self._path)
        except OSError as error:
            raise _refused(self._path, error) from error
        self._topics = topics
