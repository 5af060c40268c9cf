"""Folds: fewer runs, the same rows, whatever happens in between."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from statecore.errors import NotFound
from statecore.faults import COMPACTION_POINTS, PUBLISH_POINTS, VARIABLE, FaultInjected, InjectedFault
from statecore.formats.kinds import StoreKind
from statecore.formats.releases import GLOBAL
from statecore.images.model import Run
from statecore.jobs.compact.policy import DEFAULT_SETTINGS
from statecore.jobs.compact.report import CompactionOutcome
from statecore.repository.content_digests import save_digest, saved_digest
from statecore.repository.manifest import StoredRun
from tests.harness.case_selection import three_of
from tests.unit.images.sst_files import Rows
from tests.unit.jobs.compact.compacting import APPLICATION, STEP, At, Farm, old_rows, segments, some_rows, spec_of

PLAIN = At("0_0", "plain")
BESIDE = At("0_1", "plain")
KINDS = [kind for kind in StoreKind if kind.can_be_built and not kind.is_versioned]


@pytest.fixture
def farm(tmp_path: Path) -> Farm:
    return Farm(tmp_path / "farm", spec_of({"plain": StoreKind.KEY_VALUE}))


def many(at: At, count: int, first: int = 0) -> list[dict[At, Rows]]:
    return [{at: some_rows(number)} for number in range(first, first + count)]


def spans(runs: tuple[StoredRun, ...]) -> list[tuple[int, int]]:
    return [(stored.run.start, stored.run.end) for stored in runs]


def run_names(runs: tuple[StoredRun, ...]) -> list[str]:
    return [stored.run.sha256 for stored in runs]


def test_runs_that_are_many_become_few_and_hold_the_same(farm: Farm) -> None:
    farm.checkpoint(*many(PLAIN, 14))
    before = farm.store("0_0", "plain")
    done = farm.fold()
    assert done.outcome is CompactionOutcome.PUBLISHED
    after = farm.store("0_0", "plain")
    assert len(farm.runs(PLAIN)) < 8
    ends = [end for _, end in spans(farm.runs(PLAIN))]
    assert spans(farm.runs(PLAIN)) == list(zip([0, *ends], ends, strict=False)), "merged runs span their inputs"
    assert (after.changelogs, after.read_at_ms) == (before.changelogs, before.read_at_ms)
    assert after.identity != before.identity
    farm.check()
    entry = farm.app_repository.head().snapshots[0]
    assert (entry.snapshot, entry.origin, done.tasks) == (done.snapshot, "compaction", 1)
    assert sum(one.compacted_bytes or 0 for one in done.compacted) == done.written_bytes
    assert not list(farm.root.glob("statecore-fold-*"))


def test_where_no_compaction_is_due_nothing_is_published(farm: Farm) -> None:
    farm.checkpoint(*many(PLAIN, 6))
    before = farm.app_repository.head()
    assert farm.fold().outcome is CompactionOutcome.NOT_DUE
    assert farm.app_repository.head() == before


def test_a_plan_says_what_would_be_merged_and_changes_nothing(farm: Farm) -> None:
    farm.checkpoint(*many(PLAIN, 14))
    before = farm.app_repository.head()
    done = farm.fold(plan_only=True)
    assert done.outcome is CompactionOutcome.PLANNED
    assert done.runs > 6
    assert [one.compacted_bytes for one in done.compacted] == [None] * len(done.compacted)
    assert farm.app_repository.head() == before


def test_an_application_without_a_snapshot_has_nothing_to_compaction(farm: Farm) -> None:
    with pytest.raises(NotFound, match="no snapshot"):
        farm.fold()


def test_databases_that_have_come_near_are_compacted_along_and_others_are_not(farm: Farm) -> None:
    farm.checkpoint({At("0_2", "plain"): some_rows(0)}, *many(PLAIN, 14), *many(BESIDE, 3))
    others = [At("0_2", "plain"), BESIDE]
    before = {at: run_names(farm.runs(at)) for at in others}
    farm.fold()
    assert {at: run_names(farm.runs(at)) for at in others} == before
    farm.check()


@pytest.mark.parametrize("kind", KINDS)
def test_stores_of_every_kind_are_compacted_and_hold_the_same(tmp_path: Path, kind: StoreKind) -> None:
    farm = Farm(tmp_path / "farm", spec_of({"plain": kind}))
    ats = [At("0_0", "plain", segment) for segment in segments(kind)]
    farm.checkpoint(*({at: some_rows(number) for at in ats} for number in range(13)))
    farm.check()
    assert farm.fold().outcome is CompactionOutcome.PUBLISHED
    assert all(len(farm.runs(at)) < 8 for at in ats)
    farm.check()


def test_stores_with_versions_are_left_alone(tmp_path: Path) -> None:
    farm = Farm(tmp_path / "farm", spec_of({"plain": StoreKind.VERSIONED_KEY_VALUE}))
    farm.checkpoint(*({PLAIN: {b"%d" % number: b"row"}} for number in range(14)))
    assert farm.fold().outcome is CompactionOutcome.NOT_DUE


def test_a_store_that_is_not_what_is_declared_is_left_alone(farm: Farm) -> None:
    farm.checkpoint(*many(PLAIN, 14))
    farm.spec = spec_of({"plain": StoreKind.TIMESTAMPED_KEY_VALUE})
    assert farm.fold().outcome is CompactionOutcome.NOT_DUE
    farm.spec = spec_of({"other": StoreKind.KEY_VALUE})
    assert farm.fold().outcome is CompactionOutcome.NOT_DUE


def test_of_a_global_store_the_runs_of_each_partition_are_merged_by_themselves(tmp_path: Path) -> None:
    farm = Farm(tmp_path / "farm", spec_of({}, globals_={"names": StoreKind.KEY_VALUE}))
    zero, one = At(GLOBAL, "names", partition=0), At(GLOBAL, "names", partition=1)
    # The same keys in both: of these the second partition's count, whatever came when.
    farm.checkpoint(*({zero: some_rows(number), one: some_rows(number + 3, 5)} for number in range(14)))
    farm.check()
    assert farm.fold().outcome is CompactionOutcome.PUBLISHED
    runs = farm.runs(zero)
    assert len(runs) < 14
    assert [stored.run.partition for stored in runs] == sorted(stored.run.partition for stored in runs)
    farm.check()
    assert {stored.run.partition: stored.run.start for stored in reversed(runs)} == {0: 0, 1: 0}
    first = next(stored.run for stored in runs if stored.run.partition == 1)
    assert first.deletes, "they may hide a row of the first partition"


def test_deletes_are_dropped_only_at_the_lowest_level(farm: Farm) -> None:
    farm.checkpoint({PLAIN: old_rows()}, *many(PLAIN, 12, 1))
    farm.fold()
    runs = farm.runs(PLAIN)
    assert spans(runs)[0] == (0, STEP)
    assert sum(stored.run.deletes for stored in runs[1:]) > 0
    farm.check()
    farm.checkpoint(*many(PLAIN, 2, 13))
    farm.fold(settings=replace(DEFAULT_SETTINGS, all_due=1, share=0.0001, max_old=1))
    assert len(farm.runs(PLAIN)) == 1
    assert farm.runs(PLAIN)[0].run.deletes == 0
    farm.check()


def test_where_no_row_is_left_no_run_is_and_the_store_is_empty(farm: Farm) -> None:
    farm.checkpoint({BESIDE: {b"key": b"value"}}, *({PLAIN: {b"key-%d" % number: None}} for number in range(14)))
    done = farm.fold(settings=replace(DEFAULT_SETTINGS, remaining=1, max_old=0))
    assert [one.compacted_bytes for one in done.compacted] == [0]
    assert farm.store("0_0", "plain").databases == ()
    assert farm.image("0_0", "plain").rows == 0
    farm.checkpoint({PLAIN: {b"key": b"again"}})
    farm.check()


def test_a_segment_of_which_no_row_is_left_goes_and_the_others_stay(tmp_path: Path) -> None:
    farm = Farm(tmp_path / "farm", spec_of({"plain": StoreKind.WINDOW}))
    old, new = At("0_0", "plain", 999), At("0_0", "plain", 1000)
    farm.checkpoint({new: some_rows(1)}, *({old: {b"key-%d" % number: None}} for number in range(14)))
    farm.fold(settings=replace(DEFAULT_SETTINGS, remaining=1, max_old=0))
    assert [database.segment for database in farm.store("0_0", "plain").databases] == [1000]
    farm.check()


def test_what_is_known_of_a_store_is_carried_over(farm: Farm) -> None:
    farm.checkpoint({PLAIN: old_rows()}, *many(PLAIN, 12))
    before = farm.store("0_0", "plain")
    content = farm.image("0_0", "plain").content
    assert content is not None
    assert before.content is None
    save_digest(farm.app_repository, before.identity, content, "tests")
    farm.fold()
    after = farm.store("0_0", "plain")
    assert after.content is None
    assert saved_digest(farm.app_repository, after.identity) == content


def test_a_store_that_has_become_one_run_says_what_it_holds(farm: Farm) -> None:
    farm.checkpoint(*many(PLAIN, 14))
    farm.fold(settings=replace(DEFAULT_SETTINGS, remaining=1, max_old=0))
    content = farm.store("0_0", "plain").content
    assert content is not None
    assert content == farm.image("0_0", "plain").content


def test_small_results_share_a_pack(farm: Farm) -> None:
    ats = [At(f"0_{task}", "plain") for task in range(6)]
    farm.checkpoint(*({at: some_rows(number, of=at.task) for at in ats} for number in range(13)))
    farm.fold(settings=replace(DEFAULT_SETTINGS, remaining=1, max_old=0))
    (blob,) = {farm.runs(at)[0].extent.blob for at in ats}
    assert "/packs/" in blob


def test_more_than_a_batch_is_merged_batch_by_batch(farm: Farm) -> None:
    ats = [At(f"0_{task}", "plain") for task in range(4)]
    farm.checkpoint(*({at: some_rows(number) for at in ats} for number in range(13)))
    farm.fold(batch_bytes=1)
    assert all(len(farm.runs(at)) < 8 for at in ats)
    farm.check()


# ---- damage


@pytest.mark.parametrize("damage", ["missing", "flipped"])
def test_a_database_with_a_damaged_run_is_reported_and_the_others_are_compacted(farm: Farm, damage: str) -> None:
    farm.checkpoint(*many(PLAIN, 13))
    farm.checkpoint(*({BESIDE: some_rows(number, of="beside")} for number in range(13)))
    names = run_names(farm.runs(PLAIN))
    blob = farm.root / "repository" / farm.runs(PLAIN)[3].extent.blob
    extent = farm.runs(PLAIN)[3].extent
    if damage == "missing":
        blob.unlink()
    else:
        content = bytearray(blob.read_bytes())
        content[extent.start + extent.bytes // 2] ^= 1
        blob.write_bytes(content)
    said: list[str] = []
    done = farm.fold(say=said.append)
    assert done.outcome is CompactionOutcome.PUBLISHED
    assert "'plain' of task 0_0" in done.findings[0]
    assert set(done.findings) <= set(said)
    assert {one.compacted_bytes is None for one in done.compacted if one.task == "0_0"} == {True}
    assert run_names(farm.runs(PLAIN)) == names
    assert len(farm.runs(BESIDE)) < 8
    assert farm.image("0_1", "plain").digest == farm.digest("0_1", "plain")


def test_where_every_database_is_damaged_nothing_is_published(farm: Farm) -> None:
    farm.checkpoint(*many(PLAIN, 14))
    before = farm.app_repository.head()
    (farm.root / "repository" / farm.runs(PLAIN)[3].extent.blob).unlink()
    done = farm.fold()
    assert (done.outcome, len(done.findings)) == (CompactionOutcome.NOTHING_LEFT, len(done.compacted))
    assert farm.app_repository.head() == before


# ---- others at the same time


class FaultAction(InjectedFault):
    """Has something happen at a point."""

    def __init__(self, point: str, happens: Callable[[], object]) -> None:
        super().__init__(point)
        self._happens = happens

    def reach(self, point: str) -> None:
        if point == self.point and not self.reached:
            self.reached = 1
            self._happens()


POINTS = [*COMPACTION_POINTS, *(point for point in PUBLISH_POINTS if point != "publish.after-head")]


@pytest.mark.parametrize("point", three_of(POINTS))
def test_a_checkpoint_that_lands_in_between_stays_above_the_compaction(farm: Farm, point: str) -> None:
    farm.checkpoint(*({PLAIN: some_rows(number), BESIDE: some_rows(number + 1)} for number in range(13)))
    done = farm.fold(faults=FaultAction(point, lambda: farm.checkpoint({PLAIN: some_rows(99)})))
    assert done.outcome is CompactionOutcome.PUBLISHED
    for at in (PLAIN, BESIDE):
        assert len(farm.runs(at)) < 9
        assert spans(farm.runs(at))[0][0] == 0
    assert spans(farm.runs(PLAIN))[-1] == (1300, 1400)
    assert [entry.origin for entry in farm.app_repository.head().snapshots] == ["compaction", "tests", "tests"]
    farm.check()


@pytest.mark.parametrize("point", three_of(POINTS))
def test_of_two_compactions_at_once_one_counts(farm: Farm, point: str) -> None:
    farm.checkpoint(*({PLAIN: some_rows(number), BESIDE: some_rows(number + 1)} for number in range(13)))
    done = farm.fold(faults=FaultAction(point, farm.fold))
    assert done.outcome is CompactionOutcome.NOTHING_LEFT
    assert [entry.origin for entry in farm.app_repository.head().snapshots] == ["compaction", "tests"]
    farm.check()


def test_a_database_that_was_compacted_otherwise_in_between_stays_and_the_others_are_compacted(farm: Farm) -> None:
    farm.checkpoint(*many(PLAIN, 13))
    farm.checkpoint(*({BESIDE: some_rows(number, of="beside")} for number in range(9)))

    def fold_one() -> None:
        """Fold the one that is due, and not the one that has come near."""
        farm.fold(settings=replace(DEFAULT_SETTINGS, remaining=3, eligible=11, max_old=0))

    done = farm.fold(settings=replace(DEFAULT_SETTINGS, max_old=0), faults=FaultAction("compact.after-files", fold_one))
    assert done.outcome is CompactionOutcome.PUBLISHED
    assert [entry.origin for entry in farm.app_repository.head().snapshots] == [
        "compaction",
        "compaction",
        "tests",
        "tests",
    ]
    assert (len(farm.runs(PLAIN)) <= 3, len(farm.runs(BESIDE)) <= 6) == (True, True)
    farm.check()


# ---- kills


def kill(farm: Farm, point: str) -> None:
    """Have a process fold that dies at a point."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.jobs.compacting_process", str(farm.root), farm.url],
        env={**os.environ, VARIABLE: f"{point}:kill", "TMPDIR": str(farm.root)},
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


