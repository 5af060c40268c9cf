"""The error for a row that is not one of its kind, and for a number that no row can hold."""

from __future__ import annotations

from statecore.errors import Corrupted, Invalid
from statecore.formats.integers import INT64_MAX
from statecore.formats.kinds import StoreKind


def broken(kind: StoreKind, why: str, what: str = "A row", **context: int) -> Corrupted:
    """The error for a row of a database that is not one of its kind.

    Args:
        kind: what the store is said to be.
        why: what is wrong with the row, as the end of a sentence: "has a key of 7 bytes; window keys have at least 12".
        what: which row it is.
        context: names as fields, for machines.
    """
    return Corrupted(
        f"{what} {why}.",
        code="row-malformed",
        action="Check that the store is of the kind the spec says; if it is, rebuild it from its changelog.",
        kind=kind.value,
        **context,
    )


def require_bytes(kind: StoreKind, data: bytes, least: int, what: str) -> None:
    """Refuse a key or value (``what``) of a database with less than some bytes. Raises ``Corrupted``."""
    if len(data) < least:
        raise broken(kind, f"has a {what} of {len(data)} bytes; {kind.value} rows have at least {least}")


def check_number(number: int, what: str, greatest: int = INT64_MAX) -> None:
    """Refuse to write a negative number, or one that does not fit. Raises ``Invalid``."""
    if not 0 <= number <= greatest:
        raise Invalid(
            f"{number} is no {what} that a row can have; nothing was written.",
            code="row-number-invalid",
            action=f"Give one from 0 to {greatest}.",
        )


def not_of_kind(kind: StoreKind, what: str) -> Invalid:
    """The error for a kind whose rows have none of something."""
    return Invalid(
        f"Rows of {kind.value} stores have no {what}.",
        code="kind-unsupported",
        action="Name the kind of the store whose rows these are.",
        kind=kind.value,
    )
