"""The form of a Dag that runs a job: the Params that are the fields of the job's request.

A Dag file is parsed again and again, so the declarations are all that is read here. Airflow keeps the Params in its
database and shows the form from there: they are plain JSON, of Airflow's own class.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from airflow.sdk import Param

from statecore.errors import Invalid
from statecore.jobs.declaration import DeclaredField, Request, declared_fields
from statecore.jobs.values import Several


def required(default: Any, **schema: Any) -> Param:
    """A parameter that a run has to name, unless the site has set a default."""
    return Param(default, **schema) if default else Param(**schema)


def params_of(request: type[Request], **site: Any) -> dict[str, Param]:
    """A Param for each field of a request that a form shows.

    Args:
        request: the request's dataclass.
        site: defaults of this site, in place of the declared ones, by the fields' names; ``None`` is none.
    """
    return {declared.name: _param(declared, site.get(declared.name)) for declared in _fields(request)}


def form_names(request: type[Request]) -> set[str]:
    """The names of a request's fields that a form shows."""
    return {declared.name for declared in _fields(request)}


def fields_of(request: type[Request], params: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that a run's parameters say, as JSON of the request.

    What is empty or false is left out, but for lists: whoever reads the request sees that everything is meant.

    Raises:
        Invalid: a parameter is not of its field's form.
    """
    said = {}
    for declared in _fields(request):
        value, kind = params.get(declared.name), declared.said.value
        if isinstance(kind, Several):
            value = value or []
        if value is None or value is False or value == "":
            continue
        try:
            said[declared.name] = kind.to_json(kind.from_form(value))
        except ValueError as error:
            raise Invalid(
                f"The parameter {declared.name} is not well-formed: {error}.",
                action=f"Correct it. {kind.hint() or declared.said.title}.",
            ) from error
    return said


def _fields(request: type[Request]) -> Iterator[DeclaredField]:
    return (declared for declared in declared_fields(request).values() if declared.said.in_form)


def _param(declared: DeclaredField, site: Any) -> Param:
    said, kind = declared.said, declared.said.value
    schema: dict[str, Any] = {**kind.schema(), "title": said.title, "description": _description(declared)}
    if said.section is not None:
        schema["section"] = said.section
    if declared.required:
        return required(site, **schema)
    if kind.may_be_empty:
        schema["type"] = ["null", schema["type"]]
    default = site if site is not None else declared.default
    return Param(None if default is None or default == "" else kind.to_form(default), **schema)


def _description(declared: DeclaredField) -> str:
    said = declared.said
    empty = f"Empty: {declared.otherwise}" if said.value.may_be_empty and declared.otherwise else ""
    sentences = (said.help[:1].upper() + said.help[1:], said.value.hint(), empty)
    return " ".join(f"{sentence}." for sentence in sentences if sentence)
