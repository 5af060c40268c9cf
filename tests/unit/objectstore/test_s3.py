"""Blobs in S3, on a real server, behind a proxy that loses and breaks what the network may lose and break."""

from __future__ import annotations

import dataclasses
import gc
import itertools
import pickle
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, FlexibleChecksumError, HTTPClientError
from botocore.httpchecksum import StreamingChecksumBody

from statecore.errors import Invalid, NotFound, Retryable, StatecoreError
from statecore.objectstore.checksum import Checksum
from statecore.objectstore.s3 import S3Blobs, S3Pointers
from statecore.objectstore.s3_errors import s3_error
from statecore.objectstore.s3_location import S3Location, make_client
from statecore.objectstore.s3_requests import TRIES
from tests.harness import faulty_http, s3_server
from tests.harness.broker import refusing_port
from tests.harness.faulty_http import Fault, FaultyProxy, Kind
from tests.harness.raising import raises
from tests.harness.s3_server import ACCESS, REGION, SECRET, S3Server

PART = 5 << 20
LARGE = bytes(range(256)) * ((2 * PART + 1000) // 256)
_numbers = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server.serving() as server:
        server.bucket("blobs")
        yield server


@pytest.fixture(scope="module")
def proxy(server: S3Server) -> Iterator[FaultyProxy]:
    with faulty_http.before(server.endpoint) as proxy:
        yield proxy


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)


def blobs_at(endpoint: str, *, attempts: int = 3, timeout: float = 20.0, **changes: Any) -> S3Blobs:
    """Blobs below a prefix of their own."""
    given = {"bucket": "blobs", "prefix": f"p{next(_numbers)}", "endpoint": endpoint, "region": REGION, **changes}
    location = S3Location(**given)
    client = make_client(location, attempts, timeout)
    return S3Blobs(location, client, part=PART, uniform=lambda low, high: low)


def turn_a_bit(server: S3Server, location: S3Location, name: str) -> None:
    """Turn a bit of an object below the server, which keeps the checksum that it had."""
    with (server.root / "data" / location.bucket / location.key(name)).open("r+b") as file:
        (first,) = file.read(1)
        file.seek(0)
        file.write(bytes([first ^ 1]))


@pytest.fixture
def blobs(proxy: FaultyProxy) -> S3Blobs:
    proxy.fail()
    return blobs_at(proxy.endpoint)


def test_what_is_small_is_one_request_and_what_is_large_is_sent_in_parts(
    blobs: S3Blobs, proxy: FaultyProxy, tmp_path: Path
) -> None:
    file = tmp_path / "large"
    file.write_bytes(LARGE)
    assert blobs.put_if_absent("small", b"x" * PART)
    assert [method for method, _ in proxy.asked] == ["PUT"]
    proxy.asked.clear()
    assert blobs.put_if_absent("large", file)
    asked = [(method, "partNumber" in path) for method, path in proxy.asked]
    assert sorted(asked) == [("HEAD", False), ("POST", False), ("POST", False), *[("PUT", True)] * 3]
    assert blobs.get("large") == LARGE
    assert blobs.get("large", PART - 1, PART + 1) == LARGE[PART - 1 : PART + 1]
    proxy.asked.clear()
    assert not blobs.put_if_absent("large", file)
    assert [method for method, _ in proxy.asked] == ["HEAD"], "what is there is not sent again"


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"small", Fault("PUT", Kind.LOST_REPLY)),
        (b"small", Fault("PUT", Kind.LOST_REQUEST)),
        (b"small", Fault("PUT", Kind.ANSWERED)),
        (b"small", Fault("PUT", Kind.ANSWERED, status=500, code="InternalError", times=2)),
        (b"small", Fault("PUT", Kind.ANSWERED, status=409, code="ConditionalRequestConflict", times=3)),
        (LARGE, Fault("PUT", Kind.LOST_REPLY, "partNumber=2")),
        (LARGE, Fault("POST", Kind.LOST_REPLY, "uploads")),
        (LARGE, Fault("POST", Kind.LOST_REPLY, "uploadId")),
        (LARGE, Fault("POST", Kind.LOST_REQUEST, "uploadId")),
        (LARGE, Fault("POST", Kind.ANSWERED, "uploadId", status=409, code="ConditionalRequestConflict")),
    ],
    ids=lambda one: f"{one.kind.name}-{one.method}-{one.status}{one.containing}" if isinstance(one, Fault) else "",
)
def test_a_put_succeeds_whichever_reply_is_lost(
    blobs: S3Blobs, proxy: FaultyProxy, content: bytes, fault: Fault
) -> None:
    proxy.fail(fault)
    assert blobs.put_if_absent("name", content) is True
    proxy.fail()
    assert blobs.get("name") == content
    assert blobs.put_if_absent("name", content) is False


