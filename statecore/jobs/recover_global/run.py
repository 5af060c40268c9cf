"""The recovery of global stores: those with which an application would end in ``ERROR`` are rebuilt, the others kept.

It is a repair (:mod:`statecore.jobs.repair.run`) of the directory ``global`` alone, with its steps, its lock and its
harmless kills. What it adds:

- It says of each global store what the next start would do with it (:mod:`statecore.doctor.global_store_outcome`).
- The topic of a store is nobody's changelog. One that is gone, or whose retention deletes last records of keys, is
  refused before a plan is shown.
- One that was made anew and has no record yet makes an empty store, which is right; a person approves that by the id of
  the plan, because the rows that are there may be the only ones.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from statecore.doctor.doctor import Diagnosis, InspectedDirectory
from statecore.doctor.finding_catalog import Repair, Severity
from statecore.doctor.findings import Finding
from statecore.doctor.global_store_outcome import NextStart, Start, next_starts
from statecore.doctor.repair_plan import RepairPlan, plan_repairs
from statecore.errors import Invalid, NotFound
from statecore.faults import NO_FAULTS, FaultInjected, FaultPoints
from statecore.formats.releases import CURRENT, GLOBAL, PLAIN_PARENT
from statecore.jobs.directory_change import directory_of
from statecore.jobs.engine import Engine
from statecore.jobs.failures import as_statecore_error
from statecore.jobs.job import nobody
from statecore.jobs.recover_global.request import RecoverGlobalRequest
from statecore.jobs.repair.report import Outcome, RepairReport
from statecore.jobs.repair.run import DirectoryRepair
from statecore.progress import Progress
from statecore.spec.model import ApplicationSpec, StoreSpec
from statecore.spec.reader import load_spec
from statecore.statedir.store_places import check_application

ACCEPT = "--accept-uncompacted"
_ABSENT = "There is nothing of it: the start reads its topic whole."


def run_recover_global(
    request: RecoverGlobalRequest,
    engine: Engine,
    progress: Progress | None = None,
    *,
    faults: FaultPoints = NO_FAULTS,
    say: Callable[[str], None] = nobody,
) -> RepairReport:
    """Rebuild the global stores of a directory that are not valid; or say what would be done.

    Args:
        request: which directory, and whether to do it.
        engine: who rebuilds stores; its workers see the directory.
        progress: told how far it is; ``None`` for nobody.
        faults: points at which tests let the process die.
        say: told what an operator should read at once.

    Returns:
        What the next start would do with each global store, what was done, and what is left.

    Raises:
        NotFound: there is no such application or global store, or the topic of one is gone.
        Invalid: the plan is not the one that was approved, or takes rows away and was not approved; the topic of a
            store is not compacted; or only the application can fill a store. Nothing was changed.
        Fenced: the application runs, or another job does; nothing was changed.
        Retryable, Capacity, Corrupted: as :func:`statecore.jobs.repair.run.run_repair`.
        StatecoreError: a defect of this program.
    """
    try:
        spec = load_spec(Path(request.spec_path))
        if request.application_id is not None:
            check_application(spec, request.application_id)
        stores = _wanted(spec, request)
        return _Recovery(request, engine, spec, stores, progress, faults, say).run()
    except FaultInjected:
        raise
    except Exception as error:
        raise as_statecore_error(error, f"global stores in {request.state_dir} were recovered") from error


def _wanted(spec: ApplicationSpec, request: RecoverGlobalRequest) -> tuple[StoreSpec, ...]:
    """The global stores that are meant, as they are declared.

    Raises:
        NotFound: one is not declared, or none is.
    """
    declared = {one.name: one for one in spec.global_stores}
    unknown = [name for name in request.stores if name not in declared]
    if unknown or not declared:
        what = f"no global store {', '.join(unknown)}" if unknown else "no global store"
        raise NotFound(
            f"{spec.source} declares {what} for {spec.application_id}; it declares {', '.join(declared) or 'none'}.",
            code="store-not-declared",
            action="Name global stores of the spec, or add the missing ones to it below global_stores.",
            stores=unknown,
        )
    return tuple(one for name, one in declared.items() if not request.stores or name in request.stores)


class _Recovery(DirectoryRepair):
    """One try of a recovery."""

    called = "recovery of global stores"

    def __init__(
        self,
        request: RecoverGlobalRequest,
        engine: Engine,
        spec: ApplicationSpec,
        stores: tuple[StoreSpec, ...],
        progress: Progress | None,
        faults: FaultPoints,
        say: Callable[[str], None],
    ) -> None:
        repair = request.to_repair(spec.application_id)
        super().__init__(repair, engine, directory_of(repair), spec, progress, faults, say)
        self.asked, self.spec, self.stores = request, spec, stores

    def words(self) -> tuple[str, ...]:
        """See :class:`statecore.jobs.directory_change.OnDirectory`."""
        return "recover-global", *self.asked.to_words(without=("approved", "request_id"))

    def run(self) -> RepairReport:
        """Recover, or plan; where something is wrong that no repair is known for, nothing is called sound."""
        report = super().run()
        if report.outcome is Outcome.UNCHANGED and report.exit_code >= Severity.ERROR.exit_code:
            return replace(report, outcome=Outcome.NOT_MENDED)
        return report

    def _examined(self) -> tuple[Diagnosis, RepairPlan]:
        self._refuse_files()
        there = {found.store for found in self.directory.stores(GLOBAL)}
        if GLOBAL in self.directory.every_task():
            named = tuple(name for name in self.asked.stores if name in there)
            # Of a store that is not there only the files of the task tell.
            self.request = replace(self.request, stores=named if len(named) == len(self.asked.stores) else ())
            found, _ = super()._examined()
            found = replace(found, findings=tuple(map(_mendable, found.findings)))
            return found, self.planned(found)
        nothing = InspectedDirectory(0, 0, 0, 0, scanned=False, brokers=False, declared=True)
        guarantee = self.spec.processing_guarantee
        found = Diagnosis(self.spec.application_id, self.directory.path, None, guarantee, CURRENT.name, (), nothing)
        return found, self.planned(found)

    def _refuse_files(self) -> None:
        """Refuse what is no directory in the place of a store. Raises ``Invalid``."""
        of_globals = self.directory.task_path(GLOBAL)
        for one in self.stores:
            for path in (of_globals / PLAIN_PARENT / one.name, of_globals / one.name):
                if os.path.lexists(path) and not path.is_dir():
                    raise Invalid(
                        f"{path} is no directory, and the global store {one.name} belongs there: the next start of "
                        "the application ends in ERROR, and under exactly-once it deletes all of global/.",
                        code="store-not-directory",
                        action="See whose file it is, and move it away. Then run this again.",
                        store=one.name,
                        path=str(path),
                    )

    def planned(self, found: Diagnosis) -> RepairPlan:
        """What mends the global stores that are meant."""
        meant = {"", *(one.name for one in self.stores)}
        return plan_repairs([one for one in found.findings if one.store in meant], found.stores)

    def next_starts(self, found: Diagnosis) -> tuple[NextStart, ...]:
        """What the next start would do with each."""
        there = {view.store for view in found.stores} | {one.store for one in found.findings}
        of_those = next_starts([one.name for one in self.stores if one.name in there], found.findings)
        absent = [NextStart(one.name, Start.RECOVERS, (_ABSENT,)) for one in self.stores if one.name not in there]
        return (*of_those, *absent)

    def check(self, found: Diagnosis, plan: RepairPlan) -> None:
        """Refuse what no recovery can do, and what takes rows away that somebody may want.

        Raises:
            NotFound: the topic of a store is gone.
            Invalid: the topic of one that is to be rebuilt is not compacted, or only the application can fill it.
        """
        gone = [one for one in found.findings if one.code == "topic-missing"]
        if gone:
            topics = ", ".join(sorted({str(one.evidence["topic"]) for one in gone}))
            raise NotFound(
                f"The topic of a global store is gone ({gone[0].store}): {topics}. The application does not start "
                "without it, and nothing could be rebuilt.",
                code="global-topic-not-found",
                action="Keep a copy of the directory (statecore snapshot --offline); find out who deleted the topic, "
                "have it made and filled again, then run this again. Check that these are the application's brokers: "
                f"{self.spec.bootstrap_servers}. Other global stores can be recovered by name (--store).",
                stores=sorted({one.store for one in gone}),
                topics=topics,
            )
        rebuilt = {store for one in plan.rebuilds for store in one.stores}
        of_application = [one.name for one in self.stores if one.name in rebuilt and one.is_filled_by_processor]
        if of_application:
            names = ", ".join(of_application)
            raise Invalid(
                f"The application fills {names} through a processor of its own, so its rows cannot be told from the "
                "topic.",
                code="store-filled-by-processor",
                action=f"Move the directory of {names} in {self.directory.task_path(GLOBAL)} aside: the next start "
                "reads its topic whole. Others can be recovered by name (--store).",
                stores=of_application,
            )
        self._check_compacted([one for one in self.stores if one.name in rebuilt])

    def _check_compacted(self, stores: Sequence[StoreSpec]) -> None:
        """Refuse stores whose topics lose rows. Raises ``Invalid``."""
        if not stores:
            return
        from statecore.changelog.cluster import Cluster
        from statecore.changelog.compaction import check_compacted

        with Cluster(self.spec.bootstrap_servers, self.spec.kafka) as cluster:
            topics = cluster.describe_topics({one.changelog for one in stores})
        for one in stores:
            accept = self.asked.accept_uncompacted
            check_compacted(topics[one.changelog], one.name, accept=accept, how_to_accept=ACCEPT)


def _mendable(finding: Finding) -> Finding:
    """A finding with the repair that it has here, and that it has not in a directory that is looked at as a whole.

    - Of a topic without a record an empty store is made.
    - A topic never loses a partition, so one with fewer is another topic. Kafka Streams reads what the topic has, and
      leaves the rows of the other partitions in the store for ever.
    """
    if finding.code == "offset-past-end" and finding.repair is None:
        return replace(finding, repair=Repair.REBUILD)
    if finding.code == "partition-unknown" and finding.task == GLOBAL and finding.store:
        return replace(finding, repair=Repair.REBUILD, severity=Severity.LOSS)
    return finding
