"""Servers that do not keep their promises are found out before a repository is made there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from statecore.blobs.s3_location import S3Location, make_client
from statecore.blobs.s3_probe import probe
from statecore.errors import Invalid
from tests.harness import s3_server
from tests.harness.s3_server import ACCESS, SECRET, S3Server


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server.serving() as server:
        yield server


@pytest.fixture
def location(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Location:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    return server.bucket("probed")


class Careless:
    """A client of a server that forgets some of what requests say."""

    def __init__(self, client: Any, *forgets: str) -> None:
        self._client, self._forgets = client, forgets

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def put_object(self, **arguments: Any) -> Any:
        return self._client.put_object(**{k: v for k, v in arguments.items() if k not in self._forgets})


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
    assert "Contents" not in server.client().list_objects_v2(Bucket="probed")


@pytest.mark.parametrize(
    ("forgets", "said"),
    [
        ("IfNoneMatch", "ignores If-None-Match"),
        ("IfMatch", "ignores If-Match"),
        ("ChecksumCRC32", "not what their checksum says"),
    ],
)
def test_a_server_that_ignores_what_a_request_says_is_refused(location: S3Location, forgets: str, said: str) -> None:
    with pytest.raises(Invalid, match=said) as caught:
        probe(location, Careless(make_client(location), forgets))
    assert "versitygw" in caught.value.action


@pytest.mark.parametrize(
    ("condition", "said"), [("IfNoneMatch", "make one object at the same time"), ("IfMatch", "lost a change")]
)
def test_a_server_that_keeps_conditions_only_for_one_at_a_time_is_refused(
    location: S3Location, condition: str, said: str
) -> None:
    with pytest.raises(Invalid, match=said):
        probe(location, Racing(make_client(location), condition))


def test_a_bucket_that_is_missing_is_said(server: S3Server, location: S3Location) -> None:
    with pytest.raises(Invalid, match="There is no bucket absent"):
        probe(S3Location("absent", endpoint=server.endpoint, region=location.region))
