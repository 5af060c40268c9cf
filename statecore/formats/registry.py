"""Which row format each kind of store has: the modules that define them draw the bytes of their rows."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from statecore.errors import Invalid
from statecore.formats.kinds import StoreKind
from statecore.formats.row_format import RowFormat

# Modules with a table FORMATS, from kinds to formats; imported when the first format is asked for.
_MODULES = ("key_value", "headers", "window", "session", "emit_final", "list_value", "grace_buffer", "versioned")


@cache
def row_format(kind: StoreKind) -> RowFormat:
    """The format of a kind.

    Raises:
        Invalid: nobody has decided the kind (``?``), or such stores are not on disk.
    """
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
