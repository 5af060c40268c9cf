"""``statecore repo init``, in a directory and on a real S3 server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from statecore.cli.main import main
from statecore.repository.descriptor import DESCRIPTOR_NAME
from tests.harness import s3_server
from tests.harness.raising import code_said
from tests.harness.s3_server import ACCESS, REGION, SECRET, S3Server
from tests.unit.repository.published import Publishing


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server.serving() as server:
        server.bucket("states")
        yield server


@pytest.fixture(params=["directory", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "directory":
        return (tmp_path / "repository").as_uri()
    server: S3Server = request.getfixturevalue("server")
    for name, value in (
        ("AWS_ACCESS_KEY_ID", ACCESS),
        ("AWS_SECRET_ACCESS_KEY", SECRET),
        ("AWS_REGION", REGION),
        ("AWS_ENDPOINT_URL", server.endpoint),
    ):
        monkeypatch.setenv(name, value)
    return f"s3://states/{tmp_path.name}"


def test_a_repository_is_made_and_found_again(url: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["repo", "init", "--repository", url]) == 0
    said = capfd.readouterr().out
    assert said.startswith("created the repository ")
    assert main(["repo", "init", "--repository", url]) == 0
    assert "is a repository already" in capfd.readouterr().out
    assert main(["repo", "init", "--repository", url, "--json"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert document["is_new"] is False
    assert document["descriptor"]["id"] in said
    assert document["repository"] in said


def test_a_lost_repository_descriptor_is_restored_and_reported(
    url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    publishing = Publishing(url, tmp_path)
    publishing.publish(10)
    identifier = publishing.app_repository.repository.descriptor.id
    publishing.app_repository.blobs.delete(DESCRIPTOR_NAME)
    assert main(["repo", "snapshots", "--repository", url]) == 12
    err = capfd.readouterr().err
    assert code_said(err) == "repository-descriptor-missing"
    assert f"statecore repo init --repository {url}" in err
    assert main(["repo", "init", "--repository", url]) == 0
    said = capfd.readouterr().out
    assert publishing.app_repository.url in said
    assert identifier in said
    assert main(["repo", "snapshots", "--repository", url]) == 0
    capfd.readouterr()
    publishing.app_repository.blobs.replace(DESCRIPTOR_NAME, b"damaged")
    assert main(["repo", "init", "--repository", url, "--json"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert (document["is_new"], document["is_id_restored"], document["descriptor"]["id"]) == (True, True, identifier)


def test_what_cannot_be_one_is_refused_with_what_to_do(
    server: S3Server, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["repo", "init", "--repository", "/srv/repository"]) == 13
    assert code_said(capfd.readouterr().err) == "repository-url-invalid"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    of = f"?endpoint={server.endpoint}&region={REGION}"
    assert main(["repo", "init", "--repository", f"s3://states/p{of}"]) == 13
    err = capfd.readouterr().err
    assert code_said(err) == "object-store-access-denied"
    assert "SignatureDoesNotMatch" in err
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    assert main(["repo", "init", "--repository", f"s3://absent/p{of}", "--json"]) == 13
    assert json.loads(capfd.readouterr().out)["code"] == "bucket-unknown"
