"""Cached index of a reports directory, newest first.

::

    <reports>/<application>/<request>.json    a report, written by a job and changed only by a retry of its request
    <reports>/.index/<application>.json       summary of its newest reports; may be deleted at any time

An index is a cache: it records the name, size and time of each file it was made from, and a reader that finds others
reads the new ones and rewrites the index. If it cannot be written it stays in memory. The result depends only on the
newest :data:`KEPT` reports of an application, so reading is bounded and a rebuilt index has the same content.
"""

from __future__ import annotations

import heapq
import logging
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from dataclasses import fields as fields_of
from pathlib import Path

from statecore.documents import DocumentType, Fields, plain
from statecore.errors import Invalid
from statecore.filesystem import replace_file
from statecore.jobs.attempt import Instance
from statecore.jobs.history.report_head import (
    ReportError,
    ReportHead,
    ReportOutcome,
    RestoredPartition,
    read_head,
    read_partitions,
    read_report,
)

log = logging.getLogger(__name__)

KEPT = 500
"""Number of newest reports of an application that are read."""

INDEX = ".index"


class Attempts:
    """Attempts to restore or to publish, newest first."""

    attempts: tuple[ReportHead, ...]

    @property
    def last_restored(self) -> ReportHead | None:
        """The latest attempt that restored a state directory."""
        return next((head for head in self.attempts if head.outcome is ReportOutcome.RESTORED), None)

    @property
    def last_published(self) -> ReportHead | None:
        """The latest attempt that published a snapshot, with or without restoring a state directory."""
        return next((head for head in self.attempts if head.succeeded and head.snapshot), None)


@dataclass(frozen=True)
class InstanceReports(Attempts):
    """Reports of one instance.

    Attributes:
        attempts: its report heads, newest first; at least one.
        partitions: the latest restore of each store partition, by store, then partition, then task; without a state
            directory those of one repository, into which was published last.
        by_repository: without a state directory the partitions of each repository.
        repository: URL of the repository to which ``partitions`` and ``last_published`` are restricted; else empty.
    """

    instance: Instance
    attempts: tuple[ReportHead, ...]
    partitions: tuple[RestoredPartition, ...]
    by_repository: Mapping[str, tuple[RestoredPartition, ...]] = field(default_factory=dict)
    repository: str = ""

    def of_repository(self, url: str) -> InstanceReports:
        """These reports, with the stores of one repository; of a state directory without a change."""
        if self.instance.state_dir:
            return self
        return replace(self, partitions=self.by_repository.get(url, ()), repository=url)

    @property
    def last_published(self) -> ReportHead | None:
        """The latest attempt that published a snapshot; with a repository, into that."""
        if not self.repository:
            return super().last_published
        there = (head for head in self.attempts if head.succeeded and head.repository == self.repository)
        return next((head for head in there if head.snapshot), None)

    @property
    def last(self) -> ReportHead:
        """The latest attempt that was more than a plan; a plan only if there is nothing else."""
        return next((head for head in self.attempts if head.outcome is not ReportOutcome.PLANNED), self.attempts[0])

    @property
    def last_succeeded(self) -> ReportHead | None:
        """The latest successful attempt that did something, else the latest one; the page shows it."""
        successes = [head for head in self.attempts if head.succeeded]
        return next((head for head in successes if not head.was_idle), successes[0] if successes else None)


@dataclass(frozen=True)
class ApplicationReports:
    """Reports of one application.

    Attributes:
        name: directory name: the application id without characters that are unsafe in file names.
        instances: newest first.
        unreadable: names of files that are no reports.
    """

    name: str
    instances: tuple[InstanceReports, ...]
    unreadable: tuple[str, ...]


