"""A user of a real S3 server who may only read fetches like any other, and is told at once where that is not enough."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from statecore.cli.main import main
from statecore.spec.writer import spec_to_mapping
from tests.harness import s3_server
from tests.harness.raising import code_said
from tests.harness.s3_server import ACCESS, SECRET
from tests.unit.jobs.published import Shop

Run = Callable[..., tuple[int, str, str]]


@dataclass
class RemoteShop(Shop):
    """A shop whose repository is elsewhere."""

    repository: str = ""

    @property
    def url(self) -> str:
        return self.repository


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteShop]:
    """A snapshot on a server that is read-only from now on."""
    root = tmp_path_factory.mktemp("shop")
    with s3_server.serving(has_users=True) as server, pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ACCESS_KEY_ID", ACCESS)
        environment.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        shop = RemoteShop(root, repository=server.bucket("states").below("production").url, whole=False)
        shop.publish([100, 200])
        access, secret = server.reader("states")
        environment.setenv("AWS_ACCESS_KEY_ID", access)
        environment.setenv("AWS_SECRET_ACCESS_KEY", secret)
        yield shop


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(list(arguments))
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.mark.full
def test_a_read_only_user_can_list_and_fetch(run: Run, shop: RemoteShop, tmp_path: Path) -> None:
    of = ("--repository", shop.url, "--application-id", "orders")
    assert run("repo", "snapshots", *of)[0] == 0
    assert run("info", *of)[0] == 0
    code, out, err = run("fetch", *of, "--state-dir", str(tmp_path))
    assert (code, "fetched 5 stores of 3 tasks" in out) == (0, True), err
    assert {path.name for path in (tmp_path / "orders").iterdir()} >= {"0_0", "0_1", "global"}


@pytest.mark.full
def test_a_read_only_user_is_refused_before_a_publication_reads_anything(
    run: Run, shop: RemoteShop, tmp_path: Path
) -> None:
    of = ("--repository", shop.url, "--application-id", "orders")
    assert run("fetch", *of, "--state-dir", str(tmp_path))[0] == 0
    spec = tmp_path / "spec.yaml"
    spec.write_text(json.dumps(spec_to_mapping(shop.declared)))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    there = ("--repository", shop.url, "--spec", str(spec), "--state-dir", str(tmp_path))
    code, out, err = run("backup", *there, "--offline")
    assert (code, out) == (13, "")
    assert "link:" not in err
    assert code_said(err) == "object-store-access-denied"
    assert "AccessDenied" in err
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()} == before


def test_init_says_what_is_missing(run: Run, shop: RemoteShop) -> None:
    assert run("repo", "init", "--repository", shop.url)[0] == 0, "there is a repository already"
    code, out, err = run("repo", "init", "--repository", shop.url.replace("production", "elsewhere"))
    assert (code, out) == (13, "")
    assert code_said(err) == "object-store-access-denied"
    assert "AccessDenied" in err
