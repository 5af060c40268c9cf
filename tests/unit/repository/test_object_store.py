"""What the URL of a repository says: where it is, and where the encryption key is."""

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


@pytest.mark.parametrize(
    "url",
    ["file:///p/a\tb", "file:///p/a\nb", "file:///p/%FF", "file:///p/a%00b", "s3://bucket/a\tb", "s3://bucket/a\r"],
)
def test_a_character_that_would_name_another_place_is_refused(url: str) -> None:
    with raises(Invalid, "repository-url-invalid"):
        object_store_of(url)


def test_a_place_is_told_from_others_whatever_its_url_has(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    there = object_store_of(one.as_uri())
    assert not there.is_at(object_store_of(other.as_uri())), "neither is there yet"
    one.mkdir()
    other.mkdir()
    (tmp_path / "link").symlink_to(one)
    for url in (one.as_uri(), f"{one.as_uri()}?copy=1", (tmp_path / "link").as_uri(), f"{other.as_uri()}/../one"):
        assert there.is_at(object_store_of(url))
        assert there.is_at(object_store_of(f"{url}{'&' if '?' in url else '?'}encryption-key=env:KEY"))
    assert not there.is_at(object_store_of(other.as_uri()))


@pytest.mark.parametrize(
    ("url", "is_same"),
    [
        ("s3://bucket/p?endpoint=http://127.0.0.1:1&region=another&profile=", True),
        ("s3://bucket/p?endpoint=http://127.0.0.1:2&region=r", False),
        ("s3://bucket/q?endpoint=http://127.0.0.1:1&region=r", False),
        ("s3://other/p?endpoint=http://127.0.0.1:1&region=r", False),
        ("s3://bucket/p?region=r", False),
    ],
)
def test_a_place_in_s3_is_a_server_a_bucket_and_a_prefix(url: str, *, is_same: bool) -> None:
    there = object_store_of("s3://bucket/p?endpoint=http://127.0.0.1:1&region=r")
    assert there.is_at(object_store_of(url)) is is_same


def test_a_bucket_of_aws_is_the_same_in_every_region() -> None:
    assert object_store_of("s3://bucket/p?region=eu-west-1").is_at(object_store_of("s3://bucket/p?region=us-east-1"))
