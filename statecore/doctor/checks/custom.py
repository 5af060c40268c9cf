"""Checks of stores of the application's own classes, whose files are unknown and whose offset is beside them."""

from __future__ import annotations

from statecore.doctor.checks.context import CheckContext, store_finding
from statecore.doctor.finding_catalog import Severity
from statecore.doctor.findings import Finding
from statecore.doctor.inspection import StoreView, TaskView
from statecore.formats.checkpoint import store_checkpoint_file
from statecore.formats.kinds import StoreKind
from statecore.formats.releases import GLOBAL
from statecore.spec.model import ApplicationSpec


def has_custom_store(spec: ApplicationSpec | None, task: str) -> bool:
    """Whether a task has a declared store of the application's own class, so that any file there may belong to it."""
    if spec is None or not task:
        return False
    return any(store.kind is StoreKind.CUSTOM for store in spec.stores_of(task))


def check_custom_store(store: StoreView, task: TaskView, context: CheckContext) -> list[Finding]:
    """Check the offset of a custom store: without one, exactly-once wipes its task, unless stores are transactional."""
    if store.in_use or not store.logged or store.task == GLOBAL or not context.release.offsets_inside:
        return []
    file = store_checkpoint_file(store.store)
    if context.finds_offset(store, task):
        return []
    severity = context.severity(Severity.WARNING, Severity.LOSS if context.transactional else Severity.ERROR)
    what = (
        f"has no {file}, where Kafka Streams keeps its offset: Kafka Streams restores it from the start over its files"
    )
    if context.transactional:
        what += ": under exactly-once rows of a transaction that was aborted may stay"
    else:
        what += context.wipe_clause()
    return [store_finding(store, "offset-missing", severity, what)]
