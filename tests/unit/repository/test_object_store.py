"""The setting of a URL that says where the encryption key is."""

from __future__ import annotations

from pathlib import Path

import pytest

from statecore.errors import Invalid
from statecore.repository.object_store import object_store_of, with_key
from tests.harness.raising import raises


@pytest.mark.parametrize(
    "url",
    [
        "file:///path?encryption-key=file:/etc/statecore/key",
        "file:///path?copy=1&encryption-key=env:KEY",
        "s3://bucket/p?endpoint=http://127.0.0.1:1&region=r&encryption-key=kms:alias/statecore",
        "s3://bucket/p?encryption-key=kms:arn:aws:kms:eu-central-1:111122223333:key/1",
        "file:///path?encryption-key=file:/a%20b",
    ],
)
def test_it_is_kept_as_it_can_be_given_again(url: str) -> None:
    found = object_store_of(url)
    assert found.url == url
    assert found.key is not None
    assert found.key.user_key.reference == url.partition("encryption-key=")[2].replace("%20", " ")


def test_its_place_among_other_settings_does_not_matter() -> None:
    found = object_store_of("s3://bucket/p?encryption-key=env:K&region=r&encryption=aws:kms&kms-key=1")
    assert found.url == "s3://bucket/p?region=r&encryption=aws:kms&kms-key=1&encryption-key=env:K"
    assert object_store_of("file:///path?encryption-key=env:K&copy=1").url == "file:///path?copy=1&encryption-key=env:K"
    assert object_store_of("s3://bucket/p?region=r").key is None


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("encryption-key=", "encryption-key-invalid"),
        ("encryption-key", "encryption-key-invalid"),
        ("encryption-key=c2VjcmV0", "encryption-key-invalid"),
        ("encryption-key=env:A&encryption-key=env:B", "repository-url-invalid"),
        ("encryption_key=env:A", "repository-url-invalid"),
        ("encryption-key=env:A&x=1", "repository-url-invalid"),
    ],
)
@pytest.mark.parametrize("place", ["file:///path", "s3://bucket/p"])
def test_what_names_no_key_is_refused_and_nothing_is_made(place: str, query: str, code: str) -> None:
    with raises(Invalid, code) as caught:
        object_store_of(f"{place}?{query}")
    assert "c2VjcmV0" not in str(caught.value)
    assert not Path("/path").exists()


def test_a_url_is_given_another_key() -> None:
    assert with_key("file:///p?copy=1&encryption-key=env:A", "env:B") == "file:///p?copy=1&encryption-key=env:B"
    assert object_store_of("file:///p?encryption-key=env:A&copy=1").url_without_key == "file:///p?copy=1"
    assert with_key("s3://b/p", "file:/k") == "s3://b/p?encryption-key=file:/k"
