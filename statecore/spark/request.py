"""What a restore is asked for: one frozen value, made by the command line, by Airflow, or by a test."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from statecore.errors import Invalid

DEFAULT_MEMORY_BUDGET = 512 * 1024 * 1024


@dataclass(frozen=True)
class RestoreRequest:
    """A request to rebuild stores of one application from its changelogs.

    Attributes:
        state_dir: Kafka Streams' ``state.dir``; the stores go to ``<state_dir>/<application id>``.
        spec_path: path of ``stores.yaml``; or
        spec: the same as a mapping.
        stores: names of the stores to restore; empty for all.
        partitions: partitions to restore; empty for all.
        replace: whether stores that are there already may be replaced (moved aside until the new are verified).
        memory_budget: bytes of records that one task may hold; a range that needs more becomes several runs.
        transaction_wait: seconds to wait, under exactly-once, for an open transaction at the end of a changelog.
        timeout: seconds without progress after which a broker counts as unreachable.
        plan_only: make and show the plan; read and change nothing.
        staging_dir: where runs and images are built: on the file system of ``state_dir``, and shared by all executors.
            ``None`` for ``<state_dir>/<application id>/.statecore``.
        request_id: names this request; a retry under the same name finds the frozen plan and what was built for it.
    """

    state_dir: str
    spec_path: str | None = None
    spec: Mapping[str, Any] | None = None
    stores: tuple[str, ...] = ()
    partitions: tuple[int, ...] = ()
    replace: bool = False
    memory_budget: int = DEFAULT_MEMORY_BUDGET
    transaction_wait: float = 30.0
    timeout: float = 30.0
    plan_only: bool = False
    staging_dir: str | None = None
    request_id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        if (self.spec_path is None) == (self.spec is None):
            raise Invalid(
                "A restore takes either the path of a spec or the spec itself.",
                action="Give exactly one of spec_path and spec.",
            )
        if not self.state_dir:
            raise Invalid("No state directory was given.", action="Give Kafka Streams' state.dir as state_dir.")
        if self.memory_budget < 1024 * 1024:
            raise Invalid(
                f"A memory budget of {self.memory_budget} bytes is too small to hold one batch of records.",
                action="Give at least 1 MiB; 512 MiB is the default.",
            )

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> RestoreRequest:
        """Read a request from JSON, as ``spark_jobs/restore.py --request`` takes it.

        Absent and null fields take their defaults.

        Raises:
            Invalid: a field that does not exist, or is of the wrong type.
        """
        known = {item.name for item in fields(RestoreRequest)}
        unknown = sorted(set(document) - known)
        if unknown:
            raise Invalid(
                f"The request has unknown fields: {', '.join(unknown)}.",
                action=f"Use these: {', '.join(sorted(known))}.",
            )
        values = {name: value for name, value in document.items() if value is not None}
        try:
            if "stores" in values:
                values["stores"] = tuple(str(name) for name in values["stores"])
            if "partitions" in values:
                values["partitions"] = tuple(int(number) for number in values["partitions"])
            for name, kind in (("memory_budget", int), ("transaction_wait", float), ("timeout", float)):
                if name in values:
                    values[name] = kind(values[name])
            return RestoreRequest(**values)
        except (TypeError, ValueError) as error:
            raise Invalid(
                f"The request is not well-formed: {error}.", action="Correct the field that is named."
            ) from error

    def to_json(self) -> dict[str, Any]:
        """The request as JSON; ``from_json`` is its inverse."""
        return {
            item.name: list(value) if isinstance(value := getattr(self, item.name), tuple) else value
            for item in fields(self)
        }

    @property
    def spec_source(self) -> str:
        """Where the spec comes from, for messages."""
        return str(Path(self.spec_path)) if self.spec_path is not None else "<spec of the request>"
