"""A standby task takes the place of what a stopped application has, task by task, wholly or not at all."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

from statecore.changelog.model import LogOffsets, TopicDescription
from statecore.errors import Fenced, Invalid, NotFound
from statecore.faults import CHANGE_POINTS, PLACEMENT_POINTS, PROMOTION_POINTS, FaultInjected, InjectedFault
from statecore.formats.checkpoint import decode_checkpoint, encode_checkpoint
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.topic_partition import TopicPartition
from statecore.standby.promote.changelog_check import Ask
from statecore.standby.promote.report import PROMOTE_REPORT, Outcome, PromoteReport, Verdict
from statecore.standby.promote.request import PromoteRequest
from statecore.standby.promote.run import run_promote
from statecore.statedir import file_trees as trees
from statecore.statedir.database_state import create_database, read_database_state
from statecore.statedir.file_trees import fingerprint
from statecore.statedir.state_directory import StateDirectory, store_directory
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.tasks.changelog_ends import ChangelogEnd
from statecore.tasks.standby_store import StandbyStoreSpec
from tests.harness.raising import raises
from tests.harness.tiers import one_of, three_of
from tests.unit.doctor.stored import write_database

APPLICATION = "orders"
SPEC = """
application_id: orders
bootstrap_servers: localhost:9092
processing_guarantee: {guarantee}
subtopologies:
  "0":
    stores:
      totals: {{kind: key-value}}
      clicks: {{kind: window, retention: 1h}}
      notes:  {{kind: key-value, changelog: none}}
      late:   {{kind: grace-buffer}}
