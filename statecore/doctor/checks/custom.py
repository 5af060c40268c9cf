"""Stores of the application's own classes: nothing is known of their files, and their offset lies beside them."""

from __future__ import annotations

from statecore.doctor.checks.context import CheckContext, of_store
from statecore.doctor.finding_catalog import Severity
from statecore.doctor.findings import Finding
from statecore.doctor.views import StoreView, TaskView
from statecore.formats.checkpoint import store_checkpoint_file
from statecore.formats.kinds import StoreKind
from statecore.formats.releases import GLOBAL
from statecore.spec.model import ApplicationSpec


def has_custom(spec: ApplicationSpec | None, task: str) -> bool:
    """Whether a store of the application's own class is declared of a task, so that its files may be anywhere there."""
    if spec is None or not task:
        return False
    return any(store.kind is StoreKind.CUSTOM for store in spec.stores_of(task))


def custom(store: StoreView, task: TaskView, how: CheckContext) -> list[Finding]:
    """What is wrong with one: under exactly-once Kafka Streams wipes a task in which it has no offset.

    Not where the other stores are transactional. This one never is, so rows of an aborted transaction stay in it.
    """
    if store.in_use or not store.logged or store.task == GLOBAL or not how.release.offsets_inside:
        return []
    file = store_checkpoint_file(store.store)
    if store.store in task.stores or how.is_taken_over(store, task.checkpoint):
        return []
    severity = how.severity(Severity.WARNING, Severity.LOSS if how.transactional else Severity.ERROR)
    what = (
        f"has no {file}, where Kafka Streams keeps its offset: Kafka Streams restores it from the start over its files"
    )
    if how.transactional:
        what += ": under exactly-once rows of a transaction that was aborted may stay"
    else:
        what += how.wiping()
    return [of_store(store, "offset-missing", severity, what)]
