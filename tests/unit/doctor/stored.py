"""State directories as Kafka Streams leaves them: written from the golden files, or row by row."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import rocksdict

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
GUARANTEE = "at-least-once"
CASES = sorted(path.name.removesuffix(f"-{GUARANTEE}.json") for path in GOLDEN.glob(f"*-{GUARANTEE}.json"))
"""One golden file for each kind, and one more for the join windows that keep headers."""

Rows = Sequence[tuple[bytes, bytes]]


def golden(case: str) -> dict[str, Any]:
    """The golden file of a case."""
    return json.loads((GOLDEN / f"{case}-{GUARANTEE}.json").read_text())


def owner(case: str) -> str:
    """The id of the application that wrote the golden file of a case."""
    made = golden(case)
    return str(made["changelog"]).removesuffix(f"-{made['store']}-changelog")


def write_database(path: Path, families: Mapping[str, Rows]) -> None:
    """A database with these rows, families besides ``default`` made as named."""
    path.mkdir(parents=True)
    database = rocksdict.Rdict(str(path), rocksdict.Options(raw_mode=True))
    for name, rows in families.items():
        family = (
            database if name == "default" else database.create_column_family(name, rocksdict.Options(raw_mode=True))
        )
        for key, value in rows:
            family[key] = value
        if name != "default":
            family.close()
    database.close()
    (path / "rocksdict-config.json").unlink()


def offsets(topic: str, partition: int, offset: int, status: int | None = 0) -> Rows:
    """The ``offsets`` family of a store."""
    rows = [(f"{topic}-{partition}".encode(), offset.to_bytes(8, signed=True))]
    return rows if status is None else [*rows, (b"status", status.to_bytes(8))]


def write_golden(application: Path, case: str, *, task: str | None = None, renamed: bool = False) -> dict[str, Any]:
    """The store of a golden file, in the directory of an application; returns the golden file.

    Renamed, its changelog is called as one of that application.
    """
    made = golden(case)
    theirs = made["changelog"]
    ours = f"{application.name}-{made['store']}-changelog" if renamed else theirs
    directory = application / (task or made["task"])
    if "segments" in made:
        (directory / made["store"]).mkdir(parents=True, exist_ok=True)
        for segment, families in made["segments"].items():
            write_database(directory / made["store"] / segment, _rows(families, theirs, ours))
    else:
        write_database(directory / "rocksdb" / made["store"], _rows(made["families"], theirs, ours))
    if "checkpoint" in made:
        (directory / f".checkpoint_{made['store']}").write_text(made["checkpoint"].replace(theirs, ours))
    return made


def _rows(families: Mapping[str, Sequence[tuple[str, str]]], theirs: str, ours: str) -> dict[str, Rows]:
    return {
        name: [
            (
                _renamed(bytes.fromhex(key), theirs, ours) if name == "offsets" else bytes.fromhex(key),
                bytes.fromhex(value),
            )
            for key, value in rows
        ]
        for name, rows in families.items()
    }


def _renamed(key: bytes, theirs: str, ours: str) -> bytes:
    topic, _, partition = key.decode().rpartition("-")
    return f"{ours}-{partition}".encode() if topic == theirs else key