@pytest.mark.parametrize(("content", "method"), [(b"small", "PUT"), (LARGE, "POST")], ids=["small", "large"])
def test_a_put_succeeds_if_its_retry_meets_its_first_request(
    blobs: S3Blobs, proxy: FaultyProxy, content: bytes, method: str
) -> None:
    which = "name" if method == "PUT" else "uploadId"
    proxy.fail(
        Fault(method, Kind.LOST_REPLY, which),
        Fault(method, Kind.ANSWERED, which, status=409, code="ConditionalRequestConflict"),
    )
    assert blobs.put_if_absent("name", content) is True
    proxy.fail()
    assert blobs.get("name") == content


@pytest.mark.parametrize("large", [False, True])
def test_a_checksum_of_the_bytes_comes_with_the_head(
    blobs: S3Blobs, proxy: FaultyProxy, tmp_path: Path, large: bool
) -> None:
    content = LARGE if large else b"small"
    file = tmp_path / "file"
    file.write_bytes(content)
    blobs.put_if_absent("name", file)
    proxy.asked.clear()
    found = blobs.head("name")
    assert [method for method, _ in proxy.asked] == ["HEAD"]
    assert found.checksum == Checksum.of(file, PART if large else 0) == Checksum.of(content, PART if large else 0)
    assert found.checksum != Checksum.of(content[:-1] + b"?", PART if large else 0)


def test_an_object_of_another_writer_has_another_checksum_or_none(blobs: S3Blobs) -> None:
    blobs.put_if_absent("name", b"small")
    key = blobs._location.key("name")
    blobs._client.put_object(Bucket="blobs", Key=key, Body=b"smell")
    assert blobs.head("name").checksum not in (None, Checksum.of(b"small"))
    other = S3Blobs(blobs._location, blobs._client, part=PART + (1 << 20))
    blobs.put_if_absent("parts", LARGE)
    assert other.head("parts").checksum in (None, Checksum.of(LARGE, PART + (1 << 20)))


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("kind", [None, Kind.LOST_REPLY, Kind.LOST_REQUEST])
def test_a_damaged_object_is_replaced_whatever_the_network_loses(
    blobs: S3Blobs, proxy: FaultyProxy, large: bool, kind: Kind | None
) -> None:
    content = LARGE if large else b"small"
    blobs.put_if_absent("name", b"damaged")
    if kind is not None:
        proxy.fail(Fault("POST", kind, "uploadId") if large else Fault("PUT", kind))
    blobs.replace("name", content)
    proxy.fail()
    assert blobs.get("name") == content


def test_only_the_location_travels(blobs: S3Blobs) -> None:
    sent = pickle.dumps(blobs)
    assert SECRET.encode() not in sent
    assert pickle.loads(sent)._location == blobs._location


@pytest.mark.parametrize("built_on", [False, True])
def test_a_swap_without_a_reply_succeeded_or_is_unknown(server: S3Server, proxy: FaultyProxy, built_on: bool) -> None:
    mine = blobs_at(proxy.endpoint)
    location = mine._location
    others = S3Pointers(dataclasses.replace(location, endpoint=server.endpoint))
    first = others.swap("head", b"0", None)
    proxy.fail(Fault("PUT", Kind.LOST_REPLY))
    pointers = S3Pointers(location, mine._client)
    if built_on:
        proxy.then = lambda: others.swap("head", b"2 by another", others.read("head").version)  # type: ignore[union-attr]
        with raises(Retryable, "write-outcome-unknown", pointer="head"):
            pointers.swap("head", b"1 by me", first)
    else:
        assert pointers.swap("head", b"1 by me", first) == others.read("head").version  # type: ignore[union-attr]


@pytest.mark.parametrize("content", [b"small", LARGE], ids=["small", "large"])
def test_a_second_writer_knows_that_it_was_second(blobs: S3Blobs, proxy: FaultyProxy, content: bytes) -> None:
    assert blobs.put_if_absent("name", b"another's")
    proxy.fail(Fault("PUT", Kind.LOST_REPLY), Fault("HEAD", Kind.LOST_REPLY))
    assert blobs.put_if_absent("name", content) is False
    proxy.fail()
    assert blobs.get("name") == b"another's"


