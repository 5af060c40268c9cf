"""All libraries of kernels, found where they are made."""

from __future__ import annotations

import importlib
from pathlib import Path

import statecore
from statecore.kernels.library import KernelLibrary

PACKAGE = Path(statecore.__file__).parent
DOORS = tuple(
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    for path in sorted(PACKAGE.rglob("*.py"))
    if " = KernelLibrary(" in path.read_text()
)
"""Modules that make one."""

LIBRARIES: tuple[KernelLibrary, ...] = tuple(importlib.import_module(name)._KERNELS for name in DOORS)
