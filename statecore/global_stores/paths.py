"""Paths of a global store's databases while it is rebuilt; they are moved by renames alone.

::

    <application>/global/rocksdb/<store>            complete, or absent
    <application>/.statecore/
      global-new/<store>                            half built; opened only by its builder
      global-new/<store>@runs/                      runs to be ingested into it, or into the live one
      global-old/<store>@0                          set aside, intact but old: serves stale queries
      global-unusable/<store>@0                     set aside, damaged or not closed
      global-topics.json                            the topics' ids that the stores are built of (:mod:`.topic_ids`)

After a kill at any time, ``global/`` has a complete store or none, so the next start (Kafka Streams too) rebuilds none
or all. What was set aside is moved to ``.statecore/stale`` when the rebuilt store is in its place and verified, or at
the next start that finds it there.
"""

from __future__ import annotations

import glob
from pathlib import Path

from statecore.errors import Retryable
from statecore.faults import FaultPoints
from statecore.filesystem import discard_tree, sync_file
from statecore.formats.kinds import StoreKind
from statecore.formats.releases import GLOBAL
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.work_directory import GLOBAL_NEW, GLOBAL_OLD, GLOBAL_UNUSABLE
from statecore.stores.rocksdb.directory import identity_of
from statecore.system_errors import system_error


class GlobalPaths:
    """The paths of one global store."""

    def __init__(self, directory: StateDirectory, store: str, kind: StoreKind, faults: FaultPoints) -> None:
        self._directory, self._store, self._faults = directory, store, faults
        self.live = directory.store_path(GLOBAL, store, kind)  # Kafka Streams' path of the store
        self.new = directory.work_path / GLOBAL_NEW / store  # Path of the database being built
        self.runs = directory.work_path / GLOBAL_NEW / f"{store}@runs"  # Directory of runs

    def start_build(self) -> None:
        """Delete what is half built, and create the directories for a build."""
        self._check_locked()
        discard_tree(self.new)
        discard_tree(self.runs)
        if self.new.exists():
            raise Retryable(
                f"{self.new} is half built and cannot be deleted.",
                code="directory-not-deletable",
                action="Check which process writes there, and the kernel's log (dmesg).",
                path=str(self.new),
            )
        self._create_directory(self.runs)

    def quarantine(self, *, trusted: bool) -> None:
        """Move the live store, which may be open, durably out of ``global/``; ``trusted``: its rows are intact."""
        self._check_locked()
        aside = self._directory.work_path / (GLOBAL_OLD if trusted else GLOBAL_UNUSABLE)
        self._create_directory(aside)
        taken = {path.name for path in aside.iterdir()}
        number = next(number for number in range(len(taken) + 1) if f"{self._store}@{number}" not in taken)
        target = aside / f"{self._store}@{number}"
        self._faults.reach("global.before-aside")
        self._move(self.live, target)
        self._faults.reach("global.after-aside")

    def move_into_place(self) -> None:
        """Move the built, closed store to Kafka Streams' path; after a failure a repeated call continues."""
        self._check_locked()
        self._create_directory(self.live.parent)
        self._faults.reach("global.before-place")
        if self.new.exists() or not self.live.exists():
            self._move(self.new, self.live)
        else:
            self._sync_parents(self.new, self.live)
        self._faults.reach("global.after-place")

    def identity_of_built(self) -> str:
        """RocksDB's identity of the built store, before or after :meth:`move_into_place`."""
        return identity_of(self.new) or identity_of(self.live)

    def newest_set_aside(self) -> Path | None:
        """The newest intact store that was set aside and still exists."""
        found = self._set_aside_in(GLOBAL_OLD)
        return max(found, key=lambda path: path.stat().st_mtime) if found else None

    def all_set_aside(self) -> list[Path]:
        """Directories set aside, intact ones last."""
        return [*self._set_aside_in(GLOBAL_UNUSABLE), *self._set_aside_in(GLOBAL_OLD)]

    def _set_aside_in(self, name: str) -> list[Path]:
        return sorted((self._directory.work_path / name).glob(f"{glob.escape(self._store)}@*"))

    def _check_locked(self) -> None:
        self._directory.check_locked()

    def _move(self, source: Path, target: Path) -> None:
        try:
            source.rename(target)
        except OSError as error:
            raise _translated(target, error) from error
        self._sync_parents(source, target)

    def _sync_parents(self, source: Path, target: Path) -> None:
        try:
            sync_file(target.parent)
            sync_file(source.parent)
        except OSError as error:
            raise _translated(target, error) from error

    def _create_directory(self, path: Path) -> None:
        if path.is_dir():
            return
        self._create_directory(path.parent)
        try:
            path.mkdir(exist_ok=True)
            self._directory.ownership.apply(path)
            sync_file(path.parent)
        except OSError as error:
            raise _translated(path, error) from error


def _translated(path: Path, error: OSError) -> Exception:
    return system_error(
        error, f"{path} cannot be created", action="Run as the user that the application runs as.", path=str(path)
    )
