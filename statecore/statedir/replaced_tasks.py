"""Task directories that a placement has replaced and keeps: ``.statecore/replaced/placement-<id>/<task>/``, for a week.

A placement keeps whole directories if its caller says so (``keeps``: repairs, promotions), else only the files that a
migration has left out, and mostly nothing. They are moved there when everything is in place
(:mod:`statecore.statedir.journal_replay`), and the first placement after a week deletes them.
"""

from __future__ import annotations

import os
from pathlib import Path

from statecore.statedir.quarantine import KEPT_MS, was_clock_behind
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.work_directory import REPLACED


def replaced_in(directory: StateDirectory) -> list[Path]:
    """The kept directories of earlier placements, one for each placement, by name."""
    return sorted(path for path in (directory.work_path / REPLACED).glob("*") if path.is_dir())


def is_expired(kept: Path, now: float) -> bool:
    """Whether the directory of a placement is old enough to be deleted; ``now`` is in seconds since the epoch.

    One whose time is of a clock that was behind (:func:`was_clock_behind`) gets the present one, and stays.
    """
    replaced_at = kept.stat().st_mtime
    if (now - replaced_at) * 1000 <= KEPT_MS:
        return False
    if was_clock_behind(kept, int(replaced_at * 1000), int(now * 1000)):
        os.utime(kept, (now, now))
        return False
    return True
