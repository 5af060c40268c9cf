"""Job requests from the parameters of a run, one for each application, validated before Spark is started.

Airflow has checked the parameters against their JSON schema. Here their meaning is checked: specs can be read, named
stores and partitions exist, and no application is named twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statecore.airflow.form import DIRECTORIES, fields_of, form_names
from statecore.errors import Invalid, NotFound, StatecoreError
from statecore.jobs.fields.declaration import Request, declared_fields
from statecore.jobs.fields.types import FilePath
from statecore.jobs.restore.request import RestoreRequest
from statecore.spec.spark_settings import SparkSettings, settings_from_params
from statecore.spec.tree import suggestion

if TYPE_CHECKING:
    from statecore.spec.model import ApplicationSpec


NOT_OF_SNAPSHOTS = frozenset({"state_dir", "staging_dir", "replace", "owner"})
"""Fields of a request that concern placement, which a job that only publishes a snapshot does not have."""


Refused = Callable[[str, str | None, str, StatecoreError], None]
"""Callback for a refused application: how it was named, its id if its spec could be read, its state directory (empty
without one), and the error."""


def _ignore(named: str, application_id: str | None, state_dir: str, error: StatecoreError) -> None:
    """Ignores refused applications."""


def snapshot_requests(params: Mapping[str, Any], refused: Refused = _ignore) -> list[dict[str, Any]]:
    """The entries of ``snapshot_state``: :func:`restore_requests` without the fields of placement."""
    return restore_requests(params, refused, NOT_OF_SNAPSHOTS)


def restore_requests(
    params: Mapping[str, Any], refused: Refused = _ignore, without: Collection[str] = ()
) -> list[dict[str, Any]]:
    """One entry for each application: ``application_id``, ``kafka_conn_id``, the ``request`` of the job, and ``conf``.

    Entries of ``directories`` come first, so that the map index of a task is the place of its directory
    (``queues.py``); each has the ``host`` of its directory. ``conf`` holds the Spark properties of the application's
    spec and of the run, which takes precedence; it is absent without any.

    Args:
        params: the parameters of ``restore_stores``: ``applications``, ``directories``; the fields of
            ``RestoreRequest`` that its form shows; ``spark_conf`` and the other fields of ``SparkSettings``.
        refused: called for each refused application; the first such error is raised at the end.
        without: fields that the form does not have.

    Raises:
        Invalid: a parameter is unknown, a spec or a Spark property is wrong, an application is named twice, none was
            named, or a path is relative.
        NotFound: a spec file or a named store does not exist.
    """
    entries: list[dict[str, Any]] = []
    errors: list[StatecoreError] = []
    seen: dict[tuple[str, ...], str] = {}
    check_names(params, RestoreRequest, without, () if "state_dir" in without else (DIRECTORIES,))
    given = fields_of(RestoreRequest, params)
    stores = given["stores"]
    spark = settings_from_params(params).to_conf()
    directories = params.get(DIRECTORIES) or []
    places = [*directories, *({"spec_path": named} for named in params.get("applications") or ())]
    for number, place in enumerate(places):
        application_id, named, of_directory = None, str(place["spec_path"]), number < len(directories)
        own = {"state_dir": place["state_dir"]} if of_directory else {}
        state_dir = str(own.get("state_dir") or params.get("state_dir") or "")
        try:
            source, spec = _spec_of(named)
            target = (spec.application_id, state_dir, str(place.get("host") or ""))
            if first := seen.get(target):
                raise Invalid(
                    f"The application {spec.application_id} is named twice: {first} and {source}.",
                    code="application-duplicated",
                    action="Name each application once; two jobs would compete for one state directory.",
                    application_id=spec.application_id,
                )
            application_id = spec.application_id
            seen[target] = source
            # No entry of a directory is left out: a task is on the machine of the directory with its map index.
            _check_stores(spec, stores, several=len(places) > 1 and not of_directory)
            request: dict[str, Any] = {
                **request_of_named(named),
                **given,
                **own,
                "stores": [name for name in stores if name in _names(spec)],
            }
            check_paths(request)
            if stores and not request["stores"]:
                continue  # every named store belongs to another application
            RestoreRequest.from_json(request)  # invalid requests are refused before Spark is started
        except StatecoreError as error:
            errors.append(error)
            refused(named, application_id, state_dir, error)
            continue
        entry: dict[str, Any] = {
            "application_id": application_id,
            "request": request,
            "kafka_conn_id": spec.kafka_connection,
            **({"host": place.get("host")} if of_directory else {}),
        }
        if conf := {**spec.spark.to_conf(), **spark}:
            entry["conf"] = conf
        entries.append(entry)
    if errors:
        raise errors[0]
    if not entries:
        raise no_application_named()
    _check_found(stores, entries)
    return entries


def no_application_named() -> Invalid:
    return Invalid(
        "No application was named.",
        code="applications-missing",
        action="Choose at least one in the parameter applications.",
    )


def check_names(
    params: Mapping[str, Any],
    request: type[Request],
    without: Collection[str],
    others: Collection[str] = (),
    of: str = "applications",
) -> None:
    """Refuse unknown parameters: Airflow accepts any, and a misspelt ``stores`` would mean all stores."""
    settings = {field.name for field in fields(SparkSettings)} - {"conf"}
    check_known(params, {of, "spark_conf", *settings, *form_names(request, without), *others})


def check_paths(request: Mapping[str, Any]) -> None:
    """Refuse relative paths: a worker would resolve them against its own directory, mostly Airflow's home."""
    for name, declared in declared_fields(RestoreRequest).items():
        path, hint = request.get(name), declared.declaration.value.hint()
        if isinstance(declared.declaration.value, FilePath) and path and not Path(path).is_absolute():
            raise Invalid(
                f"The {declared.declaration.title.lower()} {path!r} is relative; the worker has another working "
                "directory.",
                code="path-relative",
                action=f"Give {hint[:1].lower()}{hint[1:]}.",
                **{name: path},
            )


