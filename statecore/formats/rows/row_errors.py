"""Errors for malformed rows, and for numbers that no row can hold."""

from __future__ import annotations

from statecore.errors import Corrupted, Invalid
from statecore.formats.integers import INT64_MAX
from statecore.formats.kinds import StoreKind


def malformed_row(kind: StoreKind, why: str, what: str = "A row", **context: int) -> Corrupted:
    """Error for a row of a kind: ``why`` ends the sentence ("has a key of 7 bytes"), ``what`` says which row it is."""
    return Corrupted(
        f"{what} {why}.",
        code="row-malformed",
        action="Check that the store has the kind declared in the spec; if it has, rebuild it from its changelog.",
        kind=kind.value,
        **context,
    )


def require_bytes(kind: StoreKind, data: bytes, least: int, what: str) -> None:
    """Refuse a database key or value (``what``) with fewer than ``least`` bytes. Raises ``Corrupted``."""
    if len(data) < least:
        raise malformed_row(kind, f"has a {what} of {len(data)} bytes; {kind.value} rows have at least {least}")


def check_number(number: int, what: str, greatest: int = INT64_MAX) -> None:
    """Refuse to write a negative number, or one that does not fit. Raises ``Invalid``."""
    if not 0 <= number <= greatest:
        raise Invalid(
            f"{number} is not a valid {what} of a row; nothing was written.",
            code="row-number-invalid",
            action=f"Give a number from 0 to {greatest}.",
        )


def kind_without_row(kind: StoreKind, what: str) -> Invalid:
    """Error for a part (``what``) that rows of a kind do not have."""
    return Invalid(
        f"Rows of {kind.value} stores have no {what}.",
        code="kind-unsupported",
        action="Name the kind of the store whose rows these are.",
        kind=kind.value,
    )
