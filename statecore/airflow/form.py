"""Airflow Params generated from the fields of a job's request.

Dag files are parsed repeatedly, so only the field declarations are read here. Airflow stores the Params in its database
as plain JSON, of its own class, and shows the form from there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from airflow.sdk import Param

from statecore.errors import Invalid
from statecore.jobs.fields.declaration import DeclaredField, Request, declared_fields
from statecore.jobs.fields.types import Several
from statecore.spec.spark_settings import CONF_PATTERN, MEMORY_PATTERN


def required(default: Any, **schema: Any) -> Param:
    """A Param that a run has to set, unless the site has a default."""
    return Param(default, **schema) if default else Param(**schema)


def params_of(
    request: type[Request], *, needed: Collection[str] = (), without: Collection[str] = (), **site: Any
) -> dict[str, Param]:
    """A Param for each field of a request that is shown in a form.

    Args:
        request: the request's dataclass.
        needed: fields that this Dag requires although the request does not; they come first.
        without: fields that the form does not have.
        site: defaults of this site by field name; ``None`` for the declared default.
    """
    return {
        declared.name: _param(declared, site.get(declared.name), needed=declared.name in needed)
        for declared in _fields(request, without)
    }


def object_schema(request: type[Request], names: Collection[str], needed: Collection[str]) -> dict[str, Any]:
    """The JSON schema of an object that has some fields of a request."""
    declared = declared_fields(request)
    fields = {
        name: {
            **declared[name].declaration.value.schema(),
            "title": declared[name].declaration.title,
            "description": _description(declared[name], needed=True),
        }
        for name in names
    }
    return {"type": "object", "properties": fields, "required": list(needed), "additionalProperties": False}


def applications_param(specs: Collection[str]) -> Param:
    """The Param with the specs of the applications; ``specs`` are the site's default."""
    return required(
        list(specs),
        type="array",
        items={"type": "string", "minLength": 1},
        minItems=1,
        title="Applications",
        description="One per line: the absolute path of a spec (stores.yaml) on the worker, or a spec as JSON.",
    )


def repository_params(repository: str | None) -> dict[str, Param]:
    """The Params of a Dag that goes through a repository; ``repository`` is the site's default."""
    return {
        "repository": required(
            repository,
            type="string",
            minLength=1,
            title="Repository",
            description="URL of the repository: s3://bucket/prefix, or file:///path of a directory that all machines "
            "share.",
        ),
        "application_ids": Param(
            None,
            type=["null", "array"],
            items={"type": "string", "minLength": 1},
            title="Applications",
            description="One application id per line. Empty: all that the repository has.",
        ),
    }


DIRECTORIES = "directories"
"""The parameter with state directories of several machines or paths."""

PLACE: Mapping[str, Mapping[str, Any]] = {
    "host": {
        "type": "string",
        "minLength": 1,
        "title": "Host",
        "description": "The host name of the machine that has the directory; a task on another machine fails.",
    },
    "queue": {
        "type": "string",
        "minLength": 1,
        "title": "Queue",
        "description": "The queue of that machine's worker, if the site uses statecore.airflow.queues.",
    },
}
"""The properties of a state directory that say on which machine its tasks run."""


def chosen_applications_params(specs: Collection[str], request: type[Request]) -> dict[str, Param]:
    """The Params of a Dag whose runs have to choose their applications, or state directories of their own."""
    each = object_schema(request, ("spec_path", "state_dir"), ("spec_path", "state_dir"))
    each["properties"] |= PLACE
    return {
        "applications": Param(
            None,
            type=["null", "array"],
            items={"type": "string", "minLength": 1},
            minItems=1,
            title="Applications",
            description="Spec files of the applications to restore, all into the state directory below. For several "
            "directories use the next field.",
            # With examples the form has a list to choose from; the API takes every spec.
            **({"examples": list(specs)} if specs else {}),
        ),
        DIRECTORIES: Param(
            None,
            type=["null", "array"],
            items=each,
            minItems=1,
            title="State directories",
            description='Or a JSON list, such as [{"spec_path": "/srv/orders.yaml", "state_dir": "/srv/a"}]; each may '
            "also have host and queue.",
        ),
    }


