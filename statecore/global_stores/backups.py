"""Keeps what a global store had before it was rebuilt, for a week."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from statecore.errors import StatecoreError
from statecore.faults import FaultPoints
from statecore.filesystem import tree_bytes
from statecore.formats.releases import GLOBAL
from statecore.statedir.quarantine import delete_expired, delete_quarantined, quarantine_store, quarantined
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.work_directory import STALE

_LOG = logging.getLogger(__name__)

_SWEEP_MS = 3_600_000


class GlobalBackups:
    """Backups of the global stores of a directory."""

    def __init__(self, directory: StateDirectory, now: Callable[[], float], faults: FaultPoints) -> None:
        self._directory, self._now, self._faults = directory, now, faults
        self._swept_ms: int | None = None

    def add(self, path: Path, live: Path) -> None:
        """Move the directory of a store that was set aside and is rebuilt into the backups."""
        self._faults.reach("global.before-kept")
        kept = quarantine_store(self._directory, GLOBAL, path, STALE, self._now_ms(), place=live)
        self._faults.reach("global.after-kept")
        _LOG.info("The former rows of the global store %s are kept in %s for a week.", live.name, kept.path)
        place = live.relative_to(self._directory.task_path(GLOBAL))
        ours = [one for one in quarantined(self._directory, STALE) if one.task == GLOBAL]
        between = [one for one in ours if (one.path / place).exists()][1:-1]
        for one in sorted(between, key=lambda one: tree_bytes(one.path / place))[:-1]:
            delete_quarantined(self._directory, one)

    def sweep(self) -> None:
        """Delete backups after a week, once an hour; failures are logged, and tried again in an hour."""
        now_ms = self._now_ms()
        if self._swept_ms is not None and 0 <= now_ms - self._swept_ms < _SWEEP_MS:
            return
        self._swept_ms = now_ms
        try:
            delete_expired(self._directory, STALE, now_ms)
        except StatecoreError as error:
            _LOG.warning("Expired backups of stores could not be deleted: %s", error)

    def _now_ms(self) -> int:
        return int(self._now() * 1000)