"""
KINDS = {"totals": StoreKind.KEY_VALUE, "clicks": StoreKind.WINDOW, "late": StoreKind.GRACE_BUFFER}


class World:
    """The directory of an application that is down, and standby tasks beside it."""

    def __init__(self, root: Path, guarantee: str = "exactly_once_v2") -> None:
        self.live = StateDirectory(root / "live", APPLICATION)
        self.warm = StateDirectory(root / "warm", APPLICATION)
        self.spec = root / "stores.yaml"
        self.spec.write_text(SPEC.format(guarantee=guarantee))
        for directory in (self.live, self.warm):
            directory.path.mkdir(parents=True)

    def store(
        self, directory: StateDirectory, store: str, offset: int, *, task: str = "0_0", start: int = 0, rows: str = ""
    ) -> Path:
        """A store that was closed at an offset, with one row that says whose it is."""
        kind = KINDS[store]
        path = directory.task_path(task) / store_directory(store, kind)
        if kind.is_segmented:
            path /= f"{store}.{start}"
        path.parent.mkdir(parents=True, exist_ok=True)
        with RocksDBStore(path, kind, create_if_missing=True) as opened:
            opened.put(b"key", (rows or f"{directory.state_dir.name} at {offset}").encode())
            opened.commit({self.changelog(store, task): offset})
        if kind is StoreKind.GRACE_BUFFER:
            file = directory.task_path(task) / f".checkpoint_{store}"
            file.write_bytes(encode_checkpoint({self.changelog(store, task): offset}))
        return path

    def changelog(self, store: str, task: str = "0_0") -> TopicPartition:
        return TopicPartition(f"{APPLICATION}-{store}-changelog", int(task[-1]))

    def row(self, store: str, *, task: str = "0_0", start: int = 0) -> str:
        kind = KINDS[store]
        path = self.live.task_path(task) / store_directory(store, kind)
        with RocksDBStore(path / f"{store}.{start}" if kind.is_segmented else path, kind, read_only=True) as opened:
            return (opened.get(b"key") or b"").decode()

    def request(self, **asked: Any) -> PromoteRequest:
        return PromoteRequest(
            **{
                "spec_path": str(self.spec),
                "standby_dir": str(self.warm.state_dir),
                "state_dir": str(self.live.state_dir),
                "apply": True,
                "offline": True,
                **asked,
            }
        )

    def promote(self, ask: Ask | None = None, **asked: Any) -> PromoteReport:
        return run_promote(self.request(**asked), ask=ask)


def verdicts(report: PromoteReport) -> Mapping[str, Verdict]:
    return {one.task: one.verdict for one in report.tasks}


def ends(logs: Mapping[TopicPartition, int]) -> Ask:
    """Brokers whose changelogs end at these offsets."""

    def ask(stores: Collection[StandbyStoreSpec], epochs: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, Any]:
        def end(at: TopicPartition) -> ChangelogEnd:
            log_end = logs.get(at, 0)
            topic = TopicDescription(at.topic, "a" * 32, 2, {"cleanup.policy": "compact"})
            return ChangelogEnd(log_end, LogOffsets(0, log_end, log_end, 0), topic, None, 0)

        return {one.changelog: end(one.changelog) for one in stores}

    return ask


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_missing_tasks_are_promoted_and_the_copy_is_not_changed(world: World) -> None:
    for task in ("0_0", "0_1"):
        world.store(world.warm, "totals", 9, task=task)
        world.store(world.warm, "clicks", 7, task=task)
        world.store(world.warm, "late", 3, task=task)
    before = {task: fingerprint(world.warm.task_path(task)) for task in ("0_0", "0_1")}

    report = world.promote()

    assert report.outcome is Outcome.DONE
    assert verdicts(report) == {"0_0": Verdict.PROMOTED, "0_1": Verdict.PROMOTED}
    assert (report.tasks[0].ahead, report.tasks[0].stores) == (22, ("totals", "clicks", "late"))
    assert world.row("totals", task="0_1") == "warm at 9"
    assert world.row("clicks", task="0_1") == "warm at 7"
    assert (world.live.task_path("0_1") / ".checkpoint_late").read_text().endswith("orders-late-changelog 1 3\n")
    assert not list(world.live.path.rglob("statecore-witness"))
    assert {task: fingerprint(world.warm.task_path(task)) for task in before} == before


def test_without_apply_the_plan_is_reported_and_nothing_is_changed(world: World) -> None:
    world.store(world.warm, "totals", 9)
    report = world.promote(apply=False)
    assert (report.outcome, verdicts(report)) == (Outcome.PLANNED, {"0_0": Verdict.PROMOTED})
    assert list(world.live.path.iterdir()) == []


def test_a_report_of_an_older_release_is_read(world: World) -> None:
    world.store(world.live, "totals", 11)
    world.store(world.warm, "totals", 9)
    document = world.promote().to_json()
    del document["tasks"][0]["context"]
    (task,) = PROMOTE_REPORT.from_json(document).tasks
    assert (task.code, task.context) == ("application-ahead", {})


def where(partition: TopicPartition) -> dict[str, Any]:
    return {"topic": partition.topic, "partition": partition.partition}


def test_a_task_is_promoted_only_if_its_copy_has_higher_offsets(world: World) -> None:
    for task, live, warm in (("0_0", 5, 9), ("0_1", 9, 9), ("0_2", 11, 9)):
        world.store(world.live, "totals", live, task=task)
        world.store(world.warm, "totals", warm, task=task)
    report = world.promote()
    assert verdicts(report) == {"0_0": Verdict.PROMOTED, "0_1": Verdict.KEPT, "0_2": Verdict.KEPT}
    assert [one.code for one in report.tasks] == ["standby-ahead", "same-offsets", "application-ahead"]
    left = {"store": "totals", "offset": 11, "standby_offset": 9}
    assert report.tasks[2].context == {**left, **where(world.changelog("totals", "0_2"))}
    assert PROMOTE_REPORT.decode(PROMOTE_REPORT.encode(report)) == report
    assert report.tasks[0].ahead == 4
    assert [world.row("totals", task=f"0_{task}") for task in range(3)] == ["warm at 9", "live at 9", "live at 11"]
    (kept,) = Path(report.kept).iterdir()
    assert kept.name == "0_0"


def test_a_task_with_a_store_at_a_higher_offset_is_kept_whole(world: World) -> None:
    world.store(world.live, "totals", 5)
    world.store(world.live, "clicks", 8)
    world.store(world.warm, "totals", 9)
    world.store(world.warm, "clicks", 7)
    assert verdicts(world.promote()) == {"0_0": Verdict.KEPT}
    assert world.row("totals") == "live at 5"


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_a_killed_store_is_replaced_only_if_the_application_would_wipe_it(tmp_path: Path, guarantee: str) -> None:
    world = World(tmp_path, guarantee)
    world.store(world.warm, "totals", 9)
    path = world.store(world.live, "totals", 11)
    killed(path)
    wiped = guarantee == "exactly_once_v2"
    report = world.promote()
    assert verdicts(report) == {"0_0": Verdict.PROMOTED if wiped else Verdict.KEPT}
    assert world.row("totals") == ("warm at 9" if wiped else "live at 11")


def killed(path: Path, kind: str = "KEY_VALUE") -> None:
    """Leave a store as a process leaves it that is killed after it had opened it."""
    opens = "import os; from statecore import RocksDBStore, StoreKind\n"
    opens += f"RocksDBStore({str(path)!r}, StoreKind.{kind}).open(); os._exit(0)"
    subprocess.run([sys.executable, "-c", opens], check=True)
    assert read_database_state(path).status == 1


def test_a_copy_that_was_killed_is_refused_and_the_others_are_promoted(world: World) -> None:
    killed(world.store(world.warm, "totals", 9))
    world.store(world.warm, "totals", 9, task="0_1")
    report = world.promote()
    assert verdicts(report) == {"0_0": Verdict.REFUSED, "0_1": Verdict.PROMOTED}
    assert (report.exit_code, report.tasks[0].code) == (Invalid.exit_code, "standby-store-not-closed")
    assert not world.live.task_path("0_0").exists()


def test_segments_that_do_not_agree_are_refused(world: World) -> None:
    world.store(world.warm, "clicks", 7, start=0)
    world.store(world.warm, "clicks", 8, start=60_000)
    report = world.promote()
    assert (report.outcome, verdicts(report)) == (Outcome.UNCHANGED, {"0_0": Verdict.REFUSED})
    (task,) = report.tasks
    assert (task.code, task.context["store"], task.context["offsets"]) == ("segment-offsets-differ", "clicks", [7, 8])
    assert (task.context["topic"], task.context["partition"]) == world.changelog("clicks")


def test_a_stray_directory_among_segments_refuses_that_task_alone(world: World) -> None:
    world.store(world.warm, "clicks", 7)
    (world.warm.task_path("0_0") / "clicks" / "notes").mkdir()
    world.store(world.warm, "clicks", 7, task="0_1")
    report = world.promote()
    assert verdicts(report) == {"0_0": Verdict.REFUSED, "0_1": Verdict.PROMOTED}
    assert (report.tasks[0].code, "notes" in report.tasks[0].why) == ("stray-segment", True)


def test_a_copy_of_another_changelog_refuses_that_task_alone(world: World) -> None:
    path = world.store(world.warm, "totals", 9)
    with RocksDBStore(path, StoreKind.KEY_VALUE) as store:
        store.commit({world.changelog("totals"): 9, TopicPartition("elsewhere", 0): 4})
    world.store(world.warm, "totals", 9, task="0_1")
    report = world.promote()
    assert verdicts(report) == {"0_0": Verdict.REFUSED, "0_1": Verdict.PROMOTED}
    assert (report.tasks[0].code, "elsewhere-0" in report.tasks[0].why) == ("changelog-mismatch", True)


def test_a_store_that_is_a_link_is_refused(world: World, tmp_path: Path) -> None:
    path = world.store(world.warm, "totals", 9)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    report = world.promote()
    assert verdicts(report) == {"0_0": Verdict.REFUSED}
    assert report.tasks[0].code == "symlink-in-store"


def test_a_damaged_copy_is_refused_and_the_others_are_promoted(world: World) -> None:
    path = world.store(world.warm, "totals", 9)
    (path / "CURRENT").write_text("MANIFEST-999999\n")
    world.store(world.warm, "totals", 9, task="0_1")
    assert verdicts(world.promote()) == {"0_0": Verdict.REFUSED, "0_1": Verdict.PROMOTED}


def test_stores_missing_in_the_copy_get_the_unknown_offset(world: World) -> None:
    world.store(world.warm, "totals", 9)
    world.promote()
    state = read_database_state(world.live.task_path("0_0") / "clicks" / "clicks.0")
    assert state.offsets == {world.changelog("clicks"): OFFSET_UNKNOWN}


def test_a_store_without_a_changelog_is_kept(world: World) -> None:
    world.store(world.live, "totals", 5)
    with RocksDBStore(world.live.task_path("0_0") / "rocksdb" / "notes", StoreKind.KEY_VALUE, create=True) as notes:
        notes.put(b"key", b"nowhere else")
        notes.commit({})
    world.store(world.warm, "totals", 9)
    world.promote()
    with RocksDBStore(world.live.task_path("0_0") / "rocksdb" / "notes", StoreKind.KEY_VALUE, read_only=True) as notes:
        assert notes.get(b"key") == b"nowhere else"
    assert world.row("totals") == "warm at 9"


def test_only_named_tasks_are_promoted(world: World) -> None:
    for task in ("0_0", "0_1"):
        world.store(world.warm, "totals", 9, task=task)
    assert verdicts(world.promote(tasks=("0_1",))) == {"0_1": Verdict.PROMOTED}
    assert not world.live.task_path("0_0").exists()


def test_a_task_of_an_undeclared_subtopology_is_refused(world: World) -> None:
    world.store(world.warm, "totals", 9, task="7_0")
    report = world.promote()
    assert verdicts(report) == {"7_0": Verdict.REFUSED}
    assert report.tasks[0].code == "task-not-declared"


@pytest.mark.parametrize("apply", [False, True])
@pytest.mark.parametrize("whose", ["live", "warm"])
def test_nothing_is_promoted_while_another_process_has_either_directory(world: World, whose: str, apply: bool) -> None:
    world.store(world.warm, "totals", 9)
    directory = getattr(world, whose)
    locks = "import sys; from pathlib import Path; from statecore.statedir.state_directory import StateDirectory\n"
    locks += f"lock = StateDirectory(Path({str(directory.state_dir)!r}), {APPLICATION!r}).lock()\n"
    locks += "print('locked', flush=True); sys.stdin.read()"
    holder = subprocess.Popen([sys.executable, "-c", locks], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"locked\n"
    try:
        with pytest.raises(Fenced):
            world.promote(apply=apply)
    finally:
        holder.communicate()
    assert not world.live.task_path("0_0").exists()


def test_a_directory_is_not_promoted_into_itself_by_another_path(world: World, tmp_path: Path) -> None:
    world.store(world.warm, "totals", 9)
    (tmp_path / "link").symlink_to(world.warm.state_dir)
    with raises(Invalid, "directories-identical"):
        world.promote(state_dir=str(tmp_path / "link"))


def test_a_missing_copy_or_task_is_named(world: World, tmp_path: Path) -> None:
    with raises(NotFound, "task-not-found", tasks=[]):
        world.promote()
    world.store(world.warm, "totals", 9)
    with raises(NotFound, "task-not-found", tasks=["0_5"]):
        world.promote(tasks=("0_5",))
    with raises(NotFound, "state-dir-not-found"):
        world.promote(standby_dir=str(tmp_path / "nowhere"))


def test_files_that_cannot_be_linked_are_copied(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.store(world.warm, "totals", 9)

    def refuse(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(trees.os, "link", refuse)
    world.promote()
    assert world.row("totals") == "warm at 9"


REACHED = [*CHANGE_POINTS, *PROMOTION_POINTS, *PLACEMENT_POINTS]


@pytest.mark.parametrize("point", three_of(REACHED))
def test_a_promotion_that_failed_leaves_each_task_old_or_new_and_resumes(world: World, point: str) -> None:
    for task in ("0_0", "0_1"):
        world.store(world.live, "totals", 5, task=task)
        world.store(world.warm, "totals", 9, task=task)
    request = world.request()
    try:
        run_promote(request, faults=InjectedFault(point))
    except FaultInjected:
        pass
    else:
        assert point not in (*CHANGE_POINTS, *PROMOTION_POINTS, "placement.start", "placement.after-swap")
    seen = {world.row("totals", task=task) for task in ("0_0", "0_1") if world.live.task_path(task).exists()}
    assert seen <= {"live at 5", "warm at 9"}
    run_promote(request)
    assert [world.row("totals", task=task) for task in ("0_0", "0_1")] == ["warm at 9"] * 2
    assert not list(world.live.work_path.glob("placement-*"))
    assert not list(world.live.work_path.glob("plans/*.attempt"))


PRICES = TopicPartition(f"{APPLICATION}-prices-changelog", 0)
VERSIONED = SPEC + "      prices: {{kind: versioned-key-value, retention: 1h}}\n"


def with_prices(tmp_path: Path, guarantee: str = "exactly_once_v2") -> World:
    """A world with a versioned store, which a standby makes empty and does not follow."""
    world = World(tmp_path, guarantee)
    world.spec.write_text(VERSIONED.format(guarantee=guarantee))
    for task in ("0_0", "0_1"):
        world.store(world.warm, "totals", 9, task=task)
        empty = world.warm.task_path(task) / "rocksdb" / "prices"
        create_database(
            empty, StoreKind.VERSIONED_KEY_VALUE, {TopicPartition(PRICES.topic, int(task[-1])): OFFSET_UNKNOWN}
        )
    return world


def prices(world: World, offset: int | None) -> Path:
    """The application's own versioned store, with a row."""
    path = world.live.task_path("0_0") / "rocksdb" / "prices"
    path.parent.mkdir(parents=True, exist_ok=True)
    with RocksDBStore(path, StoreKind.VERSIONED_KEY_VALUE, create=True) as store:
        store.put(bytes(7) + b"key", b"versions")
        store.commit({} if offset is None else {PRICES: offset})
    return path


