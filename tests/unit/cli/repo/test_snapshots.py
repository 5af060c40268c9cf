"""``statecore repo snapshots`` and ``info --repository``: what is there, of what age, and what is damaged."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from statecore.cli.main import main
from statecore.documents import encode_json, parse_json
from statecore.images.model import StoreDigest
from statecore.repository.content_digests import save_digest
from statecore.repository.head import HEAD
from statecore.repository.manifest import MANIFEST, StoredEnd
from tests.harness import s3_server
from tests.harness.raising import code_said
from tests.harness.s3_server import ACCESS, SECRET
from tests.unit.repository.encrypted import rewrite_sealed
from tests.unit.repository.published import STORE, TOPIC, Publishing, flip

Run = Callable[..., tuple[int, str, str]]


class Repository:
    """A directory repository with two applications: ``orders`` has three snapshots, ``payments`` one."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "repository"
        self.url = self.root.as_uri()
        scratch = directory / "scratch"
        scratch.mkdir()
        self.orders = Publishing(self.url, scratch)
        self.payments = Publishing(self.url, scratch, "payments")
        hours_ago = int(time.time() * 1000) - 3 * 3_600_000 - 60_000
        self.snapshots = [
            self.orders.publish(10).snapshot,
            self.orders.publish(20, read_at_ms=hours_ago).snapshot,
            self.orders.publish(30, [1], drops_other_tasks=False, read_at_ms=None, rows=None).snapshot,
        ]
        self.payments.publish(7)

    def manifest(self, snapshot: str) -> Path:
        return self.root / self.orders.app_repository.names.manifest(snapshot)

    def damage_task_manifest(self, snapshot: str, task: str) -> None:
        """Flip a bit of the task manifest of a task."""
        head = self.orders.app_repository.head()
        reference = self.orders.app_repository.manifest(head.entry(snapshot)).value.reference(task)  # type: ignore[arg-type]
        assert reference is not None
        flip(self.root / reference.extent.blob, reference.extent.start + 3)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("STATECORE_REPORTS", str(tmp_path / "reports"))
    monkeypatch.delenv("STATECORE_STATE_DIR", raising=False)

    def run_command(*words: object) -> tuple[int, str, str]:
        code = main([str(word) for word in words])
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return run_command


def document(run: Run, *words: object) -> tuple[int, dict[str, Any]]:
    code, out, _ = run(*words, "--json")
    return code, json.loads(out)


def cells(out: str, first: str) -> list[str]:
    """The cells of the one row that begins with a word."""
    (row,) = [line for line in out.splitlines() if line.strip().startswith(first)]
    return [cell.strip() for cell in row.split("  ") if cell.strip()]


def test_each_application_has_a_line(run: Run, repository: Repository) -> None:
    code, out, err = run("repo", "snapshots", "--repository", repository.url)
    assert (code, err) == (0, "")
    newest = repository.orders.app_repository.head().newest
    assert newest is not None
    orders = cells(out, "orders")
    assert orders[1] == newest.snapshot == repository.snapshots[-1]
    assert orders[2].endswith("days ago")
    assert orders[3:] == ["unknown", "3", "2", str(newest.file_bytes), "epoch 0, generation 3"], (
        "the age of a cut is no guess"
    )
    assert cells(out, "payments")[4:6] == ["1", "2"]
    code, found = document(run, "repo", "snapshots", "--repository", repository.url)
    assert (code, found["version"], found["exit_code"]) == (0, 1, 0)
    first, second = found["applications"]
    assert (first["application_id"], first["snapshots"], first["epoch"], first["generation"]) == ("orders", 3, 0, 3)
    assert first["newest"]["snapshot"] == newest.snapshot
    assert (second["application_id"], second["error"]) == ("payments", None)


def test_a_damaged_newest_manifest_is_an_error_also_in_the_list_of_applications(
    run: Run, repository: Repository
) -> None:
    manifest = repository.manifest(repository.snapshots[-1])
    manifest.write_bytes(manifest.read_bytes()[:-9])
    for command in (["repo", "snapshots"], ["info"]):
        code, out, _ = run(*command, "--repository", repository.url)
        assert sum("problem: " in line for line in out.splitlines()) == 1
        assert code == (0 if command == ["info"] else 12)


