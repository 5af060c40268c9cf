"""Places in S3: what a URL says, what is refused, and what requests say of encryption."""

from __future__ import annotations

import base64
import logging
import pickle
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from statecore.errors import Invalid, Retryable
from statecore.objectstore.s3 import S3Blobs
from statecore.objectstore.s3_location import (
    CUSTOMER_KEY,
    Encryption,
    RetryLog,
    S3Location,
    encryption_arguments,
    make_client,
)
from tests.harness.raising import raises

KEY = base64.b64encode(bytes(range(32))).decode()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("s3://bucket", S3Location("bucket")),
        ("s3://bucket/", S3Location("bucket")),
        ("s3://my.bucket-1/a/b/", S3Location("my.bucket-1", "a/b")),
        (
            "s3://bucket/p?endpoint=http://host:9000&region=eu-central-1",
            S3Location("bucket", "p", "http://host:9000", "eu-central-1"),
        ),
        ("s3://bucket?encryption=AES256", S3Location("bucket", encryption=Encryption.SSE_S3)),
        (
            "s3://bucket?encryption=aws:kms&kms-key=arn:aws:kms:eu:1:key/2",
            S3Location("bucket", encryption=Encryption.SSE_KMS, kms_key="arn:aws:kms:eu:1:key/2"),
        ),
        ("s3://bucket?encryption=customer", S3Location("bucket", encryption=Encryption.SSE_C)),
        (
            "s3://bucket?addressing=virtual&request-payer=requester&profile=other",
            S3Location("bucket", addressing="virtual", request_payer="requester", profile="other"),
        ),
    ],
)
def test_a_url_names_a_place_and_how_it_is_reached(url: str, expected: S3Location) -> None:
    assert S3Location.of_url(url) == expected
    assert S3Location.of_url(expected.url) == expected
    assert pickle.loads(pickle.dumps(expected)) == expected


@pytest.mark.parametrize(
    ("url", "code", "context"),
    [
        ("http://bucket/p", "repository-url-invalid", {"url": "http://bucket/p"}),
        ("s3:///p", "repository-url-invalid", {"url": "s3:///p"}),
        ("bucket/p", "repository-url-invalid", {"url": "bucket/p"}),
        ("s3://bucket/p#x", "repository-url-invalid", {"url": "s3://bucket/p#x"}),
        ("s3://Bucket/p", "bucket-invalid", {"bucket": "Bucket"}),
        ("s3://b/p", "bucket-invalid", {"bucket": "b"}),
        ("s3://bucket/a//b", "blob-name-invalid", {}),
        ("s3://bucket/a/../b", "blob-name-invalid", {}),
        ("s3://bucket/a%20b", "blob-name-invalid", {"value": "'a%20b'"}),
        ("s3://bucket/a b", "blob-name-invalid", {"value": "'a b'"}),
        ("s3://bucket?acl=public", "repository-url-invalid", {"settings": ["acl"]}),
        ("s3://bucket?encryption=rot13", "encryption-invalid", {}),
        ("s3://bucket?kms-key=k", "options-conflict", {}),
        ("s3://bucket?addressing=dns", "repository-url-invalid", {"settings": ["addressing"]}),
        ("s3://bucket?request-payer=owner", "repository-url-invalid", {"settings": ["request-payer"]}),
    ],
)
def test_what_names_none_is_refused(url: str, code: str, context: dict[str, object]) -> None:
    with raises(Invalid, code, **context) as caught:
        S3Location.of_url(url)
    assert caught.value.action


def test_a_prefix_is_taken_as_it_is_and_the_error_says_that_it_is_one() -> None:
    assert S3Location.of_url("s3://bucket/a+b=c@d").prefix == "a+b=c@d"
    with raises(Invalid, "blob-name-invalid") as caught:
        S3Location.of_url("s3://bucket/a%2Bb")
    assert "prefix" in caught.value.what


def test_credentials_in_a_url_are_refused_and_not_repeated() -> None:
    with raises(Invalid, "credentials-in-url") as caught:
        S3Location.of_url("s3://AKIA:very-secret@bucket/p")
    assert "very-secret" not in str(caught.value)
    assert "AWS_ACCESS_KEY_ID" in caught.value.action


def test_a_location_is_printed_without_access_options() -> None:
    assert str(S3Location("bucket", "a", "http://host:1", encryption=Encryption.SSE_S3)) == "s3://bucket/a"
    assert str(S3Location("bucket").below("x", "y")) == "s3://bucket/x/y"
    assert S3Location("bucket", "p").below("x").key("n") == "p/x/n"
    assert S3Location("bucket").key("n") == "n"