def price_rows(world: World) -> list[tuple[bytes, bytes]]:
    path = world.live.task_path("0_0") / "rocksdb" / "prices"
    with RocksDBStore(path, StoreKind.VERSIONED_KEY_VALUE, read_only=True) as store:
        return list(store.all())


def test_a_sound_versioned_store_is_kept_beside_promoted_stores(tmp_path: Path) -> None:
    world = with_prices(tmp_path)
    world.store(world.live, "totals", 5)
    path = prices(world, 7)
    rows = price_rows(world)
    report = world.promote()
    assert verdicts(report) == {"0_0": Verdict.PROMOTED, "0_1": Verdict.PROMOTED}
    assert world.row("totals") == "warm at 9"
    assert rows == price_rows(world)
    assert read_database_state(path).offsets == {PRICES: 7}


def test_a_versioned_store_of_the_copy_is_skipped(tmp_path: Path) -> None:
    world = with_prices(tmp_path)
    path = world.warm.task_path("0_0") / "rocksdb" / "prices"
    with RocksDBStore(path, StoreKind.VERSIONED_KEY_VALUE) as store:
        store.put(bytes(7) + b"key", b"versions")
        store.commit({PRICES: 50})
    report = world.promote()
    assert verdicts(report)["0_0"] is Verdict.PROMOTED
    assert "prices from the start" in " ".join(report.tasks[0].notes)
    assert read_database_state(world.live.task_path("0_0") / "rocksdb" / "prices").offsets == {PRICES: OFFSET_UNKNOWN}
    assert price_rows(world) == []


