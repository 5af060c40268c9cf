"""What a restore is asked for: one frozen value, made by the command line, by Airflow, or by a test."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from statecore.errors import Invalid
from statecore.jobs.plan import VersionedStart

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
        staging_dir: where runs and images are built; shared by all executors, and best on the file system of
            ``state_dir``: from another one images are copied. ``None`` for ``<state_dir>/<application id>/.statecore``.
        versioned: what versioned stores are to find when the application starts: ``history`` (queries of the past
            answer, because Kafka Streams restores the stores itself; nothing of them is read here) or ``latest``
            (nothing is restored, queries of the past find only what is written from then on).
        owner: ``user[:group]`` that what is placed will belong to; ``None`` for that of the directory that is there
            (:mod:`statecore.placement.ownership`).
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
    versioned: VersionedStart = VersionedStart.HISTORY
    owner: str | None = None
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
        if not self.request_id:
            raise Invalid("The request id is empty.", action="Give a name, or leave it out.")
        negative = [number for number in self.partitions if number < 0]
        if negative:
            raise Invalid(f"{negative[0]} is the number of no partition.", action="Count partitions from 0.")
        if not 0 <= self.transaction_wait < math.inf or not 0 < self.timeout < math.inf:
            raise Invalid(
                f"One cannot wait {self.transaction_wait:g} s (transaction_wait) or {self.timeout:g} s (timeout).",
                action="Give a finite number, for transaction_wait at least 0, for timeout more than 0.",
            )

    @staticmethod
    def from_json(document: Any) -> RestoreRequest:
        """Read a request from JSON, as ``spark_jobs/restore.py --request`` takes it.

        Absent and null fields take their defaults. Numbers may come as text, which is how templates render them;
        nothing else is guessed: a ``replace`` of ``"false"`` must not replace anything.

        Raises:
            Invalid: no JSON object, a field that does not exist, or one of the wrong type.
        """
        if not isinstance(document, dict):
            raise Invalid(
                "The request is no JSON object.", action='Write one such as {"spec_path": ..., "state_dir": ...}.'
            )
        unknown = sorted(set(document) - _FIELDS.keys())
        if unknown:
            raise Invalid(
                f"The request has unknown fields: {', '.join(unknown)}.",
                action=f"Use these: {', '.join(sorted(_FIELDS))}.",
            )
        values = {name: value for name, value in document.items() if value is not None}
        try:
            return RestoreRequest(**{name: _FIELDS[name](value) for name, value in values.items()})
        except (TypeError, ValueError, OverflowError) as error:
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


def _typed(kind: type, words: str) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if not isinstance(value, kind):
            raise TypeError(f"{value!r} is not {words}")
        return value

    return check


def _number(kind: type[int] | type[float]) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)) or kind(value) != float(value):
            raise TypeError(f"{value!r} is not {'a whole number' if kind is int else 'a number'}")
        return kind(value)

    return check


def _list_of(item: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...]]:
    def check(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, (list, tuple)):
            raise TypeError(f"{value!r} is not a list")
        return tuple(dict.fromkeys(map(item, value)))

    return check


_TEXT = _typed(str, "text")
_FLAG = _typed(bool, "true or false")
_FIELDS: dict[str, Callable[[Any], Any]] = {
    "state_dir": _TEXT,
    "spec_path": _TEXT,
    "spec": _typed(Mapping, "a mapping"),
    "stores": _list_of(_TEXT),
    "partitions": _list_of(_number(int)),
    "replace": _FLAG,
    "memory_budget": _number(int),
    "transaction_wait": _number(float),
    "timeout": _number(float),
    "plan_only": _FLAG,
    "staging_dir": _TEXT,
    "versioned": VersionedStart,
    "owner": _TEXT,
    "request_id": _TEXT,
}
"""Every field of a request with the check that its JSON form has to pass."""
