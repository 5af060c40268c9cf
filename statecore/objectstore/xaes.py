"""XAES-256-GCM (https://c2sp.org/XAES-256-GCM): AES-256-GCM with nonces of 24 bytes.

The first half of a nonce and the key give the key of one message, the second half is the nonce of AES-256-GCM. So one
key seals any number of messages under nonces that look random.
"""

from __future__ import annotations

from statecore.extras import require

KEY_BYTES = 32
NONCE_BYTES = 24
TAG_BYTES = 16


class Xaes256Gcm:
    """XAES-256-GCM with one key; may be used by many threads."""

    def __init__(self, key: bytes) -> None:
        require("encryption")
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        self._block_cipher = Cipher(algorithms.AES256(key), modes.ECB())
        doubled = int.from_bytes(self._encrypted(bytes(16))) << 1  # CMAC's first subkey
        subkey = (doubled ^ 0x87 if doubled >> 128 else doubled) & ((1 << 128) - 1)
        self._mask = subkey << 128 | subkey

    def encrypt(self, nonce: bytes, content: bytes | memoryview, associated: bytes) -> bytes:
        """Ciphertext and tag; ``associated`` is authenticated, and not in the result."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return AESGCM(self._key_of(nonce)).encrypt(nonce[12:], content, associated)

    def decrypt(self, nonce: bytes, sealed: bytes | memoryview, associated: bytes) -> bytes | None:
        """The content; ``None`` if it was not sealed with this key, nonce and ``associated``."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            return AESGCM(self._key_of(nonce)).decrypt(nonce[12:], sealed, associated)
        except InvalidTag:
            return None

    def _key_of(self, nonce: bytes) -> bytes:
        first = nonce[:12]
        blocks = int.from_bytes(b"\0\1X\0" + first + b"\0\2X\0" + first) ^ self._mask
        return self._encrypted(blocks.to_bytes(32))

    def _encrypted(self, blocks: bytes) -> bytes:
        return self._block_cipher.encryptor().update(blocks)
