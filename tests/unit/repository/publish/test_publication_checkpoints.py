"""Publications that come every few minutes: what each of them makes, keeps and drops, above whom, and for how much."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from statecore.errors import Fenced, StatecoreError
from statecore.repository.head import Retention
from statecore.repository.manifest import ReadPosition, StoredRun, TaskManifest
from statecore.repository.publish.conflicts import is_overtaken
from statecore.repository.publish.publication import Publication, Published
from statecore.repository.publish.rebase import Compaction, rebase_advance, rebase_compaction, rebase_rebuild
from statecore.repository.publish.snapshot_composition import MOST_BLOBS
from statecore.repository.publish.upload import put_files
from tests.harness.raising import raises
from tests.unit.repository.snapshots import NOW, Snapshots, content_of, file_of, run_of, store_of

TASKS = tuple(f"0_{number}" for number in range(20))
ALL = {task: {"left": 50, "right": 50} for task in TASKS[:3]}
Asked = Counter[str]


@pytest.fixture
def first(orders: Snapshots) -> Published:
    """A snapshot of all tasks."""
    done = orders.publish("first", ALL, drops_other_tasks=True)
    assert done is not None
    return done


@pytest.fixture
def asked(orders: Snapshots) -> Asked:
    """What is asked of the store from now on."""
    asked: Asked = Counter()
    orders.network.fault = lambda request, _: asked.update([request]) or ""  # type: ignore[method-assign,func-returns-value]
    return asked


def tail(orders: Snapshots, task: str, there: TaskManifest, end: int, name: str = "left") -> TaskManifest:
    """A store of a task with one run more."""
    (store,) = [one for one in there.stores if one.store == name]
    span = (store.changelogs[0].end, end)
    runs = orders.upload_runs({task: {name: [span]}})[task][name]
    return TaskManifest(task, (store_of(task, name, [*store.databases[0].runs, *runs], end=end),))


def above(bases: dict[str, TaskManifest]) -> Callable[[TaskManifest, TaskManifest], TaskManifest | None]:
    return lambda mine, theirs: rebase_advance(mine, theirs, bases.get(mine.task))


def checkpoint(orders: Snapshots, request: str, tasks: Sequence[str], **options: object) -> Published | None:
    """All tasks are looked at, and these have grown."""
    job = orders.begin(request, **options)
    bases = job.task_manifests()
    made = [tail(orders, task, bases[task], end_of(bases[task]) + 10) for task in tasks]
    quiet = dict.fromkeys(bases.keys() - set(tasks), ReadPosition(int(NOW * 1000) + 5, None))
    return job.publish(
        made,
        drops_other_tasks=False,
        tasks=bases.keys(),
        rebase=above(bases),
        read_positions=quiet,
        checks_blobs_hourly=True,
    )


def end_of(task_manifest: TaskManifest, name: str = "left") -> int:
    return next(store.changelogs[0].end for store in task_manifest.stores if store.store == name)


def test_it_says_which_tasks_are_made_kept_and_dropped(orders: Snapshots, first: Published) -> None:
    assert (first.made_tasks, first.kept_tasks, first.dropped_tasks) == (("0_0", "0_1", "0_2"), (), ())
    done = orders.publish("some", {"0_1": {"left": 60}})
    assert done is not None
    assert (done.made_tasks, done.kept_tasks, done.dropped_tasks) == (("0_1",), ("0_0", "0_2"), ())
    two = {task: {"left": 70, "right": 70} for task in ("0_0", "0_1")}
    done = orders.publish("all", two, drops_other_tasks=True)
    assert done is not None
    assert (done.made_tasks, done.kept_tasks, done.dropped_tasks) == (("0_0", "0_1"), (), ("0_2",))


def test_removed_tasks_leave_the_snapshot_with_a_warning(orders: Snapshots, first: Published) -> None:
    before = {reference.task: reference for reference in orders.newest.task_manifests}
    task_manifests = orders.upload({"0_0": {"left": 60}})
    done = orders.begin("fewer").publish(task_manifests, drops_other_tasks=False, tasks={"0_0", "0_1"})
    assert done is not None
    assert (done.made_tasks, done.kept_tasks, done.dropped_tasks) == (("0_0",), ("0_1",), ("0_2",))
    assert orders.newest.reference("0_1") == before["0_1"], "what nothing has changed of is not written again"
    (warning,) = done.warnings
    assert warning.startswith("Tasks 0_2 are not")
    assert orders.ends == {"0_0": {"left": 60, "right": 50}, "0_1": {"left": 50, "right": 50}}
    assert len(orders.fetched()) == 2


def test_stores_that_are_not_declared_any_more_go_from_tasks_without_news_too(
    orders: Snapshots, first: Published
) -> None:
    task_manifests = orders.upload({"0_0": {"left": 60}})
    done = orders.begin("left", stores=["left"]).publish(task_manifests, drops_other_tasks=False, tasks=ALL)
    assert done is not None
    assert (done.made_tasks, done.kept_tasks) == (("0_0", "0_1", "0_2"), ())
    assert orders.ends == {"0_0": {"left": 60}, "0_1": {"left": 50}, "0_2": {"left": 50}}
    gone = "Store right of task 0_{} is not in the snapshot any more: the spec does not declare it."
    assert sorted(done.warnings) == [gone.format(number) for number in range(3)]
    done = orders.begin("other", stores=["other"]).publish([], drops_other_tasks=False, tasks=ALL)
    assert done is not None
    assert done.dropped_tasks == ("0_0", "0_1", "0_2")
    assert orders.newest.task_manifests == ()


def test_where_there_is_nothing_to_publish_nothing_is(orders: Snapshots, first: Published, asked: Asked) -> None:
    job = orders.begin("none")
    assert job.publish([], drops_other_tasks=False) is None
    assert job.publish([], drops_other_tasks=False, tasks=ALL, read_positions={}) is None
    assert (
        job.publish([], drops_other_tasks=False, read_positions={"0_0": ReadPosition(int(NOW * 1000) - 1, None)})
        is None
    ), "it was known to be later"
    assert (
        job.publish([], drops_other_tasks=False, read_positions={"0_9": ReadPosition(int(NOW * 1000) + 1, None)})
        is None
    ), "there is no such task"
    assert not asked.keys() & {"put", "swap"}


def test_a_read_position_at_log_end_is_published_without_a_task_manifest(orders: Snapshots, first: Published) -> None:
    before, blobs = orders.newest, set(orders.storage.blobs)
    later = int(NOW * 1000) + 5
    done = orders.begin("cut").publish(
        [], drops_other_tasks=False, read_positions=dict.fromkeys(ALL, ReadPosition(later, None))
    )
    assert done is not None
    assert (done.made_tasks, done.kept_tasks, done.new_bytes) == ((), tuple(ALL), 0)
    assert {name.split("/")[2] for name in set(orders.storage.blobs) - blobs} == {"manifests"}
    after = orders.newest
    assert after.task_manifests == tuple(replace(reference, read_at_ms=later) for reference in before.task_manifests)
    assert after.identity == before.identity
    assert orders.app_repository.head().snapshots[0].read_at_ms == done.read_at_ms == later
    read = orders.app_repository.task_manifests(after.task_manifests)
    assert {store.read_at_ms for one in read.values() for store in one.manifest.stores} == {later}, "who reads knows it"


def test_fields_of_a_reference_are_kept_when_its_task_manifest_is_rewritten(
    orders: Snapshots, first: Published
) -> None:
    later = int(NOW * 1000) + 5
    orders.begin("cut").publish([], drops_other_tasks=False, read_positions={"0_0": ReadPosition(later, None)})
    job = orders.begin("more")
    made = tail(orders, "0_0", job.task_manifests()["0_0"], 60)
    made = replace(made, stores=(replace(made.stores[0], read_at_ms=later + 1),))
    job.publish([made], drops_other_tasks=False)
    reference = orders.newest.reference("0_0")
    assert reference is not None
    assert reference.read_at_ms == later


def test_a_moment_counts_for_the_ends_that_the_job_has_seen(orders: Snapshots, first: Published) -> None:
    late = orders.begin("late")
    checkpoint(orders, "other", ["0_0"])
    later = int(NOW * 1000) + 9
    done = late.publish([], drops_other_tasks=False, read_positions=dict.fromkeys(ALL, ReadPosition(later, None)))
    assert done is not None
    cuts = {reference.task: reference.read_at_ms for reference in orders.newest.task_manifests}
    assert cuts["0_0"] == int(NOW * 1000), "others have published it meanwhile"
    assert cuts["0_1"] == later
    assert (
        orders.begin("again").publish([], drops_other_tasks=False, read_positions={"0_1": ReadPosition(later, None)})
        is None
    )


def test_a_tail_is_published_above_a_compaction_that_was_first(orders: Snapshots) -> None:
    task_manifests = orders.upload({"0_0": {"left": 100, "right": 50}})
    orders.begin("first").publish(task_manifests, drops_other_tasks=True)
    job, other = orders.begin("checkpoint"), orders.begin("compaction")
    bases = job.task_manifests()
    mine = tail(orders, "0_0", bases["0_0"], 130)
    inputs = tuple(stored.run for stored in bases["0_0"].stores[0].databases[0].runs)
    (output,) = orders.upload_runs({"0_0": {"left": [(0, 100)]}})["0_0"]["left"]
    compaction = Compaction("left", None, inputs, output, is_lowest=True)
    made = rebase_compaction([compaction], bases["0_0"])
    assert made is not None
    assert other.publish([made], drops_other_tasks=False) is not None
    done = job.publish([mine], drops_other_tasks=False, rebase=above(bases))
    assert done is not None
    assert done.concurrent == 1
    left = orders.fetched()[done.snapshot]["0_0"].manifest.stores[0]
    assert [(one.run.start, one.run.end) for one in left.databases[0].runs] == [(0, 100), (100, 130)]
    assert done.new_bytes == 40, "of the tail alone"

    late = orders.begin("compaction-again")
    assert (
        late.publish([made], drops_other_tasks=False, rebase=lambda _, theirs: rebase_compaction([compaction], theirs))
        is None
    )


def test_offsets_already_published_by_others_are_not_published_again(orders: Snapshots, first: Published) -> None:
    late = orders.begin("late")
    bases = late.task_manifests()
    mine = [tail(orders, task, bases[task], 60) for task in ("0_0", "0_1")]
    checkpoint(orders, "other", ["0_0"])
    theirs = orders.newest.reference("0_0")
    done = late.publish(mine, drops_other_tasks=False, rebase=above(bases))
    assert done is not None
    assert (done.made_tasks, done.kept_tasks) == (("0_1",), ("0_0", "0_2"))
    assert orders.newest.reference("0_0") == theirs
    again, before = orders.begin("again"), dict(orders.storage.pointers)
    assert again.publish(mine, drops_other_tasks=False, rebase=above(bases)) is None, (
        "also where they were first before it began"
    )
    assert orders.storage.pointers == before


def test_a_whole_application_keeps_concurrent_tasks_at_the_same_offsets(orders: Snapshots, first: Published) -> None:
    late = orders.begin("late")
    bases = late.task_manifests()
    task_manifests = [
        replace(there, stores=(*tail(orders, task, there, 60).stores, there.stores[1])) for task, there in bases.items()
    ]
    checkpoint(orders, "other", ["0_0"])
    done = late.publish(task_manifests, drops_other_tasks=True, rebase=above(bases))
    assert done is not None
    assert (done.made_tasks, done.kept_tasks, done.dropped_tasks) == (("0_1", "0_2"), ("0_0",), ())
    assert set(orders.ends) == set(ALL)


def test_a_job_is_fenced_if_concurrent_snapshots_do_not_fit(orders: Snapshots, first: Published) -> None:
    late = orders.begin("late")
    bases = late.task_manifests()
    mine = [tail(orders, "0_0", bases["0_0"], 100)]
    whole = orders.upload_runs({"0_0": {"left": [(0, 60)]}})["0_0"]["left"]
    rebuilt = TaskManifest("0_0", (store_of("0_0", "left", whole, end=60),))
    assert orders.begin("rebuilt").publish([rebuilt], drops_other_tasks=False) is not None
    before = dict(orders.storage.pointers)
    with raises(Fenced, "publication-conflict", reason="offsets-changed") as overtaken:
        late.publish(mine, drops_other_tasks=False, rebase=above(bases))
    assert is_overtaken(overtaken.value)
    with raises(Fenced, "publication-conflict", reason="tasks-published", tasks=["0_0"]) as published:
        late.publish(mine, drops_other_tasks=False)
    assert not is_overtaken(published.value)
    assert orders.storage.pointers == before


def test_a_rebuild_replaces_what_has_read_less_since_it_began_and_nothing_that_has_read_more(
    orders: Snapshots, first: Published
) -> None:
    def rebuilt(mine: TaskManifest, theirs: TaskManifest) -> TaskManifest:
        return rebase_rebuild(mine, theirs, late.task_manifests().get(mine.task))

    late = orders.begin("late")
    checkpoint(orders, "other", ["0_0"])
    with raises(Fenced, "publication-conflict", reason="snapshot-newer", found=60) as overtaken:
        late.publish(orders.upload({"0_0": {"left": 59}}), drops_other_tasks=False, rebase=rebuilt)
    assert is_overtaken(overtaken.value)
    done = late.publish(orders.upload({"0_0": {"left": 60}}), drops_other_tasks=False, rebase=rebuilt)
    assert done is not None
    assert (done.made_tasks, done.concurrent) == (("0_0",), 1)
    assert orders.ends["0_0"] == {"left": 60, "right": 50}


def test_a_rebase_that_goes_back_or_contradicts_itself_publishes_nothing(orders: Snapshots, first: Published) -> None:
    job = orders.begin("job")
    mine = orders.upload({"0_0": {"left": 60}})
    before = dict(orders.storage.pointers)
    (back,) = orders.upload({"0_0": {"left": 40}})
    with raises(Fenced, "publication-conflict", reason="snapshot-newer", found=50):
        job.publish(mine, drops_other_tasks=False, rebase=lambda *_: back)
    (database,) = mine[0].stores[0].databases
    doubled = replace(mine[0].stores[0], databases=(replace(database, runs=database.runs * 2),))
    with raises(StatecoreError, "defect"):
        job.publish(mine, drops_other_tasks=False, rebase=lambda *_: TaskManifest("0_0", (doubled,)))
    assert orders.storage.pointers == before


def test_a_store_that_was_refused_goes_back_unless_others_have_published_it(
    orders: Snapshots, first: Published
) -> None:
    refused = {("0_0", "left")}
    late = orders.begin("late")
    bases = late.task_manifests()
    made = orders.upload({"0_0": {"left": 30}})
    with raises(Fenced, "publication-conflict", reason="snapshot-newer", found=50):
        orders.begin("other").publish(made, drops_other_tasks=False, refused={("0_0", "right"), ("0_1", "left")})
    assert orders.begin("refused").publish(made, drops_other_tasks=False, refused=refused) is not None
    assert orders.ends["0_0"] == {"left": 30, "right": 50}
    lower = orders.upload({"0_0": {"left": 20}})
    assert late.publish(lower, drops_other_tasks=False, refused=refused, rebase=above(bases)) is None, "theirs has more"
    with raises(Fenced, "publication-conflict", reason="snapshot-newer", found=30):
        late.publish(lower, drops_other_tasks=False, refused=refused, rebase=lambda mine, _: mine)


def test_a_lost_swap_does_not_put_equal_task_manifests_again(orders: Snapshots, first: Published) -> None:
    job = orders.begin("job")
    bases = job.task_manifests()
    mine = [tail(orders, "0_0", bases["0_0"], 60)]
    put: list[str] = []
    orders.storage.put, kept = (
        (lambda name, content: put.append(name.split("/")[2]) or kept(name, content)),
        orders.storage.put,
    )  # type: ignore[method-assign,func-returns-value]
    swap, swaps = orders.storage.swap, list[str]()

    def overtaken(name: str, content: bytes, expected: str | None) -> str | None:
        swaps.append(name)
        if len(swaps) == 1:
            beside = orders.upload({"0_1": {"left": 60}})
            orders.begin("other").publish(beside, drops_other_tasks=False)
            put.clear()
        return swap(name, content, expected)

    orders.storage.swap = overtaken  # type: ignore[method-assign]
    done = job.publish(mine, drops_other_tasks=False, rebase=above(bases))
    assert done is not None
    assert done.concurrent == 1
    assert put == ["manifests"]
    assert len(orders.fetched()) == 3


def test_a_checkpoint_costs_four_writes_and_four_reads(orders: Snapshots, first: Published, asked: Asked) -> None:
    """The writes are the pack of its runs, the task manifests, the manifest and the head; the reads are the head,
    the manifest, the task manifests and the repository descriptor."""
    for number in range(3):
        asked.clear()
        job = orders.begin(f"checkpoint-{number}")
        bases = job.task_manifests()
        assert job.task_manifests() == bases
        assert dict(asked) == {"read": 1, "get": 2}
        ends = {task: end_of(task_manifest) for task, task_manifest in bases.items()}
        spans = {task: {"left": [(end, end + 10)]} for task, end in ends.items()}
        runs = _in_one_pack(orders, spans)
        assert dict(asked) == {"read": 1, "get": 2, "put": 1}
        made = [
            TaskManifest(
                task,
                (
                    store_of(
                        task, "left", [*task_manifest.stores[0].databases[0].runs, runs[task]], end=ends[task] + 10
                    ),
                ),
            )
            for task, task_manifest in bases.items()
        ]
        done = job.publish(
            made, drops_other_tasks=False, tasks=bases.keys(), rebase=above(bases), checks_blobs_hourly=True
        )
        assert done is not None
        assert dict(asked) == {"read": 1, "get": 3, "put": 3, "swap": 1}
        assert done.warnings == ()
    asked.clear()
    assert (
        orders.begin("cuts").publish(
            [], drops_other_tasks=False, read_positions=dict.fromkeys(ALL, ReadPosition(int(NOW * 1000) + 1, None))
        )
        is not None
    )
    assert asked["put"] + asked["swap"] == 2


def _in_one_pack(orders: Snapshots, spans: dict[str, dict[str, list[tuple[int, int]]]]) -> dict[str, StoredRun]:
    at = {task: stores["left"][0] for task, stores in spans.items()}
    files = {task: file_of(orders.directory, content_of(task, "left", *span)) for task, span in at.items()}
    extents = put_files(orders.app_repository.blobs, orders.app_repository.names, list(files.values()))
    return {
        task: StoredRun(run_of(files[task], task, "left", *at[task]), extent)
        for task, extent in zip(at, extents, strict=True)
    }


def test_task_manifests_are_in_few_blobs_and_copied_unchanged(orders: Snapshots, asked: Asked) -> None:
    """Each checkpoint finds news in one other task."""
    task_manifests = orders.upload({task: {"left": 50, "right": 50} for task in TASKS})
    orders.begin("first").publish(task_manifests, drops_other_tasks=True)
    copies = 0
    for number, task in enumerate(TASKS):
        before = {reference.task: reference for reference in orders.newest.task_manifests}
        asked.clear()
        done = checkpoint(orders, f"checkpoint-{number}", [task])
        assert done is not None
        assert (done.made_tasks, len(done.kept_tasks)) == ((task,), len(TASKS) - 1)
        assert asked["put"] + asked["swap"] == 4
        assert asked["read"] + asked["get"] <= MOST_BLOBS + 3
        after = {reference.task: reference for reference in orders.newest.task_manifests}
        assert len({task_manifest.extent.blob for task_manifest in after.values()}) <= MOST_BLOBS
        others = [one for one in TASKS if one != task]
        assert all(after[one].sha256 == before[one].sha256 for one in others), "who works on them is not in the way"
        assert all(after[one].read_at_ms == int(NOW * 1000) + 5 for one in others)
        copies += after[others[0]].extent.blob != before[others[0]].extent.blob
    assert copies == 2
    assert len(orders.fetched()) == Retention().last
    assert {end["left"] for end in orders.ends.values()} == {60}


def test_unread_task_manifests_are_not_copied(orders: Snapshots, asked: Asked) -> None:
    for number, task in enumerate(TASKS):
        task_manifests = orders.upload({task: {"left": 50, "right": 50}})
        asked.clear()
        orders.begin(f"restore-{number}").publish(task_manifests, drops_other_tasks=False, checks_blobs_hourly=True)
        assert asked["get"] <= 2, "the manifest and the mark"
    assert len({reference.extent.blob for reference in orders.newest.task_manifests}) == len(TASKS)
    assert checkpoint(orders, "checkpoint", ["0_0"]) is not None
    assert len({reference.extent.blob for reference in orders.newest.task_manifests}) == 1


def test_inherited_runs_are_checked_once_an_hour(orders: Snapshots, first: Published, asked: Asked) -> None:
    """That of the stores that were advanced, too: who puts a tail above runs has not their files."""
    assert first.snapshot.startswith("20261123T0000")
    (extent, *_) = [
        extent
        for _, extent in orders.app_repository.task_manifests(orders.newest.task_manifests)["0_0"]
        .manifest.stores[0]
        .extents
    ]
    del orders.storage.blobs[extent.blob]
    heads = Counter[str]()
    for minute in range(5, 130, 5):
        asked.clear()
        done = checkpoint(orders, f"minute-{minute}", ["0_0"], clock=lambda: NOW + minute * 60)  # noqa: B023
        assert done is not None
        heads[done.created_at[11:13]] += bool(asked["head"])
        assert (len(done.warnings) == 1) == bool(asked["head"])
    assert heads == {"00": 0, "01": 1, "02": 1}
    assert asked["get"] == 3 or not asked["head"], "task manifests that were read are not read again for it"


def test_the_newest_snapshot_is_read_once(orders: Snapshots, first: Published, asked: Asked) -> None:
    job: Publication = orders.begin("job")
    assert job.newest == orders.newest
    asked.clear()
    assert set(job.task_manifests()) == set(ALL)
    assert job.task_manifests().keys() == ALL.keys()
    assert dict(asked) == {"get": 1}
