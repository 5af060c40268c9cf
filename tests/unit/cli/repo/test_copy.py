"""``statecore repo copy`` and ``promote-replica`` over directories and a real S3 server, and what is fetched then."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from statecore.cli.main import main
from statecore.faults import COPY_POINTS, VARIABLE
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.repository import open_repository
from statecore.spec.writer import spec_to_yaml
from tests.harness import s3_server
from tests.harness.case_selection import three_of
from tests.harness.raising import code_said
from tests.harness.s3_server import ACCESS, SECRET
from tests.unit.jobs.published import Shop
from tests.unit.repository.published import Publishing, flip
from tests.unit.repository.snapshots import fetched


def copy(capfd: pytest.CaptureFixture[str], source: str, target: str, *words: str, code: int = 0) -> dict[str, Any]:
    """The outcome of each application."""
    assert main(["repo", "copy", "--repository", source, "--to", target, *words, "--json"]) == code
    found = json.loads(capfd.readouterr().out)
    return {one["application_id"]: one for one in found["applications"]}


def names(url: str) -> dict[str, bytes]:
    blobs = open_repository(url).object_store.blobs
    return {blob.name: blobs.get(blob.name) for blob in blobs.list("apps/")}


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with s3_server.serving() as server:
        yield server.bucket("states").below("replica").url


def publish(url: str, directory: Path, *ends: int, name: str = "orders", **more: Any) -> Publishing:
    made = Publishing(url, directory, name)
    for end in ends:
        made.publish(end, **more)
    return made


def test_a_copy_of_a_copy_is_the_same(tmp_path: Path, capfd: pytest.CaptureFixture[str], bucket: str) -> None:
    """A directory, a bucket, and a directory; one blob is put in parts."""
    first, last = (tmp_path / "first").as_uri(), (tmp_path / "last").as_uri()
    publish(first, tmp_path, 10, 20)
    publish(first, tmp_path, 10, name="payments", content=os.urandom(20 << 20), partitions=(0,))
    for source, target in ((first, bucket), (bucket, last)):
        done = copy(capfd, source, target)
        assert {one["outcome"] for one in done.values()} == {"copied"}
        assert copy(capfd, source, target)["orders"]["copied"]["blobs"] == 0
    assert names(first) == names(bucket) == names(last)
    for name in ("orders", "payments"):
        assert fetched(ApplicationRepository.open(last, name))


def test_a_reader_of_the_source_and_a_writer_of_the_replica_that_may_not_delete_suffice(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has a profile of its own, as two providers have."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with s3_server.serving(has_users=True) as server:
        places = {name: server.bucket(name) for name in ("source", "target")}
        publish(places["source"].url, tmp_path, 10)
        copy(capfd, places["source"].url, places["target"].url)  # makes the replica, which tests the server
        publish(places["source"].url, tmp_path, 10, 20)
        users = {
            "source": server.user("source", "reader", "s3:GetObject"),
            "target": server.user("target", "writer", "s3:GetObject", "s3:PutObject"),
        }
        (tmp_path / "credentials").write_text(
            "".join(
                f"[{name}]\naws_access_key_id = {access}\naws_secret_access_key = {secret}\n"
                for name, (access, secret) in users.items()
            )
        )
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
        source, target = (replace(place, profile=name).url for name, place in places.items())
        for outcome in ("copied", "current"):
            assert copy(capfd, source, target)["orders"]["outcome"] == outcome
        assert main(["repo", "copy", "--repository", target, "--to", source]) == 13
        assert names(places["source"].url) == names(places["target"].url)


def test_nothing_of_a_copy_in_a_directory_is_a_link_of_the_source(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source, target = (tmp_path / "first").as_uri(), (tmp_path / "last").as_uri()
    publish(source, tmp_path, 10, content=os.urandom(9 << 20), partitions=(0,))
    copy(capfd, source, target)
    for path in (tmp_path / "first").rglob("*"):
        there = tmp_path / "last" / path.relative_to(tmp_path / "first")
        assert path.is_dir() or not there.exists() or not there.samefile(path)


def test_one_application_is_copied(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source, target = (tmp_path / "first").as_uri(), (tmp_path / "last").as_uri()
    for name in ("orders", "payments"):
        publish(source, tmp_path, 10, name=name)
    assert list(copy(capfd, source, target, "--application-id", "orders")) == ["orders"]
    assert open_repository(target).object_store.blobs.directories("apps")
    assert ApplicationRepository(open_repository(target), "payments").read_head() is None


def test_a_damaged_application_is_left_out_and_the_others_are_copied(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source, target = (tmp_path / "first").as_uri(), (tmp_path / "last").as_uri()
    for name in ("orders", "payments"):
        publish(source, tmp_path, 10, name=name)
    copy(capfd, source, target)
    for name in ("orders", "payments"):
        publish(source, tmp_path, 10, 20, name=name)
    new = min(name for name in names(source).keys() - names(target).keys() if name.startswith("apps/orders/files/"))
    flip(tmp_path / "first" / new, 3)
    done = copy(capfd, source, target, code=12)
    assert (done["orders"]["outcome"], done["payments"]["outcome"]) == ("failed", "copied")
    assert done["orders"]["error"]["code"] == "blob-damaged"
    assert len(fetched(ApplicationRepository.open(target, "orders"))) == 1


def test_an_application_whose_files_are_gone_from_the_source_fails_and_stays_in_the_replica(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source, target = (tmp_path / "first").as_uri(), (tmp_path / "last").as_uri()
    for name in ("orders", "payments"):
        publish(source, tmp_path, 10, name=name)
    copy(capfd, source, target)
    shutil.rmtree(tmp_path / "first/apps/orders")
    done = copy(capfd, source, target, code=12)
    assert (done["orders"]["error"]["code"], done["payments"]["outcome"]) == ("head-missing", "current")
    assert fetched(ApplicationRepository.open(target, "orders"))


def test_what_is_damaged_in_a_replica_is_deleted_there_and_copied_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source, target = ((tmp_path / name).as_uri() for name in ("first", "second"))
    publish(source, tmp_path, 10, 20)
    copy(capfd, source, target)
    flip(next(one for one in (tmp_path / "second/apps/orders/files").rglob("*") if one.is_file()), 3)
    verify = ["repo", "verify", "--repository", target, "--level", "bytes", "--json"]
    assert main(verify) == 12
    (damage,) = json.loads(capfd.readouterr().out)["applications"][0]["damaged"]
    again = shlex.split(damage["action"].rpartition(": ")[2])
    assert again == ["statecore", "repo", "copy", "--repository", source, "--to", target]
    (tmp_path / "second" / damage["blob"]).unlink()
    assert main(again[1:]) == 0
    assert main(verify) == 0


def test_a_copy_from_another_source_is_recorded_in_the_replica_unless_it_has_diverged(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The primary is lost, one replica promoted, and the other one follows that."""
    primary, second, third = ((tmp_path / name).as_uri() for name in ("first", "second", "third"))
    publish(primary, tmp_path, 10)
    for target in (second, third):
        copy(capfd, primary, target)
    assert main(["repo", "promote-replica", "--repository", second, "--apply"]) == 0
    publish(second, tmp_path, 10, 20)
    capfd.readouterr()
    assert main(["repo", "copy", "--repository", second, "--to", third, "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["copy_of_before"] == primary
    assert open_repository(third).descriptor.copy_of == second
    assert main(["repo", "copy", "--repository", second, "--to", third, "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["copy_of_before"] is None
    publish(primary, tmp_path, 10, 30)
    assert copy(capfd, primary, third, code=12)["orders"]["error"]["code"] == "replica-diverged"
    assert open_repository(third).descriptor.copy_of == second


def test_bad_input_is_refused_and_makes_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source, target = (tmp_path / "first").as_uri(), (tmp_path / "last").as_uri()

    def refused(*words: str) -> tuple[int, str]:
        code = main(["repo", "copy", *words])
        return code, code_said(capfd.readouterr().err)

    assert refused("--repository", source, "--to", target) == (14, "repository-not-found")
    publish(source, tmp_path, 10)
    both = ("--repository", source, "--to", target)
    assert refused(*both, "--application-id", "order") == (14, "snapshots-not-found")
    assert refused(*both, "--application-id", "../x") == (13, "application-id-invalid")
    assert refused("--repository", source, "--to", "ftp://x") == (13, "repository-url-invalid")
    assert refused("--repository", source, "--to", source) == (13, "copy-target-invalid")
    assert not (tmp_path / "last").exists()


@pytest.mark.parametrize("point", three_of(COPY_POINTS[:-1]))
def test_after_a_kill_the_replica_is_whole_and_the_next_copy_ends_well(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], point: str
) -> None:
    source, target = (tmp_path / "first").as_uri(), (tmp_path / "last").as_uri()
    publish(source, tmp_path, 10)
    for is_first in (True, False):
        done = subprocess.run(
            [sys.executable, "-m", "statecore.cli.main", "repo", "copy", "--repository", source, "--to", target],
            env={**os.environ, VARIABLE: f"{point}:kill"},
            capture_output=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == -signal.SIGKILL, done.stderr
        replica = ApplicationRepository.open(target, "orders")
        if not is_first or point == "copy.after-head":
            assert fetched(replica)
        else:
            assert replica.read_head() is None
        copy(capfd, source, target)
        assert names(source) == names(target)
        publish(source, tmp_path, 10, 20)


def test_a_fetch_from_a_replica_and_a_job_after_its_promotion(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shop = Shop(tmp_path)
    shop.publish([150, 200])
    target = (tmp_path / "replica").as_uri()
    copy(capfd, shop.url, target)
    words = ("--repository", shop.url, "--application-id", "orders", "--state-dir", str(tmp_path / "state"))
    shutil.rmtree(open_repository(shop.url).object_store.blobs._root)  # type: ignore[attr-defined]
    assert main(["fetch", *words]) == 14
    assert main(["fetch", *words, "--replica", target]) == 0
    capfd.readouterr()
    assert any((tmp_path / "state" / "orders").iterdir())
    promotion = ["repo", "promote-replica", "--repository", target]
    assert [main(promotion), main([*promotion, "--apply"]), main(promotion)] == [0, 0, 0]


@pytest.mark.parametrize("command", ["backup", "checkpoint", "restore", "repo compact"])
def test_no_job_publishes_to_a_replica(tmp_path: Path, capfd: pytest.CaptureFixture[str], command: str) -> None:
    shop = Shop(tmp_path)
    shop.publish([150, 200])
    target = (tmp_path / "replica").as_uri()
    copy(capfd, shop.url, target)
    where = ("--application-id", "orders", "--state-dir", str(tmp_path / "state"))
    assert main(["fetch", "--repository", target, *where]) == 0
    (tmp_path / "stores.yaml").write_text(spec_to_yaml(shop.declared))
    before = {path: path.read_bytes() for path in (tmp_path / "replica").rglob("*") if path.is_file()}
    more = {"backup": ["--offline", *where[2:]], "restore": ["--engine", "processes"]}.get(command, [])
    capfd.readouterr()
    words = [*command.split(), "--spec", str(tmp_path / "stores.yaml"), "--repository", target, *more]
    assert (main(words), code_said(capfd.readouterr().err)) == (13, "repository-is-replica")
    assert before == {path: path.read_bytes() for path in (tmp_path / "replica").rglob("*") if path.is_file()}