def spark_params() -> dict[str, Param]:
    """The Params for the fields of ``SparkSettings``."""
    return {
        "spark_conf": Param(
            None,
            type=["null", "array"],
            items={"type": "string", "pattern": CONF_PATTERN},
            title="Spark properties",
            description="One per line, such as spark.cores.max=8; they override the spec's and the site's. No secrets.",
            section="Spark",
        ),
        "executor_python": Param(
            None,
            type=["null", "string"],
            title="Python of the executors",
            description="On a cluster: the path, on the executors' hosts, of an interpreter with this release of "
            "statecore. Empty: that of a packed environment, else $PYSPARK_PYTHON, else the same path as the driver's.",
            section="Spark",
        ),
        "executor_memory": Param(
            None,
            type=["null", "string"],
            pattern=MEMORY_PATTERN,
            title="Memory of an executor",
            description="Memory of the executor's JVM, such as 2g. Records are kept outside it, in the Python workers.",
            section="Spark",
        ),
        "executor_cores": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            title="Cores of an executor",
            description="Number of tasks that run in it at once.",
            section="Spark",
        ),
        "executor_archives": Param(
            None,
            type=["null", "array"],
            items={"type": "string", "minLength": 1},
            title="Packed environments",
            description="One per line, <path>#<name>: unpacked on every executor, whose Python is then "
            "./<name>/bin/python.",
            section="Spark",
        ),
    }


def form_names(request: type[Request], without: Collection[str] = ()) -> set[str]:
    """The names of a request's fields that a form shows, except ``without``."""
    return {declared.name for declared in _fields(request, without)}


def fields_of(request: type[Request], params: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that a run's parameters set, as JSON of the request; without empty and false values but for lists."""
    fields = {}
    for declared in _fields(request):
        value, kind = params.get(declared.name), declared.declaration.value
        if isinstance(kind, Several):
            value = value or []
        if value is None or value is False or value == "":
            continue
        try:
            fields[declared.name] = kind.to_json(kind.from_form(value))
        except ValueError as error:
            raise Invalid(
                f"The parameter {declared.name} is not well-formed: {error}.",
                code="parameter-invalid",
                action=f"Correct it. {kind.hint() or declared.declaration.title}.",
                parameter=declared.name,
            ) from error
    return fields


def _fields(request: type[Request], without: Collection[str] = ()) -> Iterator[DeclaredField]:
    shown = (declared for declared in declared_fields(request).values() if declared.declaration.in_form)
    return (declared for declared in shown if declared.name not in without)


def _param(declared: DeclaredField, site: Any, *, needed: bool) -> Param:
    field, kind = declared.declaration, declared.declaration.value
    schema: dict[str, Any] = {
        **kind.schema(),
        "title": field.title,
        "description": _description(declared, needed=needed),
    }
    if field.section is not None and not needed:
        schema["section"] = field.section
    if needed or declared.required:
        return required(site, **schema)
    if _may_be_empty(declared):
        schema["type"] = ["null", schema["type"]]
        if "enum" in schema:
            schema["enum"] = [None, *schema["enum"]]
    default = site if site is not None else declared.default
    return Param(None if default is None or default == "" else kind.to_form(default), **schema)


def _description(declared: DeclaredField, *, needed: bool) -> str:
    field = declared.declaration
    otherwise = declared.otherwise.removeprefix("none: ")
    empty = f"Empty: {otherwise}" if _may_be_empty(declared) and declared.otherwise and not needed else ""
    sentences = (field.help[:1].upper() + field.help[1:], field.value.hint(), empty)
    return " ".join(f"{sentence}." for sentence in sentences if sentence)


def _may_be_empty(declared: DeclaredField) -> bool:
    return declared.declaration.value.may_be_empty or (declared.default is None and not declared.required)
