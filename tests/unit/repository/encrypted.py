"""Encrypted repositories for tests."""

from __future__ import annotations

import base64
from hashlib import sha256
from pathlib import Path


def key_file(path: Path) -> Path:
    """A file with a key; that of its name."""
    path.write_text(base64.b64encode(sha256(path.name.encode()).digest()).decode())
    path.chmod(0o600)
    return path


def encrypted_url(root: Path, key: str = "key") -> str:
    """The URL of an encrypted repository in a directory, and its key in the directory above."""
    return f"{root.as_uri()}?encryption-key=file:{key_file(root.parent / key)}"


def stored_files(root: Path) -> dict[str, bytes]:
    """What an object store has of a repository: content by name."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.relative_to(root).as_posix().startswith("~")
    }
