"""Reads a repository in a directory by ``docs/repository-format.md`` alone, with nothing of statecore: an oracle."""

from __future__ import annotations

import hmac
import json
import zlib
from base64 import b64decode
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

Read = Callable[[str], bytes]
"""Gives the content of a blob or pointer by its name."""


def read_repository(root: Path, user_key: bytes = b"") -> dict[str, dict[str, Any]]:
    """By application and snapshot: the task manifests by task, after every hash, seal and byte was checked.

    Args:
        root: the repository.
        user_key: that of an encrypted one.
    """
    descriptor = _sealed((root / "repository.json").read_bytes(), ["encryption-1"] if user_key else [])
    assert descriptor["hash"] == "sha256"
    read = cache(_decrypting(root, descriptor, user_key) if user_key else lambda name: (root / name).read_bytes())
    found = {}
    for name in sorted(path.relative_to(root).as_posix() for path in root.glob("apps/*/HEAD")):
        head = _sealed(read(name))
        assert (head["repository_id"], head["application_id"]) == (descriptor["id"], name.split("/")[1])
        found[head["application_id"]] = {entry["snapshot"]: _snapshot(read, head, entry) for entry in head["snapshots"]}
    return found


def _decrypting(root: Path, descriptor: dict[str, Any], user_key: bytes) -> Read:
    kept = _sealed((root / "encryption.json").read_bytes())
    assert (kept["repository_id"], kept["encryption"]) == (descriptor["id"], descriptor["encryption"])
    assert descriptor["encryption"]["by"] == "key"
    wrapped = b64decode(descriptor["encryption"]["ciphertext"])
    data_key = _opened(user_key, wrapped, f"statecore data key of {descriptor['id']}".encode())
    keys = {
        purpose: hmac.digest(data_key, f"statecore encryption-1 {purpose}".encode() + b"\1", "sha256")
        for purpose in ("frames", "names")
    }

    def read(name: str) -> bytes:
        stored = (root / name).read_bytes()
        content = b"".join(
            _opened(keys["frames"], stored[at : at + 65_576], name.encode() + b"\0" + number.to_bytes(8, "big"))
            for number, at in enumerate(range(0, len(stored), 65_576))
        )
        assert len(stored) == len(content) + 40 * max(1, -(-len(content) // 65_536))
        if name.split("/")[2] in ("files", "packs", "task-manifests"):
            digest = sha256(content).hexdigest().encode()
            assert hmac.digest(keys["names"], digest, "sha256").hex() == name.rpartition("/")[2].partition(".")[0]
        return content

    return read


def _opened(key: bytes, frame: bytes, associated: bytes) -> bytes:
    """Open what XAES-256-GCM has sealed."""
    nonce, sealed = frame[:24], frame[24:]
    encrypt = Cipher(algorithms.AES(key), modes.ECB()).encryptor().update
    doubled = int.from_bytes(encrypt(bytes(16)), "big") << 1
    subkey = (doubled ^ (1 << 128 | 0x87)) if doubled >> 128 else doubled
    blocks = (int.from_bytes(bytes([0, one, ord("X"), 0]) + nonce[:12], "big") ^ subkey for one in (1, 2))
    return AESGCM(b"".join(encrypt(block.to_bytes(16, "big")) for block in blocks)).decrypt(
        nonce[12:], sealed, associated
    )


def _snapshot(read: Read, head: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
    content = read(f"apps/{head['application_id']}/manifests/{entry['snapshot']}.json")
    assert sha256(content).hexdigest() == entry["sha256"]
    manifest = _sealed(content)
    assert (manifest["repository_id"], manifest["application_id"]) == (head["repository_id"], head["application_id"])
    tasks = {}
    for reference in manifest["task_manifests"]:
        task_manifest = json.loads(zlib.decompress(_bytes(read, reference["sha256"], reference["extent"])))
        assert (task_manifest["version"], task_manifest["task"]) == (1, reference["task"])
        for database in (each for store in task_manifest["stores"] for each in store.get("databases", [])):
            for stored in database["runs"]:
                _bytes(read, stored["run"]["sha256"], stored["extent"])
            for file in database.get("base", []):
                _bytes(read, file["sha256"], file["extent"])
        tasks[reference["task"]] = task_manifest
    return tasks


def _bytes(read: Read, digest: str, extent: dict[str, Any]) -> bytes:
    content = read(extent["blob"])[extent["start"] : extent["start"] + extent["bytes"]]
    assert (len(content), sha256(content).hexdigest()) == (extent["bytes"], digest)
    return content


def _sealed(content: bytes, needs: list[str] | None = None) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(content)
    rest = {name: value for name, value in document.items() if name != "seal"}
    assert document["seal"] == sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
    assert (document["version"], document.get("needs", {}).get("read", [])) == (1, needs or [])
    return document
