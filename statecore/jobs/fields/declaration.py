"""Declaration of request fields: each field is declared once, and all of its forms are derived from that.

::

    @dataclass(frozen=True, kw_only=True)
    class RestoreRequest(OfApplication, Staged, Reading, Planned):
        replace: bool = field(
            default=False,
            metadata=declare(Flag(), title="Replace existing stores", help="replace the stores …", section=WHERE),
        )

==========================  =======================================================================================
form                        made by
==========================  =======================================================================================
JSON                        :meth:`Request.from_json` and :meth:`Request.to_json`
options of a command        ``statecore/cli/request_options.py``
Params of a Dag's form      ``statecore/airflow/form.py``
==========================  =======================================================================================

A job declares its request as a frozen dataclass (``kw_only``) over groups of fields (``catalog.py``). Fields
are shown in reading order: those of the groups from left to right, then its own. Dag files import this whenever they
are parsed, so only the standard library is imported here. For that reason, and because templates render numbers as
text, a request is no :class:`statecore.documents.DocumentType`; it is as strict as one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import KW_ONLY, MISSING, dataclass, fields
from functools import cached_property
from inspect import get_annotations
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Self

from statecore.errors import Invalid
from statecore.jobs.fields.types import Flag, Value

if TYPE_CHECKING:
    from statecore.spec.model import ApplicationSpec

_KEY = "statecore"
_P = ParamSpec("_P")


@dataclass(frozen=True)
class Declaration:
    """Declaration of a field, besides its type and default.

    Attributes:
        value: kind of value, with its unit.
        title: its name for a reader; the label in a form.
        help: its meaning: a phrase that follows its name, without a capital and without a full stop.
        section: its heading in a form and in a command's help; ``None`` for the top, where a form shows required
            values.
        otherwise: what holds if it is left out, in words; ``None`` if the default says it.
        option: the command line's option; ``""`` for the field's name with dashes.
        on_command_line: whether there is an option for it.
        option_required: whether the command requires the option; ``None`` if it does where the field has no default.
        in_form: whether a form shows it.
        check: given the field's name and a value of the right type, raises ``Invalid`` if the value makes no sense. Not
            called for ``None``.
    """

    value: Value
    _: KW_ONLY
    title: str
    help: str
    section: str | None = None
    otherwise: str | None = None
    option: str = ""
    on_command_line: bool = True
    option_required: bool | None = None
    in_form: bool = True
    check: Callable[[str, Any], None] | None = None


def _as_metadata(make: Callable[_P, Declaration]) -> Callable[_P, Mapping[str, Declaration]]:
    def made(*args: _P.args, **kwargs: _P.kwargs) -> Mapping[str, Declaration]:
        return {_KEY: make(*args, **kwargs)}

    return made


declare = _as_metadata(Declaration)
"""The ``metadata`` of a dataclass's field; the arguments are those of :class:`Declaration`."""


@dataclass(frozen=True)
class DeclaredField:
    """A field of a request.

    Attributes:
        name: its name, in Python, in JSON and in a form.
        default: its default; ``None`` if it is required, or made for each request.
    """

    name: str
    declaration: Declaration
    required: bool
    default: Any

    @property
    def option(self) -> str:
        return self.declaration.option or f"--{self.name.replace('_', '-')}"

    @property
    def otherwise(self) -> str:
        """What holds if it is left out, for a reader; empty if that is obvious."""
        if self.declaration.otherwise is not None:
            return self.declaration.otherwise
        if self.default in (None, ()) or isinstance(self.declaration.value, Flag):
            return ""
        return str(self.declaration.value.to_form(self.default))


def declared_fields(request: type) -> Mapping[str, DeclaredField]:
    """The fields of a request by name, in reading order. Raises ``TypeError`` for one without a declaration."""
    found = {}
    for item in fields(request):
        if _KEY not in item.metadata:
            raise TypeError(f"{request.__name__}.{item.name} has no declaration: give it metadata=declare(...)")
        required = item.default is MISSING and item.default_factory is MISSING
        default = None if item.default is MISSING else item.default
        found[item.name] = DeclaredField(item.name, item.metadata[_KEY], required, default)
    return {name: found[name] for name in _reading_order(request) if name in found}