def stages(url: str, root: Path, name: str) -> Farm:
    made = Farm(root / name, spec_of({"plain": StoreKind.KEY_VALUE}), url)
    made.checkpoint(*({PLAIN: some_rows(number), BESIDE: some_rows(number + 1)} for number in range(13)))
    return made


@pytest.mark.parametrize("point", three_of([*COMPACTION_POINTS, *PUBLISH_POINTS]))
def test_after_a_kill_the_next_compaction_comes_to_the_same(tmp_path: Path, point: str) -> None:
    undisturbed = stages("", tmp_path, "undisturbed")
    undisturbed.fold()
    farm = stages("", tmp_path, "killed")
    before = farm.task_manifests()
    kill(farm, point)
    if point != "publish.after-head":
        assert farm.task_manifests() == before
        farm.check()
        assert farm.fold().outcome is CompactionOutcome.PUBLISHED
    assert farm.fold().outcome is CompactionOutcome.NOT_DUE
    for at in (PLAIN, BESIDE):
        assert run_names(farm.runs(at)) == run_names(undisturbed.runs(at))
    farm.check()


@pytest.mark.parametrize("point", three_of([*COMPACTION_POINTS, *PUBLISH_POINTS]))
def test_an_error_at_any_point_leaves_a_snapshot_that_is_whole(farm: Farm, point: str) -> None:
    farm.checkpoint(*many(PLAIN, 13))
    with pytest.raises(FaultInjected):
        farm.fold(faults=InjectedFault(point))
    farm.check()
    assert not list(farm.root.glob("statecore-fold-*"))


