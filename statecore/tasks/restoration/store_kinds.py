"""The kind of a store, and the kinds whose rows are made of one changelog record each."""

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
    """The kind of the RocksDB store inside any wrappers; ``key-value`` for other stores."""
    while isinstance(store, DelegatingStore):
        store = store.wrapped
    return store.kind if isinstance(store, RocksDBStore) else StoreKind.KEY_VALUE


def check_kind(kind: StoreKind) -> None:
    """Refuse, with ``Invalid``, kinds that one database cannot maintain record by record."""
    if kind not in _KINDS:
        raise Invalid(
            f"A store of kind {kind.value} cannot be updated from its changelog record by record: its rows are in "
            "segments and expire, or keep old versions.",
            code="kind-unsupported",
            action="Rebuild it with statecore restore, which supports every kind; your processor can have stores "
            "of the kinds " + ", ".join(one.value for one in _KINDS) + ".",
            kind=kind.value,
        )
