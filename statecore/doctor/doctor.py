"""A state directory examined: everything that it alone tells, or it and a spec, as findings with what to do.

Only read: not a byte, a time or a file of the directory changes, also while the application runs. What is normal then
(stores that are open, flushed at different times) is not reported. A damaged database hides nothing of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from statecore.discover.contradicted_kinds import contradictions_in
from statecore.doctor.checks.context import CheckContext
from statecore.doctor.database_inspection import Depth
from statecore.doctor.finding_catalog import Severity
from statecore.doctor.findings import Finding
from statecore.doctor.inspection_reader import InspectionReader, look
from statecore.doctor.run_checks import run_checks
from statecore.doctor.views import Inspection, StoreView, holder_json
from statecore.formats.kinds import StoreKind
from statecore.formats.releases import CURRENT, Release
from statecore.formats.task_id import TaskId
from statecore.progress import Progress
from statecore.spec.model import ApplicationSpec, ProcessingGuarantee
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.store_places import guarantee_of
from statecore.stores.lock_holder import Holder

DOCUMENT_VERSION = 1
"""Of :meth:`Diagnosis.to_json`."""

Topics = Callable[[Inspection], tuple[Sequence[Finding], Sequence[str]]]
"""Asks the brokers about a directory that was looked at: what it found, and what it could not tell, in a sentence each.
"""


@dataclass(frozen=True)
class InspectedDirectory:
    """What an examination looked at.

    Attributes:
        tasks: how many tasks, ``global`` among them.
        stores: how many stores, each counted once for all its tasks.
        databases: how many databases.
        bytes: of those.
        scanned: whether every row was read and its checksum verified.
        brokers: whether the brokers were asked.
        declared: whether there was a spec.
    """

    tasks: int
    stores: int
    databases: int
    bytes: int
    scanned: bool
    brokers: bool
    declared: bool


@dataclass(frozen=True)
class Diagnosis:
    """What an examination came to.

    Attributes:
        application_id: the application.
        path: its directory.
        holder: who has it in use, or ``None``.
        guarantee: the application's, or ``None`` where nobody said it; findings are then as bad as under either.
        release: which release of Kafka Streams is to open the directory.
        transactional: whether it does so with transactional state stores.
        findings: what was found, the worst first.
        looked_at: what was looked at.
        undecided: what the brokers were asked and could not tell, in a sentence each.
        stores: the stores as they were seen.
    """

    application_id: str
    path: Path
    holder: Holder | None
    guarantee: ProcessingGuarantee | None
    release: str
    findings: tuple[Finding, ...]
    looked_at: InspectedDirectory
    undecided: tuple[str, ...] = ()
    stores: tuple[StoreView, ...] = ()
    transactional: bool = False

    @property
    def exit_code(self) -> int:
        """Of the worst finding: 0 where there is none, or notes alone."""
        return max((one.severity.exit_code for one in self.findings), default=0)

    @property
    def counts(self) -> dict[Severity, int]:
        """How many findings there are of each severity, the worst first."""
        return {
            severity: sum(one.severity is severity for one in self.findings) for severity in reversed(list(Severity))
        }

    def to_json(self) -> dict[str, Any]:
        """Everything, as one JSON object."""
        return {
            "version": DOCUMENT_VERSION,
            "application_id": self.application_id,
            "path": str(self.path),
            "lock": holder_json(self.holder),
            "processing_guarantee": None if self.guarantee is None else str(self.guarantee),
            "release": self.release,
            "transactional_state_stores": self.transactional,
            "looked_at": dict(vars(self.looked_at)),
            "counts": {severity.value: count for severity, count in self.counts.items()},
            "findings": [one.to_json() for one in self.findings],
            "undecided": list(self.undecided),
            "exit_code": self.exit_code,
        }


def examine(
    directory: StateDirectory,
    *,
    spec: ApplicationSpec | None = None,
    guarantee: ProcessingGuarantee | None = None,
    tasks: Sequence[str] = (),
    stores: Sequence[str] = (),
    scan: bool = False,
    release: Release | None = None,
    cleanup_max_age_ms: int | None = None,
    topics: Topics | None = None,
    progress: Progress | None = None,
    is_locked: bool = False,
) -> Diagnosis:
    """Examine an application's directory.

    Args:
        directory: it.
        spec: what is declared; kinds, changelogs and the guarantee come from it then.
        guarantee: the application's, where it is not declared.
        tasks: only these tasks; all without. Findings of the whole application are then left out.
        stores: only these stores; all without, likewise.
        scan: read every row of every database and verify its checksum.
        release: which release of Kafka Streams is to open the directory; the current one where none is named.
        cleanup_max_age_ms: the application's ``state.cleanup.dir.max.age.ms``, where it sets one.
        topics: asks the brokers.
        progress: told the bytes of the databases that were looked at.
        is_locked: whether the caller holds the application's lock, so that nobody works there.

    Raises:
        NotFound: a task or store that was named is not there.
        Invalid: the directory may not be read, or the spec says another guarantee.
    """
    guarantee = guarantee_of(spec, guarantee)
    depth = Depth(count=scan, formats=release is not None)
    sight = look(directory, spec=spec, tasks=tasks, stores=stores, depth=depth, progress=progress, is_locked=is_locked)
    opened_by = release or CURRENT
    how = CheckContext(
        directory.application_id, guarantee, opened_by, spec, cleanup_max_age_ms, sight.read_at_ms,
        sight.transactional and opened_by.transactional_stores,
    )  # fmt: skip
    seen, beyond = run_checks(sight, how)
    found = [*beyond, *(one for store in seen for one in store.findings)]
    if spec is not None:
        found = _with_contradictions(directory, spec, seen, stores, found)
    undecided: Sequence[str] = ()
    if topics is not None:
        path = directory.path
        inspection = Inspection(
            directory.application_id, path, sight.holder, not scan, seen, sight.leftovers, tuple(beyond)
        )
        more, undecided = topics(inspection)
        found += more
    return Diagnosis(
        directory.application_id,
        directory.path,
        sight.holder,
        guarantee,
        how.release.name,
        tuple(sorted(found, key=_order)),
        _looked_at(sight, scanned=scan, brokers=topics is not None),
        tuple(undecided),
        tuple(seen),
        how.transactional,
    )


_OF_THE_WRONG_KIND = frozenset({"kind-mismatch", "offset-missing", "store-unread"})
"""What is also found of a store that is looked at as what it is not."""


def _with_contradictions(
    directory: StateDirectory,
    spec: ApplicationSpec,
    seen: Sequence[StoreView],
    stores: Sequence[str],
    found: list[Finding],
) -> list[Finding]:
    """The findings, with stores of the application's own class that are declared as another kind, and the reverse.

    There is no repair for them: a rebuild by the spec would replace what is whole.
    """
    tasks = {store.task for store in seen}
    contradictions = {
        (task, one.store): one
        for one in contradictions_in(directory, spec, tasks, by_content=False)
        if one.is_of_another_class and (not stores or one.store in stores)
        for task in one.tasks
    }
    kept = [one for one in found if (one.task, one.store) not in contradictions or one.code not in _OF_THE_WRONG_KIND]
    return kept + [
        Finding(
            "kind-mismatch",
            f"{store} is declared as {one.declared}, but {one.why}: correct the spec, or move a leftover away",
            # The directory of a store that has come into memory since is no harm.
            Severity.WARNING if one.declared is StoreKind.IN_MEMORY else Severity.LOSS,
            task,
            store,
            evidence={"declared": str(one.declared)},
        )
        for (task, store), one in sorted(contradictions.items())
    ]


def _order(finding: Finding) -> tuple[int, str, str, tuple[object, ...], str]:
    """The worst first; of one code store by store, and tasks in their order."""
    task = TaskId.match(finding.task)
    order = () if task is None else task.order
    return -finding.severity.rank, finding.code, finding.store, order, finding.segment


def _looked_at(sight: InspectionReader, *, scanned: bool, brokers: bool) -> InspectedDirectory:
    databases = [one for store in sight.stores for one in store.databases]
    return InspectedDirectory(
        len({store.task for store in sight.stores}),
        len({(store.topology, store.store) for store in sight.stores}),
        len(databases),
        sum(one.bytes for one in databases),
        scanned,
        brokers,
        sight.spec is not None,
    )
