"""``statecore repo forget`` and ``repo prune`` over a directory and a real S3 server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from statecore.cli.main import main
from statecore.repository.maintenance.collection import Amount, CollectionReport
from tests.harness import s3_server
from tests.harness.s3_server import ACCESS, SECRET
from tests.unit.repository.published import Publishing


def run(capfd: pytest.CaptureFixture[str], *words: str) -> Any:
    """The document of a command that succeeds."""
    assert main([*words, "--json"]) == 0
    return json.loads(capfd.readouterr().out)


def prune(capfd: pytest.CaptureFixture[str], url: str, *words: str) -> dict[str, Any]:
    found = run(capfd, "repo", "prune", "--repository", url, "--min-age", "0s", *words)
    return {one["application_id"]: one for one in found["applications"]}


def check(capfd: pytest.CaptureFixture[str], url: str, directory: Path) -> None:
    """Forget all snapshots but one of an application, and collect until nothing is left to delete."""
    orders, payments = Publishing(url, directory), Publishing(url, directory, "payments")
    for end in (10, 20, 30):
        orders.publish(end)
        payments.publish(end)
    of_orders = ("--repository", url, "--application-id", "orders")
    planned = run(capfd, "repo", "forget", *of_orders, "--keep-last", "1")
    assert [one["kept_for"] for one in planned["snapshots"]] == [["last"], [], []]
    assert len(orders.app_repository.head().snapshots) == 3
    done = run(capfd, "repo", "forget", *of_orders, "--keep-last", "1", "--apply")
    assert (done["applied"], len(orders.app_repository.head().snapshots)) == (True, 1)
    blobs = orders.app_repository.blobs
    before = {blob.name for blob in blobs.list("apps/")}
    assert prune(capfd, url, "--apply")["orders"]["listed"]["blobs"] == 2, "manifests; their blobs may be young"
    assert {blob.name for blob in blobs.list("apps/")} >= before
    assert prune(capfd, url, "--apply")["orders"]["listed"]["blobs"] > 2
    planned = prune(capfd, url)
    deleted = prune(capfd, url, "--apply")
    assert planned["orders"]["deleted"] == deleted["orders"]["deleted"]
    assert deleted["orders"]["deleted"]["blobs"] > 0
    assert deleted["payments"]["deleted"]["blobs"] == 0
    left = {blob.name for blob in blobs.list("apps/orders/")}
    assert len(left) == deleted["orders"]["needed"]["blobs"]
    assert main(["repo", "snapshots", *of_orders]) == 0
    assert orders.publish(40).snapshot == orders.app_repository.head().snapshots[0].snapshot


@pytest.mark.parametrize(
    ("words", "freed"), [((), None), (("--price", "1000"), True), (("--price", "0"), 0.0)], ids=["none", "high", "zero"]
)
def test_what_is_freed_is_told_in_money_where_there_is_a_price(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], words: tuple[str, ...], *, freed: float | bool | None
) -> None:
    url = (tmp_path / "repository").as_uri()
    Publishing(url, tmp_path).publish(10)
    report = CollectionReport(url, "orders", 1, applied=False, deleted=Amount(3, 2 << 30))
    with patch("statecore.repository.maintenance.collection.Collector.plan", return_value=report):
        found = prune(capfd, url, *words)["orders"]
        assert main(["repo", "prune", "--repository", url, *words]) == 0
    assert found["freed_usd_a_month"] == (2000.0 if freed is True else freed)
    text = capfd.readouterr().out
    assert ("2,000.00 USD a month" in text, "USD" in text) == (freed is True, freed is not None)


@pytest.mark.parametrize("price", ["-1", "nan", "inf", "much"])
def test_a_price_is_a_number(price: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["repo", "prune", "--repository", "file:///nowhere", f"--price={price}"])
    assert "is not a price" in capfd.readouterr().err


def test_a_directory_keeps_what_counts(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    check(capfd, (tmp_path / "repository").as_uri(), tmp_path)


def test_a_bucket_keeps_what_counts(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with s3_server.serving() as server:
        check(capfd, server.bucket("states").below("production").url, tmp_path)


def test_a_bucket_that_keeps_versions_frees_nothing_and_that_is_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As every bucket with Object Lock in AWS, whose default retention refuses neither a delete nor a swap."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with s3_server.serving(has_versions=True) as server:
        client = server.client()
        client.create_bucket(Bucket="states", ObjectLockEnabledForBucket=True)
        lock(client, "states")
        url = server.bucket("states").url
        check(capfd, url, tmp_path)
        capfd.readouterr()
        found = prune(capfd, url, "--price", "1")["orders"]
        assert (found["keeps_versions"], found["freed_usd_a_month"]) == (True, None)
        assert main(["repo", "prune", "--repository", url]) == 0
        assert "keeps versions" in capfd.readouterr().out
        found = client.list_object_versions(Bucket="states", Prefix="apps/orders/files/")
        assert len(found["DeleteMarkers"]) > 0, "what was deleted"
        assert {one["Key"] for one in found["DeleteMarkers"]} <= {one["Key"] for one in found["Versions"]}


def test_what_object_lock_protects_is_deleted_when_the_lock_has_expired(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a server that has it without versioning."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with s3_server.serving() as server:
        client = server.client()
        client.create_bucket(Bucket="states", ObjectLockEnabledForBucket=True)
        url = server.bucket("states").url
        orders = Publishing(url, tmp_path)
        for end in (10, 20):
            orders.publish(end)
        run(capfd, "repo", "forget", *("--repository", url, "--application-id", "orders", "--keep-last=1", "--apply"))
        for _ in range(2):
            prune(capfd, url, "--apply")
        held = [one["Key"] for one in client.list_objects_v2(Bucket="states", Prefix="apps/orders/files/")["Contents"]]
        for key in held:
            client.put_object_legal_hold(Bucket="states", Key=key, LegalHold={"Status": "ON"})
        assert main(["repo", "prune", "--repository", url, "--min-age", "0s", "--apply", "--json"]) == 13
        (error,) = json.loads(capfd.readouterr().out)["failed"].values()
        assert (error["code"], error["context"]["blob"] in held) == ("object-store-locked", True)
        assert main(["repo", "verify", "--repository", url, "--level", "bytes"]) == 0
        capfd.readouterr()
        for key in held:
            client.put_object_legal_hold(Bucket="states", Key=key, LegalHold={"Status": "OFF"})
        assert prune(capfd, url, "--apply")["orders"]["deleted"]["blobs"] > 0
        client.create_bucket(Bucket="locked", ObjectLockEnabledForBucket=True)
        lock(client, "locked")
        assert main(["repo", "init", "--repository", server.bucket("locked").url, "--json"]) == 13
        assert json.loads(capfd.readouterr().out)["code"] == "object-store-locked"


def lock(client: Any, bucket: str) -> None:
    """No object of a bucket may be deleted or replaced for a day."""
    kept = {"DefaultRetention": {"Mode": "COMPLIANCE", "Days": 1}}
    client.put_object_lock_configuration(
        Bucket=bucket, ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": kept}
    )


def test_an_application_without_a_snapshot_yet_is_no_failure(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Its first job is running, or was killed."""
    url = (tmp_path / "repository").as_uri()
    orders, payments = Publishing(url, tmp_path), Publishing(url, tmp_path, "payments")
    orders.publish(10)
    payments.app_repository.check_writable()
    payments.app_repository.blobs.put_if_absent(payments.app_repository.names.pack("ab" * 32), b"uploaded")
    assert prune(capfd, url, "--apply").keys() == {"orders"}


