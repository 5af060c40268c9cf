"""The TLS file that cannot be used is named, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from statecore.changelog.tls_files import tls_file_problem
from tests.harness.certificates import Authority

Settings = dict[str, object]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """All of them right, with an encrypted key."""
    authority = Authority(tmp_path / "tls")
    signed = authority.sign("client")
    key = load_pem_private_key(Path(signed.key).read_bytes(), None)
    encrypted = tmp_path / "encrypted.pem"
    encrypted.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"word")))
    return {
        "ssl_cafile": str(authority.file),
        "ssl_certfile": str(signed.certificate),
        "ssl_keyfile": str(encrypted),
        "ssl_password": "word",
    }


def other_key(settings: Settings) -> None:
    path = Path(str(settings["ssl_keyfile"])).parent / "other"
    settings["ssl_keyfile"] = str(Authority(path).sign("another").key)


def garbage(settings: Settings) -> None:
    Path(str(settings["ssl_cafile"])).write_text("garbage")


CHANGES: dict[str, tuple[Callable[[Settings], object], str | None]] = {
    "all right": (lambda _: None, None),
    "nothing given": (lambda settings: settings.clear(), None),
    "no such file": (lambda settings: settings.update(ssl_cafile="/none/ca.pem"), "ssl_cafile"),
    "no such key": (lambda settings: settings.update(ssl_keyfile="/none/key.pem"), "ssl_keyfile"),
    "no certificate in it": (garbage, "ssl_cafile"),
    "wrong password": (lambda settings: settings.update(ssl_password="wrong"), "ssl_password"),
    "no password": (lambda settings: settings.pop("ssl_password"), "ssl_password"),
    "another key": (other_key, "ssl_keyfile"),
    "no certificate": (lambda settings: settings.update(ssl_certfile=settings["ssl_keyfile"]), "ssl_certfile"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_setting_of_an_unusable_file_is_named(settings: Settings, change: str) -> None:
    make, expected = CHANGES[change]
    make(settings)
    found = tls_file_problem(settings)
    assert (None if found is None else found.setting) == expected
