"""The part of ``statecore info`` about a repository."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from statecore.errors import StatecoreError

if TYPE_CHECKING:
    from statecore.repository.listing import ApplicationView


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
        from statecore.cli.repository_tables import application_document

        return {
            "url": self.url,
            "applications": [application_document(view) for view in self.applications],
            "error": None if self.error is None else self.error.to_json(),
        }

    def show(self) -> None:
        from rich.text import Text

        from statecore.cli.output import result_console
        from statecore.cli.repository_tables import show_applications

        console = result_console()
        console.print(f"repository {self.url}", style="bold", markup=False)
        if self.error is not None:
            console.print(Text(f"  could not be read: {self.error.what.rstrip()} {self.error.action}", style="red"))
        elif self.applications:
            show_applications(self.applications, console)
        else:
            console.print("  no snapshots")


def look(url: str, wanted: str | None) -> PublishedSnapshots:
    """List the snapshots of one application, or of all for ``None``; an unreadable repository is part of the result."""
    from statecore.repository.application_repository import ApplicationRepository
    from statecore.repository.listing import list_application, list_applications, require_snapshots
    from statecore.repository.repository import open_repository

    try:
        repository = open_repository(url)
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
