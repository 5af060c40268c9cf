"""Which kind of rows a store has, and whether each of them is made of one record of the changelog."""

from __future__ import annotations

from statecore.errors import Invalid
from statecore.formats.kinds import StoreKind
from statecore.stores.base import StateStore
from statecore.stores.delegating_store import DelegatingStore
from statecore.stores.rocksdb.store import RocksDBStore

_KINDS = (
    StoreKind.KEY_VALUE,
    StoreKind.TIMESTAMPED_KEY_VALUE,
    StoreKind.HEADERS_KEY_VALUE,
    StoreKind.LIST,
)


def kind_of(store: StateStore) -> StoreKind:
    """That of the RocksDB store inside any wrappers; other stores keep what they are given: ``key-value``."""
    while isinstance(store, DelegatingStore):
        store = store.wrapped
    return store.kind if isinstance(store, RocksDBStore) else StoreKind.KEY_VALUE


def check_kind(kind: StoreKind) -> None:
    """Refuse the kinds that one database cannot keep up with its changelog record by record.

    Raises:
        Invalid: rows of the kind lie in segments and expire, or keep old versions.
    """
    if kind not in _KINDS:
        raise Invalid(
            f"A store of kind {kind.value} cannot be kept up with its changelog record by record: its rows lie in "
            "segments and expire, or keep old versions.",
            code="kind-unsupported",
            action="Rebuild it with statecore restore, which knows every kind; a processor of yours can have stores "
            "of the kinds " + ", ".join(one.value for one in _KINDS) + ".",
            kind=kind.value,
        )