def is_inline(named: str) -> bool:
    """Whether an item of ``applications`` is a spec as JSON, and not the path of one."""
    return named.lstrip().startswith("{")


def request_of_named(named: str) -> dict[str, Any]:
    """The request field for an item of ``applications``. Raises ``Invalid``."""
    if not is_inline(named):
        return {"spec_path": named}
    try:
        return {"spec": json.loads(named)}
    except ValueError as cause:
        raise Invalid(
            f"The inline spec is not JSON: {cause}.", code="spec-invalid", action="Write one JSON object on one line."
        ) from cause


def _names(spec: ApplicationSpec) -> set[str]:
    return {store.name for store in (*spec.stores, *spec.global_stores)}


class _LaterEnvironment(dict[str, str]):
    """Stands for the job's environment, which this task does not have: every variable is set to a dummy."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> str:
        return "set-in-the-job"


def _spec_of(named: str) -> tuple[str, ApplicationSpec]:
    spec = spec_of_named(named)
    return spec.source, spec


def spec_of_named(named: str, environ: Mapping[str, str] | None = None) -> ApplicationSpec:
    """The spec of an item of ``applications``."""
    # Imported here, because Dag files that import this module are parsed often and read no spec.
    from statecore.spec.reader import load_spec, read_spec

    environ = _LaterEnvironment() if environ is None else environ
    if is_inline(named):
        return read_spec(named, source="<inline spec>", environ=environ)
    check_paths({"spec_path": named})
    return load_spec(named, environ=environ)


def _check_stores(spec: ApplicationSpec, stores: list[str], *, several: bool) -> None:
    missing = [name for name in stores if name not in _names(spec)]
    if missing and not several:
        raise NotFound(
            f"The application {spec.application_id} has no store {', '.join(missing)}.",
            code="store-not-declared",
            action=f"Name stores of its spec: {', '.join(sorted(_names(spec)))}.",
            application_id=spec.application_id,
            stores=missing,
        )


def _check_found(stores: list[str], entries: list[dict[str, Any]]) -> None:
    found = {name for entry in entries for name in entry["request"]["stores"]}
    missing = [name for name in stores if name not in found]
    if missing:
        raise NotFound(
            f"None of the applications has a store {', '.join(missing)}.",
            code="store-not-declared",
            action="Correct the parameter stores, or leave it empty for all stores.",
            stores=missing,
        )


def check_known(params: Collection[str], known: Collection[str]) -> None:
    """Refuse parameters that a Dag does not have: a misspelt one would count as left out. Raises ``Invalid``."""
    if unknown := sorted(set(params) - set(known)):
        raise Invalid(
            " ".join(f"This Dag has no parameter {name!r}{suggestion(name, known) or '.'}" for name in unknown),
            code="parameter-unknown",
            action=f"Correct the name in the run's conf; nothing was changed. It has: {', '.join(sorted(known))}.",
            parameters=unknown,
        )
