"""One attempt of a request (by whom, where and when), and its report, however it ended.

In a document the fields of the attempt, of the error and of the body are on one level::

    {"version": 2, <the attempt>}                                        it began; its end is unknown
    {"version": 2, <the attempt>, "finished": ..., "error": ..., ...}    it failed: the error of statecore/errors.py
    {<the attempt>, "finished": ..., <the body>}                         it succeeded: what the job reports

The body of each job is in its ``report.py``.
"""

from __future__ import annotations

import os
import pwd
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from statecore import __version__
from statecore.errors import StatecoreError
from statecore.jobs.engine.protocol import RanOn

REPORT_VERSION = 2


def utc_now() -> str:
    """The current time as in reports: ISO 8601, UTC, to the millisecond."""
    return utc(datetime.now(UTC).timestamp())


def utc(seconds: float) -> str:
    """Seconds since the epoch as in reports."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parsed_time(text: str) -> datetime | None:
    """A time of a report; ``None`` if it is missing or invalid."""
    try:
        found = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return found.astimezone(UTC) if found.tzinfo else None


def made_at_ms(created_at: str, read_at_ms: int | None, interval_ms: int) -> int:
    """When a snapshot was made: when its ends were read, else when it was published.

    If the two times are further apart than an interval, some unchanged task could not be confirmed; if they are the
    wrong way round, the publishing machine's clock differs from the brokers'. Then the time of publication counts.

    Returns:
        In ms since the epoch.
    """
    published = parsed_time(created_at)
    made = 0 if published is None else int(published.timestamp() * 1000)
    return made if read_at_ms is None or not 0 <= made - read_at_ms <= interval_ms else read_at_ms


def age(when: datetime, now: datetime | None = None) -> str:
    """How long before ``now`` (default: the clock's) a time was, in one unit: ``3 hours ago``."""
    seconds = max(((now or datetime.now(UTC)) - when).total_seconds(), 0.0)
    name, length = next((unit for unit in _UNITS if seconds >= 2 * unit[1]), ("second", 1))
    number = int(seconds // length)
    return f"{number} {name}{'' if number == 1 else 's'} ago"


_UNITS = (("day", 86_400), ("hour", 3600), ("minute", 60))


class Instance(NamedTuple):
    """What a restore writes to, independent of other restores: one application on one host below one ``state.dir``.

    Attributes:
        state_dir: Kafka Streams' ``state.dir``, resolved; empty for jobs of a repository.
    """

    application_id: str
    host: str
    state_dir: str


@dataclass(frozen=True)
class Attempt:
    """One attempt of a request, as in every report.

    Attributes:
        application_id: Kafka Streams' ``application.id``; empty if the spec could not be read.
        state_dir: Kafka Streams' ``state.dir``, absolute and without symbolic links.
        request_id: the request; its retries have the same.
    """

    application_id: str
    state_dir: str
    request_id: str
    host: str
    user: str
    process: int
    release: str
    started: str

    @staticmethod
    def begin(application_id: str, state_dir: str, request_id: str) -> Attempt:
        """An attempt of this process that begins now."""
        return Attempt(
            application_id=application_id,
            state_dir=os.path.realpath(state_dir) if state_dir else "",
            request_id=request_id,
            host=socket.gethostname(),
            user=_user(),
            process=os.getpid(),
            release=__version__,
            started=utc_now(),
        )

    @property
    def instance(self) -> Instance:
        return Instance(self.application_id, self.host, self.state_dir)

    def begun(self) -> dict[str, Any]:
        return {"version": REPORT_VERSION, **asdict(self)}

    def failed(self, error: Mapping[str, Any], phase: str = "") -> dict[str, Any]:
        """The report of an attempt that failed just now."""
        return {**self.begun(), "finished": utc_now(), **({"phase": phase} if phase else {}), **error}

    @staticmethod
    def of(document: Mapping[str, Any]) -> Attempt:
        """The attempt of a report; missing fields are empty."""
        return Attempt(
            **{name: str(document.get(name) or "") for name in _TEXTS}, process=int(document.get("process") or 0)
        )


_TEXTS = tuple(item.name for item in fields(Attempt) if item.name != "process")


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a container may run as a uid without a name
        return f"uid {os.geteuid()}"


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
        finished: end time (ISO 8601, UTC); empty without a known end.
        error: of a failure: ``error`` (the kind), ``code``, ``what``, ``action``; ``phase`` if it had reached one.
    """

    kind: str
    attempt: Attempt
    finished: str = ""
    ran_on: RanOn = field(default_factory=RanOn)
    error: Mapping[str, Any] = field(default_factory=dict)
    body: BodyT | None = None

    @property
    def end(self) -> End:
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
        return JobReport(self.kind, self.attempt, utc_now(), self.ran_on, error.to_json())

    def to_json(self) -> dict[str, Any]:
        document = {} if self.body is None else self.body.to_json()
        if "started" in document:  # the body has all fields of the envelope
            return document
        finished = {"finished": self.finished} if self.finished else {}
        return {**self.attempt.begun(), **document, **finished, **self.error}