@pytest.mark.parametrize("how", one_of(["killed", "without an offset"]))
def test_a_versioned_store_that_would_wipe_its_task_is_created_empty(tmp_path: Path, how: str) -> None:
    world = with_prices(tmp_path)
    world.store(world.live, "totals", 5)
    path = prices(world, 7 if how == "killed" else None)
    if how == "killed":
        killed(path, "VERSIONED_KEY_VALUE")
    plan = world.promote(apply=False)
    assert any("prices" in note and "is created empty" in note for note in plan.tasks[0].notes)
    report = world.promote()
    assert verdicts(report) == {"0_0": Verdict.PROMOTED, "0_1": Verdict.PROMOTED}
    assert world.row("totals") == "warm at 9"
    assert (read_database_state(path).offsets, price_rows(world)) == ({PRICES: OFFSET_UNKNOWN}, [])
    (kept,) = Path(report.kept).iterdir()
    assert (kept / "rocksdb" / "prices").is_dir()  # what is replaced is moved aside


def test_at_least_once_keeps_a_versioned_store_that_was_killed(tmp_path: Path) -> None:
    world = with_prices(tmp_path, "at_least_once")
    world.store(world.live, "totals", 5)
    killed(prices(world, 7), "VERSIONED_KEY_VALUE")
    rows = price_rows(world)
    assert verdicts(world.promote()) == {"0_0": Verdict.PROMOTED, "0_1": Verdict.PROMOTED}
    assert price_rows(world) == rows


