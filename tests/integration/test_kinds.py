"""Stores of every kind, written by real Kafka Streams, lost, rebuilt from their changelogs, and opened by it again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.planning.plan import VersionedStart
from statecore.jobs.read_report import ReadReport
from statecore.spark.engine import SparkEngine
from tests.harness.broker import Broker
from tests.harness.case_selection import those_of
from tests.harness.corpus import Corpus, shared
from tests.harness.feeds import CHANGED, MORE, SPAN, more
from tests.harness.kinds import HEADERS, PLAIN, SOURCES, KindCase
from tests.harness.modes import AT_LEAST_ONCE, COVERING, EXACTLY_ONCE, MODES, Mode
from tests.harness.on_spark import SPARK_LEFTOVERS
from tests.harness.rebuilding import PARTITIONS, Answers, KindsWorld, Rows, restored
from tests.harness.streams import StreamsJvm

pytestmark = [pytest.mark.integration, *SPARK_LEFTOVERS]

APPLICATIONS = {one.name: one for one in (PLAIN, HEADERS, SOURCES)}


class Run(NamedTuple):
    """An application in one of the modes."""

    application: str
    mode: Mode

    @property
    def name(self) -> str:
        """For ids."""
        return f"{self.application}-{self.mode.name}"


KEPT = (Run("plain", Mode(EXACTLY_ONCE)), Run("headers", Mode(AT_LEAST_ONCE)), Run("sources", COVERING[0]))
"""Those of ``make test``: each kind once, each setting with each of its values."""

RUNS = [*KEPT, *(run for mode in MODES for name in APPLICATIONS if (run := Run(name, mode)) not in KEPT)]
STORES = [(run, case.store) for run in RUNS for case in APPLICATIONS[run[0]].cases if case.kind != "in-memory"]
ASKED = [(run, case.store) for run in RUNS for case in APPLICATIONS[run[0]].cases if case.query is not None]
"""The stores that Kafka Streams lets one ask: of the others the rows are compared."""


@dataclass(frozen=True)
class Story:
    """What happened to one application: it was fed, lost, rebuilt, fed again, lost again and rebuilt again.

    Attributes:
        cases: its stores by name.
        written: rows that Kafka Streams wrote.
        rebuilt: rows after the first restore.
        report: of the first restore, after which nothing is to be restored and history is not found.
        restored: what Kafka Streams restored when it opened those, by store.
        before: answers before the loss.
        after: answers of the rebuilt stores.
        written_again: rows after more records.
        rebuilt_again: rows after the second restore, which read each changelog in ranges and keeps history readable.
        restored_again: as ``restored``, of the second.
        before_again: answers before the second loss.
        after_again: answers after the second restore.
    """

    cases: dict[str, KindCase]
    written: Rows
    rebuilt: Rows
    report: ReadReport
    restored: dict[str, int]
    before: Answers
    after: Answers
    written_again: Rows
    rebuilt_again: Rows
    restored_again: dict[str, int]
    before_again: Answers
    after_again: Answers


@pytest.fixture(scope="module")
def stories() -> dict[Run, Story]:
    """What has happened already: every application lives once, whatever the order of the tests is."""
    return {}


@pytest.fixture
def story(
    run: Run,
    stories: dict[Run, Story],
    broker: Broker,
    streams_jvm: StreamsJvm,
    tmp_path_factory: pytest.TempPathFactory,
) -> Story:
    if run not in stories:
        corpus = Corpus(shared(tmp_path_factory), broker, streams_jvm)
        kinds, state_dir = APPLICATIONS[run.application], tmp_path_factory.mktemp("kinds")
        world, lived = corpus.take(kinds, run.mode, state_dir, to_run=True)
        stories[run] = tell(world, lived.answers, run)
    return stories[run]


def tell(world: KindsWorld, answers: Answers, run: Run) -> Story:
    told: dict[str, Any] = {"cases": {case.store: case for case in world.kinds.cases}, "before": answers}
    run.mode.assert_used(world.jvm, world)
    told["written"] = world.rows()
    engine = InProcessEngine() if run in KEPT else SparkEngine("local[2]")  # test_kinds_refused has all kinds on Spark

    world.lose()
    told["report"] = world.restore(versioned=VersionedStart.LATEST, engine=engine)
    told["rebuilt"] = world.rows()
    with world.application() as running:
        told["restored"] = restored(running)
        told["after"] = world.answers(running)
        world.feed([(role, more(world.base, PARTITIONS)) for role in world.inputs])
        told["before_again"] = world.answers(running, SPAN + MORE)
    told["written_again"] = world.rows()

    world.lose()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("statecore.jobs.planning.plan.plan_ranges", cut_everywhere)
        world.restore(engine=engine)
    told["rebuilt_again"] = world.rows()
    with world.application() as running:
        told["restored_again"] = restored(running)
        told["after_again"] = world.answers(running, SPAN + MORE)
    return Story(**told)


def cut_everywhere(partitions: Any, *_: Any, **__: Any) -> list[Any]:
    from statecore.changelog.ranges import split_range

    return [part for whole in partitions for part in split_range(whole, 2)]


def rows_of(rows: Rows, store: str) -> Rows:
    return {key: families for key, families in rows.items() if key[1].partition("/")[0] == store}


def answers_of(answers: Answers, store: str) -> Answers:
    return {key: found for key, found in answers.items() if key[0] == store}


def latest(story: Story, answers: Answers, store: str) -> Answers:
    """Answers without the older versions."""
    found = answers_of(answers, store)
    if not story.cases[store].kind.startswith("versioned"):
        return found
    return {key: [row for row in rows if b"@" not in row[0]] for key, rows in found.items()}


def history(answers: Answers, store: str) -> Answers:
    """The versions that are no longer valid, of keys that were not written again."""
    found = {}
    for key, rows in answers_of(answers, store).items():
        versions = [(row, *row[0].partition(b"@")) for row in rows]
        found[key] = [row for row, of, _, times in versions if len(times) == 16 and of not in CHANGED]
    return found


def in_tiers(cases: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Parameters of a test, whose first is a run."""
    return those_of(cases, lambda run, *_: run in KEPT)


