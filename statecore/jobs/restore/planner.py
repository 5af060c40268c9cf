"""Plans the restore of one request, and plans it again without the bases that turn out unsound."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

from statecore.changelog.cluster import Cluster
from statecore.errors import Corrupted, Invalid, Reason
from statecore.jobs.bases.base import DIRECTORY, Key, Refused, grouped
from statecore.jobs.context import JobContext
from statecore.jobs.job_home import JobHome
from statecore.jobs.pipeline.tail_check import TailRuns, found_unsound
from statecore.jobs.planning.frozen_plan import FrozenPlan
from statecore.jobs.planning.plan import ReadPlan
from statecore.jobs.planning.plan_warnings import notes_of
from statecore.jobs.planning.planned_tails import RESUMED_NOTE, check_unchanged, covers, topics_of, valid_bases
from statecore.jobs.planning.planner import plan_reads
from statecore.jobs.planning.selection import select_stores, unadvanceable_stores
from statecore.jobs.restore.base_candidates import RestoreCandidates, cost
from statecore.jobs.restore.planned_restore import PlanLimit, PlannedRestore, refusal_to_advance
from statecore.jobs.restore.request import CHEAPEST, FROM_DIRECTORY, RestoreRequest


class RestorePlanner:
    """Makes the plans of a restore, and the command that resumes each; no base that was refused is tried again."""

    def __init__(self, context: JobContext[RestoreRequest], options: tuple[str, ...], limit: PlanLimit | None) -> None:
        self._context, self._options, self._limit = context, options, limit
        self._refused: dict[tuple[Key, str], Reason] = {}

    def new(self, cluster: Cluster, parallelism: Callable[[], int], staging: str = "") -> PlannedRestore:
        context, candidates, limit = self._context, self._candidates(cluster), self._limit
        request, spec = context.request, context.spec
        made_at = time.time()
        asked = select_stores(spec, request.stores, request.partitions)
        stays = unadvanceable_stores(asked, request.stores) if request.start_from == FROM_DIRECTORY else ()

        missing: list[Key] = []
        incomplete: list[Refused] = []

        def only(key: Key) -> bool:
            if limit is not None and key not in limit.keys:
                return False
            if request.start_from != FROM_DIRECTORY:
                return True
            if not candidates.has_store(key):
                missing.append(key)
                return False
            if key[1] in stays:
                damaged = candidates.why_incomplete(key)
                incomplete.extend([] if damaged is None else [damaged])
                return False
            return True

        planned = plan_reads(
            cluster,
            spec,
            request,
            parallelism=parallelism,
            candidates=candidates,
            cost=cost if request.start_from == CHEAPEST else None,
            only=only,
            ends={} if limit is None else limit.ends,
        )
        bases, refused, costlier = planned.chosen
        refused = (*refused, *incomplete)
        plan, kept = _without_finished_tasks(planned.plan, candidates.needs_placement)
        is_partial = request.start_from == FROM_DIRECTORY or plan != planned.plan
        left_out = {store.name for store in asked} - {part.store for part in plan.partitions} if is_partial else set()
        frozen = FrozenPlan(
            plan,
            request.partitions,
            made_at,
            request.request_id,
            staging,
            newest_snapshot=candidates.newest,
            refused=refused,
            is_partial=is_partial,
            excluded_stores=tuple(sorted(left_out)),
            command=(*_words(request), *self._options),
            broker_read_at_ms=planned.read_at_ms,
        )
        notes = (
            *planned.notes,
            *_base_notes(plan, request),
            *_versioned_notes(stays),
            *candidates.notes_of_missing(missing),
            *kept,
            *grouped((*refused, *costlier)),
        )
        bases = {key: base for key, base in bases.items() if key in plan.stores}
        found = PlannedRestore(
            frozen=frozen,
            bases=bases,
            refused=refused,
            topics=planned.topics,
            notes=notes,
            candidates=candidates,
            disk=planned.disk,
            cluster_id=planned.cluster_id,
        )
        lacking = refusal_to_advance(found)
        if lacking is not None and not request.plan_only:
            raise lacking
        return found

    def resumed(self, cluster: Cluster, home: JobHome) -> PlannedRestore | str | None:
        """The frozen plan of an earlier attempt of this request; or why it must be recreated, if there is one.

        A checkpoint follows other rules (`statecore.jobs.checkpoint.planner`): it makes a new plan where a topic was
        recreated, which is an error here, and says that a plan was of other stores, which is no news of a restore.

        Raises:
            Invalid: a topic was recreated.
        """
        spec, request, candidates = self._context.spec, self._context.request, self._candidates(cluster)
        try:
            frozen = home.read_plan()
        except Invalid as error:
            return error.what
        if frozen is None or not covers(frozen, spec, request):
            return None
        topics = topics_of(cluster, frozen.plan)
        check_unchanged(frozen.plan, topics)
        bases = valid_bases(cluster, frozen, topics, candidates)
        if isinstance(bases, str):
            return f"{bases}."
        return PlannedRestore(
            frozen=frozen,
            bases=bases,
            refused=frozen.refused,
            topics=topics,
            notes=(RESUMED_NOTE, *notes_of(cluster, spec, frozen.plan, request)),
            candidates=candidates,
            is_resumed=True,
            cluster_id=cluster.cluster_id(),
        )

    def check_topics(self, cluster: Cluster, frozen: FrozenPlan) -> None:
        """Refuse a frozen plan whose changelogs were recreated or deleted. Raises ``Invalid`` or ``NotFound``."""
        check_unchanged(frozen.plan, topics_of(cluster, frozen.plan))

    def _candidates(self, cluster: Cluster) -> RestoreCandidates:
        context = self._context
        return RestoreCandidates(
            context.request,
            context.spec,
            context.directory if context.state_dir else None,
            context.repository if context.has_repository else None,
            self._refused,
            cluster.cluster_id() if context.has_repository else "",
        )

    def refuses(self, planned: PlannedRestore, runs: TailRuns) -> bool:
        """Whether a base turned out unsound when its tail was read."""
        if not planned.bases:
            return False
        with self._context.cluster() as cluster:
            found = found_unsound(planned, runs, cluster)
        self._refused |= found.permanent
        for one in found.refused:
            self._context.say(str(one))
        return bool(found.refused)

    def refuse_snapshots(self, planned: PlannedRestore, error: Corrupted) -> bool:
        """Refuse all base snapshots of a plan after files of some were damaged; whether there were any."""
        bases = {key: base for key, base in planned.bases.items() if key not in planned.based_on_directory}
        why = Reason(
            f"some of its files are damaged or missing: {error.what}",
            "base-damaged",
            **{**error.context, "error": error.code},
        )
        self._refused |= {(key, base.name): why for key, base in bases.items()}
        if bases:
            names = ", ".join(sorted({one.name for one in bases.values()}))
            self._context.say(f"warning: Not used as base: {names}. {error.what}")
        return bool(bases)


def _without_finished_tasks(plan: ReadPlan, needs_placement: Callable[[str], bool]) -> tuple[ReadPlan, list[str]]:
    """The plan without the tasks that are already at the end of their changelogs, and lack nothing."""
    done = {
        task
        for task in plan.tasks
        if all(part.base == DIRECTORY and part.start == part.end for part in plan.partitions if part.task == task)
        and not needs_placement(task)
    }
    if not done:
        return plan, []
    rest = plan.of_tasks(plan.tasks - done)
    many = f"{len(done)} tasks are at the end of their changelogs and stay as they are."
    return rest, [many if len(done) > 1 else "1 task is at the end of its changelogs and stays as it is."]


def _words(request: RestoreRequest) -> tuple[str, ...]:
    """The command that repeats this request; a restore from a directory only is an ``advance``."""
    without = {"state_dir", "plan_only", "request_id"}
    if request.start_from == FROM_DIRECTORY:
        return ("advance", *request.to_words({*without, "start_from"}))
    return ("restore", *request.to_words(without))


def _versioned_notes(stays: Sequence[str]) -> list[str]:
    return [f"Versioned stores stay as they are: {', '.join(stays)}."] if stays else []


def _base_notes(plan: ReadPlan, request: RestoreRequest) -> list[str]:
    """Operator notes: the bases, and the offsets that need not be read."""
    names = {key: parts[0].base for key, parts in plan.stores.items() if not parts[0].restored_by_kafka_streams}
    counts = Counter(names.values())
    if set(counts) <= {""}:
        return []
    read: Counter[str] = Counter()
    saved: Counter[str] = Counter()
    for key, name in names.items():
        for part in plan.stores[key]:
            read[name] += part.end - part.start
            saved[name] += part.start - min(part.log_start, part.start)
    why = "the cheapest sound base" if request.start_from == CHEAPEST else "as requested"
    return [
        f"{counts[name]} store partitions have {name} as base ({why}): {read[name]:,} offsets are read instead of "
        f"{read[name] + saved[name]:,}."
        if name
        else f"{counts[name]} store partitions are built from their whole changelogs: {read[name]:,} offsets."
        for name in sorted(counts, reverse=True)
    ]
