from __future__ import annotations

from pathlib import Path

import pytest

from statecore.errors import Invalid
from statecore.formats.kinds import StoreKind
from statecore.metrics import NO_METRICS
from statecore.stores.in_memory import InMemoryStore
from statecore.stores.metered import MeteredStore
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.tasks.restoration.store_kinds import check_kind, kind_of
from tests.harness.raising import raises

KINDS = {StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.HEADERS_KEY_VALUE, StoreKind.LIST}


def test_a_rocksdb_store_knows_its_kind_through_wrappers(tmp_path: Path) -> None:
    store = RocksDBStore(tmp_path, StoreKind.TIMESTAMPED_KEY_VALUE)
    assert kind_of(MeteredStore(store, NO_METRICS, task="0_0", name="s")) is StoreKind.TIMESTAMPED_KEY_VALUE
    assert kind_of(InMemoryStore()) is StoreKind.KEY_VALUE


@pytest.mark.parametrize("kind", list(StoreKind))
def test_kinds_that_one_database_cannot_keep_up_record_by_record_are_refused(kind: StoreKind) -> None:
    if kind in KINDS:
        check_kind(kind)
        return
    with raises(Invalid, "kind-unsupported", kind=kind.value):
        check_kind(kind)
