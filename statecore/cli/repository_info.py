"""What ``statecore info`` says of a repository, beside what it says of this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from statecore.errors import StatecoreError

if TYPE_CHECKING:
    from statecore.repository.listing import ApplicationView


@dataclass(frozen=True)
class Published:
    """What a repository has of the applications that are asked for.

    Attributes:
        url: the repository.
        applications: what it has; nothing where it could not be looked at.
        error: why it could not be looked at; ``None`` where it could.
        ensure: raises where it has nothing at all.
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
        """Make sure that there is something to be shown, where nothing else is.

        Raises:
            NotFound: it has nothing.
            StatecoreError: it could not be looked at.
        """
        if self.error is not None:
            raise self.error
        self.ensure()

    def to_json(self) -> dict[str, Any]:
        """All of it as a JSON document."""
        from statecore.cli.repository_tables import application_document

        return {
            "url": self.url,
            "applications": [application_document(view) for view in self.applications],
            "error": None if self.error is None else self.error.to_json(),
        }

    def show(self) -> None:
        """Print it."""
        from rich.text import Text

        from statecore.cli.output import result_console
        from statecore.cli.repository_tables import show_applications

        console = result_console()
        console.print(f"repository {self.url}", style="bold", markup=False)
        if self.error is not None:
            console.print(
                Text(f"  could not be looked at: {self.error.what.rstrip()} {self.error.action}", style="red")
            )
        elif self.applications:
            show_applications(self.applications, console)
        else:
            console.print("  no snapshot")


def look(url: str, wanted: str | None) -> Published:
    """What a repository has of all applications, or of one. That nobody could look is part of the answer.

    Args:
        url: the repository.
        wanted: the application; ``None`` for every one there.
    """
    from statecore.repository.application_repository import ApplicationRepository
    from statecore.repository.listing import ensure_some, list_application, list_applications
    from statecore.repository.repository import open_repository

    try:
        repository = open_repository(url)
        if wanted is None:
            views = list_applications(repository)
            return Published(repository.place.url, views, None, lambda: ensure_some(repository, views))
        shelf = ApplicationRepository(repository, wanted)
        view = list_application(shelf)
    except StatecoreError as error:
        return Published(url, (), error)
    return Published(repository.place.url, [view], None, lambda: None if view.trouble is not None else shelf.head())
