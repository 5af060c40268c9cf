"""Command line options generated from the fields of a job's request."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from statecore.jobs.fields.catalog import LIMITS
from statecore.jobs.fields.declaration import DeclaredField, Request, declared_fields
from statecore.jobs.fields.types import Choice, Flag, Several, Value

RequestT = TypeVar("RequestT", bound=Request)


def add_request_options(parser: argparse.ArgumentParser, request: type[Request]) -> None:
    """Declare an option for each field of a request, by section, limits last; one that is not given is ``None``."""
    headings: dict[str | None, Any] = {None: parser}
    for declared in sorted(_fields(request), key=lambda one: one.declaration.section == LIMITS):
        section, required = declared.declaration.section, declared.declaration.option_required
        if section not in headings:
            headings[section] = parser.add_argument_group((section or "").lower())
        headings[section].add_argument(
            declared.option,
            dest=declared.name,
            required=declared.required if required is None else required,
            default=None,
            help=_help(declared).replace("%", "%%"),
            **_taken(declared.declaration.value),
        )


def request_of(request: type[RequestT], arguments: argparse.Namespace) -> RequestT:
    given = {declared.name: (declared, getattr(arguments, declared.name)) for declared in _fields(request)}
    return request(
        **{
            name: declared.declaration.value.from_words(value)
            for name, (declared, value) in given.items()
            if value is not None
        }
    )


def path_of(word: str) -> Path:
    """An argument that is a path, absolute; an empty one, as from an unset variable, is not the working directory."""
    if not word:
        raise argparse.ArgumentTypeError(f"{word!r} is not a path")
    return Path(word).absolute()


def add_timeout(options: argparse._ActionsContainer) -> None:
    """Declare ``--timeout`` as jobs have it, for a command without a request, which calls ``check_patience``."""
    options.add_argument(
        "--timeout",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="how long a broker may make no progress before it counts as unreachable (default: 30)",
    )


def _fields(request: type[Request]) -> Iterator[DeclaredField]:
    return (declared for declared in declared_fields(request).values() if declared.declaration.on_command_line)


def _taken(value: Value) -> dict[str, Any]:
    """The arguments of ``add_argument`` for a kind of value."""
    if isinstance(value, Flag):
        return {"action": "store_true"}
    if isinstance(value, Choice):
        return {"choices": value.words}
    repeated = {"action": "append"} if isinstance(value, Several) else {}
    return {"type": _word(value), "metavar": value.metavar, **repeated}


def _word(value: Value) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            return value.from_word(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return read


def _help(declared: DeclaredField) -> str:
    repeated = "; repeat the option for each" if isinstance(declared.declaration.value, Several) else ""
    otherwise = f" (default: {declared.otherwise})" if declared.otherwise else ""
    return f"{declared.declaration.help}{repeated}{otherwise}"
