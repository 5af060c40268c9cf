"""Tables and JSON documents of repositories, for ``statecore repo`` and ``info``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from statecore.cli.output import MOST_ROWS, print_line, result_console, time_ago
from statecore.errors import Corrupted, StatecoreError, worst_of
from statecore.words import format_bytes, known_number, number_of

if TYPE_CHECKING:
    from rich.console import Console

    from statecore.repository.head import SnapshotEntry
    from statecore.repository.listing import ApplicationView, SnapshotView, TaskView
    from statecore.repository.maintenance.verification_record import VerificationRecord
    from statecore.repository.manifest import StoreSnapshot
    from statecore.repository.snapshot_verification import VerifiedSnapshot

UNKNOWN = "unknown"

_SHORTEST_ID = 12
_NAMES = 3  # of foreign blobs that are printed

_BETWEEN = 2
"""Spaces between two columns."""


def label_of(error: StatecoreError) -> str:
    """What an error of an inspection is: one of another release, or one that may not be read, is no damage."""
    return "damaged" if isinstance(error, Corrupted) else "problem"


def exit_code(errors: Iterable[StatecoreError]) -> int:
    """The exit code of the worst error, damage first; 0 without errors."""
    return worst_of(error.exit_code for error in errors)


def left_alone(names: Sequence[str]) -> list[str]:
    """The line about names that this release does not make, if there are any."""
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return [f"  not made by this release, left alone: {', '.join(names[:_NAMES])}{more}"] if names else []


def application_document(view: ApplicationView) -> dict[str, Any]:
    head = view.head
    return {
        "application_id": view.application_id,
        "snapshots": 0 if head is None else len(head.snapshots),
        "newest": None if head is None or head.newest is None else asdict(head.newest),
        "epoch": None if head is None else head.epoch,
        "generation": None if head is None else head.generation,
        "error": None if view.error is None else view.error.to_json(),
    }


def verified_document(verified: VerifiedSnapshot) -> dict[str, Any]:
    damage = [{"task": task, **error.to_json()} for task, error in verified.damage.items()]
    return {**asdict(verified.entry), "held_bytes": verified.held_bytes, "damage": damage}


def snapshot_document(view: SnapshotView, held_bytes: int | None) -> dict[str, Any]:
    manifest = None
    if view.manifest is not None:
        manifest = {name: value for name, value in asdict(view.manifest).items() if name != "task_manifests"}
    return {
        **asdict(view.entry),
        "held_bytes": held_bytes,
        "damage": None if view.damage is None else view.damage.to_json(),
        "manifest": manifest,
        "tasks": [
            {
                "task": task.reference.task,
                "identity": task.reference.identity,
                "read_at_ms": task.reference.read_at_ms,
                "file_bytes": task.reference.file_bytes,
                "damage": None if task.damage is None else task.damage.to_json(),
                "stores": [_store_document(store, view) for store in task.stores],
            }
            for task in view.tasks
        ],
    }


def _store_document(store: StoreSnapshot, view: SnapshotView) -> dict[str, Any]:
    content = view.contents.get(store.identity)
    return {
        **{name: value for name, value in asdict(store).items() if name != "databases"},
        "rows": None if content is None else content.rows,
        "bytes": None if content is None else content.bytes,
        "digest": None if content is None else content.digest,
        "file_bytes": store.file_bytes,
        "databases": [
            {
                "segment": database.segment,
                "runs": len(database.runs),
                "base_files": len(database.base),
                "file_bytes": sum(extent.bytes for _, extent in database.extents),
            }
            for database in store.databases
        ],
    }


def show_applications(views: Sequence[ApplicationView], console: Console) -> None:
    """Print a line for each application, then the errors."""
    rows = []
    for view in views:
        newest = None if view.head is None else view.head.newest
        if view.head is None or newest is None:
            state = "head not usable" if view.error is not None else "none"
            rows.append((view.application_id, state, *[""] * 6))
            continue
        rows.append(
            (
                view.application_id,
                newest.snapshot,
                time_ago(newest.created_at),
                data_age(newest.read_at_ms),
                str(len(view.head.snapshots)),
                str(newest.tasks),
                f"{newest.file_bytes:,}",
                f"epoch {view.head.epoch}, generation {view.head.generation}",
            )
        )
    header = ("application", "newest", "published", "data of", "snapshots", "tasks", "bytes", "head")
    _table(console, header, rows, numbers=header[4:7])
    for view in views:
        if view.error is not None:
            print_line(console, f"problem: {view.error}", "red")


@dataclass(frozen=True)
class PublishedSnapshots:
    """The snapshots of the selected applications in a repository.

    Attributes:
        applications: its applications; empty if it could not be read.
        ensure: raises if it has no snapshot.
    """

    url: str
    applications: Sequence[ApplicationView]
    error: StatecoreError | None
    ensure: Callable[[], object] = lambda: None

    @property
    def exit_code(self) -> int:
        """0, or the error's."""
        return 0 if self.error is None else self.error.exit_code

    def ensure_some(self) -> None:
        """Check that there is something to show."""
        if self.error is not None:
            raise self.error
        self.ensure()

    def to_json(self) -> dict[str, Any]:
        return {
            "url": self.url,
            "applications": [application_document(view) for view in self.applications],
            "error": None if self.error is None else self.error.to_json(),
        }

    def show(self) -> None:
        from rich.text import Text

        console = result_console()
        console.print(f"repository {self.url}", style="bold", markup=False)
        if self.error is not None:
            console.print(Text(f"  could not be read: {self.error.what.rstrip()} {self.error.action}", style="red"))
        elif self.applications:
            show_applications(self.applications, console)
        else:
            console.print("  no snapshots")


