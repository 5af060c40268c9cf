"""Keys of users, in a file or in the environment."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from statecore.errors import Invalid
from statecore.objectstore.user_key import UserKey
from statecore.objectstore.user_keys import user_key_of
from tests.harness.raising import raises

DATA_KEY = bytes(range(32))


def key_file(path: Path, byte: int = 7, mode: int = 0o600) -> Path:
    path.write_text(base64.b64encode(bytes([byte]) * 32).decode() + "\n")
    path.chmod(mode)
    return path


@pytest.mark.parametrize("kind", ["file", "env"])
def test_a_data_key_is_encrypted_for_its_repository(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = key_file(tmp_path / "key")
    monkeypatch.setenv("STATECORE_TEST_KEY", file.read_text())
    key = user_key_of(f"file:{file}" if kind == "file" else "env:STATECORE_TEST_KEY")
    encrypted = key.encrypt(DATA_KEY, "one")
    assert DATA_KEY not in encrypted
    assert encrypted != key.encrypt(DATA_KEY, "one"), "a new nonce each time"
    assert user_key_of(key.reference).decrypt(encrypted, "one") == DATA_KEY
    other = user_key_of(f"file:{key_file(tmp_path / 'other', 8)}")
    for wrong, repository in ((key, "two"), (other, "one")):
        with raises(Invalid, "encryption-key-wrong", key=wrong.reference, repository_id=repository):
            wrong.decrypt(encrypted, repository)
    for damaged in (b"", encrypted[:-1], encrypted[:24]):
        with raises(Invalid, "encryption-key-wrong"):
            key.decrypt(damaged, "one")


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o601, 0o644])
def test_a_file_that_every_user_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    key = user_key_of(f"file:{key_file(tmp_path / 'key', mode=mode)}")
    with raises(Invalid, "encryption-key-exposed", key=key.reference) as caught:
        key.encrypt(DATA_KEY, "one")
    assert f"chmod o= {tmp_path}/key" in caught.value.action
    (tmp_path / "key").chmod(0o640)
    key.encrypt(DATA_KEY, "one")


@pytest.mark.parametrize("text", ["", "short", base64.b64encode(bytes(31)).decode(), "ä" * 44, "=" * 44])
def test_what_is_no_key_is_refused_and_not_shown(tmp_path: Path, text: str) -> None:
    file = key_file(tmp_path / "key")
    file.write_text(text)
    with raises(Invalid, "encryption-key-invalid") as caught:
        user_key_of(f"file:{file}").encrypt(DATA_KEY, "one")
    assert not text or text not in str(caught.value)
    file.write_bytes(b"\xff" * 44)
    with raises(Invalid, "encryption-key-invalid"):
        user_key_of(f"file:{file}").encrypt(DATA_KEY, "one")


@pytest.mark.parametrize("reference", ["file:/no/such/key", "env:STATECORE_NO_SUCH_KEY", "file:/"])
def test_a_key_that_is_not_there_is_named(reference: str) -> None:
    key: UserKey = user_key_of(reference)
    with raises(Invalid, "encryption-key-unreadable", key=reference):
        key.encrypt(DATA_KEY, "one")
