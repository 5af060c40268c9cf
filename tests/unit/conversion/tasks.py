"""Task directories to be converted, made of golden files and row by row; and their conversion, as a job does it."""

from __future__ import annotations

import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from statecore.conversion import TaskConversion, plan_conversion
from statecore.conversion.execute import RUN_BYTES, convert, verify_conversion
from statecore.formats.kinds import StoreKind
from statecore.formats.releases import RELEASES
from statecore.spec.model import ApplicationSpec, ProcessingGuarantee, StoreSpec
from statecore.statedir.file_trees import fingerprint, link_tree
from tests.harness.directory import read_database

GOLDEN = Path(__file__).parents[2] / "golden"
OLDER = {"3.9": ("3.9.1", "old391"), "4.2": ("4.2.0", "old420")}
"""Release → version and application id of the golden task that it left."""


class Task:
    """A task's directory, converted again and again: each conversion is made in a copy that takes its place.

    Args:
        path: the directory.
        application_id: of the application.
        spec: what is declared, if anything is.
        exactly_once: the guarantee.
    """

    def __init__(
        self,
        path: Path,
        application_id: str,
        *,
        spec: ApplicationSpec | None = None,
        exactly_once: bool | None = True,
        task: str | None = None,
    ) -> None:
        self.path, self.application_id, self.spec, self.exactly_once = path, application_id, spec, exactly_once
        self.task = task or path.name
        self._copies = 0

    def plan(self, release: str, **options: Any) -> TaskConversion:
        """Its plan; to make it changes nothing."""
        before = fingerprint(self.path)
        made = plan_conversion(
            self.task,
            self.path,
            RELEASES[release],
            application_id=self.application_id,
            spec=self.spec,
            **{"exactly_once": self.exactly_once, **options},
        )
        assert fingerprint(self.path) == before
        return made

    def convert(self, release: str, *, run_bytes: int = RUN_BYTES, **options: Any) -> TaskConversion:
        """Convert a copy, which takes the place of the directory; that one is not changed by it."""
        plan = self.plan(release, **options)
        assert not plan.refused
        self._copies += 1
        copy = self.path.with_name(f"{self.path.name}.copy-{self._copies}")
        link_tree(self.path, copy)
        before = _bytes(self.path)
        convert(plan, copy, run_bytes=run_bytes)
        verify_conversion(plan, copy)
        assert _bytes(self.path) == before
        self.path = copy
        assert self.plan(release, **options).is_empty
        return plan

    @property
    def files(self) -> dict[str, list[str]]:
        """The files beside the stores, by name: their lines, sorted."""
        return {path.name: sorted(path.read_text().split("\n")) for path in self.path.iterdir() if path.is_file()}

    @property
    def databases(self) -> dict[str, dict[str, list[tuple[bytes, bytes]]]]:
        """The rows of each family of each database, by its directory."""
        return {
            str(file.parent.relative_to(self.path)): read_database(file.parent)
            for file in sorted(self.path.rglob("CURRENT"))
        }


def golden_task(scratch: Path, release: str, **options: Any) -> Task:
    """The task that a real application left on an older release; its stores are ``plain`` and ``stamped``."""
    version, application_id = OLDER[release]
    with tarfile.open(GOLDEN / f"kafka-streams-{version}-task.tar.gz") as archive:
        archive.extractall(scratch, filter="data")
    return Task(scratch / "0_1", application_id, **options)


def declared(
    application_id: str,
    stores: Mapping[str, tuple[StoreKind, str]] | None = None,
    global_stores: Mapping[str, tuple[StoreKind, str]] | None = None,
) -> ApplicationSpec:
    """A spec of stores of subtopology 0, each with its kind and changelog."""
    return ApplicationSpec(
        application_id,
        "",
        ProcessingGuarantee.EXACTLY_ONCE_V2,
        tuple(StoreSpec(name, kind, 0, changelog) for name, (kind, changelog) in (stores or {}).items()),
        tuple(StoreSpec(name, kind, -1, topic) for name, (kind, topic) in (global_stores or {}).items()),
    )


def _bytes(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}
