"""Blobs and pointers that are encrypted before they are sent, over any object store.

Names, sizes, ranges and checksums are those of the content, so nothing above knows of it; how a content is stored is in
:mod:`statecore.objectstore.frames`. Nothing is decrypted by the server, and nothing is a link of a local file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from statecore.objectstore.base import Blob, Blobs, checked_name, checked_range
from statecore.objectstore.checksum import Checksum
from statecore.objectstore.content import Content, check_content
from statecore.objectstore.frames import FRAME_BYTES, SEALED_BYTES, FrameCipher, content_size
from statecore.objectstore.pointers import Pointers, PointerValue

CipherSource = Callable[[], FrameCipher]
"""Gives the cipher when it is needed first; to learn the data key may take a request."""


class EncryptedBlobs(Blobs):
    """Blobs whose content is stored encrypted.

    Args:
        blobs: where they are stored.
        cipher: gives the cipher.
        plain: names of the blobs that are not encrypted.
    """

    def __init__(self, blobs: Blobs, cipher: CipherSource, plain: Collection[str] = ()) -> None:
        self._blobs, self._cipher, self._plain = blobs, cipher, frozenset(plain)
        self.is_local = blobs.is_local

    def put_if_absent(self, name: str, content: Content) -> bool:
        return self._blobs.put_if_absent(name, self._sealed(name, content))

    def replace(self, name: str, content: Content) -> None:
        self._blobs.replace(name, self._sealed(name, content))

    def _sealed(self, name: str, content: Content) -> Content:
        check_content(content)
        return content if checked_name(name) in self._plain else self._cipher().sealed(name, content)

    def get(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        checked_range(start, end)
        if checked_name(name) in self._plain or start == end:
            return self._blobs.get(name, start, end)
        first = start // FRAME_BYTES
        last = None if end is None else -(-end // FRAME_BYTES) * SEALED_BYTES
        content = self._cipher().open_frames(name, self._blobs.get(name, first * SEALED_BYTES, last), first)
        low = first * FRAME_BYTES
        return content if (start, end) == (low, None) else content[start - low : None if end is None else end - low]

    def head(self, name: str) -> Blob:
        return self._of_content(self._blobs.head(name))

    def list(self, prefix: str = "") -> Iterator[Blob]:
        return map(self._of_content, self._blobs.list(prefix))

    def _of_content(self, blob: Blob) -> Blob:
        if blob.name in self._plain:
            return blob
        return blob._replace(size=content_size(blob.size))

    def directories(self, above: str) -> Iterator[str]:
        return self._blobs.directories(above)

    def delete(self, name: str) -> None:
        self._blobs.delete(name)

    def delete_all(self, names: Sequence[str]) -> None:
        self._blobs.delete_all(names)

    def delete_leftovers(self, before: float, *, apply: bool = True) -> Sequence[int]:
        return self._blobs.delete_leftovers(before, apply=apply)

    def keeps_versions(self) -> bool:
        return self._blobs.keeps_versions()

    def local_path(self, name: str) -> Path | None:
        """See :meth:`Blobs.local_path`; always ``None``."""
        self.head(name)
        return None

    def checksum_of(self, name: str, content: Content, part: int) -> Checksum:
        return Checksum.of(self._sealed(name, content), part)

    def hash_in_name(self, sha256: str) -> str:
        return self._cipher().hash_in_name(sha256)


class EncryptedPointers(Pointers):
    """Pointers whose content is stored encrypted; the arguments are those of :class:`EncryptedBlobs`."""

    def __init__(self, pointers: Pointers, cipher: CipherSource, plain: Collection[str] = ()) -> None:
        self._pointers, self._cipher, self._plain = pointers, cipher, frozenset(plain)

    def read(self, name: str) -> PointerValue | None:
        found = self._pointers.read(name)
        if found is None or name in self._plain:
            return found
        return found._replace(content=self._cipher().open_frames(name, found.content))

    def swap(self, name: str, content: bytes, expected: str | None) -> str | None:
        if checked_name(name) not in self._plain:
            sealed = self._cipher().sealed(name, content)
            content = sealed.read(0, sealed.size)
        return self._pointers.swap(name, content, expected)
