"""Owner and modes of images, some of whose files are somebody else's, too.

No byte of a run is copied on its way into a store, so a file of an image may have other names: in the staging, in a
repository on the same file system, in the task directory that is to be replaced. All of them have one owner and one
mode. What is given to the application must not be taken from a repository, nor may a live file change before the swap:

===========================================  ==================================================================
a file with other names                      gets owner and mode
===========================================  ==================================================================
all of them in the staging                   as it is: nobody else has it
one elsewhere; of the right owner, with all  not at all; it stays one file, and may let others read it, who cannot get
rights that it needs                         there
one elsewhere, otherwise                     as a file of its own: a clone, or a copy
===========================================  ==================================================================
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Collection
from functools import cached_property
from pathlib import Path

from statecore.filesystem import part_from_others
from statecore.statedir.file_ownership import FileOwnership


class SharedFiles:
    """Gives images to their owner, and leaves alone what others have of them.

    Args:
        ownership: whose they will be.
        staged: directories in which every name is this job's own, and stays while the images are given away.
    """

    def __init__(self, ownership: FileOwnership, staged: Collection[Path]) -> None:
        self._ownership, self._staged = ownership, staged

    def give_tree(self, root: Path) -> None:
        """Set owner and modes of a whole tree, what is inside a directory before the directory itself."""
        for directory, _, names in os.walk(root, topdown=False):
            for name in names:
                self._give(Path(directory, name))
            self._ownership.give(Path(directory))

    def _give(self, path: Path) -> None:
        status = path.lstat()
        if stat.S_ISREG(status.st_mode) and status.st_nlink > 1 and self._is_elsewhere(status):
            if self._ownership.suits(status):
                return
            part_from_others(path)
            self._names[_key(status)] -= 1
        self._ownership.give(path)

    def _is_elsewhere(self, status: os.stat_result) -> bool:
        return status.st_nlink > self._names[_key(status)]

    @cached_property
    def _names(self) -> Counter[tuple[int, int]]:
        """How many names each file has in the staging."""
        found: Counter[tuple[int, int]] = Counter()
        for root in self._staged:
            for directory, _, names in os.walk(root):
                found.update(_key(os.lstat(Path(directory, name))) for name in names)
        return found


def _key(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