# ---- any history


ROWS = st.dictionaries(
    st.binary(min_size=1, max_size=3), st.one_of(st.none(), st.binary(max_size=40)), min_size=1, max_size=12
)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    kind=st.sampled_from([StoreKind.KEY_VALUE, StoreKind.WINDOW, StoreKind.LIST]),
    history=st.lists(st.lists(st.tuples(st.integers(0, 1), ROWS), min_size=1, max_size=10), min_size=1, max_size=4),
    seed=st.integers(0, 1 << 30),
)
def test_any_history_of_checkpoints_and_compactions_holds_what_it_would_without_compactions(
    tmp_path_factory: pytest.TempPathFactory, kind: StoreKind, history: list[list[tuple[int, Rows]]], seed: int
) -> None:
    farm = Farm(tmp_path_factory.mktemp("farm"), spec_of({"plain": kind}))
    draw = random.Random(seed)
    for changes in history:
        found = segments(kind)
        farm.checkpoint(*({At("0_0", "plain", found[which % len(found)]): rows} for which, rows in changes))
        eager = replace(
            DEFAULT_SETTINGS,
            new_due=draw.randint(2, 8),
            eligible=2,
            remaining=draw.randint(1, 4),
            max_old=draw.randint(0, 3),
        )
        farm.fold(settings=eager)
    farm.check()


def test_what_is_merged_is_of_the_same_store_and_says_so(farm: Farm) -> None:
    farm.checkpoint(*many(PLAIN, 13))
    farm.fold()
    for stored in farm.runs(PLAIN):
        run: Run = stored.run
        assert (run.store, run.kind) == ("plain", StoreKind.KEY_VALUE)
        assert (run.topic, run.partition) == (f"{APPLICATION}-plain-changelog", 0)
