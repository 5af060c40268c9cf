"""``statecore repo verify`` over a directory and a real S3 server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from statecore.cli.main import main
from statecore.repository.maintenance.verification_record import Level, read_record
from tests.harness import s3_server
from tests.harness.s3_server import ACCESS, SECRET
from tests.unit.repository.published import Publishing, flip

Run = Callable[..., tuple[int, Any]]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    def run_command(url: str, *words: str) -> tuple[int, Any]:
        code = main(["repo", "verify", "--repository", url, *words, "--json"])
        return code, json.loads(capfd.readouterr().out)

    return run_command


def test_the_document_has_each_application_and_each_damage(run: Run, tmp_path: Path) -> None:
    url = (tmp_path / "repository").as_uri()
    orders, payments = Publishing(url, tmp_path), Publishing(url, tmp_path, "payments")
    orders.publish(10)
    payments.publish(10)
    newest = orders.publish(20).snapshot
    code, found = run(url)
    assert (code, found["version"], found["exit_code"]) == (0, 1, 0)
    assert [(one["application_id"], one["level"], one["blobs"]) for one in found["applications"]] == [
        ("orders", "files", 4),
        ("payments", "files", 2),
    ]
    flip(next(one for one in (tmp_path / "repository/apps/orders/files").rglob("*") if one.is_file()), 3)
    assert run(url)[0] == 0
    code, found = run(url, "--level", "bytes")
    first, second = found["applications"]
    assert (code, first["exit_code"], second["exit_code"], first["newest"]) == (12, 12, 0, newest)
    (damage,) = first["damaged"]
    assert (damage["code"], damage["level"], damage["error"]) == ("blob-damaged", "bytes", "Corrupted")
    assert damage["blob"].startswith("apps/orders/files/")
    (tmp_path / "repository/repository.json").write_bytes(b"{}")
    code, found = run(url)
    assert (code, found["code"]) == (12, "repository-descriptor-damaged")


def test_the_listing_shows_what_was_verified(run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    url = (tmp_path / "repository").as_uri()
    Publishing(url, tmp_path).publish(10)
    run(url, "--level", "bytes", "--subset", "1/2")
    assert main(["repo", "snapshots", "--repository", url, "--application-id", "orders", "--json"]) == 0
    verified = json.loads(capfd.readouterr().out)["verified"]
    assert [(one["level"], one["part"], one["parts"]) for one in verified] == [
        ("bytes", 1, 2),
        *((level, 1, 1) for level in ("documents", "files")),
    ]


def test_a_bucket_is_verified_also_by_who_may_only_read(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with s3_server.serving(has_users=True) as server:
        url = server.bucket("states").below("production").url
        orders = Publishing(url, tmp_path)
        orders.publish(10)
        orders.publish(20)
        code, found = run(url, "--level", "bytes")
        (one,) = found["applications"]
        assert (code, one["read_blobs"], one["not_recorded"]) == (0, 4, None)
        assert Level.BYTES in read_record(orders.app_repository).known(1 << 60)
        blobs = [blob.name for blob in orders.app_repository.blobs.list("apps/orders/files/")]
        client = server.client()
        client.put_object(Bucket="states", Key=f"production/{blobs[0]}", Body=b"other bytes".ljust(26))
        client.delete_object(Bucket="states", Key=f"production/{blobs[1]}")
        access, secret = server.reader("states")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", access)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
        for level, codes in (("files", ["blob-missing"]), ("bytes", ["blob-damaged", "blob-missing"])):
            code, found = run(url, "--level", level)
            (one,) = found["applications"]
            assert (code, sorted(damage["code"] for damage in one["damaged"])) == (12, codes)
            assert one["not_recorded"]