def test_one_application_that_fails_keeps_no_other_from_being_collected(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    url = (tmp_path / "repository").as_uri()
    orders = Publishing(url, tmp_path)
    orders.publish(10)
    Publishing(url, tmp_path, "payments").publish(10)
    (tmp_path / "repository" / orders.app_repository.names.head).write_text("{")
    assert main(["repo", "prune", "--repository", url, "--apply", "--json"]) == 12
    found = json.loads(capfd.readouterr().out)
    assert [one["application_id"] for one in found["applications"]] == ["payments"]
    assert found["failed"]["orders"]["code"] == "head-damaged"


def test_a_retention_of_nothing_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    url = (tmp_path / "repository").as_uri()
    Publishing(url, tmp_path).publish(10)
    of_orders = ("--repository", url, "--application-id", "orders")
    assert main(["repo", "forget", *of_orders, "--keep-last", "0", "--apply", "--json"]) == 13
    assert json.loads(capfd.readouterr().out)["code"] == "retention-empty"


def test_a_snapshot_is_forgotten_by_name(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    url = (tmp_path / "repository").as_uri()
    orders = Publishing(url, tmp_path)
    for end in (10, 20, 30):
        orders.publish(end)
    newest, second, oldest = (one.snapshot for one in orders.app_repository.head().snapshots)
    of_orders = ("--repository", url, "--application-id", "orders")
    done = run(capfd, "repo", "forget", *of_orders, "--snapshot", second, "--apply")
    assert [one["snapshot"]["snapshot"] for one in done["snapshots"] if not one["kept_for"]] == [second]
    assert [one.snapshot for one in orders.app_repository.head().snapshots] == [newest, oldest]
    for words, code, exit_code in (
        (("--snapshot", newest), "snapshot-kept", 13),
        (("--snapshot", oldest, "--keep-last", "1"), "options-conflict", 2),
    ):
        assert main(["repo", "forget", *of_orders, *words, "--apply", "--json"]) == exit_code
        assert json.loads(capfd.readouterr().out)["code"] == code