class ReportIndex:
    """The reports in a directory. Thread-safe; several processes may use one directory."""

    def __init__(self, directory: Path, *, keep: bool = True, most: int = KEPT) -> None:
        self.directory, self.keep, self._most = Path(directory), keep, most
        self._known: dict[str, _Entries] = {}
        self._guard = threading.Lock()

    def names(self) -> list[str]:
        """Directory names of applications with reports, the most recently written first; reads no report."""
        newest = ((max(files.values())[0], name) for name, files in self._listing())
        return [name for _, name in sorted(newest, reverse=True)]

    def application(self, name: str) -> ApplicationReports:
        """Reports of one application directory, none if it does not exist; updates the index."""
        if name in ("", ".", "..", INDEX) or "/" in name or "\0" in name:
            return ApplicationReports(name, (), ())
        listed = _newest_reports(self.directory / name, self._most)
        if not listed:
            return ApplicationReports(name, (), ())
        with self._guard:
            entries = self._known.get(name)
            if entries is None or entries.signatures != listed:
                # Another process may have indexed the new reports already.
                entries = _load(self._file(name)) or entries or _Entries()
            if entries.signatures != listed:
                entries = _refreshed(entries, self.directory / name, listed)
                if self.keep:
                    _save(self._file(name), entries)
            self._known[name] = entries
        return entries.application(name)

    def heads(self, only: Callable[[str], bool] = lambda _: True, skip: int = 0) -> Iterator[ReportHead | None]:
        """Heads of all reports, the most recently written first, read lazily; ``None`` for a file that is no report."""
        files = [
            (signature, name, file)
            for name, listed in self._listing()
            if only(name)
            for file, signature in listed.items()
        ]
        for signature, name, file in sorted(files, reverse=True)[skip:]:
            entries = self._known.get(name)
            if entries is not None and entries.signatures.get(file) == signature:
                head = entries.heads.get(file)
            else:
                head = _head(self.directory / name / file)
            yield head

    def _listing(self) -> list[tuple[str, dict[str, Signature]]]:
        try:
            with os.scandir(self.directory) as entries:
                names = [entry.name for entry in entries if entry.is_dir() and entry.name != INDEX]
        except (FileNotFoundError, NotADirectoryError):
            return []
        listing = [(name, _newest_reports(self.directory / name, self._most)) for name in names]
        return [(name, listed) for name, listed in listing if listed]

    def _file(self, name: str) -> Path:
        return self.directory / INDEX / f"{name}.json"


Signature = tuple[int, int, int]
"""Modification time in ns, size and inode of a file; a rewritten report has another one."""


_PartitionKey = tuple[Instance, str, str, str, int]
"""Instance, repository (of one without a state directory), store, task and partition."""


def _place(head: ReportHead) -> str:
    return "" if head.attempt.state_dir else head.repository


def _key(head: ReportHead, part: RestoredPartition) -> _PartitionKey:
    return head.attempt.instance, _place(head), part.store, part.task, part.partition


class _Entries:
    """Index of one application's reports by file: the head of each, and store partitions that no later report has."""

    def __init__(self) -> None:
        self.signatures: dict[str, Signature] = {}
        self.heads: dict[str, ReportHead] = {}
        self.partitions: dict[_PartitionKey, tuple[str, RestoredPartition]] = {}
        self._application: ApplicationReports | None = None

    def add(self, name: str, signature: Signature, path: Path) -> None:
        self.signatures[name] = signature
        try:
            document = read_report(path)
            head = _named(read_head(document), path)

            def is_newer(store: str, task: str, partition: int) -> bool:
                known = self.partitions.get((head.attempt.instance, _place(head), store, task, partition))
                return known is None or (head.when, name) >= (known[1].when, known[0])

            partitions = list(read_partitions(document, head, is_newer))
        except ReportError as cause:
            log.warning("The report %s is skipped: %s", path, cause)
            return
        self.heads[name] = head
        self.partitions |= {_key(head, part): (name, part) for part in partitions}

    def application(self, name: str) -> ApplicationReports:
        """The reports grouped by instance."""
        if self._application is None:
            self._application = ApplicationReports(
                name, tuple(self._instances()), tuple(sorted(self.signatures.keys() - self.heads.keys()))
            )
        return self._application

    def _instances(self) -> list[InstanceReports]:
        heads: dict[Instance, list[tuple[str, str, ReportHead]]] = {}
        for name, head in self.heads.items():
            heads.setdefault(head.attempt.instance, []).append((head.when, name, head))
        parts: dict[Instance, dict[str, list[RestoredPartition]]] = {}
        for (instance, place, *_), (_, part) in self.partitions.items():
            parts.setdefault(instance, {}).setdefault(place, []).append(part)
        found = []
        for instance, named in heads.items():
            by_place = {
                place: tuple(sorted(there, key=lambda part: (part.store, part.partition, part.task)))
                for place, there in parts.get(instance, {}).items()
            }
            last = max(by_place.values(), key=lambda there: max(part.when for part in there), default=())
            attempts = tuple(head for *_, head in sorted(named, key=lambda item: item[:2], reverse=True))
            found.append(InstanceReports(instance, attempts, last, {} if instance.state_dir else by_place))
        return sorted(found, key=lambda one: one.last.when, reverse=True)

    def save(self) -> bytes:
        return _DOCUMENT.encode(
            _Index(
                {name: (*signature, self.heads.get(name)) for name, signature in self.signatures.items()},
                tuple(self.partitions.values()),
            )
        )

    @staticmethod
    def load(data: bytes) -> _Entries:
        """Decode an index. Raises ``Invalid`` if it is none, and ``KeyError`` if it is inconsistent."""
        index, entries = _DOCUMENT.decode(data), _Entries()
        for name, (modified, size, inode, head) in index.files.items():
            entries.signatures[name] = (modified, size, inode)
            if head is not None:
                entries.heads[name] = head
        for name, part in index.partitions:
            entries.partitions[_key(entries.heads[name], part)] = (name, part)
        return entries