@pytest.mark.parametrize("apply", one_of([False, True]))
def test_a_task_that_cannot_be_placed_is_refused_and_the_others_are_promoted(world: World, apply: bool) -> None:
    for task in ("0_0", "0_1"):
        world.store(world.live, "totals", 5, task=task)
        world.store(world.warm, "totals", 9, task=task)
    undeclared = world.live.task_path("0_0") / "rocksdb" / "old"
    with RocksDBStore(undeclared, StoreKind.KEY_VALUE, create=True) as old:
        old.commit({})
    killed(undeclared)
    before = fingerprint(world.live.task_path("0_0"))
    report = world.promote(apply=apply)
    assert verdicts(report) == {"0_0": Verdict.REFUSED, "0_1": Verdict.PROMOTED}
    assert (report.tasks[0].code, " old," in report.tasks[0].why) == ("placement-refused", True)
    assert report.exit_code == Invalid.exit_code
    assert fingerprint(world.live.task_path("0_0")) == before
    assert world.row("totals", task="0_1") == ("warm at 9" if apply else "live at 5")


def test_a_copy_contradicted_by_its_changelog_is_refused_and_the_others_are_promoted(world: World) -> None:
    for task in ("0_0", "0_1"):
        world.store(world.live, "totals", 5, task=task)
        world.store(world.warm, "totals", 9, task=task)

    ask = ends({world.changelog("totals"): 8, world.changelog("totals", "0_1"): 10})
    report = world.promote(ask, offline=False)
    assert verdicts(report) == {"0_0": Verdict.REFUSED, "0_1": Verdict.PROMOTED}
    (task, _) = report.tasks
    assert (task.code, task.context["store"], task.context["reason"]) == (
        "standby-store-stale",
        "totals",
        "log-ends-before-base",
    )
    assert (world.row("totals"), world.row("totals", task="0_1")) == ("live at 5", "warm at 9")


