"""Check for grace buffers that Kafka Streams restored wrongly."""

from __future__ import annotations

from statecore.doctor.checks.context import store_finding
from statecore.doctor.finding_catalog import Repair, Severity
from statecore.doctor.findings import Finding
from statecore.doctor.views import StoreView
from statecore.words import number_of


def check_grace_buffer(store: StoreView) -> list[Finding]:
    """Rows with the wrong keys of a restore by Kafka Streams, which it never finds again."""
    if not store.miskeyed:
        return []
    what = (
        f"has {number_of(store.miskeyed, 'row')} at least that Kafka Streams mis-keyed when it restored the store: the "
        "join never emits these records, and later ones may not wait for the grace period"
    )
    code = "grace-buffer-miskeyed"
    return [store_finding(store, code, Severity.LOSS, what, repair=Repair.REBUILD, rows_seen=store.miskeyed)]
