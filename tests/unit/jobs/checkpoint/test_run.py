"""A checkpoint that found a store damaged after it had published is retried; one that another overtook plans again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from statecore.errors import Fenced, Invalid, Retryable
from statecore.jobs.checkpoint import compaction, run
from statecore.jobs.checkpoint.compaction import not_rebuilt_note
from statecore.jobs.checkpoint.job import CheckpointJob
from statecore.jobs.checkpoint.last_checkpoint import NO_SNAPSHOT
from statecore.jobs.checkpoint.publish import finish_if_made, publication_of
from statecore.jobs.checkpoint.request import CheckpointRequest, WhenRefused
from statecore.jobs.context import JobContext
from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.in_progress_marker import marked_in_progress
from statecore.jobs.job_home import RepositoryHome
from statecore.jobs.read_report import ReadReport
from statecore.objectstore.base import DEFAULT_RETRIES, RetryPolicy
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.manifest import TaskManifest
from tests.harness.raising import raises
from tests.unit.jobs.checkpoint.reconciling import PLAIN, World

ENGINE: Any = InProcessEngine()


def job_of(world: World, request_id: str, **asked: Any) -> CheckpointJob:
    request = CheckpointRequest(spec_path="-", repository=world.shop.url, request_id=request_id, **asked)
    context = JobContext.open(request, spec=world.shop.declared, shared_repository=world.shop.app_repository)
    return CheckpointJob(context, ENGINE, 1)


def publish(world: World, job: CheckpointJob) -> str:
    """A snapshot of a request, which has one task less than the newest."""
    published = publication_of(job).publish([TaskManifest("0_0", (world.stores[PLAIN],))], drops_other_tasks=True)
    assert published is not None
    return published.snapshot


def retry(world: World, **asked: Any) -> ReadReport:
    job = job_of(world, "nightly", **asked)
    report = run.run_checkpoint(
        job.request, ENGINE, spec=world.shop.declared, shared_repository=world.shop.app_repository
    )
    assert isinstance(report, ReadReport)
    return report


def snapshot_of(report: ReadReport) -> str:
    assert report.published is not None
    return report.published.snapshot


def finds_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next compaction is due, and finds a store damaged."""
    found = SimpleNamespace(snapshot=None, findings=("It is damaged.",), damaged=frozenset([PLAIN]))
    monkeypatch.setattr(compaction, "planned_merges", lambda *_: ["a merge"])
    monkeypatch.setattr(compaction, "compact", lambda *_, **__: found)


def test_a_damaged_store_is_rebuilt_by_a_retry_of_the_checkpoint_that_found_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_of(world, "nightly")
    mine = publish(world, job)
    finds_damage(monkeypatch)
    assert compaction.compact_after(job, publication_of(job), []).damaged == {PLAIN}

    refused: list[set[Any]] = []

    def away(job: CheckpointJob, *_: Any) -> Any:
        refused.append(set(job.damaged))
        raise Retryable("The brokers are away.", code="test-error", action="Try again.")

    monkeypatch.setattr(run, "plan_checkpoint", away)
    for _ in range(2):
        with raises(Retryable, "test-error"):
            retry(world)
    assert refused == [{PLAIN}] * 2
    rebuilt = publish(world, job_of(world, "nightly-rebuilt"))
    assert snapshot_of(retry(world)) == rebuilt
    assert snapshot_of(retry(world)) == mine, "nothing is left to be rebuilt"


class KeepsAll(RepositoryHome):
    """The files of a request, by credentials that may not delete."""

    def forget(self, suffix: str) -> None:
        raise Invalid(f"{suffix} may not be deleted.", code="object-store-denied", action="Grant it.")


def test_a_checkpoint_is_made_also_by_who_may_not_delete(world: World) -> None:
    job = job_of(world, "nightly")
    mine = publish(world, job)
    job.home = KeepsAll(job.repository, "nightly")
    (note,) = job.forget_plan()
    assert note.startswith("warning: ")
    assert "object-store-denied" in note
    with marked_in_progress(job.repository, "nightly") as marker:
        already = finish_if_made(job, publication_of(job), marker)
    assert already is not None
    assert already.published is not None
    assert (already.published.snapshot, already.notes) == (mine, (note,))


def test_a_damaged_store_is_not_rebuilt_where_that_is_not_allowed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_of(world, "nightly", when_refused=WhenRefused.REFUSE)
    mine = publish(world, job)
    finds_damage(monkeypatch)
    compaction.compact_after(job, publication_of(job), [])
    monkeypatch.setattr(run, "plan_checkpoint", lambda *_: pytest.fail("a second checkpoint began"))
    for _ in range(2):
        report = retry(world, when_refused=WhenRefused.REFUSE)
        assert (snapshot_of(report), report.notes) == (mine, (not_rebuilt_note([PLAIN]),))


class Overtaken:
    """Others publish while a checkpoint reads its tails; its own publications do not fit on top of theirs."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
        self.world, self.reason = world, reason
        self.others: list[str] = []
        monkeypatch.setattr(run, "plan_checkpoint", lambda *_: SimpleNamespace(is_resumed=False))
        monkeypatch.setattr(run, "read_sound_tails", lambda *_: None)
        monkeypatch.setattr(run, "publish_tails", self.publish)

    def publish(self, *_: Any) -> Any:
        self.others.append(publish(self.world, job_of(self.world, f"other-{len(self.others)}")))
        raise Fenced("It does not fit.", code="publication-conflict", action="Start anew.", reason=self.reason)


def test_a_due_checkpoint_that_another_overtakes_has_nothing_to_do(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    overtaken = Overtaken(world, monkeypatch, "offsets-changed")
    last = world.shop.app_repository.head().newest
    report = retry(world, decided_upon=NO_SNAPSHOT if last is None else last.snapshot)
    (other,) = overtaken.others
    assert report.published is None
    assert any(other in note for note in report.notes)


@pytest.mark.parametrize(("reason", "tries"), [("offsets-changed", 2), ("snapshot-newer", 2), ("head-reverted", 1)])
def test_a_checkpoint_by_hand_that_another_overtakes_is_planned_once_more(
    world: World, monkeypatch: pytest.MonkeyPatch, reason: str, tries: int
) -> None:
    overtaken = Overtaken(world, monkeypatch, reason)
    with raises(Fenced, "publication-conflict", reason=reason):
        retry(world)
    assert len(overtaken.others) == tries


def test_a_checkpoint_by_schedule_waits_for_the_object_store_for_less_long(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[RetryPolicy] = []
    monkeypatch.setattr(ApplicationRepository, "open", lambda _, __, retries: opened.append(retries))
    for last in (None, NO_SNAPSHOT):
        request = CheckpointRequest(spec_path="-", repository=world.shop.url, decided_upon=last)
        assert JobContext.open(request, spec=world.shop.declared).repository is None
    by_hand, by_schedule = opened
    assert by_hand == DEFAULT_RETRIES
    assert by_schedule.attempts * by_schedule.timeout <= 100