def test_a_conflict_without_end_is_worth_another_try(blobs: S3Blobs, proxy: FaultyProxy) -> None:
    proxy.fail(Fault("PUT", Kind.ANSWERED, status=409, code="ConditionalRequestConflict", times=100))
    with raises(Retryable, "write-conflict", blob="name"):
        blobs.put_if_absent("name", b"content")


def test_an_upload_that_fails_leaves_no_parts(blobs: S3Blobs, proxy: FaultyProxy, server: S3Server) -> None:
    proxy.fail(Fault("PUT", Kind.ANSWERED, "partNumber=3", status=400, code="EntityTooSmall"))
    with pytest.raises(StatecoreError):
        blobs.put_if_absent("name", LARGE)
    left = server.client().list_multipart_uploads(Bucket="blobs").get("Uploads", [])
    assert not [one for one in left if one["Key"] == blobs._location.key("name")]
    with pytest.raises(NotFound):
        blobs.head("name")


@pytest.mark.parametrize("span", [(0, None), (1000, 900_000)], ids=["whole", "part"])
def test_a_body_that_breaks_off_is_read_again(blobs: S3Blobs, proxy: FaultyProxy, span: tuple[int, int | None]) -> None:
    content = LARGE[: 1 << 20]
    blobs.put_if_absent("name", content)
    proxy.fail(Fault("GET", Kind.TRUNCATED, times=2))
    assert blobs.get("name", *span) == content[slice(*span)]
    proxy.fail(Fault("GET", Kind.TRUNCATED, times=100))
    with raises(Retryable, "read-incomplete", blob="name"):
        blobs.get("name", *span)


def test_a_whole_blob_that_comes_damaged_is_read_again(blobs: S3Blobs, proxy: FaultyProxy) -> None:
    blobs.put_if_absent("name", LARGE[: 1 << 20])
    proxy.fail(Fault("GET", Kind.FLIPPED))
    assert blobs.get("name") == LARGE[: 1 << 20]
    assert len(proxy.asked) == 2


def test_an_error_with_status_200_is_no_content_and_worth_another_try(blobs: S3Blobs, proxy: FaultyProxy) -> None:
    """A proxy sends it that had begun its answer; botocore retries it only where it parses the body."""
    blobs.put_if_absent("name", b"content")
    pointers = S3Pointers(blobs._location, blobs._client, uniform=lambda low, high: low)
    assert pointers.swap("head", b"a head", None)
    for ask, content in (
        (lambda: blobs.get("name"), b"content"),
        (lambda: blobs.get("name", 2, 5), b"nte"),
        (lambda: pointers.read("head"), b"a head"),
    ):
        proxy.fail(Fault("GET", Kind.ANSWERED, status=200, code="SlowDown", times=2))
        found = ask()
        assert (found if isinstance(found, bytes) else found.content) == content  # type: ignore[union-attr]
        assert len(proxy.asked) == 3
        proxy.fail(Fault("GET", Kind.ANSWERED, status=200, code="InternalError", times=100))
        with raises(Retryable, "object-store-unavailable", answer="InternalError"):
            ask()
        assert len(proxy.asked) == TRIES


def test_bytes_that_turned_at_rest_are_handed_out_for_hashes_to_tell(
    blobs: S3Blobs, proxy: FaultyProxy, server: S3Server
) -> None:
    blobs.put_if_absent("name", LARGE[: 1 << 20])
    version = S3Pointers(blobs._location, blobs._client).swap("head", b"a head", None)
    for name in ("name", "head"):
        turn_a_bit(server, blobs._location, name)
    proxy.fail()
    content = blobs.get("name")
    assert content != LARGE[: 1 << 20]
    assert len(content) == 1 << 20
    assert len(proxy.asked) == 2, "the network may have done it once"
    found = S3Pointers(blobs._location, blobs._client).read("head")
    assert found is not None
    assert found.content != b"a head"
    assert S3Pointers(blobs._location, blobs._client).swap("head", b"another", found.version), "it can be repaired"
    assert version == found.version


