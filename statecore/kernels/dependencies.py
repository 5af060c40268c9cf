"""What the machine code of a kernel depends on: the modules of its package whose constants and functions it may hold.

They are found in the text, without importing anything: every process that loads kernels asks. What is taken for an
import and is none (a line of a docstring) only makes the machine code depend on a module more.
"""

from __future__ import annotations

import re
from importlib import util
from pathlib import Path

NEVER_FROZEN = ("statecore.errors", "statecore.extras", "statecore.kernels.library")
"""Modules that source modules and their doors import, and of which nothing reaches the machine code."""

_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)|import[ \t]+([\w.]+))", re.MULTILINE
)
_NAME = re.compile(r"(\w+)(?:\s+as\s+\w+)?\s*(?:,|\)|$|#[^\n]*)", re.MULTILINE)


def source_file(module: str) -> Path:
    """The file of a module, which is not imported.

    Raises:
        ImportError: it has none, as in a zip archive; Numba could not compile from it either.
    """
    spec = util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ImportError(f"kernel module {module} has no source file")
    return Path(spec.origin)


def dependencies(module: str) -> dict[str, Path]:
    """The module itself and every module of its package that it imports, directly or through others, by name."""
    parts = module.split(".")
    top = source_file(module).parents[len(parts) - 1]
    found: dict[str, Path] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        path = top.joinpath(*name.split(".")).with_suffix(".py")
        if name in found or name.startswith(NEVER_FROZEN) or not path.is_file():
            continue
        found[name] = path
        waiting += [one for one in _imported(path.read_text()) if one.startswith(f"{parts[0]}.")]
    return dict(sorted(found.items()))


def _imported(text: str) -> list[str]:
    """Everything that a text may import: modules, and names of modules, which may be modules themselves."""
    found = []
    for origin, names, plain in _IMPORT.findall(text):
        found += [plain] if plain else [origin, *(f"{origin}.{name}" for name in _NAME.findall(names))]
    return found
