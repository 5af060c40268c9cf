"""``statecore repo rotate-key``, and the life of an encrypted repository, in a directory and on a real S3 server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from statecore.cli.main import main
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.object_store import object_store_of, with_key
from tests.harness import kms_server, s3_server
from tests.harness.raising import code_said
from tests.harness.s3_server import ACCESS, SECRET, S3Server
from tests.unit.jobs.published import Shop
from tests.unit.repository.encrypted import key_file
from tests.unit.repository.published import Publishing
from tests.unit.repository.snapshots import fetched


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server.serving() as server:
        yield server


@pytest.fixture(params=["directory", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "directory":
        return (tmp_path / "repository").as_uri()
    server: S3Server = request.getfixturevalue("server")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    return server.bucket("states").below(tmp_path.name).url


def test_a_repository_is_made_published_to_verified_fetched_from_and_rotated(
    place: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    old, new = (f"file:{key_file(tmp_path / name)}" for name in ("old", "new"))
    url = with_key(place, old)
    assert main(["repo", "init", "--repository", url]) == 0
    assert capfd.readouterr().out.startswith("created the encrypted repository ")

    class Encrypted(Shop):
        url = with_key(place, old)  # type: ignore[assignment]

    shop = Encrypted(tmp_path)
    shop.publish([150, 200])
    assert main(["repo", "verify", "--repository", url, "--level", "bytes"]) == 0
    stored = object_store_of(place).blobs
    for blob in stored.list("apps/"):
        content = stored.get(blob.name)
        for secret in (b"plain-0-", b"clicks-1-", b"value 1", b"names", b"changelog", b"0_1", b"RocksDB", b"rocksdb"):
            assert secret not in content or len(secret) < 5, blob.name
    where = ("--application-id", "orders", "--state-dir", str(tmp_path / "state"))
    for wrong, code in ((place, "encryption-key-missing"), (with_key(place, new), "encryption-key-wrong")):
        capfd.readouterr()
        assert main(["fetch", "--repository", wrong, *where]) == 13
        assert code_said(capfd.readouterr().err) == code
    assert not (tmp_path / "state").exists()
    assert main(["fetch", "--repository", url, *where]) == 0

    words = ["repo", "rotate-key", "--repository", url, "--new-key", new, "--json"]
    for more, applied in ([], False), (["--apply"], True):
        capfd.readouterr()
        assert main([*words, *more]) == 0
        found = json.loads(capfd.readouterr().out)
        assert (found["applied"], found["key"], found["new_key"]) == (applied, old, new)
    assert found["repository"] == with_key(place, new)
    assert main(["fetch", "--repository", url, *where]) == 13
    assert main(["fetch", "--repository", found["repository"], *where, "--replace"]) == 0
    assert [blob.name for blob in stored.list("apps/") if blob.name.endswith("HEAD")] == ["apps/orders/HEAD"]


def test_a_key_of_kms_opens_it_and_is_rotated_to_a_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    url = (tmp_path / "repository").as_uri() + "?encryption-key=kms:alias/states"
    with kms_server.serving("alias/states") as kms:
        monkeypatch.setenv("AWS_ENDPOINT_URL_KMS", kms.endpoint)
        orders = Publishing(url, tmp_path)
        orders.publish(10)
        kms.asked.clear()
        assert fetched(ApplicationRepository.open(url, "orders"))
        assert kms.asked == ["Decrypt"], "once for each process that opens it"
        new = f"file:{key_file(tmp_path / 'new')}"
        assert main(["repo", "rotate-key", "--repository", url, "--new-key", new, "--apply"]) == 0
        kms.asked.clear()
        assert main(["repo", "snapshots", "--repository", url]) == 13
        assert code_said(capfd.readouterr().err) == "encryption-key-wrong"
        assert kms.asked == []
    assert fetched(ApplicationRepository.open(with_key(url, new), "orders"))