def test_a_damaged_object_that_breaks_off_each_time_is_still_worth_another_try(
    blobs: S3Blobs, proxy: FaultyProxy, server: S3Server
) -> None:
    blobs.put_if_absent("name", LARGE[: 1 << 20])
    turn_a_bit(server, blobs._location, "name")
    proxy.fail(Fault("GET", Kind.TRUNCATED, times=100))
    with raises(Retryable, "read-incomplete", blob="name"):
        blobs.get("name")
    assert len(proxy.asked) == TRIES


def test_bytes_that_differ_at_every_read_are_a_network_error(
    blobs: S3Blobs, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs.put_if_absent("name", b"content")
    turned = itertools.count(1)
    read = StreamingChecksumBody.read

    def other(body: Any, amt: int | None = None) -> bytes:
        piece: bytes = read(body, amt)
        if not piece:
            raise FlexibleChecksumError(error_msg="as the test wants it")
        return b"%d" % next(turned)

    monkeypatch.setattr(StreamingChecksumBody, "read", other)
    with raises(Retryable, "read-incomplete", blob="name"):
        blobs.get("name")
    assert next(turned) == TRIES + 1


@pytest.mark.parametrize(("status", "code"), [(503, "SlowDown"), (500, "InternalError")])
def test_a_server_that_is_unwell_is_worth_another_try(proxy: FaultyProxy, status: int, code: str) -> None:
    blobs = blobs_at(proxy.endpoint, attempts=2)
    for method, ask in (
        ("PUT", lambda: blobs.put_if_absent("name", b"")),
        ("GET", lambda: blobs.get("name")),
        ("HEAD", lambda: blobs.head("name")),
        ("GET", lambda: list(blobs.list())),
        ("DELETE", lambda: blobs.delete("name")),
    ):
        proxy.fail(Fault(method, Kind.ANSWERED, status=status, code=code, times=100))
        with pytest.raises(Retryable) as caught:
            ask()
        assert "s3://blobs" in str(caught.value)
    proxy.fail()


def test_what_a_server_cannot_do_is_not_tried_again(blobs: S3Blobs, proxy: FaultyProxy) -> None:
    proxy.fail(Fault("PUT", Kind.ANSWERED, status=501, code="NotImplemented", times=100))
    with pytest.raises(Invalid, match="NotImplemented"):
        blobs.put_if_absent("name", b"")
    assert len(proxy.asked) == 1


def all_refused(blobs: S3Blobs, kind: type[StatecoreError], code: str, **context: str) -> None:
    for ask in (
        lambda: blobs.put_if_absent("name", b""),
        lambda: blobs.get("name"),
        lambda: list(blobs.list()),
        lambda: blobs.delete("name"),
    ):
        with raises(kind, code, **context) as caught:
            ask()
        assert type(caught.value) is kind
        assert caught.value.action
        assert SECRET not in str(caught.value)


def test_a_missing_bucket_is_reported(server: S3Server) -> None:
    all_refused(blobs_at(server.endpoint, bucket="absent"), Invalid, "bucket-unknown", answer="NoSuchBucket")


def test_wrong_credentials_are_reported(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    all_refused(blobs_at(server.endpoint), Invalid, "object-store-access-denied", answer="SignatureDoesNotMatch")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    all_refused(blobs_at(server.endpoint), Invalid, "object-store-access-denied", answer="XAdminUserNotFound")


REFUSALS = [
    (400, "ExpiredToken", Retryable, "object-store-credentials-expired"),
    (403, "InvalidAccessKeyId", Invalid, "object-store-access-denied"),
    (403, "SignatureDoesNotMatch", Invalid, "object-store-access-denied"),
    (403, "AccessDenied", Invalid, "object-store-access-denied"),
    (403, "AllAccessDisabled", Invalid, "object-store-access-denied"),
    (403, "RequestTimeTooSkewed", Invalid, "object-store-clock-skewed"),
    (400, "AuthorizationHeaderMalformed", Invalid, "object-store-settings-invalid"),
    (403, "SecondLevelDomainForbidden", Invalid, "object-store-settings-invalid"),
    (404, "NoSuchBucket", Invalid, "bucket-unknown"),
    (403, "InvalidObjectState", Invalid, "blob-archived"),
    (400, "KMS.DisabledException", Invalid, "key-service-refused"),
]


@pytest.mark.parametrize(("status", "answer", "kind", "code"), REFUSALS, ids=[one[1] for one in REFUSALS])
def test_every_refusal_has_its_own_kind_and_code(
    proxy: FaultyProxy, status: int, answer: str, kind: type[StatecoreError], code: str
) -> None:
    proxy.fail(*(Fault(method, Kind.ANSWERED, "", 100, status, answer) for method in ("PUT", "GET", "HEAD", "DELETE")))
    all_refused(blobs_at(proxy.endpoint), kind, code, answer=answer)


def test_every_refusal_has_its_own_advice(proxy: FaultyProxy) -> None:
    actions = set()
    for status, answer, kind, _ in REFUSALS:
        proxy.fail(Fault("PUT", Kind.ANSWERED, "", 100, status, answer))
        with pytest.raises(kind) as caught:
            blobs_at(proxy.endpoint).put_if_absent("name", b"")
        actions.add(caught.value.action)
    assert len(actions) == len(REFUSALS)


@pytest.mark.parametrize(
    ("status", "answer", "kind", "code"),
    [
        (400, "KMS.NotFoundException", Invalid, "key-service-refused"),
        (400, "KMS.KMSInvalidStateException", Invalid, "key-service-refused"),
        (400, "KMS.ThrottlingException", Retryable, "object-store-unavailable"),
        (500, "KMS.KMSInternalException", Retryable, "object-store-unavailable"),
    ],
)
def test_what_kms_refuses_to_the_object_store_is_about_its_key(
    status: int, answer: str, kind: type[StatecoreError], code: str
) -> None:
    error = ClientError(
        {"Error": {"Code": answer, "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": status}}, "GetObject"
    )
    found = s3_error(S3Location("bucket"), "read", "name", error)
    assert (found.kind(), found.code, found.context["answer"]) == (kind, code, answer)


class Archived:
    """A client of an object store that says where an object is kept."""

    def __init__(self, **where: str) -> None:
        self._found = {"LastModified": datetime.now(UTC), **where}

    def head_object(self, **_: Any) -> dict[str, Any]:
        return {"ContentLength": 4, **self._found}

    def get_paginator(self, _: str) -> Archived:
        return self

    def paginate(self, **_: Any) -> Iterator[dict[str, Any]]:
        yield {"KeyCount": 1, "Contents": [{"Key": "name", "Size": 4, **self._found}]}


@pytest.mark.parametrize(
    ("where", "is_archived"),
    [
        ({}, False),
        ({"StorageClass": "STANDARD"}, False),
        ({"StorageClass": "GLACIER_IR"}, False),
        ({"StorageClass": "INTELLIGENT_TIERING"}, False),
        ({"StorageClass": "INTELLIGENT_TIERING", "ArchiveStatus": "ARCHIVE_ACCESS"}, True),
        ({"StorageClass": "GLACIER"}, True),
        ({"StorageClass": "DEEP_ARCHIVE"}, True),
    ],
)
def test_an_archived_object_is_told(where: dict[str, str], is_archived: bool) -> None:
    blobs = S3Blobs(S3Location("bucket"), Archived(**where))
    assert [blobs.head("name").is_archived, *(one.is_archived for one in blobs.list())] == [is_archived] * 2


@pytest.mark.parametrize("answer", ["InvalidArgument", "NotImplemented"])
def test_a_server_that_refuses_checksums_is_unsuitable(proxy: FaultyProxy, answer: str) -> None:
    fault = Fault("PUT", Kind.ANSWERED, status=400, code=answer, message="Unsupported header x-amz-checksum-crc32")
    proxy.fail(fault)
    with raises(Invalid, "object-store-unsuitable", answer=answer):
        blobs_at(proxy.endpoint).put_if_absent("name", b"")


@pytest.mark.parametrize("status", [400, 403])
def test_a_refused_head_has_the_code_of_a_get(blobs: S3Blobs, proxy: FaultyProxy, status: int) -> None:
    proxy.fail(
        Fault("HEAD", Kind.ANSWERED, "", 100, status, "no body"),
        Fault("GET", Kind.ANSWERED, "", 100, status, "ExpiredToken"),
    )
    with raises(Retryable, "object-store-credentials-expired", answer="ExpiredToken"):
        blobs.head("name")
    proxy.fail(Fault("HEAD", Kind.ANSWERED, "", 100, status, "no body"))
    with raises(Invalid, "object-store-access-denied" if status == 403 else "object-store-refused"):
        blobs.head("name")


@pytest.mark.parametrize("body", [b"default backend - 404", b"<html>no such page</html>", b""])
def test_a_404_that_is_no_error_of_s3_does_not_say_that_nothing_is_there(
    blobs: S3Blobs, proxy: FaultyProxy, body: bytes
) -> None:
    """A gateway without a backend sends it, to everything."""
    pointers = S3Pointers(blobs._location, blobs._client)
    assert blobs.put_if_absent("name", b"content")
    version = pointers.swap("head", b"1", None)
    methods = ("PUT", "GET", "HEAD", "DELETE", "POST")
    for ask in (
        lambda: blobs.get("name"),
        lambda: blobs.get("name", 1, 3),
        lambda: blobs.head("name"),
        lambda: list(blobs.list()),
        lambda: list(blobs.directories("apps")),
        lambda: blobs.delete("name"),
        lambda: blobs.delete_all(["name"]),
        lambda: blobs.put_if_absent("other", b"content"),
        lambda: pointers.read("head"),
        lambda: pointers.swap("head", b"2", version),
    ):
        proxy.fail(*(Fault(method, Kind.ANSWERED, "", 100, 404, body=body) for method in methods))
        with raises(Retryable, "object-store-unavailable"):
            ask()
    proxy.fail(*(Fault(method, Kind.ANSWERED, "", 1, 404, body=body) for method in ("HEAD", "HEAD")))
    with raises(Retryable, "object-store-unavailable"):
        blobs.head("name")


def test_a_blob_that_is_not_there_is_not_found_by_what_the_server_says(blobs: S3Blobs, proxy: FaultyProxy) -> None:
    for ask in (lambda: blobs.get("name"), lambda: blobs.get("name", 1, 3), lambda: blobs.head("name")):
        with raises(NotFound, "blob-not-found"):
            ask()
    assert S3Pointers(blobs._location, blobs._client).read("head") is None
    assert S3Pointers(blobs._location, blobs._client).swap("head", b"1", "another") is None
    proxy.fail(Fault("GET", Kind.ANSWERED, "list-type", status=404, code="NoSuchKey"))
    with raises(Invalid, "object-store-refused"):  # no listing of S3 says that
        list(blobs.list())


@pytest.mark.parametrize(
    ("body", "kind", "code"),
    [
        (b"<html><body>welcome</body></html>", Invalid, "object-store-settings-invalid"),
        (b"welcome", Retryable, "object-store-unavailable"),
        (b"", Invalid, "object-store-settings-invalid"),
    ],
)
def test_a_page_in_place_of_a_listing_is_no_empty_one(
    blobs: S3Blobs, proxy: FaultyProxy, body: bytes, kind: type[StatecoreError], code: str
) -> None:
    for ask in (lambda: list(blobs.list()), lambda: list(blobs.directories("apps"))):
        proxy.fail(Fault("GET", Kind.ANSWERED, "list-type", status=200, body=body, times=100))
        with raises(kind, code):
            ask()


def test_a_body_of_unknown_length_is_read_to_its_end(blobs: S3Blobs, proxy: FaultyProxy) -> None:
    blobs.put_if_absent("name", LARGE[: 3 << 20])
    blobs.put_if_absent("empty", b"")
    proxy.fail(Fault("GET", Kind.UNMEASURED, times=100), Fault("HEAD", Kind.UNMEASURED, times=100))
    assert blobs.get("name") == LARGE[: 3 << 20]
    assert blobs.get("name", 5, 2 << 20) == LARGE[5 : 2 << 20]
    assert blobs.get("empty") == b""
    with raises(Invalid, "object-store-settings-invalid", blob="name"):
        blobs.head("name")


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A credentials file in place of the environment's keys; it names a key that the server does not know."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    file = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "absent"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    write_credentials(file, "outdated", SECRET)
    return file


def write_credentials(file: Path, key: str, secret: str) -> None:
    file.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n")


@pytest.mark.parametrize(
    ("key", "ask"),
    [
        ("outdated", lambda blobs: blobs.put_if_absent("name", b"new")),
        (ACCESS, lambda blobs: blobs.put_if_absent("name", LARGE)),  # its first request is a HEAD, as that of head
        ("outdated", lambda blobs: blobs.get("there")),
        (ACCESS, lambda blobs: blobs.head("there")),
        ("outdated", lambda blobs: list(blobs.list())),
        ("outdated", lambda blobs: blobs.delete("there")),
    ],
    ids=["put", "put-parts", "get", "head", "list", "delete"],
)
def test_a_rotated_credentials_file_is_read_again_by_a_client_that_goes_on(
    blobs: S3Blobs, proxy: FaultyProxy, credentials: Path, key: str, ask: Any
) -> None:
    blobs.put_if_absent("there", b"content")  # by keys of the environment, which the client has
    write_credentials(credentials, key, "outdated")
    service = S3Blobs(blobs._location, make_client(blobs._location), part=PART)
    write_credentials(credentials, ACCESS, SECRET)
    proxy.fail()
    ask(service)
    proxy.asked.clear()
    service.put_if_absent("other", b"content")
    assert len(proxy.asked) == 1, "later requests have the new credentials at once"


def test_credentials_that_nobody_has_rotated_are_not_tried_again(
    blobs: S3Blobs, proxy: FaultyProxy, credentials: Path
) -> None:
    service = S3Blobs(blobs._location, make_client(blobs._location))
    proxy.fail(Fault("PUT", Kind.ANSWERED, status=400, code="ExpiredToken", times=100))
    with raises(Retryable, "object-store-credentials-expired"):
        service.put_if_absent("name", b"")
    assert len(proxy.asked) == 1
    write_credentials(credentials, ACCESS, SECRET)
    with raises(Retryable, "object-store-credentials-expired"):
        service.put_if_absent("name", b"")
    assert len(proxy.asked) == 3, "one more try, and no third"


def test_a_role_whose_renewal_fails_is_worth_another_try(
    blobs: S3Blobs, credentials: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").write_text("[default]\ncredential_process = /bin/false\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    credentials.unlink()
    with raises(Retryable, "object-store-credentials-expired"):
        S3Blobs(blobs._location).get("name")


def test_a_clock_that_is_wrong_is_reported(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    yesterday = datetime.now(UTC) - timedelta(days=1)
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda **_: yesterday.replace(tzinfo=None))
    all_refused(blobs_at(server.endpoint), Invalid, "object-store-clock-skewed", answer="RequestTimeTooSkewed")


def test_missing_credentials_are_reported(server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "absent"))
    all_refused(blobs_at(server.endpoint), Invalid, "object-store-credentials-missing")


def test_a_server_that_is_not_there_is_worth_another_try() -> None:
    with refusing_port() as port:
        all_refused(
            blobs_at(f"http://127.0.0.1:{port}", attempts=1),
            Retryable,
            "object-store-unreachable",
            cause="EndpointConnectionError",
        )


def test_a_server_that_does_not_answer_is_worth_another_try() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        blobs = blobs_at(f"http://127.0.0.1:{silent.getsockname()[1]}", attempts=1, timeout=0.3)
        all_refused(blobs, Retryable, "object-store-unreachable", cause="ReadTimeoutError")


@pytest.mark.parametrize("status", [200, 302])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_server_that_is_no_s3_is_reported_as_such(status: int) -> None:
    class Portal(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Location", "/")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_PUT = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Portal) as portal:
        threading.Thread(target=portal.serve_forever).start()
        try:
            endpoint = f"http://127.0.0.1:{portal.server_port}"
            blobs = blobs_at(endpoint, attempts=1)
            pointers = S3Pointers(blobs._location, blobs._made)
            for ask in (lambda: blobs.get("a"), lambda: pointers.read("a"), lambda: pointers.swap("a", b"1", None)):
                with raises(Invalid, "object-store-settings-invalid", blob="a", endpoint=endpoint):
                    ask()
        finally:
            portal.shutdown()
    # Deep in redirections botocore closes no response; a later test must not get the warning.
    gc.collect()


@pytest.mark.parametrize("deep", [False, True])
def test_redirections_without_end_are_no_s3_wherever_the_stack_ends(
    monkeypatch: pytest.MonkeyPatch, deep: bool
) -> None:
    def without_end(**_: object) -> None:
        if not deep:
            raise RecursionError
        try:
            raise RecursionError
        except RecursionError as error:
            raise HTTPClientError(error=error) from error

    blobs = blobs_at("http://127.0.0.1:9")
    monkeypatch.setattr(blobs._client, "get_object", without_end)
    with raises(Invalid, "object-store-settings-invalid", blob="a"):
        blobs.get("a")


def test_without_boto3_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with raises(Invalid, "extra-missing"):
        S3Blobs(S3Location("bucket")).get("name")
