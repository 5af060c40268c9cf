"""``Content``: what is put under a name: bytes, a finished local file, or bytes that are made as they are read."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from pathlib import Path
from typing import IO, Any

from statecore.errors import NotFound


class Source(ABC):
    """Bytes that are made as they are read, so that a large blob is never whole in memory; each time the same."""

    size: int

    @abstractmethod
    def read(self, start: int, end: int) -> bytes:
        """The bytes from ``start`` to before ``end``; from any thread."""


Content = bytes | Path | Source


def check_content(content: Content) -> None:
    """Refuse a file that does not exist. Raises ``NotFound``."""
    if isinstance(content, Path) and not content.is_file():
        raise NotFound(
            f"There is no file {content} to upload.",
            code="upload-file-missing",
            action="Create it again, then retry.",
            path=str(content),
        )


def size_of(content: Content) -> int:
    if isinstance(content, bytes):
        return len(content)
    return content.size if isinstance(content, Source) else content.stat().st_size


def bytes_of(content: Content, start: int, end: int) -> bytes:
    """The bytes from ``start`` to before ``end``; fewer if the content is shorter."""
    if isinstance(content, bytes):
        return content[start:end]
    if isinstance(content, Source):
        return content.read(start, min(end, content.size))
    with content.open("rb") as file:
        file.seek(start)
        return file.read(end - start)


def opened(content: Content) -> IO[bytes]:
    """A file object of the content, to be closed."""
    if isinstance(content, Path):
        return content.open("rb")
    return io.BytesIO(content) if isinstance(content, bytes) else io.BufferedReader(_SourceFile(content), _CHUNK)


_CHUNK = 1 << 20


class _SourceFile(io.RawIOBase):
    """A file object of a source, read from its start to its end."""

    def __init__(self, source: Source) -> None:
        super().__init__()
        self._source, self._at = source, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._source.read(self._at, min(self._at + len(buffer), self._source.size))
        buffer[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)
