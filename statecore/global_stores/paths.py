"""Where the databases of a global store lie while it is built anew, and how they are moved: by renames alone.

::

    <application>/global/rocksdb/<store>            whole, or not there
    <application>/.statecore/
      global-new/<store>                            half built; nobody opens it but who builds it
      global-new/<store>@runs/                      runs on their way into it, or into the live one
      global-old/<store>@0                          set aside, whole but old: shown to who asks for stale rows
      global-unusable/<store>@0                     set aside, damaged or not closed
      global-topics.json                            the topics' ids that the stores are built of (:mod:`.global_topics`)

Killed at any moment, ``global/`` has a whole store or none, and who starts next (Kafka Streams too) builds none or all.
What was set aside is moved to ``.statecore/stale`` when the rebuilt store is in its place and verified, or at the next
start that finds it there (:mod:`.global_kept`).
"""

from __future__ import annotations

import glob
from pathlib import Path

from statecore.errors import Retryable
from statecore.faults import FaultPoints
from statecore.filesystem import discard_tree, sync_file
from statecore.formats.kinds import StoreKind
from statecore.formats.releases import GLOBAL
from statecore.statedir.journal import identity_of
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.work_directory import GLOBAL_NEW, GLOBAL_OLD, GLOBAL_UNUSABLE
from statecore.system_errors import system_error


class GlobalPaths:
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
            Retryable: what is half built cannot be deleted.
        """
        self._check()
        discard_tree(self.new)
        discard_tree(self.runs)
        if self.new.exists():
            raise Retryable(
                f"{self.new} is half built and cannot be deleted.",
                code="directory-not-deletable",
                action="Look at who writes there, and at the kernel's log (dmesg).",
                path=str(self.new),
            )
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
        """Move the store that was built, closed and durable, to where Kafka Streams looks for it.

        Done again after a failure it goes on from there.
        """
        self._check()
        self._make(self.live.parent)
        self._faults.reach("global.before-place")
        if self.new.exists() or not self.live.exists():
            self._move(self.new, self.live)
        else:
            self._made_durable(self.new, self.live)
        self._faults.reach("global.after-place")

    def identity_of_built(self) -> str:
        """RocksDB's name of the store that was built, wherever :meth:`place` has got with it."""
        return identity_of(self.new) or identity_of(self.live)

    def set_aside_before(self) -> Path | None:
        """The newest store that was set aside whole and is still there."""
        found = self._aside(GLOBAL_OLD)
        return max(found, key=lambda path: path.stat().st_mtime) if found else None

    def aside(self) -> list[Path]:
        """What is set aside, what is whole last."""
        return [*self._aside(GLOBAL_UNUSABLE), *self._aside(GLOBAL_OLD)]

    def _aside(self, name: str) -> list[Path]:
        return sorted((self._directory.work_path / name).glob(f"{glob.escape(self._store)}@*"))

    def _check(self) -> None:
        self._directory.check_locked()

    def _move(self, source: Path, target: Path) -> None:
        try:
            source.rename(target)
        except OSError as error:
            raise _refused(target, error) from error
        self._made_durable(source, target)

    def _made_durable(self, source: Path, target: Path) -> None:
        try:
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
