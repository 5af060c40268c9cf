"""Which migrations and repairs an application's directory has seen: the last of each, and those that were killed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from statecore.errors import Invalid
from statecore.jobs.attempt import Attempt
from statecore.jobs.history.report_head import ReportError, read_report
from statecore.jobs.migrate.report import MIGRATE_REPORT, MIGRATION_SUFFIX, MigrateReport
from statecore.jobs.planning.frozen_plan import ATTEMPT_SUFFIX, PLAN_SUFFIX
from statecore.jobs.repair.report import REPAIR_REPORT, REPAIR_SUFFIX, RepairReport
from statecore.statedir.work_directory import PLANS
from statecore.stores.lock_holder import Holder


@dataclass(frozen=True)
class Try:
    """A try of a migration or a repair whose end was not written down.

    Attributes:
        file: the file that says so.
        job: ``migration`` or ``repair``.
        attempt: the try.
        words: the words of the command that goes on with it, without ``statecore``.
        running: whether its process holds the application's lock.
    """

    file: Path
    job: str
    attempt: Attempt
    words: tuple[str, ...]
    running: bool = False

    def to_json(self) -> dict[str, Any]:
        """All of it as a JSON document."""
        return {**vars(self), "file": str(self.file), "attempt": vars(self.attempt), "words": list(self.words)}


@dataclass(frozen=True)
class Changes:
    """The migrations and repairs of a directory.

    Attributes:
        migration: the last that came to its end; ``None`` for none.
        repair: likewise.
        unfinished: tries that did not.
    """

    migration: MigrateReport | None = None
    repair: RepairReport | None = None
    unfinished: tuple[Try, ...] = ()

    @property
    def requests(self) -> frozenset[str]:
        """Of the tries that did not come to their end."""
        return frozenset(one.attempt.request_id for one in self.unfinished)

    def to_json(self) -> dict[str, Any]:
        """All of it as a JSON document."""
        return {
            "last_migration": self.migration.to_json() if self.migration else None,
            "last_repair": self.repair.to_json() if self.repair else None,
            "unfinished_changes": [one.to_json() for one in self.unfinished],
        }


def changes_of(work: Path, files: Iterable[Path], holder: Holder | None, here: str, trouble: list[str]) -> Changes:
    """What the files of a directory's requests say.

    Args:
        work: the application's ``.statecore``.
        files: the files of its requests, newest first.
        holder: who holds the application's lock.
        here: this host's name.
        trouble: told what could not be read.
    """
    migration: MigrateReport | None = None
    repair: RepairReport | None = None
    for file in files:
        try:
            if file.suffix == MIGRATION_SUFFIX and migration is None:
                migration = MIGRATE_REPORT.decode(file.read_bytes())
            elif file.suffix == REPAIR_SUFFIX and repair is None:
                repair = REPAIR_REPORT.decode(file.read_bytes())
        except FileNotFoundError:  # a job is at work
            continue
        except Invalid as error:
            trouble.append(f"{file}: {error}")
    return Changes(migration, repair, tuple(killed_tries(work, holder, here)))


def killed_tries(work: Path, holder: Holder | None = None, here: str = "") -> Iterator[Try]:
    """Tries of migrations and repairs whose end nobody has written down.

    Args:
        work: the application's ``.statecore``.
        holder: who holds the application's lock.
        here: this host's name.
    """
    for file in sorted((work / PLANS).glob(f"*{ATTEMPT_SUFFIX}")):
        if file.with_suffix(PLAN_SUFFIX).exists():
            continue  # of a job that goes on by a plan
        try:
            document = read_report(file)
        except ReportError:  # it has ended meanwhile
            continue
        if "job" in document:
            attempt = Attempt.of(document)
            running = holder is not None and (holder.process, here) == (attempt.process, attempt.host)
            yield Try(file, str(document["job"]), attempt, tuple(map(str, document.get("words") or ())), running)