def list_published(url: str, wanted: str | None) -> PublishedSnapshots:
    """List the snapshots of one application, or of all for ``None``; an unreadable repository is part of the result."""
    from statecore.objectstore.base import SHORT_RETRIES
    from statecore.repository.application_repository import ApplicationRepository
    from statecore.repository.listing import list_application, list_applications, require_snapshots
    from statecore.repository.repository import open_repository

    try:
        repository = open_repository(url, SHORT_RETRIES)
        if wanted is None:
            views = list_applications(repository)
            return PublishedSnapshots(
                repository.object_store.url, views, None, lambda: require_snapshots(repository, views)
            )
        application = ApplicationRepository(repository, wanted)
        view = list_application(application)
    except StatecoreError as error:
        return PublishedSnapshots(url, (), error)
    if view.error is not None:
        return PublishedSnapshots(repository.object_store.url, [view], None)
    return PublishedSnapshots(repository.object_store.url, [view], None, application.head)


def show_snapshots(found: Sequence[VerifiedSnapshot], console: Console, *, held: bool) -> None:
    """Print a line for each snapshot, then pins and damage."""
    numbers = ("tasks", "bytes", "new bytes", *(("held",) if held else ()))
    header = ("snapshot", "published", "data of", "origin", *numbers, "request")
    rows = [
        (
            ("! " if one.damage else "") + one.entry.snapshot,
            time_ago(one.entry.created_at),
            data_age(one.entry.read_at_ms),
            one.entry.origin,
            str(one.entry.tasks),
            f"{one.entry.file_bytes:,}",
            f"{one.entry.new_bytes:,}",
            *((known_number(one.held_bytes),) if held else ()),
            one.entry.request_id,
        )
        for one in found
    ]
    _table(console, header, rows, numbers=numbers, ids="request")
    for one in found:
        if one.entry.pinned:
            print_line(console, _pin(one.entry))
    for one in found:
        for task, error in one.damage.items():
            what = f"{one.entry.snapshot}, task {task}" if task else one.entry.snapshot
            print_line(console, f"{label_of(error)}: {what}: {error.what}", "red")


def show_verified(record: VerificationRecord, now_ms: int, console: Console) -> None:
    """Print which levels were verified when: of those verified at once the highest."""
    found = [
        f"{one.level} {'in part' if one.since_ms is None else data_age(one.since_ms)}"
        + (f" ({one.damaged} damaged)" if one.damaged else "")
        for one in record.levels(now_ms)
    ]
    print_line(console, f"verified: {', '.join(found) or 'never'}")