def test_a_store_beyond_the_end_of_its_changelog_is_replaced(world: World) -> None:
    world.store(world.live, "totals", 120)
    world.store(world.warm, "totals", 99)
    (task,) = world.promote(ends({world.changelog("totals"): 100}), offline=False).tasks
    assert task.verdict is Verdict.PROMOTED
    assert task.code == "application-beyond-changelog"
    assert task.context == {**where(world.changelog("totals")), "store": "totals", "offset": 120, "end": 100}
    assert (task.ahead, task.behind) == (100, 0)
    assert world.row("totals") == "warm at 99"
    assert list(world.live.path.glob(".statecore/replaced/*"))


@pytest.mark.parametrize(("log_end", "verdict"), [(121, Verdict.KEPT), (120, Verdict.REFUSED)])
def test_the_last_offset_of_a_changelog_is_not_beyond_its_end(world: World, log_end: int, verdict: Verdict) -> None:
    """At 120 the store is of no changelog that there is, and of what lies behind the copy nobody knows the age."""
    world.store(world.live, "totals", 120)
    world.store(world.warm, "totals", 99)
    report = world.promote(ends({world.changelog("totals"): log_end}), offline=False)
    assert verdicts(report) == {"0_0": verdict}
    assert world.row("totals") == "live at 120"


def test_a_store_beyond_the_end_is_not_replaced_by_a_copy_that_cannot_be_continued(world: World) -> None:
    world.store(world.live, "totals", 120)
    world.store(world.warm, "totals", 99)
    report = world.promote(ends({world.changelog("totals"): 50}), offline=False)
    assert verdicts(report) == {"0_0": Verdict.REFUSED}
    assert report.tasks[0].code == "standby-store-stale"
    assert world.row("totals") == "live at 120"


def test_a_store_is_not_called_stale_without_its_changelog(world: World) -> None:
    world.store(world.live, "totals", 120)
    world.store(world.warm, "totals", 99)
    (task,) = world.promote().tasks
    assert (task.verdict, task.behind) == (Verdict.KEPT, None)


def test_the_tail_that_kafka_streams_restores_is_counted(world: World) -> None:
    world.store(world.warm, "totals", 99)
    world.store(world.warm, "clicks", 49)
    logs = {world.changelog("totals"): 100, world.changelog("clicks"): 50}
    assert world.promote(ends(logs), offline=False, apply=False).tasks[0].behind == 0
    assert world.promote(apply=False).tasks[0].behind is None


def test_a_refused_task_notes_that_kafka_streams_would_wipe_it(world: World) -> None:
    killed(world.store(world.live, "totals", 5))
    killed(world.store(world.warm, "totals", 9))
    (task,) = world.promote().tasks
    assert task.verdict is Verdict.REFUSED
    (note,) = task.notes
    assert "totals" in note
    assert "wipe" in note