def _reading_order(request: type) -> dict[str, None]:
    """Dataclasses order the fields of several bases from right to left; a reader expects left to right."""
    order: dict[str, None] = {}
    for base in request.__bases__:
        order |= _reading_order(base)
    return order | dict.fromkeys(get_annotations(request))


class Request:
    """Base of all requests: validated values with a JSON form."""

    def __post_init__(self) -> None:
        for name, declared in declared_fields(type(self)).items():
            value = getattr(self, name)
            if declared.declaration.check is not None and value is not None:
                declared.declaration.check(name, value)

    @cached_property
    def declared_spec(self) -> ApplicationSpec | None:
        """The spec that it contains (``spec``) or names (``spec_path``), if any; read once."""
        from statecore.spec.reader import load_spec, parse_spec  # Dag files read none

        if (document := getattr(self, "spec", None)) is not None:
            return parse_spec(document, "<spec of the request>")
        path = getattr(self, "spec_path", None)
        return None if path is None else load_spec(Path(path))

    @classmethod
    def from_json(cls, document: Any) -> Self:
        """Read a request from JSON, as a Spark job takes it as ``--request``.

        Absent and null fields take their defaults. Numbers may be text, because templates render them so; nothing else
        is converted: a ``replace`` of ``"false"`` must not replace anything.
        """
        declared = declared_fields(cls)
        if not isinstance(document, dict):
            needed = [name for name, one in declared.items() if one.required or one.declaration.option_required]
            raise Invalid(
                "The request is not a JSON object.",
                code="request-not-json",
                action=f"Write one such as {{{', '.join(f'{name!r}: ...' for name in needed)}}}.".replace("'", '"'),
            )
        unknown = sorted(set(document) - declared.keys())
        if unknown:
            raise Invalid(
                f"The request has unknown fields: {', '.join(unknown)}.",
                code="field-unknown",
                action=f"Use these: {', '.join(sorted(declared))}.",
                fields=unknown,
            )
        given = {name: value for name, value in document.items() if value is not None}
        missing = [name for name, one in declared.items() if one.required and name not in given]
        if missing:
            raise Invalid(
                f"The request lacks {', '.join(missing)}.",
                code="field-missing",
                action="Give the missing fields.",
                fields=missing,
            )
        return cls(**{name: _read(declared[name], value) for name, value in given.items()})

    def to_json(self) -> dict[str, Any]:
        """The request as JSON; ``from_json`` is its inverse."""
        return {
            name: None if (value := getattr(self, name)) is None else declared.declaration.value.to_json(value)
            for name, declared in declared_fields(type(self)).items()
        }

    def to_words(self, without: Collection[str] = ()) -> tuple[str, ...]:
        """Command line options for the same request, without those at their default and the fields in ``without``."""
        words: list[str] = []
        for name, declared in declared_fields(type(self)).items():
            value = getattr(self, name)
            if (
                name in without
                or not declared.declaration.on_command_line
                or value is None
                or value == declared.default
            ):
                continue
            text = declared.declaration.value.to_form(value)
            if isinstance(declared.declaration.value, Flag):
                words.append(declared.option)
                continue
            for one in text if isinstance(text, list) else [text]:
                words += [declared.option, str(one)]
        return tuple(words)


def _read(declared: DeclaredField, value: Any) -> Any:
    try:
        return declared.declaration.value.from_json(value)
    except ValueError as error:
        unit = f" ({declared.declaration.value.unit})" if declared.declaration.value.unit else ""
        raise Invalid(
            f"The request is not well-formed: {declared.name}{unit}: {error}.",
            code="field-invalid",
            action="Correct this field.",
            field=declared.name,
        ) from error