def test_the_snapshots_of_an_application_newest_first(run: Run, repository: Repository) -> None:
    code, out, _ = run("repo", "snapshots", "--repository", repository.url, "--application-id", "orders")
    assert code == 0
    lines = [line.split()[0] for line in out.splitlines() if line.strip().startswith("2023")]
    assert lines == repository.snapshots[::-1]
    middle = cells(out, repository.snapshots[1])
    assert middle[2:4] == ["3 hours ago", "restore"]
    assert middle[4] == "2"
    assert middle[5:] == ["52", "52", "request-1"], "all its files are new"
    newest = cells(out, repository.snapshots[2])
    assert (newest[2], newest[5:]) == ("unknown", ["52", "26", "request-2"]), "one of two"
    _, found = document(run, "repo", "snapshots", "--repository", repository.url, "--application-id", "orders")
    assert [one["snapshot"] for one in found["snapshots"]] == repository.snapshots[::-1]
    assert [one["new_bytes"] for one in found["snapshots"]] == [26, 52, 52]
    assert found["snapshots"][0]["read_at_ms"] is None
    assert all(one["damage"] == [] for one in found["snapshots"])


@pytest.mark.parametrize("named", ["newest", "by its id"])
def test_one_snapshot_in_detail(run: Run, repository: Repository, named: str) -> None:
    last = repository.snapshots[-1]
    words = ("repo", "show", "--repository", repository.url, "--application-id", "orders")
    code, out, _ = run(*words, last if named == "by its id" else named)
    assert code == 0
    assert f"snapshot {last}" in out
    assert f"previous {repository.snapshots[1]}, epoch 0, generation 3, " in out
    assert [line.split()[::2][:3] for line in out.splitlines() if " B of files" in line] == [["2", "52", "of"]]
    assert cells(out, "0_0")[1:] == [STORE, "key-value", "1", "1", "0", "19", "25", "20", "26"]
    assert cells(out, "0_1")[1:] == [STORE, "key-value", "1", "1", "0", "29", "35", "unknown", "26"]
    code, found = document(run, *words, last)
    tasks = found["snapshot"]["tasks"]
    store = tasks[1]["stores"][0]
    assert (code, store["rows"], tasks[0]["stores"][0]["rows"]) == (0, None, 20)
    assert store["databases"] == [{"segment": None, "runs": 1, "base_files": 0, "file_bytes": 26}]
    assert (store["changelogs"][0]["topic"], store["changelogs"][0]["log_end"]) == (TOPIC, 35)
    save_digest(repository.orders.app_repository, store["identity"], StoreDigest(28, 99, "f" * 32), "test")
    code, found = document(run, *words, last)
    store = found["snapshot"]["tasks"][1]["stores"][0]
    assert (store["rows"], store["bytes"], store["digest"]) == (28, 99, "f" * 32), "once somebody has read all of it"
    assert cells(run(*words, last)[1], "0_1")[8] == "28"


def test_a_snapshot_is_pinned_shown_so_and_unpinned(run: Run, repository: Repository) -> None:
    of = ("--repository", repository.url, "--application-id", "orders")
    first, _, last = repository.snapshots
    code, out, err = run("repo", "pin", first, *of, "--note", "before the migration")
    assert (code, out, err) == (0, f"{first} is pinned\n", "")
    assert document(run, "repo", "pin", first, *of)[1]["changed"] is False
    code, found = document(run, "repo", "pin", *of, "newest")
    assert (code, found["changed"], found["snapshot"]["snapshot"], found["snapshot"]["pinned"]) == (0, True, last, True)
    code, out, _ = run("repo", "snapshots", *of)
    assert code == 0
    assert [line.strip() for line in out.splitlines() if "pinned" in line] == [
        f"pinned: {last}",
        f"pinned: {first}: before the migration",
    ]
    assert f"pinned: {first}: before the migration" in run("repo", "show", first, *of)[1]
    _, found = document(run, "repo", "snapshots", *of)
    assert [(one["pinned"], one["note"]) for one in found["snapshots"]] == [
        (True, ""),
        (False, ""),
        (True, "before the migration"),
    ]
    assert run("repo", "unpin", first, *of)[:2] == (0, f"{first} is no longer pinned\n")
    code, found = document(run, "repo", "unpin", first, *of)
    assert (code, found["changed"]) == (0, False)
    assert [one["note"] for one in document(run, "repo", "snapshots", *of)[1]["snapshots"]] == ["", "", ""]


def test_a_pin_on_what_is_not_there_is_refused_and_a_question_that_is_none_says_why(
    run: Run, repository: Repository
) -> None:
    of = ("--repository", repository.url, "--application-id", "orders")
    code, _, err = run("repo", "pin", "20010101T000000Z-00000000", *of)
    assert (code, code_said(err), ", ".join(repository.snapshots[::-1]) in err) == (14, "snapshot-not-found", True)
    code, error = document(run, "repo", "snapshots", *of[:2], "--held")
    assert (code, error["code"], error["context"]) == (2, "option-missing", {"option": "application_id"})
    assert not any(entry.pinned for entry in repository.orders.app_repository.head().snapshots)


