"""Files that this process holds open below a directory; those of other threads are elsewhere."""

from __future__ import annotations

from pathlib import Path


def open_files(directory: Path) -> list[str]:
    """Targets of the descriptors below a directory, sorted; a file without a name counts where it was made."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            target = str(descriptor.readlink())
        except FileNotFoundError:  # that of the listing, or of another thread
            continue
        if target.startswith(f"{directory}/") or target == str(directory):
            found.append(target)
    return sorted(found)