def test_requests_have_the_encryption_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CUSTOMER_KEY, KEY)
    of = {one: encryption_arguments(S3Location("bucket", encryption=one)) for one in Encryption}
    assert (of[Encryption.DEFAULT].create, of[Encryption.DEFAULT].access) == ({}, {})
    assert (of[Encryption.SSE_S3].create, of[Encryption.SSE_S3].access) == ({"ServerSideEncryption": "AES256"}, {})
    assert of[Encryption.SSE_KMS].create == {"ServerSideEncryption": "aws:kms", "BucketKeyEnabled": True}
    key = {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": bytes(range(32))}
    assert (of[Encryption.SSE_C].create, of[Encryption.SSE_C].access) == (key, key)
    named = encryption_arguments(S3Location("bucket", encryption=Encryption.SSE_KMS, kms_key="k"))
    assert named.create["SSEKMSKeyId"] == "k"


@pytest.mark.parametrize("key", ["", "short", base64.b64encode(b"x" * 31).decode(), "x" * 44])
def test_a_customers_key_that_is_none_is_refused_and_not_repeated(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv(CUSTOMER_KEY, key)
    with raises(Invalid, "customer-key-invalid") as caught:
        encryption_arguments(S3Location("bucket", encryption=Encryption.SSE_C))
    assert not key or key not in str(caught.value)


def test_an_endpoint_that_is_none_is_one_sentence() -> None:
    with raises(Invalid, "object-store-settings-invalid"):
        make_client(S3Location("bucket", endpoint="nonsense", region="r"))


def test_a_profile_that_is_none_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody's")
    with pytest.raises(Invalid, match="nobody's"):
        make_client(S3Location("bucket", region="r"))
    monkeypatch.delenv("AWS_PROFILE")
    with raises(Invalid, "object-store-settings-invalid"):
        make_client(S3Location("bucket", region="r", profile="nobody's"))


@pytest.mark.parametrize(
    ("addressing", "url"),
    [
        (None, "http://store.test:1/bucket"),
        ("path", "http://store.test:1/bucket"),
        ("virtual", "http://bucket.store.test:1"),
    ],
)
def test_a_request_has_the_bucket_where_the_url_says_and_names_the_payer(
    monkeypatch: pytest.MonkeyPatch, addressing: str | None, url: str
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "tests")
    for payer in (None, "requester"):
        location = S3Location("bucket", "", "http://store.test:1", "r", addressing=addressing, request_payer=payer)
        sent: list[Any] = []
        client = make_client(location, attempts=1)

        def stop(request: Any, sent: list[Any] = sent, **_: Any) -> None:
            sent.append(request)
            raise ConnectionResetError

        client.meta.events.register("before-send.s3", stop)
        blobs = S3Blobs(location, client, part=1)
        for ask in (
            lambda blobs=blobs: blobs.put_if_absent("n", b"1"),
            lambda blobs=blobs: blobs.get("n"),
            lambda blobs=blobs: blobs.head("n"),
            lambda blobs=blobs: list(blobs.list()),
            lambda blobs=blobs: blobs.delete("n"),
        ):
            with pytest.raises(Exception):  # noqa: B017
                ask()
        assert len(sent) == 5
        assert {request.url.partition("?")[0].removesuffix("n").rstrip("/") for request in sent} == {url}
        assert {request.headers.get("x-amz-request-payer") for request in sent} == {payer and payer.encode()}


@pytest.mark.parametrize("name", ["AWS_REQUEST_CHECKSUM_CALCULATION", "AWS_RESPONSE_CHECKSUM_VALIDATION"])
def test_checksums_that_the_environment_turns_off_are_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "WHEN_REQUIRED")
    with raises(Invalid, "object-store-settings-invalid", setting=name.removeprefix("AWS_").lower()):
        make_client(S3Location("bucket", region="r"))
    monkeypatch.setenv(name, "when_supported")
    make_client(S3Location("bucket", region="r"))


def test_checksums_that_the_profile_turns_off_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "config").write_text("[profile gcs]\nrequest_checksum_calculation = when_required\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "gcs")
    with raises(Invalid, "object-store-settings-invalid", setting="request_checksum_calculation"):
        make_client(S3Location("bucket", region="r"))


def test_a_server_that_answers_busy_is_named_with_the_try(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Busy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Nobody reads it."""

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "tests")
    with HTTPServer(("127.0.0.1", 0), Busy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{server.server_port}"
        location = S3Location("bucket", endpoint=endpoint, region="us-east-1")
        with caplog.at_level(logging.WARNING), pytest.raises(Retryable):
            S3Blobs(location, make_client(location, attempts=3)).get("name")
        server.shutdown()
    assert caplog.messages == [f"{endpoint}: retrying GetObject (2 of 3): status 503."]


def test_retries_are_reported_at_most_every_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    notes = RetryLog(8, clock=lambda: now[0])

    def tried(attempts: int, status: int = 0) -> list[str]:
        caplog.clear()
        notes(
            response=None if not status else (SimpleNamespace(status_code=status), {}),
            endpoint=SimpleNamespace(host="http://store"),
            operation=SimpleNamespace(name="HeadObject"),
            attempts=attempts,
            caught_exception=None if status else TimeoutError("Read timeout."),
            request_dict={},
        )
        return caplog.messages

    for status in (200, 304, 404, 412):
        assert tried(1, status) == []
    assert tried(8) == [], "there is no other try"
    assert tried(1) == ["http://store: retrying HeadObject (2 of 8): Read timeout."]
    now[0] = 9.9
    assert tried(2) == []
    now[0] = 10.0
    assert tried(2, 429) == ["http://store: retrying HeadObject (3 of 8): status 429."]
