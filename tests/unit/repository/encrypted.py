"""Encrypted repositories for tests."""

from __future__ import annotations

import base64
from hashlib import sha256
from pathlib import Path
from typing import Any

from statecore.documents import DocumentType, encode_json, parse_json


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


def rewrite_sealed(path: Path, kind: DocumentType[Any], **fields: object) -> None:
    """Change fields of a sealed document, as another release may have written it."""
    found = {name: value for name, value in parse_json(path.read_bytes()).items() if name != "seal"} | fields
    path.unlink()
    path.write_bytes(encode_json(kind.sealed(found)))
