"""Owner and modes of images whose files are shared by hard links.

Files of runs are linked into stores, not copied, so a file of an image may have other names: in the staging, in a
repository on the same file system, in the live task directory. All names share one owner and mode. Giving a file to the
application must not take it from a repository, nor change a live file before the swap:

===========================================  ==================================================================
a file with other names                      gets owner and mode
===========================================  ==================================================================
all of them in the staging                   in place
one elsewhere; right owner and all           not at all; it stays shared, perhaps readable by others, who cannot
permissions that it needs                    reach it
one elsewhere, otherwise                     as a separate file: a clone, or a copy
===========================================  ==================================================================
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Collection
from functools import cached_property
from pathlib import Path

from statecore.filesystem import break_hard_link
from statecore.statedir.file_ownership import FileOwnership


class SharedFiles:
    """Sets owner and modes of images without affecting files that others share."""

    def __init__(self, ownership: FileOwnership, staged: Collection[Path]) -> None:
        self._ownership, self._staged = ownership, staged

    def give_tree(self, root: Path) -> None:
        """Set owner and modes of a whole tree, contents before their directory."""
        for directory, _, names in os.walk(root, topdown=False):
            for name in names:
                self._give(Path(directory, name))
            self._ownership.give(Path(directory))

    def _give(self, path: Path) -> None:
        status = path.lstat()
        if stat.S_ISREG(status.st_mode) and status.st_nlink > 1 and self._is_elsewhere(status):
            if self._ownership.suits(status):
                return
            break_hard_link(path)
            self._names[_key(status)] -= 1
        self._ownership.give(path)

    def _is_elsewhere(self, status: os.stat_result) -> bool:
        return status.st_nlink > self._names[_key(status)]

    @cached_property
    def _names(self) -> Counter[tuple[int, int]]:
        """Number of names each file has in the staging, by device and inode."""
        found: Counter[tuple[int, int]] = Counter()
        for root in self._staged:
            for directory, _, names in os.walk(root):
                found.update(_key(os.lstat(Path(directory, name))) for name in names)
        return found


def _key(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
