"""A restore that is repeated under its request id after it has succeeded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from statecore.changelog.model import TopicDescription
from statecore.documents import DocumentType, encode_json
from statecore.errors import Invalid, NotFound, Retryable, StatecoreError
from statecore.formats.kinds import StoreKind
from statecore.jobs.context import JobContext
from statecore.jobs.planning.frozen_plan import FROZEN_PLAN, PLAN_SUFFIX, REPORT_SUFFIX, FrozenPlan
from statecore.jobs.planning.plan import PartitionPlan, ReadPlan
from statecore.jobs.read_report import ReadReport
from statecore.jobs.restore.job import RestoreJob
from statecore.jobs.restore.request import RestoreRequest
from statecore.jobs.restore.run import run_restore
from statecore.repository.descriptor import DESCRIPTOR, DESCRIPTOR_NAME
from statecore.repository.head import HEAD
from statecore.spec.model import ProcessingGuarantee
from tests.harness.raising import raises
from tests.unit.repository.encrypted import rewrite_sealed
from tests.unit.repository.published import Publishing

TOPIC = "app-counts-changelog"
SPEC = {
    "application_id": "app",
    "bootstrap_servers": "127.0.0.1:1",
    "processing_guarantee": "at_least_once",
    "subtopologies": {"0": {"stores": {"counts": {"kind": "key-value"}}}},
}
PLAN = ReadPlan(
    "app",
    ProcessingGuarantee.AT_LEAST_ONCE,
    (PartitionPlan("counts", StoreKind.KEY_VALUE, "0_0", TOPIC, "1" * 32, 0, 0, 20, 20, ((0, 20),)),),
)


class Brokers:
    """Brokers that know one topic, or do not answer."""

    def __init__(self, answer: str | StatecoreError) -> None:
        self.answer = answer

    def describe_topics(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        if isinstance(self.answer, StatecoreError):
            raise self.answer
        return {name: TopicDescription(name, self.answer, 1, {}) for name in names}


class Engine:
    """An engine that has nothing to do."""

    options = ()

    @contextmanager
    def start(self, *_: object) -> Iterator[None]:
        yield


class Unstarted(Engine):
    """An engine that must not start: Spark's is a JVM."""

    def start(self, *_: object) -> Any:
        raise AssertionError("The engine was started.")


class Delivered:
    """A sink that finds everything in place."""

    already_done = "already in place"
    publishes = False

    def earlier(self, report: ReadReport, _: FrozenPlan) -> ReadReport:
        return report


def repeated(state_dir: Path, answer: str | StatecoreError) -> ReadReport:
    """The report of a restore whose earlier attempt has succeeded."""
    request = RestoreRequest(spec=SPEC, state_dir=str(state_dir), request_id="r")
    brokers: Any = Brokers(answer)
    engine: Any = Engine()
    job = RestoreJob(JobContext.open(request, shared_cluster=brokers), engine, None)
    sink: Any = Delivered()
    job.sinks.append(sink)
    report = ReadReport("app", PLAN.plan_id, "at_least_once", str(state_dir), 1.0, {}, ()).finish()
    job.home.save(PLAN_SUFFIX, FROZEN_PLAN.encode(FrozenPlan(PLAN, (), 0.0, "r")))
    job.home.save(REPORT_SUFFIX, encode_json(report.to_json()))
    return job.run()


def test_it_answers_with_the_report_while_the_changelogs_are_the_same(tmp_path: Path) -> None:
    assert repeated(tmp_path, "1" * 32).plan_id == PLAN.plan_id


def test_it_answers_with_the_report_if_no_broker_answers(tmp_path: Path) -> None:
    away = Retryable("No broker answered.", code="test-error", action="Wait.")
    assert repeated(tmp_path, away).plan_id == PLAN.plan_id


def test_a_changelog_that_was_recreated_since_refuses_it(tmp_path: Path) -> None:
    with raises(Invalid, "topic-recreated", topics=[TOPIC]):
        repeated(tmp_path, "2" * 32)


def test_a_changelog_that_was_deleted_since_refuses_it(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        repeated(tmp_path, NotFound("It does not exist.", code="topic-not-found", action="Check."))


def test_a_misspelt_store_is_refused_before_an_engine_starts(tmp_path: Path) -> None:
    engine: Any = Unstarted()
    with raises(NotFound, "store-not-declared", stores=["count"]):
        run_restore(RestoreRequest(spec=SPEC, state_dir=str(tmp_path), stores=("count",)), engine)


@pytest.mark.parametrize("document", ["head", "descriptor"])
def test_where_a_newer_release_has_to_write_nothing_is_begun(tmp_path: Path, document: str) -> None:
    """Neither an engine, nor the marker that makes other jobs wait, nor a request to the brokers."""
    root, engine = tmp_path / "repository", cast("Any", Unstarted())
    repository = Publishing(root.as_uri(), tmp_path, "app")
    repository.publish(10)
    documents: dict[str, tuple[str, DocumentType[Any]]] = {
        "head": (repository.app_repository.names.head, HEAD),
        "descriptor": (DESCRIPTOR_NAME, DESCRIPTOR),
    }
    name, kind = documents[document]
    rewrite_sealed(root / name, kind, needs={"read": [], "write": ["leases"]})
    before = set(root.rglob("*"))
    with raises(Invalid, "format-unsupported", features=["leases"]):
        run_restore(RestoreRequest(spec=SPEC, repository=root.as_uri(), request_id="r"), engine)
    assert set(root.rglob("*")) == before
