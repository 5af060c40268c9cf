"""The words of each command, as a person reads them; see :mod:`tests.harness.transcripts`."""

from __future__ import annotations

import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from statecore.cli.main import COMMANDS
from statecore.doctor.global_store_outcome import NextStart, StartOutcome
from statecore.errors import Retryable
from statecore.formats.kinds import StoreKind
from statecore.jobs.attempt import Attempt
from statecore.jobs.planning.frozen_plan import ATTEMPT_SUFFIX
from statecore.jobs.planning.plan import PartitionPlan, ReadPlan
from statecore.jobs.read_report import ReadReport, StoreReport
from statecore.jobs.repair.report import RebuiltStores, RepairOutcome, RepairReport
from statecore.repository.publish.publication import Published
from statecore.spec.model import ProcessingGuarantee
from statecore.spec.writer import spec_to_yaml
from statecore.standby.report import StandbyReport, StandbyStoreReport, StandbyTaskReport
from tests.golden.make import HERE
from tests.harness.transcripts import Transcript, quiet
from tests.unit.discover.test_discover import TOPICS, TOPOLOGY, FakeCluster, make_store
from tests.unit.doctor.stored import offsets, write_database
from tests.unit.jobs.compact.compacting import At, Farm, some_rows, spec_of
from tests.unit.jobs.diff.test_run import OTHERS, ROWS, write
from tests.unit.jobs.history.test_instance_history import Directory
from tests.unit.jobs.published import Shop
from tests.unit.jobs.reports import FAILURE, entry
from tests.unit.repository.encrypted import key_file
from tests.unit.repository.published import Publishing, flip
from tests.unit.standby.promote.promoting import World

SPEC = """\
application_id: shop
bootstrap_servers: 127.0.0.1:1
processing_guarantee: exactly_once_v2
subtopologies: {"0": {stores: {orders: {kind: key-value}, past: {kind: versioned-key-value, retention: 1h}}}}
"""


@pytest.fixture
def root() -> Iterator[Path]:
    """A directory whose path is as long in every run: tables are as wide then."""
    made = Path(tempfile.mkdtemp(dir="/tmp"))
    yield made
    shutil.rmtree(made)


@pytest.fixture
def transcript(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, root: Path) -> Transcript:
    quiet(monkeypatch)

    def printed() -> tuple[str, str]:
        said = capfd.readouterr()
        return said.out, said.err

    return Transcript(printed, {str(root): "/DIR"})


@pytest.fixture
def spec(root: Path) -> Path:
    path = root / "stores.yaml"
    path.write_text(SPEC)
    return path


