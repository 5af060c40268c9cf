"""Compare stores that may have missed deletes with their whole changelogs, and publish only the differences.

That is the policy ``reconcile`` of a request. The log is read as for a rebuild, but into runs that stay on this
machine::

    the whole log      ──▶ runs in TMPDIR ───────────────┐
    the base's runs    ──▶ downloaded and hashed ────────┴─▶ differences: one run per database, published above the
                                                             base's own runs

Stores are processed in batches, so that the disk holds no more than :data:`BATCH_BYTES` or the largest store, with its
base; memory is bounded as in any read.

A store that turns out not to be eligible (damaged runs, no room, a log that lost its start) is rebuilt, and the
reason is reported.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from statecore.errors import Capacity, Corrupted, Invalid
from statecore.jobs.bases.base import Key, Refused
from statecore.jobs.checkpoint.plan import CheckpointPlan
from statecore.jobs.checkpoint.reconcile.eligible import WholeLog, not_eligible, plan_whole_logs
from statecore.jobs.checkpoint.reconcile.store import ReconciledStore, StoreReconciliation
from statecore.jobs.context import JobContext
from statecore.jobs.engine.protocol import Engine, Workers
from statecore.jobs.pipeline.batches import batched_by_bytes
from statecore.jobs.pipeline.read_stage import cluster_settings, read_runs
from statecore.jobs.pipeline.run_publisher import ApplicationAddress, Publisher
from statecore.jobs.pipeline.staging_place import TemporaryPlace
from statecore.jobs.pipeline.tail_check import truncations
from statecore.statedir.state_directory import ensure_free_space

BATCH_BYTES = 1 << 30
"""Most bytes of logs and bases on the disk at one time, unless one store alone has more."""


@dataclass
class ReconciledStores:
    """Result of comparing stores.

    Attributes:
        stores: compared and corrected stores.
        refused: the others, with the reason.
    """

    stores: dict[Key, ReconciledStore] = field(default_factory=dict)
    refused: list[Refused] = field(default_factory=list)


class Reconciliation:
    """Compares stores with their whole changelogs."""

    def __init__(
        self,
        context: JobContext[Any],
        planned: CheckpointPlan,
        engine: Callable[[int], Engine],
        *,
        batch_bytes: int = BATCH_BYTES,
        read: Callable[..., Mapping[Key, Any]] = read_runs,
        plan_logs: Callable[..., list[WholeLog]] = plan_whole_logs,
    ) -> None:
        self._context, self._planned, self._engine = context, planned, engine
        self._batch_bytes, self._read, self._plan_logs = batch_bytes, read, plan_logs
        self._repository, self._progress, self._faults = context.repository, context.progress, context.faults
        self._publisher = Publisher(ApplicationAddress.of(self._repository))
        self._made = ReconciledStores()

    def run(self, found: Sequence[Refused]) -> ReconciledStores:
        """Compare stores that ``eligible.split_eligible`` allows; all published runs are durable on return."""
        plan, spec = self._planned.frozen.plan, self._context.spec
        engine = self._engine(sum(part.end - part.log_start for one in found for part in plan.stores[one.key]))
        logs = self._plan_logs(self._context, self._planned, found, engine.expected(spec))
        with (
            engine.start("reconcile", spec) as workers,
            tempfile.TemporaryDirectory(prefix="statecore-reconcile-", ignore_cleanup_errors=True) as scratch,
        ):
            for batch in batched_by_bytes(logs, lambda log: log.bytes, self._batch_bytes):
                self._reconcile_batch(workers, batch, Path(scratch))
            self._publisher.flush()
        self._faults.reach("reconcile.after-files")
        with self._context.cluster() as cluster:
            truncated = truncations(plan, list(self._made.stores), cluster.epoch_ends)
        for key, why in truncated.items():
            self._made.refused.append(
                replace(self._made.stores.pop(key).refused, why=why, missed_deletes=False, is_passing=True)
            )
        return self._made

    def _reconcile_batch(self, workers: Workers, batch: Sequence[WholeLog], scratch: Path) -> None:
        """Compare a batch; afterwards only small runs that wait to share a pack are left on the disk."""
        plan = replace(self._planned.frozen.plan, partitions=tuple(log.part for log in batch))
        budget = self._context.request.memory_budget
        with tempfile.TemporaryDirectory(dir=scratch, ignore_cleanup_errors=True) as directory:
            place = TemporaryPlace(str(Path(directory, "log")))
            try:
                # The least that a batch takes: the last writes of a log are about as large as its base. `log.bytes`, as
                # if no record replaced another, would refuse what fits; a disk that fills up raises Capacity as well.
                ensure_free_space(scratch, 2 * sum(log.base_bytes for log in batch))
                runs = self._read(workers, plan, cluster_settings(self._context), place, budget, self._progress)
            except Capacity as error:
                self._made.refused += [_because_of(error, log.refused) for log in batch]
                return
            self._faults.reach("reconcile.after-logs")
            self._progress.phase("compare", len(batch), "stores")
            for log in batch:
                one = log.refused
                base = self._planned.bases[one.key]
                store = StoreReconciliation(one, base, log.part, runs.get(one.key, ()))
                if (moved := store.moved_start) is not None:
                    self._made.refused.append(replace(one, why=moved, missed_deletes=False))
                else:
                    self._reconcile(store, place, Path(directory, "compared"), scratch)
                self._progress.advance(1)
            self._progress.done()

    def _reconcile(self, store: StoreReconciliation, place: TemporaryPlace, directory: Path, scratch: Path) -> None:
        """Publish the differences of a store."""
        one = store.refused
        output = Path(tempfile.mkdtemp(dir=scratch))
        try:
            files = store.differences(self._repository, place.blobs(), directory, output)

            def published(extents: Any) -> None:
                self._made.stores[one.key] = store.reconciled(files, extents)
                shutil.rmtree(output)

            self._publisher.publish(files, published)
        except (Corrupted, Invalid, Capacity) as error:
            self._made.refused.append(_because_of(error, one))
            shutil.rmtree(output, ignore_errors=True)
        finally:
            shutil.rmtree(directory, ignore_errors=True)


def _because_of(error: Corrupted | Invalid | Capacity, one: Refused) -> Refused:
    """A base that is not compared because of an error."""
    return not_eligible(one, error.what.rstrip("."))
