"""The envelope of every job's report: which request, by whom, where, when, and how it ended.

In a document the fields of the attempt, of the error and of the body are on one level::

    {"version": 2, <the attempt>}                                        it began; its end is unknown
    {"version": 2, <the attempt>, "finished": ..., "error": ..., ...}    it failed: the error of statecore/errors.py
    {<the attempt>, "finished": ..., <the body>}                         it succeeded: what the job reports

The body of each job is in its ``report.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar

from statecore.errors import StatecoreError
from statecore.jobs.attempt import Attempt, utc_now
from statecore.jobs.engine.protocol import RanOn


class Body(Protocol):
    """What a job reports after a success."""

    def to_json(self) -> dict[str, Any]:
        """The body, with the fields of its attempt if it has them."""


BodyT = TypeVar("BodyT", bound=Body)


class End(StrEnum):
    """How an attempt ended."""

    UNKNOWN = "unknown"
    """It is running, or was killed."""
    FAILED = "failed"
    DONE = "done"


@dataclass(frozen=True)
class JobReport(Generic[BodyT]):
    """One attempt of a job.

    Attributes:
        kind: the job: ``restore``.
        attempt: the request, and who has run it where since when.
        finished: end time (ISO 8601, UTC); empty without a known end.
        ran_on: where its tasks ran.
        error: of a failure: ``error`` (the kind), ``code``, ``what``, ``action``; ``phase`` if it had reached one.
        body: of a success.
    """

    kind: str
    attempt: Attempt
    finished: str = ""
    ran_on: RanOn = field(default_factory=RanOn)
    error: Mapping[str, Any] = field(default_factory=dict)
    body: BodyT | None = None

    @property
    def end(self) -> End:
        """How it ended."""
        return End.FAILED if self.error else End.DONE if self.finished else End.UNKNOWN

    @staticmethod
    def of(kind: str, body: BodyT, attempt: Attempt | None = None) -> JobReport[BodyT]:
        """Of a success; without an attempt, the body has its fields."""
        values = {one.name: getattr(body, one.name) for one in fields(Attempt) if hasattr(body, one.name)}
        return JobReport(
            kind,
            attempt or Attempt.of(values),
            getattr(body, "finished", "") if attempt is None else utc_now(),
            getattr(body, "ran_on", RanOn()),
            body=body,
        )

    def failed(self, error: StatecoreError) -> JobReport[BodyT]:
        """The same after a failure."""
        return JobReport(self.kind, self.attempt, utc_now(), self.ran_on, error.to_json())

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON document."""
        document = {} if self.body is None else self.body.to_json()
        if "started" in document:  # the body has all fields of the envelope
            return document
        finished = {"finished": self.finished} if self.finished else {}
        return {**self.attempt.begun(), **document, **finished, **self.error}
