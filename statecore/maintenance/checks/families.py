"""The column families of a store's databases, held against those of its kind."""

from __future__ import annotations

from statecore.formats.releases import CURRENT, DEFAULT_COLUMN_FAMILY, OFFSETS_COLUMN_FAMILY
from statecore.maintenance.catalogue import Repair, Severity
from statecore.maintenance.checks.circumstances import counted, of_store
from statecore.maintenance.findings import Finding
from statecore.maintenance.recognise import families_leave
from statecore.maintenance.views import DatabaseView, StoreView

_KNOWN = {kind.family for kind in CURRENT.kinds.values()} | {DEFAULT_COLUMN_FAMILY, OFFSETS_COLUMN_FAMILY}


def families(store: StoreView) -> list[Finding]:
    """Families that are too many, lacking, or of an older format."""
    found = _unknown(store)
    if not store.in_use:
        found += _lacking(store)
    older = sum(one.older_rows for one in store.readable)
    if older:
        what = f"has {counted(older, 'row')} in an older format still: the application converts what it touches"
        found.append(of_store(store, "older-rows", Severity.NOTE, what, rows=older))
    return found


def _unknown(store: StoreView) -> list[Finding]:
    if store.strange:
        named = {name for one in store.readable for name in one.families} - _KNOWN
        guilty = [one for one in store.readable if not _some_class_opens(one, store)] or list(store.readable)
        return [_too_many(store, store.strange, sorted(named), guilty)] if guilty else []
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
    return of_store(
        store, "column-family-unknown", Severity.ERROR, what, repair=repair, families=named, databases=where
    )


def _some_class_opens(database: DatabaseView, store: StoreView) -> bool:
    return bool(families_leave(frozenset(database.families), segmented=store.segmented))


def _lacking(store: StoreView) -> list[Finding]:
    """The family of its rows is not there, and neither are rows of an older format, which would be read instead."""
    if not store.kind.can_be_built or store.strange:
        return []
    family = store.kind.data_column_family
    lacking = [one for one in store.readable if family not in one.families and not one.rows]
    lacking = [one for one in lacking if any(offset >= 0 for offset in one.offsets.values())]  # else all is restored
    if not lacking:
        return []
    segment = lacking[0].name if store.segmented and len(lacking) == 1 else ""
    return [
        of_store(
            store,
            "column-family-missing",
            Severity.LOSS,
            f"lacks the column family {family}: Kafka Streams would read it as empty",
            repair=Repair.REBUILD,
            segment=segment,
            databases=[one.name for one in lacking],
        )
    ]
