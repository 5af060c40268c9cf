"""Reads a repository in a directory by ``docs/repository-format.md`` alone, with nothing of statecore: an oracle."""

from __future__ import annotations

import json
import zlib
from hashlib import sha256
from pathlib import Path
from typing import Any


def read_repository(root: Path) -> dict[str, dict[str, Any]]:
    """By application and snapshot: the task manifests by task, after every hash, seal and byte was checked."""
    descriptor = _sealed((root / "repository.json").read_bytes())
    assert descriptor["hash"] == "sha256"
    found = {}
    for head_file in sorted(root.glob("apps/*/HEAD")):
        head = _sealed(head_file.read_bytes())
        assert (head["repository_id"], head["application_id"]) == (descriptor["id"], head_file.parent.name)
        found[head["application_id"]] = {entry["snapshot"]: _snapshot(root, head, entry) for entry in head["snapshots"]}
    return found


def _snapshot(root: Path, head: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
    content = (root / f"apps/{head['application_id']}/manifests/{entry['snapshot']}.json").read_bytes()
    assert sha256(content).hexdigest() == entry["sha256"]
    manifest = _sealed(content)
    assert (manifest["repository_id"], manifest["application_id"]) == (head["repository_id"], head["application_id"])
    tasks = {}
    for reference in manifest["task_manifests"]:
        task_manifest = json.loads(zlib.decompress(_bytes(root, reference["sha256"], reference["extent"])))
        assert (task_manifest["version"], task_manifest["task"]) == (1, reference["task"])
        for database in (each for store in task_manifest["stores"] for each in store.get("databases", [])):
            for stored in database["runs"]:
                _bytes(root, stored["run"]["sha256"], stored["extent"])
            for file in database.get("base", []):
                _bytes(root, file["sha256"], file["extent"])
        tasks[reference["task"]] = task_manifest
    return tasks


def _bytes(root: Path, digest: str, extent: dict[str, Any]) -> bytes:
    with (root / extent["blob"]).open("rb") as file:
        file.seek(extent["start"])
        content = file.read(extent["bytes"])
    assert (len(content), sha256(content).hexdigest()) == (extent["bytes"], digest)
    return content


def _sealed(content: bytes) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(content)
    rest = {name: value for name, value in document.items() if name != "seal"}
    assert document["seal"] == sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
    assert (document["version"], document.get("needs", {}).get("read", [])) == (1, [])
    return document
