"""Checks of a store's column families against those of its kind."""

from __future__ import annotations

from statecore.discover.kind_detection import kinds_opening_families
from statecore.doctor.checks.context import store_finding
from statecore.doctor.finding_catalog import Repair, Severity
from statecore.doctor.findings import Finding
from statecore.doctor.inspection import DatabaseView, StoreView
from statecore.formats.kinds import StoreKind
from statecore.formats.releases import DEFAULT_COLUMN_FAMILY, FAMILIES, OFFSETS_COLUMN_FAMILY
from statecore.words import number_of


def check_families(store: StoreView) -> list[Finding]:
    """Column families that are unknown, missing, or of an older format."""
    found = _unknown(store)
    if not store.in_use:
        found += _missing(store)
    if older := _older_rows(store):
        found.append(_misread(store, older) or _older(store, older))
    return found


def _older_rows(store: StoreView) -> int:
    """Rows in families of older formats: as of the declared kind, else as the families show."""
    if store.declared is None or store.mismatch or not store.kind.can_be_built:
        return sum(one.older_rows for one in store.readable)
    return sum(one.family_rows.get(name, 0) for one in store.readable for name in store.kind.older_column_families)


def _older(store: StoreView, rows: int) -> Finding:
    what = f"still has {number_of(rows, 'row')} in an older format: the application converts rows that it touches"
    return store_finding(store, "older-rows", Severity.NOTE, what, rows=rows)


def _misread(store: StoreView, rows: int) -> Finding | None:
    """Rows of an older format with which Kafka Streams does not start, or which it converts wrongly."""
    code = "older-rows-misread"
    several = [names for one in store.readable if len(names := _older_families(store, one)) > 1]
    if several:
        what = f"has rows of two older formats, in {' and '.join(several[0])}: every start fails"
        return store_finding(store, code, Severity.ERROR, what, repair=Repair.REBUILD, rows=rows, families=several[0])
    if store.kind is StoreKind.HEADERS_EMIT_FINAL_SESSION:
        what = (
            f"has {number_of(rows, 'row')} from before the application used headers: Kafka Streams converts them to "
            "values with headers, which such a store does not have, and answers with a byte 00 before each"
        )
        return store_finding(store, code, Severity.LOSS, what, repair=Repair.REBUILD, rows=rows)
    return None


def _older_families(store: StoreView, database: DatabaseView) -> list[str]:
    """Families of older formats with rows in a database, which the store's class has opened or will open.

    An undeclared kind is that of all tasks: one whose family this database lacks may be another task's damage.
    """
    if not store.kind.can_be_built or (
        store.declared is None and store.kind.data_column_family not in database.families
    ):
        return []
    return sorted(name for name in store.kind.older_column_families if database.family_rows.get(name))


def _unknown(store: StoreView) -> list[Finding]:
    if store.unopenable:
        named = {name for one in store.readable for name in one.families} - FAMILIES
        guilty = [one for one in store.readable if not _some_class_opens(one, store)] or list(store.readable)
        return [_too_many(store, store.unopenable, sorted(named), guilty)] if guilty else []
    if store.mismatch or not store.kind.can_be_built:
        return []
    allowed = {store.kind.data_column_family, DEFAULT_COLUMN_FAMILY, OFFSETS_COLUMN_FAMILY}
    allowed |= store.kind.older_column_families
    guilty = [one for one in store.readable if set(one.families) - allowed]
    if not guilty:
        return []
    named = {name for one in guilty for name in one.families} - allowed
    what = f"has the column family {', '.join(sorted(named))}, which no {store.kind} store has: every start fails"
    return [_too_many(store, what, sorted(named), guilty)]


def _too_many(store: StoreView, what: str, named: list[str], guilty: list[DatabaseView]) -> Finding:
    empty = bool(named) and not any(one.family_rows.get(name) for one in guilty for name in named)
    repair = Repair.DROP_FAMILY if empty else Repair.REBUILD
    where = [one.name for one in guilty]
    return store_finding(
        store, "column-family-unknown", Severity.ERROR, what, repair=repair, families=named, databases=where
    )


def _some_class_opens(database: DatabaseView, store: StoreView) -> bool:
    return bool(kinds_opening_families(frozenset(database.families), segmented=store.segmented))


def _missing(store: StoreView) -> list[Finding]:
    """The data family is missing, and so are rows of an older format, which would be read instead."""
    if not store.kind.can_be_built or store.unopenable or store.is_upgraded_at_start:
        return []
    family = store.kind.data_column_family
    lacking = [one for one in store.readable if family not in one.families and not one.rows]
    lacking = [one for one in lacking if any(offset >= 0 for offset in one.offsets.values())]  # else all is restored
    if not lacking:
        return []
    segment = lacking[0].name if store.segmented and len(lacking) == 1 else ""
    return [
        store_finding(
            store,
            "column-family-missing",
            Severity.LOSS,
            f"lacks the column family {family}: Kafka Streams would read it as empty",
            repair=Repair.REBUILD,
            segment=segment,
            databases=[one.name for one in lacking],
        )
    ]