def test_an_offline_plan_notes_the_missing_check_of_a_grace_buffer(world: World) -> None:
    world.store(world.warm, "late", 3)
    (task,) = world.promote(apply=False).tasks
    assert any("late" in note and "grace-buffer-miskeyed" in note for note in task.notes)


def test_the_offset_of_a_grace_buffer_is_that_in_its_file(world: World) -> None:
    world.store(world.live, "late", 3)
    world.store(world.warm, "late", 9)
    file = world.live.task_path("0_0") / ".checkpoint_late"
    file.write_bytes(encode_checkpoint({world.changelog("late"): 11}))
    (task,) = world.promote().tasks
    assert (task.verdict, task.code) == (Verdict.KEPT, "application-ahead")
    assert all(value in task.why for value in ("late", " 11 ", " 9"))


def test_a_grace_buffer_that_has_lost_its_file_is_replaced_under_exactly_once(world: World) -> None:
    world.store(world.live, "totals", 11)
    world.store(world.live, "late", 3)
    (world.live.task_path("0_0") / ".checkpoint_late").unlink()
    world.store(world.warm, "totals", 9)
    world.store(world.warm, "late", 3)
    (task,) = world.promote().tasks
    assert (task.verdict, task.code, task.why.startswith("late ")) == (Verdict.PROMOTED, "offset-missing", True)
    assert world.row("totals") == "warm at 9"


def test_a_transactional_grace_buffer_that_has_lost_its_file_is_replaced_too(world: World) -> None:
    world.spec.write_text("transactional_state_stores: true\n" + world.spec.read_text())
    world.store(world.live, "totals", 11)
    world.store(world.live, "late", 3)
    (world.live.task_path("0_0") / ".checkpoint_late").unlink()
    world.store(world.warm, "totals", 9)
    world.store(world.warm, "late", 3)
    (task,) = world.promote().tasks
    assert task.verdict is Verdict.PROMOTED
    assert world.row("totals") == "warm at 9"


def with_own_class(tmp_path: Path, guarantee: str) -> World:
    world = World(tmp_path, guarantee)
    world.spec.write_text(world.spec.read_text() + "      mine:   {kind: custom}\n")
    world.store(world.live, "totals", 11)
    world.store(world.warm, "totals", 9)
    rows = world.live.task_path("0_0") / "mine" / "rows"
    rows.parent.mkdir()
    rows.write_text("rows")
    return world


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_a_custom_store_without_an_offset_wipes_its_task_under_exactly_once(tmp_path: Path, guarantee: str) -> None:
    world = with_own_class(tmp_path, guarantee)
    wiped = guarantee == "exactly_once_v2"
    (task,) = world.promote().tasks
    assert task.verdict is (Verdict.PROMOTED if wiped else Verdict.KEPT)
    assert world.row("totals") == ("warm at 9" if wiped else "live at 11")
    file = world.live.task_path("0_0") / ".checkpoint_mine"
    assert file.exists() is wiped
    if wiped:
        assert decode_checkpoint(file.read_bytes(), "file") == {world.changelog("mine"): OFFSET_UNKNOWN}
        assert any("mine" in note for note in task.notes)


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_a_custom_store_is_kept_with_its_offset(tmp_path: Path, guarantee: str) -> None:
    world = with_own_class(tmp_path, guarantee)
    world.store(world.warm, "totals", 12)
    file = world.live.task_path("0_0") / ".checkpoint_mine"
    file.write_bytes(encode_checkpoint({world.changelog("mine"): 7}))
    assert verdicts(world.promote()) == {"0_0": Verdict.PROMOTED}
    assert world.row("totals") == "warm at 12"
    assert decode_checkpoint(file.read_bytes(), "file") == {world.changelog("mine"): 7}
    assert (world.live.task_path("0_0") / "mine" / "rows").read_text() == "rows"


def test_a_database_of_a_custom_store_is_of_no_older_release(tmp_path: Path) -> None:
    world = with_own_class(tmp_path, "at_least_once")
    world.store(world.warm, "totals", 12)
    shutil.rmtree(world.live.task_path("0_0") / "mine")
    write_database(world.live.task_path("0_0") / "rocksdb" / "mine", {"default": [(b"k", b"v")]})
    assert verdicts(world.promote()) == {"0_0": Verdict.PROMOTED}