def test_what_each_snapshot_holds_is_added_up_where_it_is_asked_for(run: Run, repository: Repository) -> None:
    of = ("--repository", repository.url, "--application-id", "orders")
    first, second, third = repository.snapshots
    _, found = document(run, "repo", "snapshots", *of, "--held")
    held = {one["snapshot"]: one["held_bytes"] for one in found["snapshots"]}
    assert held == {third: 0, second: 26, first: 52}, "the third has a file of the second"
    _, out, _ = run("repo", "snapshots", *of, "--held")
    assert [cells(out, one)[5:8] for one in (first, second, third)] == [
        ["52", "52", "52"],
        ["52", "52", "26"],
        ["52", "26", "0"],
    ]
    assert {one["held_bytes"] for one in document(run, "repo", "snapshots", *of)[1]["snapshots"]} == {None}
    detail = (second, *of)
    assert document(run, "repo", "show", *detail, "--held")[1]["snapshot"]["held_bytes"] == 26
    assert document(run, "repo", "show", *detail)[1]["snapshot"]["held_bytes"] is None
    assert "held by no newer snapshot" in run("repo", "show", *detail, "--held")[1]
    assert "held by no newer snapshot" not in run("repo", "show", *detail)[1]
    repository.damage_task_manifest(second, "0_0")
    code, out, _ = run("repo", "snapshots", *of, "--held")
    assert (code, cells(out, first)[7]) == (12, "unknown"), "the files of a damaged task manifest are unknown"


