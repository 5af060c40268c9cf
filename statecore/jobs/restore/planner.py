"""Plans the restore of one request, and plans it again without the bases that turn out unsound."""

from __future__ import annotations

from collections.abc import Callable

from statecore.changelog.cluster import Cluster
from statecore.errors import Corrupted, Reason
from statecore.jobs.bases.base import DAMAGED, Key
from statecore.jobs.bases.tail_check import found_unsound
from statecore.jobs.context import JobContext
from statecore.jobs.job_files import JobHome
from statecore.jobs.pipeline.read_stage import ReadResult
from statecore.jobs.restore.base_candidates import RestoreCandidates
from statecore.jobs.restore.plan_with_bases import PlannedRestoreOf, Until, new_plan, resumed_plan
from statecore.jobs.restore.request import RestoreRequest


class RestorePlanner:
    """Makes the plans of a restore; no base that was refused is tried again."""

    def __init__(self, context: JobContext[RestoreRequest], until: Until | None) -> None:
        self._context, self._until = context, until
        self._refused: dict[tuple[Key, str], Reason] = {}

    def new(self, cluster: Cluster, parallelism: Callable[[], int], staging: str = "") -> PlannedRestoreOf:
        """A new plan."""
        context = self._context
        return new_plan(cluster, context.spec, context.request, self._candidates(), parallelism, staging, self._until)

    def resumed(self, cluster: Cluster, home: JobHome) -> PlannedRestoreOf | str | None:
        """See :func:`resumed_plan`."""
        return resumed_plan(cluster, self._context.spec, self._context.request, self._candidates(), home)

    def _candidates(self) -> RestoreCandidates:
        context = self._context
        return RestoreCandidates(
            context.request,
            context.spec,
            context.directory if context.state_dir else None,
            context.repository if context.has_repository else None,
            self._refused,
        )

    def refuses(self, planned: PlannedRestoreOf, read: ReadResult) -> bool:
        """Whether a base turned out unsound when its tail was read."""
        if not planned.bases:
            return False
        with self._context.cluster() as cluster:
            found = found_unsound(planned.plan, planned.bases, read.runs, planned.topics, cluster)
        self._refused |= found.permanent
        for one in found.refused:
            self._context.say(str(one))
        return bool(found.refused)

    def refuse_snapshots(self, planned: PlannedRestoreOf, error: Corrupted) -> bool:
        """Refuse all base snapshots of a plan after files of some were damaged; whether there were any.

        The error does not say which base is damaged.
        """
        bases = {key: base for key, base in planned.bases.items() if key not in planned.here}
        for key, base in sorted(bases.items()):
            self._refused[key, base.name] = Reason(f"{DAMAGED}: {error.what}", error.code, **error.context)
        if bases:
            names = ", ".join(sorted({one.name for one in bases.values()}))
            self._context.say(f"warning: Not used as base: {names}. {error.what}")
        return bool(bases)
