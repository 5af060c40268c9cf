"""A task manifest is rebased on a newer snapshot: no record is lost or applied twice, no offset decreases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.errors import Fenced
from statecore.formats.kinds import StoreKind
from statecore.images.model import Run, RunFormat
from statecore.repository.identity import store_identity
from statecore.repository.manifest import (
    BaseFile,
    Extent,
    StoredDatabase,
    StoredEnd,
    StoredRun,
    StoreSnapshot,
    TaskManifest,
)
from statecore.repository.publish.rebase import Compaction, rebase_advance, rebase_compaction, rebase_rebuild
from statecore.repository.task_manifest_validation import contradictions_in
from tests.harness.raising import raises

TASK = "0_0"
TOPIC = "orders-left-changelog"
Span = tuple[int, int]
Databases = dict[int | None, Sequence[Span]]


def stored(start: int, end: int, *, segment: int | None = None, partition: int = 0, blob: str = "b") -> StoredRun:
    """A run of these offsets: the same one for the same offsets."""
    digest = sha256(f"{segment} {partition} [{start}, {end})".encode()).hexdigest()
    of = {"store": "left", "topic": TOPIC, "partition": partition}
    run = Run(digest, RunFormat.SST, 1, 0, 1, 10, digest[:32], "00", "ff", segment, start, end, **of)  # type: ignore[arg-type]
    return StoredRun(run, Extent(blob, 0, 10))


def store(
    databases: Databases | Sequence[Span],
    end: int,
    *,
    name: str = "left",
    topic_id: str = "2" * 32,
    base: Sequence[BaseFile] = (),
    blob: str = "b",
    **more: object,
) -> StoreSnapshot:
    """A store of runs of these offsets."""
    given_ = databases if isinstance(databases, dict) else {None: databases}
    made = tuple(
        StoredDatabase(segment, tuple(stored(*span, segment=segment, blob=blob) for span in spans), tuple(base))
        for segment, spans in given_.items()
    )
    kind = StoreKind.WINDOW if given_ and None not in given_ else StoreKind.KEY_VALUE
    return identified(
        StoreSnapshot(
            name,
            kind,
            "",
            (StoredEnd(TOPIC, 0, topic_id, end - 1, end, 0, end, 1),),
            "read_committed",
            made,
            read_at_ms=end,
            rows=7,
            bytes=7,
            digest="7" * 32,
            **more,  # type: ignore[arg-type]
        )
    )


def identified(of: StoreSnapshot) -> StoreSnapshot:
    return replace(of, identity=store_identity(of.kind, of.databases, of.offsets))


def task_manifest(*stores: StoreSnapshot) -> TaskManifest:
    return TaskManifest(TASK, stores)


def spans_of(of: TaskManifest | None, segment: int | None = None) -> list[Span]:
    assert of is not None
    assert contradictions_in(of) == []
    (one,) = of.stores
    assert one.identity == identified(one).identity
    databases = {database.segment: database for database in one.databases}
    return [(run.run.start, run.run.end) for run in databases[segment].runs]


PARENT = store([(0, 50), (50, 100)], 100)
MINE = store([(0, 50), (50, 100), (100, 130)], 130)
FOLDED = store([(0, 100)], 100)


def test_without_concurrent_snapshots_the_task_manifest_is_unchanged() -> None:
    assert rebase_advance(task_manifest(MINE), task_manifest(PARENT), task_manifest(PARENT)) == task_manifest(MINE)


def test_a_tail_is_appended_to_concurrently_compacted_runs() -> None:
    done = rebase_advance(task_manifest(MINE), task_manifest(FOLDED), task_manifest(PARENT))
    assert spans_of(done) == [(0, 100), (100, 130)]
    assert done is not None
    assert done.stores[0].changelogs == MINE.changelogs
    assert (done.stores[0].read_at_ms, done.stores[0].content) == (MINE.read_at_ms, MINE.content), (
        "a compaction changes no row"
    )


def test_a_tail_is_put_above_runs_that_lie_elsewhere_now() -> None:
    """Somebody has published the same again, because a blob was damaged."""
    anew = store([(0, 50), (50, 100)], 100, blob="anew")
    done = rebase_advance(task_manifest(MINE), task_manifest(anew), task_manifest(PARENT))
    assert spans_of(done) == [(0, 50), (50, 100), (100, 130)]
    assert done is not None
    assert [one.extent.blob for one in done.stores[0].databases[0].runs] == ["anew", "anew", "b"]


@pytest.mark.parametrize("theirs", [[(0, 130)], [(0, 50), (50, 100), (100, 130)], [(0, 200)]])
def test_where_others_have_come_as_far_or_further_nothing_is_left(theirs: list[Span]) -> None:
    assert (
        rebase_advance(task_manifest(MINE), task_manifest(store(theirs, theirs[-1][1])), task_manifest(PARENT)) is None
    )


def test_of_stores_that_others_have_brought_further_theirs_is_published_beside_what_is_left() -> None:
    right = [replace(one, store="right") for one in (PARENT, MINE)]
    further = store([(0, 200)], 200)
    done = rebase_advance(
        task_manifest(MINE, right[1]), task_manifest(further, right[0]), task_manifest(PARENT, right[0])
    )
    assert done == task_manifest(further, right[1])


@pytest.mark.parametrize("theirs", [[(0, 100), (100, 120)], [(0, 90)]])
def test_a_tail_that_ends_between_concurrent_runs_is_fenced(theirs: list[Span]) -> None:
    with raises(Fenced, "publication-conflict", task="0_0", store="left"):
        rebase_advance(task_manifest(MINE), task_manifest(store(theirs, theirs[-1][1])), task_manifest(PARENT))


def test_the_longer_of_two_tails_of_one_base_is_published() -> None:
    shorter = store([(0, 50), (50, 100), (100, 120)], 120)
    done = rebase_advance(task_manifest(MINE), task_manifest(shorter), task_manifest(PARENT))
    assert done == task_manifest(MINE)
    assert rebase_advance(task_manifest(shorter), task_manifest(MINE), task_manifest(PARENT)) is None


def test_what_was_rebuilt_replaces_others_but_stores_of_another_topic_since_it_began() -> None:
    rebuilt = task_manifest(store([(0, 130)], 130))
    recreated = task_manifest(store([(0, 10)], 10, topic_id="3" * 32))
    for theirs in (task_manifest(PARENT), task_manifest(MINE), task_manifest()):
        assert rebase_rebuild(rebuilt, theirs, task_manifest(PARENT)) == rebuilt
    assert rebase_rebuild(rebuilt, recreated, recreated) == rebuilt
    with raises(Fenced, "publication-conflict", reason="store-changed", store="left"):
        rebase_rebuild(rebuilt, recreated, task_manifest(PARENT))


def test_a_store_that_was_made_from_nothing_takes_the_place_of_one_that_has_less() -> None:
    made = store([(0, 70), (70, 130)], 130)
    assert rebase_advance(
        task_manifest(made), task_manifest(store([(0, 50), (50, 100), (100, 120)], 120)), task_manifest(PARENT)
    ) == task_manifest(made)
    assert rebase_advance(task_manifest(made), task_manifest(store([(0, 50)], 50)), None) == task_manifest(made)
    assert rebase_advance(task_manifest(made), task_manifest(store([(0, 150)], 150)), None) is None


def test_a_refused_store_is_replaced_unless_others_have_published_it() -> None:
    """Its log was truncated: what the job made has less."""
    made = store([(0, 70)], 70)
    assert rebase_advance(task_manifest(made), task_manifest(PARENT), task_manifest(PARENT)) == task_manifest(made)
    assert rebase_advance(task_manifest(made), task_manifest(FOLDED), task_manifest(PARENT)) is None


def test_a_store_that_others_have_dropped_is_not_published_again() -> None:
    with raises(Fenced, "publication-conflict", reason="store-removed"):
        rebase_advance(task_manifest(MINE), task_manifest(), task_manifest(PARENT))
    assert rebase_advance(task_manifest(MINE), task_manifest(), None) == task_manifest(MINE), "a new one is"


@pytest.mark.parametrize(
    "changes", [{"kind": StoreKind.TIMESTAMPED_KEY_VALUE}, {"isolation": "read_uncommitted"}, {"retention_ms": 5}]
)
def test_a_concurrent_snapshot_of_another_spec_is_no_base(changes: dict[str, object]) -> None:
    theirs = identified(replace(FOLDED, **changes))  # type: ignore[arg-type]
    with raises(Fenced, "publication-conflict", reason="store-changed"):
        rebase_advance(task_manifest(MINE), task_manifest(theirs), task_manifest(PARENT))


def test_a_recreated_topic_is_no_base_and_one_of_unknown_id_is() -> None:
    other = store([(0, 100)], 100, topic_id="1" * 32)
    with raises(Fenced, "publication-conflict", reason="store-changed"):
        rebase_advance(task_manifest(MINE), task_manifest(other), task_manifest(PARENT))
    for topic_id in ("", "0" * 32):
        unknown = store([(0, 100)], 100, topic_id=topic_id)
        done = rebase_advance(task_manifest(MINE), task_manifest(unknown), task_manifest(PARENT))
        assert spans_of(done) == [(0, 100), (100, 130)]


def test_the_base_below_stays() -> None:
    files = [BaseFile("000009.sst", "a" * 64, Extent("base", 0, 10))]
    base, mine = store([(50, 100)], 100, base=files), store([(50, 100), (100, 130)], 130, base=files)
    theirs = store([(50, 70), (70, 100)], 100, base=files)
    done = rebase_advance(task_manifest(mine), task_manifest(theirs), task_manifest(base))
    assert spans_of(done) == [(50, 70), (70, 100), (100, 130)]
    assert done is not None
    assert done.stores[0].databases[0].base == tuple(files)


def test_segments_that_one_of_both_has_found_expired_are_gone() -> None:
    kept: dict[str, Any] = {"retention_ms": 20, "segment_interval_ms": 10}
    base = store({1: [(0, 100)], 2: [(0, 50), (50, 100)], 3: [(0, 100)]}, 100, **kept)
    tail = {2: [(0, 50), (50, 100), (100, 130)], 3: [(0, 100), (100, 130)], 4: [(100, 130)]}
    mine = store(tail, 130, **kept)
    theirs = store({3: [(0, 100)]}, 100, stream_time=50, **kept)
    done = rebase_advance(task_manifest(mine), task_manifest(theirs), task_manifest(base))
    assert done is not None
    (one,) = done.stores
    assert [database.segment for database in one.databases] == [3, 4]
    assert spans_of(done, 3) == [(0, 100), (100, 130)]
    assert spans_of(done, 4) == [(100, 130)]
    assert one.content is None, "its content without the segment is unknown"
    assert one.stream_time == 50, "the next tail does not begin the segment again"


def test_segments_that_others_have_yet_stay_gone_where_the_job_has_found_them_expired() -> None:
    """A compaction has left nothing of segment 1 in the base; others have made the store anew, and have it."""
    kept: dict[str, Any] = {"retention_ms": 20, "segment_interval_ms": 10}
    base = store({2: [(0, 100)], 3: [(0, 100)]}, 100, stream_time=30, **kept)
    mine = store({3: [(0, 100), (100, 130)], 5: [(100, 130)]}, 130, stream_time=50, **kept)
    theirs = store({1: [(0, 50), (50, 90)], 2: [(0, 100)], 3: [(0, 90), (90, 100)]}, 100, stream_time=30, **kept)
    done = rebase_advance(task_manifest(mine), task_manifest(theirs), task_manifest(base))
    assert done is not None
    assert [database.segment for database in done.stores[0].databases] == [3, 5]


def test_the_newest_segment_decides_which_have_expired() -> None:
    kept: dict[str, Any] = {"retention_ms": 20, "segment_interval_ms": 10}
    base = store({2: [(0, 100)], 5: [(0, 100)]}, 100, stream_time=40, **kept)
    mine = store({2: [(0, 100), (100, 130)], 5: [(0, 100), (100, 130)]}, 130, stream_time=40, **kept)
    files = [BaseFile("000009.sst", "a" * 64, Extent("base", 0, 10))]
    done = rebase_advance(
        task_manifest(mine),
        task_manifest(store({5: []}, 100, base=files, stream_time=None, **kept)),
        task_manifest(base),
    )
    assert done is not None
    (one,) = done.stores
    assert [database.segment for database in one.databases] == [5]
    assert one.stream_time is None, "the stream time of the directory is unknown"


def test_a_tail_of_a_segment_missing_in_the_newest_snapshot_has_an_unknown_digest() -> None:
    """It may have expired there, or a compaction has left nothing of it."""
    kept: dict[str, Any] = {"retention_ms": 20, "segment_interval_ms": 10}
    base = store({0: [(0, 100)]}, 100, stream_time=5, **kept)
    mine = store({0: [(0, 100), (100, 130)]}, 130, stream_time=5, **kept)
    theirs = replace(store({}, 100, stream_time=None, **kept), kind=StoreKind.WINDOW)
    done = rebase_advance(task_manifest(mine), task_manifest(theirs), task_manifest(base))
    assert spans_of(done, 0) == [(100, 130)]
    assert done is not None
    assert done.stores[0].content is None


def test_a_tail_is_kept_above_runs_compacted_to_nothing() -> None:
    base, mine = store([(0, 50), (50, 100)], 100), store([(0, 50), (50, 100), (100, 130)], 130)
    assert spans_of(rebase_advance(task_manifest(mine), task_manifest(store({}, 100)), task_manifest(base))) == [
        (100, 130)
    ]
    kept: dict[str, Any] = {"retention_ms": 20, "segment_interval_ms": 10, "stream_time": 40}
    base = store({2: [(0, 50), (50, 100)], 3: [(0, 100)]}, 100, **kept)
    mine = store({2: [(0, 50), (50, 100), (100, 130)], 3: [(0, 100)]}, 130, **kept)
    theirs = store({3: [(0, 100)]}, 100, **kept)
    done = rebase_advance(task_manifest(mine), task_manifest(theirs), task_manifest(base))
    assert done is not None
    assert [database.segment for database in done.stores[0].databases] == [2, 3]
    assert spans_of(done, 2) == [(100, 130)]


def test_a_global_store_is_advanced_partition_by_partition() -> None:
    def of(runs: Sequence[StoredRun], ends: tuple[int, int]) -> StoreSnapshot:
        changelogs = tuple(StoredEnd(TOPIC, number, "", end, end) for number, end in enumerate(ends))
        databases = (StoredDatabase(None, tuple(runs)),)
        return identified(replace(PARENT, changelogs=changelogs, databases=databases))

    first, second, whole = stored(0, 50), stored(50, 100), stored(0, 100)
    beside, tail, beside_tail = stored(0, 40, partition=1), stored(100, 130), stored(40, 60, partition=1)
    base = of([first, second, beside], (100, 40))
    mine = of([first, second, tail, beside, beside_tail], (130, 60))
    done = rebase_advance(
        TaskManifest("global", (mine,)), TaskManifest("global", (of([whole, beside], (100, 40)),)), task_manifest(base)
    )
    assert done is not None
    assert contradictions_in(done) == []
    assert done.stores[0].databases[0].runs == (whole, tail, beside, beside_tail)
    with pytest.raises(Fenced):  # further in one partition, and not in the other
        rebase_advance(
            TaskManifest("global", (mine,)),
            TaskManifest("global", (of([whole, beside], (140, 40)),)),
            task_manifest(base),
        )


def test_versioned_stores_are_rebuilt_and_never_advanced() -> None:
    def of(end: int) -> StoreSnapshot:
        return identified(replace(store([(0, 0)], end), kind=StoreKind.VERSIONED_KEY_VALUE))

    assert rebase_advance(task_manifest(of(130)), task_manifest(of(110)), task_manifest(of(100))) == task_manifest(
        of(130)
    )
    assert rebase_advance(task_manifest(of(130)), task_manifest(of(140)), task_manifest(of(100))) is None


def compaction(spans: Sequence[Span], *, is_lowest: bool = False, segment: int | None = None) -> Compaction:
    inputs = tuple(stored(*span, segment=segment).run for span in spans)
    return Compaction(
        "left", segment, inputs, stored(spans[0][0], spans[-1][1], segment=segment, blob="compaction"), is_lowest
    )


def test_a_compaction_takes_the_place_of_what_was_merged_whatever_came_above_and_below() -> None:
    of = compaction([(50, 100), (100, 130)])
    theirs = store([(0, 20), (20, 50), (50, 100), (100, 130), (130, 150)], 150)
    done = rebase_compaction([of], task_manifest(theirs))
    assert spans_of(done) == [(0, 20), (20, 50), (50, 130), (130, 150)]
    assert done is not None
    assert (done.stores[0].content, done.stores[0].changelogs) == (theirs.content, theirs.changelogs)


@pytest.mark.parametrize("theirs", [[(0, 50), (50, 130)], [(0, 100), (100, 130)], [(50, 100)], [(100, 130)]])
def test_a_compaction_whose_runs_do_not_stand_side_by_side_any_more_is_left(theirs: list[Span]) -> None:
    assert rebase_compaction([compaction([(50, 100), (100, 130)])], task_manifest(store(theirs, 130))) is None


def test_deletes_that_were_left_out_must_have_nothing_below() -> None:
    of = compaction([(50, 100), (100, 130)], is_lowest=True)
    files = [BaseFile("000009.sst", "a" * 64, Extent("base", 0, 10))]
    assert rebase_compaction([of], task_manifest(store([(0, 50), (50, 100), (100, 130)], 130))) is None
    assert rebase_compaction([of], task_manifest(store([(50, 100), (100, 130)], 130, base=files))) is None
    assert spans_of(rebase_compaction([of], task_manifest(store([(50, 100), (100, 130)], 130)))) == [(50, 130)]


def test_a_compaction_of_which_nothing_was_left_leaves_nothing() -> None:
    of = compaction([(0, 50), (50, 100)], is_lowest=True)._replace(output=None)
    assert spans_of(rebase_compaction([of], task_manifest(store([(0, 50), (50, 100), (100, 130)], 130)))) == [
        (100, 130)
    ]
    done = rebase_compaction([of], task_manifest(store([(0, 50), (50, 100)], 100)))
    assert done is not None
    assert done.stores[0].databases == ()


def test_compactions_of_one_task_are_rebased_by_database() -> None:
    there = store({1: [(0, 50), (50, 100)], 2: [(0, 100)]}, 100)
    other = replace(store([(0, 50), (50, 100)], 100), store="right")
    compactions = [compaction([(0, 50), (50, 100)], segment=1), compaction([(0, 50), (50, 100)], segment=2)]
    done = rebase_compaction(compactions, task_manifest(there, other))
    assert done is not None
    (one,) = done.stores
    assert one.store == "left", "only what was compacted"
    assert spans_of(done, 1) == [(0, 100)]
    assert spans_of(done, 2) == [(0, 100)]


CUTS = st.lists(st.integers(1, 30), min_size=1, max_size=8, unique=True).map(sorted)


def spans(cuts: Sequence[int]) -> list[Span]:
    return list(pairwise([0, *cuts]))


@settings(deadline=None, max_examples=300)
@given(CUTS, st.integers(1, 10), st.data())
def test_whatever_others_have_done_each_offset_is_there_once_and_nothing_goes_back(
    cuts: list[int], more: int, data: st.DataObject
) -> None:
    end = cuts[-1]
    base = store(spans(cuts), end)
    mine = store([*spans(cuts), (end, end + more)], end + more)
    of_same_base = CUTS.map(lambda found: [*cuts, *(end + one for one in found)])
    theirs_cuts = data.draw(st.one_of(st.just(cuts), CUTS, CUTS.map(lambda found: sorted({*found, end})), of_same_base))
    theirs = store(spans(theirs_cuts), theirs_cuts[-1])
    try:
        done = rebase_advance(task_manifest(mine), task_manifest(theirs), task_manifest(base))
    except Fenced:
        assert theirs_cuts[-1] not in (end,)
        assert theirs_cuts[-1] < end + more
        return
    if done is None:
        assert theirs_cuts[-1] >= end + more
        return
    found = spans_of(done)
    assert [start for start, _ in found] == [0, *(at for _, at in found[:-1])]
    assert found[-1][1] == done.stores[0].changelogs[0].end == end + more
    has_same_base = spans(theirs_cuts)[: len(cuts)] == spans(cuts)  # then all that others have read was read here, too
    assert found[:-1] == spans(cuts if has_same_base else theirs_cuts), "else the runs of the others stay"


@settings(deadline=None, max_examples=300)
@given(CUTS, CUTS, st.data())
def test_a_compaction_keeps_the_offsets_of_concurrent_snapshots(
    cuts: list[int], theirs_cuts: list[int], data: st.DataObject
) -> None:
    there = spans(theirs_cuts)
    of = spans(data.draw(st.sampled_from([cuts, theirs_cuts])))
    first = data.draw(st.integers(0, len(of) - 1))
    inputs = of[first : data.draw(st.integers(first + 1, len(of)))]
    theirs = store(there, theirs_cuts[-1])
    done = rebase_compaction([compaction(inputs)], task_manifest(theirs))
    stands = any(there[at : at + len(inputs)] == inputs for at in range(len(there)))
    assert (done is not None) == stands
    if done is not None:
        found = spans_of(done)
        assert [start for start, _ in found] == [0, *(at for _, at in found[:-1])]
        assert found[-1][1] == theirs_cuts[-1]
        assert len(found) == len(there) - len(inputs) + 1
