"""Servers that do not keep their promises are found out before a repository is made there."""

from __future__ import annotations

import base64
import dataclasses
import itertools
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from statecore.errors import Invalid
from statecore.objectstore.s3_location import CUSTOMER_KEY, Encryption, S3Location, make_client
from statecore.objectstore.s3_probe import probe
from tests.harness import s3_server
from tests.harness.case_selection import one_of
from tests.harness.raising import raises
from tests.harness.s3_server import ACCESS, SECRET, S3Server

_numbers = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server.serving() as server:
        yield server


@pytest.fixture
def location(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Location:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    return server.bucket(f"probed-{next(_numbers)}")


class Careless:
    """A client of a server that forgets some of what requests say."""

    def __init__(self, client: Any, *forgets: str) -> None:
        self._client, self._forgets = client, forgets

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def put_object(self, **arguments: Any) -> Any:
        return self._client.put_object(**{k: v for k, v in arguments.items() if k not in self._forgets})


class CarelessOfParts(Careless):
    """A client of a server that ignores the condition of a large object alone."""

    def __init__(self, client: Any) -> None:
        super().__init__(client)

    def complete_multipart_upload(self, **arguments: Any) -> Any:
        arguments.pop("IfNoneMatch")
        return self._client.complete_multipart_upload(**arguments)


class Weakening(Careless):
    """A client behind a proxy that weakens the ETags of what is read, as some do that compress."""

    def __init__(self, client: Any) -> None:
        super().__init__(client)

    def get_object(self, **arguments: Any) -> Any:
        found = self._client.get_object(**arguments)
        return {**found, "ETag": f"W/{found['ETag']}"}


class Keeping(Careless):
    """A client without the right to delete, of a server that does not say so."""

    def __init__(self, client: Any) -> None:
        super().__init__(client)

    def delete_object(self, **_: Any) -> None:
        """Do nothing."""


class Racing(Careless):
    """A client of a server that looks at a condition and then writes without a lock, as s3proxy does."""

    def __init__(self, client: Any, condition: str) -> None:
        super().__init__(client, condition)
        self._condition = condition
        self._looked = threading.Event()

    def put_object(self, **arguments: Any) -> Any:
        expected = arguments.get(self._condition)
        if expected is not None:
            try:
                tag = self._client.head_object(Bucket=arguments["Bucket"], Key=arguments["Key"])["ETag"]
            except self._client.exceptions.ClientError:
                tag = None
            if tag != (None if expected == "*" else expected):
                return self._client.put_object(**arguments)  # which the real server refuses
            self._looked.wait(0.02)
        return super().put_object(**arguments)


def test_a_server_that_keeps_its_promises_passes_and_nothing_is_left(server: S3Server, location: S3Location) -> None:
    probe(location)
    assert "Contents" not in server.client().list_objects_v2(Bucket=location.bucket)


@pytest.mark.parametrize(
    ("forgets", "promise"),
    [("IfNoneMatch", "conditional-create"), ("IfMatch", "conditional-replace"), ("ChecksumCRC32", "checksum")],
)
def test_a_server_that_ignores_what_a_request_says_is_refused(location: S3Location, forgets: str, promise: str) -> None:
    with raises(Invalid, "object-store-unsuitable", promise=promise) as caught:
        probe(location, Careless(make_client(location), forgets))
    assert "versitygw" in caught.value.action


@pytest.mark.parametrize(
    ("careless", "promise"),
    one_of([(CarelessOfParts, "conditional-multipart"), (Weakening, "stable-version"), (Keeping, "delete")]),
)
def test_a_server_that_forgets_less_is_refused_as_well(location: S3Location, careless: Any, promise: str) -> None:
    with raises(Invalid, "object-store-unsuitable", promise=promise):
        probe(location, careless(make_client(location)))


@pytest.mark.parametrize("encryption", one_of([Encryption.SSE_S3, Encryption.SSE_KMS, Encryption.SSE_C]))
def test_a_server_that_takes_encryption_and_does_not_encrypt_is_refused(
    location: S3Location, encryption: Encryption, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As versitygw does."""
    monkeypatch.setenv(CUSTOMER_KEY, base64.b64encode(bytes(32)).decode())
    with raises(Invalid, "object-store-unsuitable", promise="encryption"):
        probe(dataclasses.replace(location, encryption=encryption))


def test_a_probe_that_is_stopped_leaves_no_thread_and_no_object(server: S3Server, location: S3Location) -> None:
    class Stopping(Careless):
        asked = 0

        def get_object(self, **arguments: Any) -> Any:
            self.asked += 1
            if self.asked > 20:
                raise KeyboardInterrupt
            return self._client.get_object(**arguments)

    with pytest.raises(KeyboardInterrupt):
        probe(location, Stopping(make_client(location)))
    assert not [one for one in threading.enumerate() if one.name == "statecore-probe"]
    assert "Contents" not in server.client().list_objects_v2(Bucket=location.bucket)


@pytest.mark.parametrize(
    ("condition", "promise"), one_of([("IfNoneMatch", "concurrent-create"), ("IfMatch", "concurrent-replace")])
)
def test_a_server_that_keeps_conditions_only_for_one_at_a_time_is_refused(
    location: S3Location, condition: str, promise: str
) -> None:
    with raises(Invalid, "object-store-unsuitable", promise=promise):
        probe(location, Racing(make_client(location), condition))


def test_a_missing_bucket_is_reported(server: S3Server, location: S3Location) -> None:
    with raises(Invalid, "bucket-unknown"):
        probe(S3Location("absent", endpoint=server.endpoint, region=location.region))
