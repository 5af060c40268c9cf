"""The modules that the machine code of a kernel depends on: those of its package whose constants and functions it may
use.

Imports are found in the source text, without importing anything: every process that loads kernels needs them. Text that
only looks like an import (a line of a docstring) merely adds a dependency.
"""

from __future__ import annotations

import re
from importlib import util
from pathlib import Path

NEVER_FROZEN = ("statecore.errors", "statecore.extras", "statecore.kernels.library")
"""Modules that source modules and their callers import, and that never affect the machine code."""

_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)|import[ \t]+([\w.]+))", re.MULTILINE
)
_NAME = re.compile(r"(\w+)(?:\s+as\s+\w+)?\s*(?:,|\)|$|#[^\n]*)", re.MULTILINE)


def source_file(module: str) -> Path:
    """The file of a module, without importing it."""
    spec = util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ImportError(f"kernel module {module} has no source file")
    return Path(spec.origin)


def dependencies(module: str) -> dict[str, Path]:
    """A module and every module of its package that it imports, directly or indirectly, by name."""
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
    """Names that a source text may import: modules, and names in modules, which may be modules themselves."""
    found = []
    for origin, names, plain in _IMPORT.findall(text):
        found += [plain] if plain else [origin, *(f"{origin}.{name}" for name in _NAME.findall(names))]
    return found