def show_snapshot(view: SnapshotView, console: Console, held: VerifiedSnapshot | None) -> None:
    """Print one snapshot in detail: its stores by task, the bytes it holds if requested, and damage."""
    entry, manifest = view.entry, view.manifest
    console.print(f"snapshot {entry.snapshot}", style="bold", markup=False)
    print_line(
        console,
        f"published {time_ago(entry.created_at)} ({entry.created_at}) by {entry.origin}, request {entry.request_id}",
    )
    read_at = f" ({_moment(entry.read_at_ms)})" if entry.read_at_ms is not None else ""
    print_line(console, f"data of {data_age(entry.read_at_ms)}{read_at}")
    print_line(
        console,
        f"{number_of(entry.tasks, 'task')}, {format_bytes(entry.file_bytes)} of files, "
        f"{format_bytes(entry.new_bytes)} of them new",
    )
    if held is not None:
        print_line(
            console,
            f"held by no newer snapshot: {UNKNOWN if held.held_bytes is None else format_bytes(held.held_bytes)}",
        )
    print_line(console, f"identity {entry.identity}")
    if entry.pinned:
        print_line(console, _pin(entry))
    if view.damage is not None:
        print_line(console, f"{label_of(view.damage)}: {view.damage}", "red")
    if manifest is None:
        return
    previous = f"previous {manifest.previous}" if manifest.previous else "the first"
    print_line(
        console,
        f"{previous}, epoch {manifest.epoch}, generation {manifest.generation}, {manifest.processing_guarantee}, "
        f"written by statecore {manifest.statecore_release}"
        + (f", of the cluster {manifest.cluster_id}" if manifest.cluster_id else ""),
    )
    left = ("task", "store", "kind")
    header = (*left, "databases", "runs", "base files", "offset", "log end", "rows", "bytes")
    rows = [_row(task, store, view) for task in view.tasks for store in task.stores]
    if rows:
        _table(console, header, rows, numbers=header[len(left) :])
    for task in view.tasks:
        if task.damage is not None:
            print_line(console, f"{label_of(task.damage)}: task {task.reference.task}: {task.damage}", "red")


def _row(task: TaskView, store: StoreSnapshot, view: SnapshotView) -> tuple[str, ...]:
    content = view.contents.get(store.identity)
    ends = [end.log_end for end in store.changelogs if end.log_end >= 0]
    many = len(store.changelogs) != 1
    offset = f"{len(store.changelogs)} partitions" if many else str(store.changelogs[0].offset)
    if store.restored_by_kafka_streams:
        offset = "none: to be restored"
    return (
        task.reference.task,
        store.store,
        str(store.kind),
        str(len(store.databases)),
        str(sum(len(database.runs) for database in store.databases)),
        str(sum(len(database.base) for database in store.databases)),
        offset,
        UNKNOWN if len(ends) < len(store.changelogs) else "" if many else str(ends[0]),
        known_number(None if content is None else content.rows),
        f"{store.file_bytes:,}",
    )


def _shortened(name: str, room: int) -> str:
    return name if len(name) <= room else f"{name[: room - 1]}…"


def data_age(read_at_ms: int | None) -> str:
    """How long ago the read positions of a snapshot were taken: the age of its data."""
    from statecore.jobs.attempt import age

    return UNKNOWN if read_at_ms is None else age(datetime.fromtimestamp(read_at_ms / 1000, UTC))


def _moment(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _pin(entry: SnapshotEntry) -> str:
    return f"pinned: {entry.snapshot}" + (f": {entry.note}" if entry.note else "")


def _table(
    console: Console, header: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[str], ids: str = ""
) -> None:
    """Print rows as a table with numbers aligned right, or as blocks if it is long or does not fit."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    excess = sum(widths) + _BETWEEN * len(widths) - console.width
    if excess > 0 and ids in header and (room := widths[header.index(ids)] - excess) >= _SHORTEST_ID:
        at = header.index(ids)
        rows = [(*row[:at], _shortened(row[at], room), *row[at + 1 :]) for row in rows]
        excess = 0
    if excess > 0 or len(rows) > MOST_ROWS:
        for first, *rest in rows:
            console.print(Text(first))
            cells = [f"{name} {cell}" for name, cell in zip(header[1:], rest, strict=True) if cell]
            print_line(console, ", ".join(cells), indent=4)
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, _BETWEEN, 0, 0))
    for column in header:
        table.add_column(column, justify="right" if column in numbers else "left")
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)
