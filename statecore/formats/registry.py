"""The row format of each store kind."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from statecore.errors import Invalid
from statecore.formats.kinds import StoreKind
from statecore.formats.row_format import RowFormat

# Modules with a table FORMATS, from kinds to formats; imported on first use.
_MODULES = ("key_value", "headers", "window", "session", "emit_final", "list_value", "grace_buffer", "versioned")


@cache
def row_format(kind: StoreKind) -> RowFormat:
    """Row format of a kind. Raises ``Invalid`` for an undecided kind (``?``) and kinds without rows on disk."""
    for name in _MODULES:
        formats: dict[StoreKind, type[RowFormat]] = import_module(f"statecore.formats.{name}").FORMATS
        if kind in formats:
            return formats[kind](kind)
    raise Invalid(
        f"Stores of kind {kind.value} have no rows on disk.",
        code="kind-without-rows",
        action="Decide the store's kind in the spec, or leave it out.",
        kind=kind.value,
    )
