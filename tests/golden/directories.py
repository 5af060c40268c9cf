"""The golden directories of ``make_directories``: what there is, and one of them unpacked."""

from __future__ import annotations

import functools
import json
import os
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent / "directories"


@dataclass(frozen=True)
class GoldenDirectory:
    """What is known of one archive; see ``make_directories`` for the fields.

    Attributes:
        name: of the archive, and the application's id.
        version: of Kafka Streams that wrote it.
        release: the same as a release.
        guarantee: ``at_least_once`` or ``exactly_once_v2``.
        moment: what was done, in a word.
        done: the same in a sentence.
        spec: ``stores.yaml``.
        ends: end offset of each partition of each changelog.
        findings: codes that a doctor must find.
        tolerated: codes that it may find besides.
        databases: of each database its families, rows, offsets and status.
    """

    name: str
    version: str
    release: str
    guarantee: str
    moment: str
    done: str
    spec: dict[str, Any]
    ends: dict[str, list[int]]
    findings: tuple[str, ...]
    tolerated: tuple[str, ...]
    databases: dict[str, dict[str, Any]]

    @property
    def archive(self) -> Path:
        """The ``.tar.gz``."""
        return HERE / f"{self.name}.tar.gz"

    def stores_yaml(self) -> str:
        """The text of ``stores.yaml``."""
        return yaml.safe_dump(self.spec, sort_keys=False)


@functools.cache
def golden_directories() -> dict[str, GoldenDirectory]:
    """Every golden directory by name."""
    index = json.loads((HERE / "directories.json").read_text())
    return {
        name: GoldenDirectory(name, **{**one, "findings": tuple(one["findings"]), "tolerated": tuple(one["tolerated"])})
        for name, one in index.items()
    }


def names(*, release: str | None = None, moment: str | None = None) -> Sequence[str]:
    """The names, for parametrized tests; those of one release or moment."""
    return [
        name
        for name, one in golden_directories().items()
        if release in (None, one.release) and moment in (None, one.moment)
    ]


def unpacked(name: str, state_dir: Path) -> Path:
    """Unpacks a golden directory into a ``state.dir``; returns the application's directory, its times are now's."""
    with tarfile.open(HERE / f"{name}.tar.gz") as archive:
        archive.extractall(state_dir, filter="fully_trusted")
    application = state_dir / name
    for path in (application, *application.rglob("*")):
        os.utime(path)
    return application