@dataclass(frozen=True)
class _Index:
    """Content of an index file.

    Attributes:
        files: by name the signature of a report and its head, ``None`` if it is no report.
        partitions: the latest store partitions, each with the name of its report.
    """

    files: Mapping[str, tuple[int, int, int, ReportHead | None]]
    partitions: tuple[tuple[str, RestoredPartition], ...]


def _form(index: _Index) -> Fields:
    """Encode partitions as lists, without field names: there may be thousands."""
    fields: Fields = plain(index)
    return {**fields, "partitions": [[name, list(part.values())] for name, part in fields["partitions"]]}


def _lifted(fields: Fields) -> Fields:
    return {
        **fields,
        "partitions": [[name, dict(zip(_NAMES, values, strict=True))] for name, values in fields["partitions"]],
    }


_NAMES = tuple(item.name for item in fields_of(RestoredPartition))
_DOCUMENT = DocumentType("index of reports", 2, _Index, "It is rebuilt.", form=_form, lift=_lifted)


def _named(head: ReportHead, path: Path) -> ReportHead:
    """A head with an application id: if the spec could not be read, the directory's name."""
    if head.attempt.application_id:
        return head
    return replace(head, attempt=replace(head.attempt, application_id=path.parent.name))


def _head(path: Path) -> ReportHead | None:
    try:
        return _named(read_head(read_report(path)), path)
    except ReportError as cause:
        log.warning("The report %s is skipped: %s", path, cause)
        return None


def _refreshed(known: _Entries, directory: Path, listed: Mapping[str, Signature]) -> _Entries:
    """Update the entries for a new listing of the directory."""
    changed = [name for name, signature in known.signatures.items() if listed.get(name) != signature]
    # A deleted or rewritten report of store partitions may have superseded older ones: read all again.
    hidden = any(name in known.heads and known.heads[name].succeeded for name in changed)
    entries = _Entries() if hidden else _copy(known)
    for name in changed:
        entries.signatures.pop(name, None)
        entries.heads.pop(name, None)
    for name, signature in listed.items():
        if name not in entries.signatures:
            entries.add(name, signature, directory / name)
    return entries


def _copy(entries: _Entries) -> _Entries:
    copy = _Entries()
    copy.signatures, copy.heads = dict(entries.signatures), dict(entries.heads)
    copy.partitions = dict(entries.partitions)
    return copy


def _newest_reports(directory: Path, most: int) -> dict[str, Signature]:
    """The newest report files of an application."""
    found: list[tuple[int, str, Signature]] = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.name.endswith(".json"):
                    with suppress(OSError):  # a retry just removed it
                        status = entry.stat()
                        signature = (status.st_mtime_ns, status.st_size, status.st_ino)
                        found.append((status.st_mtime_ns, entry.name, signature))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    return {name: signature for _, name, signature in heapq.nlargest(most, found)}


def _load(file: Path) -> _Entries | None:
    try:
        return _Entries.load(file.read_bytes())
    except (OSError, Invalid, KeyError):
        return None  # absent, incomplete, or of another release


def _save(file: Path, entries: _Entries) -> None:
    """Write an index; if that is not permitted, the next reader reads the reports again."""
    with suppress(OSError):
        file.parent.mkdir(exist_ok=True)
        replace_file(file, entries.save())


def reports_directory(environment: Mapping[str, str]) -> Path:
    """The reports directory: ``STATECORE_REPORTS``, or ``$AIRFLOW_HOME/statecore/reports``."""
    home = environment.get("AIRFLOW_HOME") or str(Path("~/airflow").expanduser())
    return Path(environment.get("STATECORE_REPORTS") or Path(home) / "statecore" / "reports")


def directory_name(application_id: str) -> str:
    """Directory name of an application's reports."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", application_id)
