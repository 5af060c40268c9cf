"""Which row format each kind of store has."""

from __future__ import annotations

from functools import cache

from statecore.errors import Invalid
from statecore.formats.kinds import StoreKind
from statecore.formats.row_format import RowFormat


@cache
def row_format(kind: StoreKind) -> RowFormat:
    """The format of a kind.

    Raises:
        Invalid: nobody has decided the kind (``?``), or such stores are not on disk.
    """
    from statecore.formats import key_value, session, window

    for module in (key_value, window, session):
        if kind in module.FORMATS:
            return module.FORMATS[kind](kind)
    raise Invalid(
        f"Stores of kind {kind.value} have no rows on disk.",
        action="Decide the store's kind in the spec, or leave it out.",
        kind=kind.value,
    )
