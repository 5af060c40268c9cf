"""Checkpoints and compactions as steps of a campaign: each result equals that of a plain restore."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from random import Random
from typing import Any
from unittest.mock import patch

from statecore.errors import Invalid
from statecore.faults import CHECKPOINT_POINTS, NO_FAULTS, PUBLISH_POINTS, FaultInjected, InjectedFault
from statecore.formats.kinds import StoreKind
from statecore.jobs.checkpoint.request import CheckpointRequest
from statecore.jobs.checkpoint.run import run_checkpoint
from statecore.jobs.checkpoint.tails import SMALL_TAIL
from statecore.jobs.compact.policy import CompactionSettings
from statecore.jobs.compact.run import compact
from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.engine.processes import ProcessEngine
from statecore.jobs.engine.protocol import Engine
from statecore.jobs.fetch.request import FetchRequest
from statecore.jobs.fetch.run import run_fetch
from statecore.jobs.fields.catalog import VersionedStart
from statecore.jobs.read_report import ReadReport
from statecore.jobs.restore.advance import run_advance
from statecore.jobs.restore.request import AdvanceRequest
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.manifest import StoreSnapshot
from statecore.spec.reader import parse_spec
from tests.harness.job_contexts import context_of
from tests.harness.snapshot_campaign import Campaign, Key, called, cut_at_random
from tests.harness.snapshot_content import Content

EAGER = CompactionSettings(new_due=2, eligible=2, remaining=1, all_due=3, max_old=1)
"""Two runs are as many as there may be."""


def go_on_by_checkpoints(campaign: Campaign) -> None:
    """Checkpoints, one upon the other, with something new between them, or compacted, or compacted, or nothing."""
    for _ in range(campaign.more.choice((1, 2, 4))):
        if campaign.more.random() < 0.8:
            campaign.append()
        if campaign.more.random() < 0.3:
            campaign.compact()
        checkpoint(campaign)
        if campaign.newest and campaign.more.random() < 0.4:
            compaction(campaign)


def checkpoint(campaign: Campaign) -> None:
    """A checkpoint of all, or of some; where there is no snapshot it makes one."""
    chance = campaign.more
    if chance.random() < 0.2:
        return
    what: dict[str, Any] = {"versioned": VersionedStart.LATEST}
    if chance.random() < 0.1:
        what["versioned"] = VersionedStart.HISTORY
    if chance.random() < 0.1:
        what["partitions"] = (chance.randrange(campaign.partitions),)
    if chance.random() < 0.1:
        built = [store for store, kind in sorted(campaign.kinds.items()) if kind != "in-memory"]
        what["stores"] = tuple(chance.sample(built, min(2, len(built))))
    with campaign.open_transaction():
        checkpoint_of(campaign, what)


def checkpoint_of(campaign: Campaign, what: Mapping[str, Any], *, versioned_interval: int | None = None) -> None:
    """A checkpoint of what these fields of a request say, compared with a plain restore.

    A task without a new record stays as it is: what it holds is the same, though its offsets are older, because the
    marks of transactions, and what was aborted, are no records. A versioned store stays, too, while it is young.

    Args:
        campaign: the campaign.
        what: fields of a request.
        versioned_interval: ms after which versioned stores are rebuilt; chance decides where none is given.
    """
    request = CheckpointRequest(
        spec=campaign.spec,
        repository=campaign.url,
        memory_budget=campaign.more.choice((1 << 20, 512 << 20)),
        transaction_wait=campaign.transaction_wait,
        versioned_interval=versioned_interval or campaign.more.choice((1, 86_400_000)),
        **what,
    )
    engine = ProcessEngine(2) if campaign.more.random() < 0.15 else InProcessEngine()
    campaign.tell(f"checkpoint {dict(what)} by {called(engine)}")
    before, newest = campaign.expected.get(campaign.newest, {}), campaign.newest
    report = _made(campaign, request, engine)
    restored = campaign.rebuilt(what)
    published = "" if report.published is None else report.published.snapshot
    anew = {task for task, _ in restored if published and _is_another(campaign, task, published, newest)}
    stores = campaign.stores_of(published or newest)
    loose = loose_stores(campaign, published) & restored.keys()
    found = _fetched(campaign, published, {key for key in loose if key[0] in anew}) if published else {}
    old = {
        key
        for key, one in restored.items()
        if stores[key].kind.is_versioned and key in before and _offsets(stores[key]) != one.offsets
    }
    content: dict[Key, Content] = {}
    for key, one in restored.items():
        if key[0] not in anew:
            content[key] = before[key]
        elif key in old:
            content[key] = _known(campaign, key, stores[key])
        else:
            content[key] = found.get(key, one)
        if key not in old:
            _hold_against(key, content[key], one, loose=key in loose)
    if not published:
        return
    campaign.counts(published, content, whole=not what.get("stores") and not what.get("partitions"))
    _count_what_was_folded(campaign)


def loose_stores(campaign: Campaign, snapshot: str = "") -> set[Key]:
    """Stores of a snapshot, the newest unless one is named, that stand on a directory and have segments."""
    stores = campaign.stores_of(snapshot or campaign.newest)
    return {key for key, one in stores.items() if one.stream_time is None and one.kind.is_segmented}


def _known(campaign: Campaign, key: Key, store: StoreSnapshot) -> Content:
    """What a versioned store holds that is kept as one of the snapshots has it, not always the newest."""
    known = (there[key] for there in campaign.expected.values() if key in there)
    return next(one for one in known if one.offsets == _offsets(store))


def _offsets(store: StoreSnapshot) -> dict[str, int]:
    return {str(part): offset for part, offset in store.offsets.items()}


def _hold_against(key: Key, there: Content, restored: Content, *, loose: bool) -> None:
    """What a snapshot has must be what a restore makes, wherever it ends.

    *Loose* is a store based on a directory, of unknown stream time: rows that came late, and that a restore
    leaves out because their segment has expired, may still be there, as they are when Kafka Streams goes on from it.
    """
    kept = set(restored.segments)
    if loose and there.segments != restored.segments:
        assert kept <= set(there.segments), (key, there, restored)
        assert there.rows > restored.rows, (key, there, restored)
        assert max(there.segments) == max(kept, default=max(there.segments)), (key, there, restored)
        return
    sides = [(one.rows, one.digest, one.segments) for one in (there, restored)]
    assert sides[0] == sides[1], f"{key}: {there} != {restored}"


def _fetched(campaign: Campaign, snapshot: str, keys: set[Key]) -> dict[Key, Content]:
    """What is on disk of some stores of a snapshot when it is fetched."""
    if not keys:
        return {}
    state_dir = campaign.directory()
    report = run_fetch(
        FetchRequest(
            repository=campaign.url,
            application_id=campaign.application_id,
            state_dir=str(state_dir),
            snapshot=snapshot,
            tasks=tuple(sorted({task for task, _ in keys})),
            versioned=VersionedStart.LATEST,
        )
    )
    found = {
        (one.task, one.store): campaign.content_in(state_dir, one)
        for one in report.stores
        if (one.task, one.store) in keys
    }
    shutil.rmtree(state_dir)
    return found


def _made(campaign: Campaign, request: CheckpointRequest, engine: Engine) -> ReadReport:
    """Make it; now and then it dies on the way, and is tried again."""
    chance = campaign.more
    ways, faults = Random(chance.getrandbits(32)), NO_FAULTS
    if chance.random() < 0.25:
        point = chance.choice((*CHECKPOINT_POINTS, *PUBLISH_POINTS))
        campaign.tell(f"which dies at {point}")
        faults = InjectedFault(point)
    small_tail = 0 if isinstance(engine, ProcessEngine) else SMALL_TAIL
    with (
        campaign.packing(),
        patch("statecore.jobs.planning.plan.plan_ranges", cut_at_random(ways, ways.choice((1, 2, 5)))),
    ):
        try:
            report = run_checkpoint(request, engine, faults=faults, say=campaign.tell, small_tail=small_tail)
        except FaultInjected:
            report = run_checkpoint(request, engine, say=campaign.tell, small_tail=small_tail)
    assert isinstance(report, ReadReport)
    return report


def _is_another(campaign: Campaign, task: str, new: str, old: str) -> bool:
    """Whether a task is another in one snapshot than in the one before."""
    app_repository = ApplicationRepository.open(campaign.url, campaign.application_id)
    identities = []
    for snapshot in (new, old):
        entry = app_repository.head().entry(snapshot) if snapshot else None
        task_manifest = None if entry is None else app_repository.manifest(entry).value.reference(task)
        identities.append(None if task_manifest is None else task_manifest.identity)
    return identities[0] != identities[1]


def compaction(campaign: Campaign) -> None:
    """Runs are merged as soon as there are two; what the snapshot holds is the same."""
    app_repository = ApplicationRepository.open(campaign.url, campaign.application_id)
    with campaign.packing():
        context = context_of(app_repository, parse_spec(campaign.spec, "<campaign>"), say=campaign.tell)
        report = compact(context, settings=EAGER)
    campaign.tell(f"compaction: {report.outcome} {report.runs} runs")
    _count_what_was_folded(campaign)


def advance(campaign: Campaign) -> None:
    """A directory that was fetched is brought to the end by the tails alone, or refused as it is.

    It does not say when its offsets were the end, so a tail of which compaction has taken something is not enough.
    """
    if not campaign.whole or campaign.more.random() < 0.6:
        return
    snapshot, state_dir = campaign.more.choice(sorted(campaign.whole)), campaign.directory()
    campaign.tell(f"advance {state_dir}, fetched of {snapshot}")
    campaign.fetch_into(state_dir, snapshot, snapshot=snapshot)
    if campaign.more.random() < 0.7:
        campaign.append()
    before = campaign.expected[snapshot]
    request = AdvanceRequest(spec=campaign.spec, state_dir=str(state_dir), transaction_wait=campaign.transaction_wait)
    refused = ""
    try:
        report = run_advance(request, InProcessEngine(), say=campaign.tell)
    except Invalid as error:
        refused = error.what
    if refused:
        campaign.tell(refused)
        reasons = ("it is not known since when records follow", "it has no offset of")
        assert all(any(one in line for one in reasons) for line in refused.splitlines()[1:] if line), refused
        assert campaign.content(state_dir, before) == before
        shutil.rmtree(state_dir)
        return
    assert isinstance(report, ReadReport)
    restored = campaign.rebuilt({"versioned": VersionedStart.LATEST})
    for one in report.stores:
        there, key = campaign.content_in(state_dir, one), (one.task, one.store)
        assert there.offsets == restored[key].offsets
        _hold_against(key, there, restored[key], loose=StoreKind(one.kind).is_segmented)
    kept = before.keys() - {(one.task, one.store) for one in report.stores}
    assert campaign.content(state_dir, kept) == {key: before[key] for key in kept}
    for key in kept:
        if not campaign.kinds[key[1]].startswith("versioned"):
            _hold_against(key, before[key], restored[key], loose=StoreKind(campaign.kinds[key[1]]).is_segmented)
    shutil.rmtree(state_dir)


def _count_what_was_folded(campaign: Campaign) -> None:
    """Where a compaction has published a snapshot it is the newest, and holds the same."""
    newest = ApplicationRepository.open(campaign.url, campaign.application_id).head().snapshots[0]
    if newest.snapshot != campaign.newest:
        assert newest.origin == "compaction"
        campaign.counts(newest.snapshot, {}, whole=False)
