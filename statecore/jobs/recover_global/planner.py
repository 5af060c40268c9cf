"""Plans a recovery of global stores: a repair of the directory ``global`` only, with checks of its own."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import replace

from statecore.doctor.diagnosis import Coverage, Diagnosis
from statecore.doctor.finding_catalog import Repair, Severity
from statecore.doctor.findings import Finding
from statecore.doctor.global_store_outcome import NextStart, StartOutcome, next_starts
from statecore.doctor.repair_plan import RepairPlan, plan_repairs
from statecore.errors import Invalid, NotFound, Reason
from statecore.formats.releases import CURRENT, GLOBAL, PLAIN_PARENT
from statecore.jobs.context import JobContext
from statecore.jobs.recover_global.request import RecoverGlobalRequest
from statecore.jobs.repair.planner import RepairPlanner
from statecore.jobs.repair.request import RepairRequest
from statecore.spec.model import StoreSpec

ACCEPT = "--accept-uncompacted"
_ABSENT = "It does not exist: the start reads its whole topic."
_SAME_FIELDS = ("spec_path", "state_dir", "stores", "apply", "approved", "repository", "owner", "timeout", "request_id")


class GlobalStorePlanner(RepairPlanner):
    """Plans the recovery of some declared global stores."""

    def __init__(self, context: JobContext[RecoverGlobalRequest], stores: Sequence[StoreSpec]) -> None:
        request = context.request
        fields = {name: getattr(request, name) for name in _SAME_FIELDS}
        repair = RepairRequest(application_id=context.application_id, tasks=(GLOBAL,), **fields)
        super().__init__(context.with_request(repair), context.existing_directory())
        self._spec, self._stores, self._accept_uncompacted = context.spec, stores, request.accept_uncompacted

    def diagnose(self) -> Diagnosis:
        """Diagnose the global stores; those that do not exist yet have no findings."""
        self._refuse_files()
        if GLOBAL not in self.directory.every_task():
            nothing = Coverage(0, 0, 0, 0, scanned=False, brokers=False, declared=True)
            guarantee = self._spec.processing_guarantee
            return Diagnosis(self._spec.application_id, self.directory.path, None, guarantee, CURRENT.name, (), nothing)
        existing = {found.store for found in self.directory.stores(GLOBAL)}
        selected = self.request.stores
        # A missing store shows only in the files of the task.
        found = self.diagnosis_of(replace(self.request, stores=selected if existing.issuperset(selected) else ()))
        declared = {one.name for one in self._spec.global_stores}
        return replace(found, findings=tuple(_repairable(one, declared) for one in found.findings))

    def _refuse_files(self) -> None:
        """Refuse a file in the place of a store's directory. Raises ``Invalid``."""
        of_globals = self.directory.task_path(GLOBAL)
        for one in self._stores:
            for path in (of_globals / PLAIN_PARENT / one.name, of_globals / one.name):
                if os.path.lexists(path) and not path.is_dir():
                    raise Invalid(
                        f"{path} is no directory, and the global store {one.name} belongs there: the next start of "
                        "the application ends in ERROR, and under exactly-once it deletes all of global/.",
                        code="store-not-directory",
                        action="Find out where the file comes from and move it away. Then run this again.",
                        store=one.name,
                        path=str(path),
                    )

    def repairs_of(self, found: Diagnosis, refused: Sequence[Reason] = ()) -> RepairPlan:
        """Repairs of the selected global stores."""
        selected = {"", *(one.name for one in self._stores)}
        selected_findings = [one for one in found.findings if one.store in selected]
        return plan_repairs(selected_findings, found.stores, refused=refused)

    def next_starts(self, found: Diagnosis) -> tuple[NextStart, ...]:
        """What the next start would do with each selected store."""
        known = {view.store for view in found.stores} | {one.store for one in found.findings}
        existing = next_starts([one.name for one in self._stores if one.name in known], found.findings)
        absent = [
            NextStart(one.name, StartOutcome.RECOVERS, (_ABSENT,)) for one in self._stores if one.name not in known
        ]
        return (*existing, *absent)

    def check(self, found: Diagnosis, repairs: RepairPlan) -> None:
        """Refuse what a recovery cannot do."""
        gone = [one for one in found.findings if one.code == "topic-missing" and one.severity is not Severity.NOTE]
        if gone:
            topics = ", ".join(sorted({str(one.evidence["topic"]) for one in gone}))
            raise NotFound(
                f"The topic of the global store {gone[0].store} does not exist: {topics}. The application does not "
                "start without it, and nothing can be rebuilt.",
                code="global-topic-not-found",
                action="Keep a copy of the directory (statecore backup --offline); find out what deleted the topic, "
                "have it recreated and filled, then run this again. Check that these are the application's brokers: "
                f"{self._spec.bootstrap_servers}. Other global stores can be recovered by name (--store).",
                stores=sorted({one.store for one in gone}),
                topics=topics,
            )
        rebuilt = {store for one in repairs.rebuilds for store in one.stores}
        of_application = [one.name for one in self._stores if one.name in rebuilt and one.is_filled_by_processor]
        if of_application:
            names = ", ".join(of_application)
            raise Invalid(
                f"The application fills {names} through its own processor, so its rows cannot be rebuilt from the "
                "topic.",
                code="store-filled-by-processor",
                action=f"Move the directory of {names} in {self.directory.task_path(GLOBAL)} away: the next start "
                "reads its whole topic. Others can be recovered by name (--store).",
                stores=of_application,
            )
        self._check_compacted([one for one in self._stores if one.name in rebuilt])

    def _check_compacted(self, stores: Sequence[StoreSpec]) -> None:
        """Refuse stores whose topics lose rows. Raises ``Invalid``."""
        if not stores:
            return
        from statecore.changelog.cleanup_policy import check_compacted
        from statecore.changelog.cluster import Cluster

        with Cluster(self._spec.bootstrap_servers, self._spec.kafka, timeout=self.request.timeout) as cluster:
            topics = cluster.describe_topics({one.changelog for one in stores})
        for one in stores:
            accept = self._accept_uncompacted
            check_compacted(topics[one.changelog], one.name, accept=accept, how_to_accept=ACCEPT)


def _repairable(finding: Finding, declared: Collection[str]) -> Finding:
    """A finding with the repair and severity that it has only in a recovery of declared global stores."""
    if finding.code == "topic-missing" and finding.store not in declared:
        return replace(finding, severity=Severity.NOTE)  # the start does not read that topic
    if finding.code == "offset-past-end" and finding.repair is None:
        return replace(finding, repair=Repair.REBUILD)
    if finding.code == "partition-unknown" and finding.task == GLOBAL and finding.store:
        return replace(finding, repair=Repair.REBUILD, severity=Severity.LOSS)
    return finding
