"""XAES-256-GCM against the vectors of its specification (https://c2sp.org/XAES-256-GCM)."""

from __future__ import annotations

import pytest

from statecore.objectstore.xaes import Xaes256Gcm

NONCE = b"ABCDEFGHIJKLMNOPQRSTUVWX"
CONTENT = b"XAES-256-GCM"

VECTORS = [
    (1, b"", "ce546ef63c9cc60765923609b33a9a1974e96e52daf2fcf7075e2271"),  # the most significant bit of L is 0
    (3, b"c2sp.org/XAES-256-GCM", "986ec1832593df5443a179437fd083bf3fdb41abd740a21f71eb769d"),  # it is 1
]


@pytest.mark.parametrize(("byte", "associated", "sealed"), VECTORS)
def test_it_is_as_specified(byte: int, associated: bytes, sealed: str) -> None:
    xaes = Xaes256Gcm(bytes([byte]) * 32)
    assert xaes.encrypt(NONCE, CONTENT, associated).hex() == sealed
    assert xaes.decrypt(NONCE, bytes.fromhex(sealed), associated) == CONTENT


def test_what_was_changed_or_belongs_elsewhere_is_not_opened() -> None:
    xaes = Xaes256Gcm(bytes(32))
    sealed = xaes.encrypt(NONCE, CONTENT, b"here")
    for bit in range(8 * len(sealed)):
        changed = bytearray(sealed)
        changed[bit // 8] ^= 1 << bit % 8
        assert xaes.decrypt(NONCE, bytes(changed), b"here") is None
    assert xaes.decrypt(NONCE, sealed, b"there") is None
    assert xaes.decrypt(NONCE[::-1], sealed, b"here") is None
    assert Xaes256Gcm(bytes(31) + b"\1").decrypt(NONCE, sealed, b"here") is None