def test_listing_all_applications_reads_no_task_manifest(
    run: Run, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    real, root = os.open, Path(repository.url.removeprefix("file://"))

    def noting(path: Any, *arguments: Any, **options: Any) -> Any:
        if (file := Path(path)).is_relative_to(root):
            read.append(file.name if file.parent == root else file.parent.name)
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", noting)
    for command in (["info"], ["repo", "snapshots"]):
        read.clear()
        assert run(*command, "--repository", repository.url)[0] == 0
        assert sorted(read) == ["manifests", "manifests", "orders", "payments", "repository.json"]


def test_a_store_restored_by_kafka_streams_is_marked(run: Run, repository: Repository) -> None:
    of_another_topic = (StoredEnd(TOPIC, 1, "b" * 32, -4, 0, 0, 45, 3),)
    repository.orders.publish(
        40,
        [1],
        drops_other_tasks=False,
        restored_by_kafka_streams=True,
        databases=(),
        rows=None,
        changelogs=of_another_topic,
    )
    _, out, _ = run("repo", "show", "newest", "--repository", repository.url, "--application-id", "orders")
    assert cells(out, "0_1")[3:] == ["0", "0", "0", "none: to be restored", "45", "unknown", "0"]


def test_a_damaged_manifest_hides_no_other_snapshot(run: Run, repository: Repository) -> None:
    damaged = repository.snapshots[1]
    flip(repository.manifest(damaged), 50)
    of = ("--repository", repository.url, "--application-id", "orders")
    code, out, _ = run("repo", "snapshots", *of)
    assert code == 12
    assert [line.split()[0] for line in out.splitlines() if line.strip().startswith("2023")] == [
        repository.snapshots[2],
        repository.snapshots[0],
    ]
    assert f"! {damaged}" in out
    assert f"damaged: {damaged}: " in out
    code, out, _ = run("repo", "show", damaged, *of)
    assert (code, "damaged: " in out, "2 tasks" in out) == (12, True, True)
    _, found = document(run, "repo", "snapshots", *of)
    assert [[error["code"] for error in one["damage"]] for one in found["snapshots"]] == [[], ["manifest-damaged"], []]
    repository.manifest(damaged).unlink()
    code, found = document(run, "repo", "snapshots", *of)
    assert (code, found["exit_code"]) == (12, 12)
    assert [[error["task"] for error in one["damage"]] for one in found["snapshots"]] == [[], [""], []]
    assert found["snapshots"][1]["damage"][0]["code"] == "blob-missing"
    assert run("repo", "show", "newest", *of)[0] == 0, "of what was not looked at nothing is said"


def test_a_manifest_that_needs_a_newer_release_is_a_problem_and_no_damage(run: Run, repository: Repository) -> None:
    snapshot, head = repository.snapshots[1], repository.root / repository.orders.app_repository.names.head
    rewrite_sealed(repository.manifest(snapshot), MANIFEST, needs={"read": ["leases"], "write": []})
    entries = parse_json(head.read_bytes())["snapshots"]
    entries[1]["sha256"] = sha256(repository.manifest(snapshot).read_bytes()).hexdigest()
    rewrite_sealed(head, HEAD, snapshots=entries)
    of = ("--repository", repository.url, "--application-id", "orders")
    code, out, _ = run("repo", "snapshots", *of)
    assert (code, f"problem: {snapshot}: " in out, "damaged: " in out) == (13, True, False)
    code, out, _ = run("repo", "show", snapshot, *of)
    assert (code, "problem: " in out, "damaged: " in out) == (13, True, False)


def test_a_damaged_task_manifest_is_reported_for_every_snapshot_with_it(run: Run, repository: Repository) -> None:
    first, second, third = repository.snapshots
    repository.damage_task_manifest(second, "0_0")
    of = ("--repository", repository.url, "--application-id", "orders")
    code, found = document(run, "repo", "snapshots", *of)
    assert code == 12
    damage = {one["snapshot"]: [error["task"] for error in one["damage"]] for one in found["snapshots"]}
    assert damage == {third: ["0_0"], second: ["0_0"], first: []}, "the third has the task manifest of the second"
    code, out, _ = run("repo", "show", "newest", *of)
    assert (code, cells(out, "0_1")[6]) == (12, "29")
    assert "damaged: task 0_0: " in out


def test_a_damaged_head_hides_no_other_application(run: Run, repository: Repository) -> None:
    head = repository.root / repository.orders.app_repository.names.head
    flip(head, 40)
    code, out, _ = run("repo", "snapshots", "--repository", repository.url)
    assert (code, cells(out, "payments")[4]) == (12, "1")
    error = document(run, "repo", "snapshots", "--repository", repository.url)[1]["applications"][0]["error"]
    assert error["code"] == "head-damaged"
    head.unlink()
    code, out, _ = run("repo", "snapshots", "--repository", repository.url)
    assert (code, cells(out, "orders")) == (12, ["orders", "head not usable"])
    error = document(run, "repo", "snapshots", "--repository", repository.url)[1]["applications"][0]["error"]
    assert error["code"] == "head-missing"
    assert "statecore repo repair-head --repository" in " ".join(out.split())
    good = repository.root / repository.payments.app_repository.names.head
    head.write_bytes(encode_json(HEAD.sealed({**parse_json(good.read_bytes()), "version": 9})))
    code, found = document(run, "repo", "snapshots", "--repository", repository.url)
    assert (code, found["applications"][0]["error"]["code"]) == (13, "format-unsupported")


def test_what_does_not_fit_side_by_side_is_shown_one_below_the_other(
    run: Run, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    of = ("--application-id", "orders")
    for words in (["snapshots"], ["snapshots", *of], ["show", "newest", *of]):
        _, out, _ = run("repo", *words, "--repository", repository.url)
        assert repository.snapshots[-1] in out
        assert "tasks 2, bytes 52" in out or "log end 25, rows 20" in out
        assert max(len(line.rstrip()) for line in out.splitlines()) <= 80


def test_a_long_request_id_is_shortened_where_the_table_would_not_fit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from statecore.cli.output import result_console
    from statecore.cli.repository_tables import _table

    monkeypatch.setenv("COLUMNS", "60")
    header, row = ("snapshot", "request"), ("20261123T010203Z-5f3a9c21", f"restore_stores/manual__{'1' * 60}/restore/0")
    _table(result_console(), header, [row], numbers=(), ids="request")
    *_, line = capsys.readouterr().out.rstrip().splitlines()
    assert (line.split()[0], len(line.rstrip()) <= 60) == (row[0], True)
    assert line.rstrip().endswith("…")


def test_none_there_says_what_there_is_instead(run: Run, repository: Repository, tmp_path: Path) -> None:
    code, _, err = run("repo", "snapshots", "--repository", repository.url, "--application-id", "order")
    assert (code, code_said(err), " orders, payments" in err) == (14, "snapshots-not-found", True)
    of = ("--repository", repository.url, "--application-id", "orders")
    code, _, err = run("repo", "show", "20010101T000000Z-00000000", *of)
    assert (code, code_said(err), ", ".join(repository.snapshots[::-1]) in err) == (14, "snapshot-not-found", True)
    code, _, err = run("repo", "snapshots", "--repository", (tmp_path / "nothing").as_uri())
    assert (code, code_said(err)) == (14, "repository-not-found")
    empty = (tmp_path / "empty").as_uri()
    assert run("repo", "init", "--repository", empty)[0] == 0
    code, _, err = run("repo", "snapshots", "--repository", empty)
    assert (code, code_said(err), " orders " in err) == (14, "snapshots-not-found", False)
    Publishing(empty, tmp_path / "scratch").task_manifest(0, 1)
    code, _, err = run("repo", "snapshots", "--repository", empty)
    assert (code, code_said(err), " orders " in err) == (14, "snapshots-not-found", True)


def test_an_unreachable_repository_differs_from_a_missing_one(
    run: Run, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def fail(path: Any, *arguments: Any, **options: Any) -> Any:
        if Path(path).parent.name == "manifests":
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", fail)
    code, out, err = run("repo", "snapshots", "--repository", repository.url, "--application-id", "orders")
    assert (code, out, code_said(err)) == (10, "", "disk-failed")


def test_info_shows_a_repository_alone_and_beside_a_state_directory(
    run: Run, repository: Repository, tmp_path: Path
) -> None:
    code, out, _ = run("info", "--repository", repository.url)
    assert code == 0
    assert f"repository {repository.url}" in out
    assert cells(out, "orders")[1] == repository.snapshots[-1]
    assert cells(out, "payments")[4] == "1"
    code, out, _ = run("info", "--repository", repository.url, "--application-id", "orders")
    assert (code, "payments" in out) == (0, False)
    (tmp_path / "state" / "orders" / "0_0" / "rocksdb").mkdir(parents=True)
    beside = ("info", "--repository", repository.url, "--state-dir", tmp_path / "state")
    code, out, _ = run(*beside)
    assert code == 0
    assert f"in {tmp_path / 'state'}" in out
    assert out.index(f"in {tmp_path / 'state'}") < out.index("repository ") < out.index("payments")
    _, found = document(run, *beside, "--application-id", "orders")
    assert [one["application_id"] for one in found["repository"]["applications"]] == ["orders"]
    assert found["repository"]["applications"][0]["generation"] == 3
    assert len(found["applications"]) == 1


def test_info_says_that_a_repository_has_none(run: Run, repository: Repository, tmp_path: Path) -> None:
    of = ("info", "--repository", repository.url, "--application-id", "clicks")
    code, _, err = run(*of)
    assert (code, code_said(err), " orders, payments" in err) == (14, "snapshots-not-found", True)
    (tmp_path / "state" / "clicks" / "0_0" / "rocksdb").mkdir(parents=True)
    code, out, _ = run(*of, "--state-dir", tmp_path / "state")
    assert (code, cells(out.partition("repository ")[2], "clicks")) == (0, ["clicks", "none"])
    assert run("info", "--repository", (tmp_path / "absent").as_uri())[0] == 14


def test_on_a_real_server(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with s3_server.serving() as server:
        location = server.bucket("states").below("production")
        publishing = Publishing(location.url, tmp_path)
        snapshots = [publishing.publish(end).snapshot for end in (10, 20, 30)]
        publishing.app_repository.blobs.delete(publishing.app_repository.names.manifest(snapshots[1]))
        assert cells(run("repo", "snapshots", "--repository", location.url)[1], "orders")[4] == "3"
        code, found = document(run, "repo", "snapshots", "--repository", location.url, "--application-id", "orders")
        assert (code, [bool(one["damage"]) for one in found["snapshots"]]) == (12, [False, True, False])
        of = ("--repository", location.url, "--application-id", "orders")
        assert cells(run("repo", "show", snapshots[0], *of)[1], "0_1")[6] == "9"
        code, out, _ = run("repo", "repair-head", *of)
        assert (code, "--apply" in out) == (0, True)
        assert run("repo", "repair-head", *of, "--apply")[0] == 0
        code, found = document(run, "repo", "snapshots", *of)
        assert (code, found["epoch"], len(found["snapshots"])) == (0, 1, 2)
        assert run("repo", "pin", snapshots[0], *of, "--note", "why")[:2] == (0, f"{snapshots[0]} is pinned\n")
        publishing.publish(40)
        _, found = document(run, "repo", "snapshots", *of, "--held")
        assert [(one["pinned"], one["held_bytes"]) for one in found["snapshots"]] == [
            (False, 0),
            (False, 52),
            (True, 52),
        ]
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
        code, _, err = run("repo", "snapshots", *of)
        assert (code, code_said(err)) == (13, "object-store-access-denied")
