"""Frames: how the content of an encrypted blob or pointer is stored (``docs/repository-format.md``, Encryption).

::

    content   64 KiB            │ 64 KiB            │ rest
    stored    nonce│sealed│tag  │ nonce│sealed│tag  │ nonce│sealed│tag      40 bytes more each; an empty content has one

Frames have one size, so any range of the content is in one range of what is stored, and its size follows from theirs.
A frame is sealed with its number and the name that it is stored under: moved anywhere else it cannot be opened.

The nonce of a frame is a keyed hash of name, number and content. So it repeats only with all of them, equal contents of
one name are stored as equal bytes, and one pass over a file is enough, even if somebody writes to it meanwhile. (A
nonce from the name alone would repeat for another content, which gives both away.)
"""

from __future__ import annotations

import hmac

from statecore.objectstore.content import Content, Source, bytes_of, size_of
from statecore.objectstore.xaes import KEY_BYTES, NONCE_BYTES, TAG_BYTES, Xaes256Gcm

FRAME_BYTES = 64 << 10
"""Bytes of content in each frame but the last."""

OVERHEAD_BYTES = NONCE_BYTES + TAG_BYTES
SEALED_BYTES = FRAME_BYTES + OVERHEAD_BYTES
"""Bytes of a whole frame as it is stored."""


def sealed_size(size: int) -> int:
    """Bytes that are stored for a content of ``size`` bytes."""
    return size + OVERHEAD_BYTES * max(1, -(-size // FRAME_BYTES))


def content_size(stored: int) -> int:
    """The inverse of :func:`sealed_size`; for a size that no content has, the bytes in whole frames."""
    frames, rest = divmod(stored, SEALED_BYTES)
    is_frame = rest > OVERHEAD_BYTES or (rest == OVERHEAD_BYTES and not frames)
    return frames * FRAME_BYTES + (rest - OVERHEAD_BYTES if is_frame else 0)


class FrameCipher:
    """Seals and opens frames with the data key of a repository; may be used by many threads."""

    def __init__(self, data_key: bytes) -> None:
        self._xaes = Xaes256Gcm(_derived(data_key, "frames"))
        self._nonces = hmac.new(_derived(data_key, "nonces"), digestmod="sha256")
        self._name_key = _derived(data_key, "names")

    def sealed(self, name: str, content: Content) -> SealedContent:
        """What is stored for a content under a name."""
        return SealedContent(self, name, content)

    def seal_frame(self, name: str, number: int, content: bytes | memoryview) -> tuple[bytes, bytes]:
        """Nonce, and ciphertext with tag, of one frame."""
        place = _place(name, number)
        digest = self._nonces.copy()
        digest.update(place)
        digest.update(content)
        nonce = digest.digest()[:NONCE_BYTES]
        return nonce, self._xaes.encrypt(nonce, content, place)

    def open_frames(self, name: str, stored: bytes, first: int = 0) -> bytes:
        """The content of frames that are stored one after the other, from the number ``first`` on.

        A frame that cannot be opened gives zeros. So a reader that knows the hash of the content finds it damaged,
        as elsewhere, and no byte that others have put is taken for content.
        """
        frames = memoryview(stored)
        return b"".join(
            self._open_frame(name, number, frames[at : at + SEALED_BYTES])
            for number, at in enumerate(range(0, len(stored), SEALED_BYTES), first)
        )

    def _open_frame(self, name: str, number: int, frame: memoryview) -> bytes:
        nonce, sealed = bytes(frame[:NONCE_BYTES]), frame[NONCE_BYTES:]
        if len(sealed) < TAG_BYTES:
            return b""
        content = self._xaes.decrypt(nonce, sealed, _place(name, number))
        return bytes(len(sealed) - TAG_BYTES) if content is None else content

    def hash_in_name(self, sha256: str) -> str:
        """A keyed hash of a hash: without the key a name does not confirm a guess of its content."""
        return hmac.digest(self._name_key, sha256.encode(), "sha256").hex()


class SealedContent(Source):
    """What is stored for a content; sealed as it is read."""

    def __init__(self, cipher: FrameCipher, name: str, content: Content) -> None:
        self._cipher, self._name, self._content = cipher, name, content
        self._content_size = size_of(content)
        self.size = sealed_size(self._content_size)

    def read(self, start: int, end: int) -> bytes:
        first, last = start // SEALED_BYTES, -(-end // SEALED_BYTES)
        low = first * FRAME_BYTES
        content = memoryview(bytes_of(self._content, low, min(last * FRAME_BYTES, self._content_size)))
        pieces: list[bytes] = []
        for number in range(first, last):
            at = number * FRAME_BYTES - low
            pieces += self._cipher.seal_frame(self._name, number, content[at : at + FRAME_BYTES])
        sealed = b"".join(pieces)
        return sealed[start - first * SEALED_BYTES : end - first * SEALED_BYTES]


def _place(name: str, number: int) -> bytes:
    return name.encode() + b"\0" + number.to_bytes(8)


def _derived(data_key: bytes, purpose: str) -> bytes:
    """HKDF-Expand with SHA-256 (RFC 5869), of one block."""
    assert len(data_key) == KEY_BYTES
    return hmac.digest(data_key, f"statecore encryption-1 {purpose}".encode() + b"\1", "sha256")