every_store = pytest.mark.parametrize(("run", "store"), in_tiers(STORES))
every_run = pytest.mark.parametrize("run", in_tiers((run,) for run in RUNS))


@every_store
def test_every_row_is_the_one_that_kafka_streams_wrote(story: Story, store: str) -> None:
    expected = rows_of(story.written, store)
    assert any(rows for families in expected.values() for rows in families.values())
    assert rows_of(story.rebuilt, store) == expected


@every_run
def test_kafka_streams_restores_nothing_but_what_is_in_memory(story: Story) -> None:
    assert set(story.restored) <= {"in-memory"}


@pytest.mark.parametrize("run", in_tiers((run,) for run in RUNS if run.application == "plain"))
def test_a_window_store_without_a_record_does_not_cost_its_task_the_other_stores(story: Story) -> None:
    """Kafka Streams wipes such a task of its own making at every start under exactly-once."""
    reported = {(one.store, one.partition): one for one in story.report.stores}
    assert (reported["sparse-window", 1].records, reported["sparse-window", 1].segments) == (0, 1)
    assert reported["grace-table", 1].rows > 0
    assert reported["grace-table", 1].task == reported["sparse-window", 1].task
    assert set(story.restored) <= {"in-memory"}


@pytest.mark.parametrize(("run", "store"), in_tiers(ASKED))
def test_the_rebuilt_stores_answer_as_those_that_were_lost(story: Story, store: str) -> None:
    before = latest(story, story.before, store)
    assert any(before.values())
    assert latest(story, story.after, store) == before


@every_store
def test_what_the_application_writes_after_a_rebuild_is_continued_from_there(story: Story, store: str) -> None:
    if not story.cases[store].kind.startswith("versioned"):
        assert rows_of(story.written_again, store) != rows_of(story.written, store)
        assert rows_of(story.rebuilt_again, store) == rows_of(story.written_again, store)
    assert latest(story, story.after_again, store) == latest(story, story.before_again, store)


@every_run
def test_versioned_stores_are_restored_by_kafka_streams_so_that_their_history_is_found(story: Story) -> None:
    versioned = {name for name, case in story.cases.items() if case.kind.startswith("versioned")}
    assert set(story.restored_again) - {"in-memory"} == versioned
    for store in versioned:
        assert any(history(story.before, store).values())
        assert not any(history(story.after, store).values())  # the price of restoring nothing
        assert history(story.after_again, store) == history(story.before, store)


@every_run
def test_the_report_counts_segments_and_what_has_expired(story: Story) -> None:
    reported = {(one.store, one.partition): one for one in story.report.stores}
    for case in story.cases.values():
        if case.kind == "in-memory":
            assert (case.store, 0) not in reported
            continue
        one = reported[case.store, 0]
        rows = [len(rows) for families in rows_of(story.rebuilt, case.store).values() for rows in families.values()]
        assert sum(reported[case.store, p].rows for p in range(PARTITIONS)) == sum(rows)
        segmented = case.expires and not case.kind.startswith("versioned")
        assert (one.segments > 0) is (segmented or case.kind == "grace-buffer")
        assert (one.expired > 0) is segmented