def store(root: Path, task: str, *, status: int = 0, offset: int = 41, name: str = "orders") -> None:
    said = offsets(f"shop-{name}-changelog", int(task[-1]), offset, status)
    write_database(
        root / f"state/shop/{task}/rocksdb/{name}", {"default": [(b"a", b"1"), (b"b", b"2")], "offsets": said}
    )


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="argparse folds the usage elsewhere since 3.13")
@pytest.mark.parametrize("command", ["", "repo", *COMMANDS])
def test_help(transcript: Transcript, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert transcript.run(*command.split(), "--help") == 0
    transcript.check("-".join(["help", *command.split()]))


def restore_report(**fields: Any) -> ReadReport:
    common: dict[str, Any] = dict.fromkeys(("tombstones", "null_keys", "aborted"), 0)
    stores = tuple(
        StoreReport(
            **common, task=f"0_{partition}", store="orders", partition=partition, kind="key-value",
            changelog="shop-orders-changelog", start=0, end=1_300_000, committed_offset=1_299_999, records=1_300_000,
            rows=650_000, bytes=123_456_789, file_bytes=99_000_000, digest="0123456789abcdef", seconds=12.5, runs=3,
            tail_left=3 * partition, max_timestamp=5, offsets={},
        )
        for partition in range(2)
    )  # fmt: skip
    left = replace(
        stores[0], store="past", kind="versioned-key-value", records=0, rows=0, restored_by_kafka_streams=True
    )
    given = {"plan_id": "p", "processing_guarantee": "at_least_once", "state_dir": "/state", "phases": {}}
    return ReadReport(**{"application_id": "shop", **given, "seconds": 12.5, "stores": (*stores, left), **fields})


PLAN = ReadPlan(
    "shop",
    ProcessingGuarantee.AT_LEAST_ONCE,
    (
        PartitionPlan("orders", StoreKind.KEY_VALUE, "0_0", "shop-orders-changelog", "id", 0, 3, 77_000, 77_000,
                      ((3, 77_000),)),
        PartitionPlan("past", StoreKind.VERSIONED_KEY_VALUE, "0_0", "shop-past-changelog", "id", 0, 0, 30, 30, (),
                      restored_by_kafka_streams=True),
    ),
)  # fmt: skip


def answer(monkeypatch: pytest.MonkeyPatch, job: str, *results: Any) -> None:
    """Have a job give these results, one after the other; one that is an error is raised."""
    left = list(results)

    def run(*_: Any, **__: Any) -> Any:
        result = left.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setattr(f"statecore.jobs.{job}", run)


PUBLISHED = Published("20261123T010203Z-5f3a9c21", "", "", 3, 5000, 1234)
AWAY = Retryable("No broker answered.", code="broker-unreachable", action="Look at the brokers.")


def test_restore(transcript: Transcript, monkeypatch: pytest.MonkeyPatch, spec: Path, root: Path) -> None:
    nothing = restore_report(stores=())
    noted = restore_report(notes=("2 tasks are at the end of their changelogs.",), published=PUBLISHED)
    done = replace(noted, stores=(), published=None)
    answer(monkeypatch, "restore.run.run_restore", PLAN, replace(noted, repository="file:///r"), nothing, done, AWAY)
    words = ("restore", "--spec", spec, "--state-dir", root / "state", "--engine", "processes")
    assert [transcript.run(*words, *more) for more in (["--plan"], [], [], [], ["--request-id", "r"])] == [
        0,
        0,
        0,
        0,
        10,
    ]
    assert transcript.run("restore", "--spec", root / "absent.yaml", "--state-dir", root / "state") == 14
    transcript.check("restore")


def test_advance(transcript: Transcript, monkeypatch: pytest.MonkeyPatch, spec: Path, root: Path) -> None:
    answer(monkeypatch, "restore.advance.run_advance", PLAN, restore_report())
    words = ("advance", "--spec", spec, "--state-dir", root, "--engine", "processes")
    assert [transcript.run(*words, *more) for more in (["--plan"], [])] == [0, 0]
    transcript.check("advance")


def test_advance_refused(transcript: Transcript, spec: Path, root: Path) -> None:
    assert transcript.run("advance", "--spec", spec, "--state-dir", root) == 14
    (root / "shop" / "0_0").mkdir(parents=True)
    assert transcript.run("advance", "--spec", spec, "--state-dir", root, "--store", "past") == 13
    transcript.check("advance-refused")


def test_checkpoint(transcript: Transcript, monkeypatch: pytest.MonkeyPatch, spec: Path, root: Path) -> None:
    assert transcript.run("checkpoint", "--spec", spec, "--repository", (root / "none").as_uri()) == 14
    made = restore_report(state_dir="", repository="file:///r")
    answer(
        monkeypatch, "checkpoint.run.run_checkpoint", PLAN, replace(made, published=PUBLISHED), replace(made, stores=())
    )
    words = ("checkpoint", "--spec", spec, "--repository", "file:///r", "--engine", "processes")
    assert [transcript.run(*words, *more) for more in (["--plan"], [], [])] == [0, 0, 0]
    for more in (["--interval", "5m"], ["--follow", "--plan"], ["--master", "local[1]"]):
        assert transcript.run(*words, *more) == 2
    transcript.check("checkpoint")


def test_diff(transcript: Transcript, root: Path) -> None:
    write(root / "here", ROWS, 5)
    write(root / "there", OTHERS, 7)
    words = ("diff", "--application-id", "app", "--with-state-dir", root / "there", "--state-dir")
    assert transcript.run(*words, root / "here") == 31
    assert transcript.run(*words, root / "there") == 2
    write(root / "same", OTHERS, 7)
    assert transcript.run(*words, root / "same") == 0
    transcript.check("diff")


class AnsweringCluster(FakeCluster):
    """Takes the place of a connection to a cluster."""

    addresses = ("localhost:9092",)

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__(TOPICS)

    def __enter__(self) -> AnsweringCluster:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def test_discover(transcript: Transcript, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    monkeypatch.setattr("statecore.changelog.cluster.Cluster", AnsweringCluster)
    topology, file = root / "describe.txt", root / "stores.yaml"
    topology.write_text(TOPOLOGY)
    for name, kind in (("latest", StoreKind.TIMESTAMPED_KEY_VALUE), ("counts", StoreKind.KEY_VALUE)):
        make_store(root / "state/app/0_0/rocksdb" / name, kind)
    words = ("discover", "--application-id", "app", "--topology", topology, "--state-dir", root / "state")
    assert transcript.run(*words) == 2
    words += ("--bootstrap-servers", "localhost:9092", "--processing-guarantee", "at_least_once")
    assert transcript.run(*words) == 0
    assert transcript.run(*words, "--output", file) == 0
    assert transcript.run(*words, "--output", file) == 13
    assert transcript.run(*words, "--kind", "latest") == 2
    topology.write_text("something else")
    assert transcript.run(*words) == 13
    assert transcript.run(*words, "--topology", root / "absent.txt") == 14
    transcript.check("discover")


def test_doctor(transcript: Transcript, spec: Path, root: Path) -> None:
    store(root, "0_0")
    assert transcript.run("doctor", "--state-dir", root / "state") == 0
    assert transcript.run("doctor", "--state-dir", root / "state", "--to", "4.2") == 21
    for partition in range(1, 4):
        store(root, f"0_{partition}", status=1)
    store(root, "0_4", offset=-4)
    words = ("doctor", "--state-dir", root / "state", "--spec", spec, "--offline")
    assert transcript.run(*words) == 22
    transcript.check("doctor")


def test_repair(transcript: Transcript, spec: Path, root: Path) -> None:
    store(root, "0_0", status=1)
    (root / "state/shop/0_0/something.txt").write_text("of another tool")
    words = ("repair", "--state-dir", root / "state")
    assert transcript.run(*words, "--spec", spec, "--offline") == 0
    assert transcript.run(*words, "--application-id", "shop", "--processing-guarantee", "exactly_once_v2") == 21
    assert transcript.run(*words) == 2
    transcript.check("repair")


def test_dump(transcript: Transcript, root: Path) -> None:
    store(root, "0_0")
    words = ("dump", "--state-dir", root / "state", "--application-id", "shop", "--store")
    decoded = ("--key", "string", "--value", "string")
    assert transcript.run(*words, "orders", *decoded) == 0
    assert transcript.run(*words, "orders", *decoded, "--limit", "1") == 0
    assert transcript.run(*words, "orders", "--format", "parquet") == 2
    assert transcript.run(*words, "order") == 14
    transcript.check("dump")


def test_fetch(transcript: Transcript, root: Path) -> None:
    shop = Shop(root)
    shop.publish([150, 200])
    words = ("fetch", "--repository", shop.url, "--application-id", "orders", "--state-dir", root / "state")
    assert transcript.run(*words, "--plan") == 0
    assert transcript.run(*words, "--task", "0_1") == 0
    assert transcript.run(*words, "--instance", "3/3") == 13
    transcript.check("fetch")


def test_repo_compact(transcript: Transcript, root: Path) -> None:
    farm = Farm(root / "farm", spec_of({"plain": StoreKind.KEY_VALUE}))
    farm.checkpoint(*({At("0_0", "plain"): some_rows(number)} for number in range(13)))
    spec = root / "stores.yaml"
    spec.write_text(SPEC.replace("shop", "orders").replace("{orders: {", "{plain: {"))
    words = ("repo", "compact", "--spec", spec, "--repository", farm.url)
    assert [transcript.run(*words, *more) for more in (["--plan"], [], [])] == [0, 0, 0]
    transcript.check("repo-compact")


def test_promotion(transcript: Transcript, root: Path) -> None:
    world = World(root)
    world.store(world.live, "totals", 1_005)
    world.store(world.warm, "totals", 2_009)
    world.store(world.warm, "totals", 9, task="0_1")
    world.store(world.live, "totals", 11, task="0_1")
    where = ("--standby-dir", world.warm.state_dir, "--state-dir", world.live.state_dir)
    words = ("promote", "--spec", world.spec, *where, "--offline")
    assert [transcript.run(*words, *more) for more in ([], ["--apply"], [])] == [0, 0, 0]
    transcript.check("promote")


def test_info(transcript: Transcript, root: Path) -> None:
    orders = Directory(root / "state")
    orders.restored(1, entry("by-id", 0, 1_234), entry("by-id", 1, 5))
    orders.plan(2)
    orders.say(2, ATTEMPT_SUFFIX, orders.attempt(2).failed({**FAILURE, "code": "application-running"}, "read"))
    words = ("info", "--reports", root / "reports")
    (root / "reports").mkdir()
    assert transcript.run(*words, "--state-dir", root / "state") == 0
    assert transcript.run(*words) == 14
    assert transcript.run("info", "--reports", root / "absent") == 14
    transcript.check("info")


def test_repo_init(transcript: Transcript, root: Path) -> None:
    words = ("repo", "init", "--repository", (root / "repository").as_uri())
    assert [transcript.run(*words) for _ in range(2)] == [0, 0]
    assert transcript.run("repo", "init", "--repository", "/srv/repository") == 13
    transcript.check("repo-init")


def test_repo_verify(transcript: Transcript, root: Path) -> None:
    (root / "scratch").mkdir()
    orders = Publishing((root / "repository").as_uri(), root / "scratch")
    orders.publish(10)
    orders.publish(20, [0], drops_other_tasks=False)
    words = ("repo", "verify", "--repository", orders.app_repository.url)
    of = ("--repository", orders.app_repository.url, "--application-id", "orders")
    assert transcript.run("repo", "snapshots", *of) == 0
    assert transcript.run(*words) == 0
    assert transcript.run(*words, "--level", "bytes", "--subset", "1/1") == 0
    assert transcript.run(*words, "--subset", "/7") == 2
    assert transcript.run(*words, "--level", "bytes", "--subset", "8/7") == 2
    assert transcript.run(*words, "--application-id", "order") == 14
    newest = orders.app_repository.task_manifests(
        orders.app_repository.manifest(orders.app_repository.head().snapshots[0]).value.task_manifests
    )
    for task, done in (("0_0", Path.unlink), ("0_1", lambda file: flip(file, 3))):
        ((_, extent),) = newest[task].manifest.stores[0].extents
        done(root / "repository" / extent.blob)
    assert transcript.run(*words) == 12
    assert transcript.run(*words, "--level", "bytes") == 12
    assert transcript.run("repo", "snapshots", *of) == 0
    (root / "repository" / orders.app_repository.names.head).unlink()
    assert transcript.run(*words) == 12
    transcript.check("repo-verify")


def test_inspect(transcript: Transcript, root: Path) -> None:
    store(root, "0_0")
    store(root, "0_1", status=1)
    words = ("inspect", "--state-dir", root / "state")
    assert transcript.run(*words) == 0
    assert transcript.run(*words, "--offset-sums") in (0, 12, 13)
    assert transcript.run(*words, "--offset-sums", "--segments") == 2
    assert transcript.run(*words, "--application-id", "shpo") == 14
    for file in (root / "state/shop/0_1/rocksdb/orders").glob("MANIFEST*"):
        file.write_bytes(b"junk")
    assert transcript.run(*words) == 12
    transcript.check("inspect")


def test_migrate(transcript: Transcript, root: Path) -> None:
    with tarfile.open(HERE / "kafka-streams-4.2.0-task.tar.gz") as archive:
        archive.extractall(root / "old420", filter="data")
    words = ("migrate", "--application-id", "old420", "--state-dir", root, "--to")
    assert [transcript.run(*words, *more) for more in (["4.3"], ["4.3", "--apply"], ["4.3"])] == [0, 0, 0]
    transcript.check("migrate")


def test_recover_global(transcript: Transcript, monkeypatch: pytest.MonkeyPatch, spec: Path, root: Path) -> None:
    fails = NextStart("table", StartOutcome.FAILS, ("The topic was deleted and created again.",))
    planned = RepairReport(
        **vars(Attempt.begin("shop", "/state", "one")),
        finished="now",
        outcome=RepairOutcome.PLANNED,
        plan_id="p",
        exit_code=0,
        found=({"severity": "loss"},),
        rebuilt=(RebuiltStores(("table",), ("global",), ("offset-past-end",), sources="topic table"),),
        next_starts=(fails,),
    )
    done = replace(planned, outcome=RepairOutcome.REPAIRED, kept="/state/shop/.statecore/replaced/one", seconds=1.5)
    answer(monkeypatch, "recover_global.run.run_recover_global", planned, done)
    words = ("recover-global", "--spec", spec, "--state-dir", root)
    assert [transcript.run(*words, *more) for more in ([], ["--apply"])] == [0, 0]
    transcript.check("recover-global")


def test_repo_repair_head(transcript: Transcript, root: Path) -> None:
    (root / "scratch").mkdir()
    orders = Publishing((root / "repository").as_uri(), root / "scratch")
    for end in (10, 20):
        orders.publish(end)
    words = ("repo", "repair-head", "--repository", orders.app_repository.url, "--application-id")
    assert transcript.run(*words, "orders") == 0
    (root / "repository" / orders.app_repository.names.head).unlink()
    assert [transcript.run(*words, "orders", *more) for more in ([], ["--apply"])] == [0, 0]
    assert transcript.run(*words, "order") == 14
    transcript.check("repo-repair-head")


def test_repo_forget_and_prune(transcript: Transcript, root: Path) -> None:
    (root / "scratch").mkdir()
    orders = Publishing((root / "repository").as_uri(), root / "scratch")
    for end in (10, 20, 30):
        orders.publish(end)
    where = ("--repository", orders.app_repository.url)
    of = (*where, "--application-id", "orders")
    keep = ("--keep-last", "1", "--keep-within", "30s")
    for words, code in (
        ((), 0),
        (keep, 0),
        ((*keep, "--apply"), 0),
        (("--keep-last", "0"), 13),
        (("--keep-last", "-1"), 2),
    ):
        assert transcript.run("repo", "forget", *of, *words) == code
    transcript.check("repo-forget")
    transcript.forget()
    prune = ("repo", "prune", *where, "--min-age", "0s")
    for words in ((), ("--apply",), ("--apply",), (), ("--apply",)):
        assert transcript.run(*prune, *words) == 0
    assert transcript.run(*prune, "--application-id", "order") == 14
    transcript.check("repo-prune")


def test_repo_copy(transcript: Transcript, root: Path) -> None:
    (root / "scratch").mkdir()
    source, target = (root / "repository").as_uri(), (root / "replica").as_uri()
    orders = Publishing(source, root / "scratch")
    orders.publish(10, content=b"a run " * 5000)
    words = ("repo", "copy", "--repository", source, "--to", target)
    assert [transcript.run(*words), transcript.run(*words)] == [0, 0]
    of_orders = ("--repository", target, "--application-id", "orders")
    assert transcript.run("repo", "pin", "newest", *of_orders) == 13
    assert transcript.run("repo", "init", "--repository", target) == 0
    orders.publish(20)
    (name,) = [
        path for path in (root / "repository/apps/orders/files").rglob("*.0") if b"0 up to 20" in path.read_bytes()
    ]
    name.unlink()
    assert transcript.run(*words) == 12
    promotion = ("repo", "promote-replica", "--repository", target)
    assert [transcript.run(*promotion, *more) for more in ([], ["--apply"], [])] == [0, 0, 0]
    assert transcript.run(*words) == 13
    transcript.check("repo-copy")


def test_repo_rotate_key(transcript: Transcript, root: Path) -> None:
    """An encrypted repository, from its beginning to its second key."""
    key_file(root / "key"), key_file(root / "key-2")
    plain = (root / "repository").as_uri()
    url, renewed = (f"{plain}?encryption-key=file:{root}/{name}" for name in ("key", "key-2"))
    assert transcript.run("repo", "init", "--repository", url) == 0
    assert transcript.run("repo", "init", "--repository", url) == 0
    assert transcript.run("repo", "snapshots", "--repository", plain) == 13
    rotation = ("repo", "rotate-key", "--repository", url, "--new-key", f"file:{root}/key-2")
    assert [transcript.run(*rotation, *more) for more in ([], ["--apply"], [])] == [0, 0, 0]
    assert transcript.run("repo", "snapshots", "--repository", url) == 13
    assert transcript.run("repo", "snapshots", "--repository", renewed) == 14
    (root / "key-2").chmod(0o644)
    assert transcript.run("repo", "snapshots", "--repository", renewed) == 13
    (root / "key-2").chmod(0o600)
    for name in ("repository.json", "encryption.json"):
        (root / "repository" / name).unlink()
    (root / "repository/apps/orders").mkdir(parents=True)
    assert transcript.run("repo", "init", "--repository", renewed) == 12
    assert transcript.run("repo", "init", "--repository", f"{plain}?encryption-key=secret") == 13
    transcript.check("repo-rotate-key")


def test_backup(transcript: Transcript, root: Path) -> None:
    shop = Shop(root)
    shop.publish([150, 200])
    spec = root / "stores.yaml"
    spec.write_text(spec_to_yaml(shop.declared))
    here = ("--state-dir", root / "state")
    words = ("--repository", shop.url, "--application-id", "orders", *here)
    assert transcript.run("fetch", *words) == 0
    transcript.forget()
    words = ("backup", "--repository", shop.url, "--spec", spec, *here, "--offline")
    assert [transcript.run(*words, *more) for more in (["--plan"], [], [])] == [0, 0, 0]
    transcript.check("backup")


def test_repo_snapshots(transcript: Transcript, root: Path) -> None:
    (root / "scratch").mkdir()
    orders = Publishing((root / "repository").as_uri(), root / "scratch")
    for end in (10, 20):
        orders.publish(end)
    where = ("--repository", orders.app_repository.url)
    of = (*where, "--application-id", "orders")
    assert transcript.run("repo", "snapshots", *where) == 0
    assert transcript.run("repo", "pin", "newest", *of, "--note", "before the migration") == 0
    for more in ((), ("--held",)):
        assert transcript.run("repo", "snapshots", *of, *more) == 0
    assert transcript.run("repo", "snapshots", *where, "--held") == 2
    assert transcript.run("repo", "snapshots", *where, "--application-id", "order") == 14
    transcript.check("repo-snapshots")
    transcript.forget()
    assert transcript.run("repo", "show", "newest", *of) == 0
    assert transcript.run("repo", "show", "20010101T000000Z-00000000", *of) == 14
    assert transcript.run("repo", "show", "newest", *where) == 2
    transcript.check("repo-show")
    transcript.forget()
    assert transcript.run("repo", "unpin", "newest", *of) == 0
    assert transcript.run("repo", "unpin", "newest", *of) == 0
    transcript.check("repo-unpin")


def test_standby(transcript: Transcript, monkeypatch: pytest.MonkeyPatch, spec: Path, root: Path) -> None:
    stores = tuple(
        StandbyStoreReport(name, f"shop-{name}-changelog-0", 9, lag, 0, 0, error)
        for name, lag, error in (("a", 0, None), ("b", None, "No broker."), ("c", 70, None))
    )
    report = StandbyReport("shop", str(root), 3, (StandbyTaskReport("0_0", "standby", stores, None, 10),))

    def run(*_: Any, on_report: Any, **__: Any) -> StandbyReport:
        on_report(report)
        return report

    monkeypatch.setattr("statecore.standby.service.run_standby", run)
    assert transcript.run("standby", "--spec", spec, "--state-dir", root, "--once") == 10
    transcript.check("standby")
