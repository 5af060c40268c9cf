"""The causes of all alarms, each once: what a person on call reads first on the page *State stores*.

In an outage many applications are red of one cause. They are grouped by the code of the error; what is said of an
application alone, such as the name of its topic, does not make another cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import starmap
from typing import NamedTuple

from statecore.airflow.ui.standing import Alarm, Standing
from statecore.errors import kind_and_code

WORDINGS = 2
"""Number of different texts that are shown of a cause; the blocks of the applications have the others."""


_ANY = "<application>"


class Wording(NamedTuple):
    """What is said of some applications, in one line; of several with ``<application>`` in place of their ids."""

    what: str
    action: str
    applications: tuple[str, ...]


@dataclass(frozen=True)
class Cause:
    """A cause of alarms, with the applications that are red because of it.

    Attributes:
        error, code: of the error; the first is empty for what is no error.
        wordings: what is said of most applications first, at most :data:`WORDINGS`.
        unsaid: number of applications of which something else is said.
        since: when the first of these alarms began; empty if that is not known.
        tried_every: how often the schedule tries again, if that may succeed without a person; else empty.
    """

    error: str
    code: str
    applications: tuple[str, ...]
    wordings: tuple[Wording, ...]
    unsaid: int
    since: str
    tried_every: str

    @property
    def name(self) -> str:
        return kind_and_code(vars(self)) if self.error else self.code

    def says(self, alarm: Alarm, application: str) -> bool:
        """Whether this says all that is known of an alarm."""
        generic = _texts(alarm, application)
        texts = [(one.what, one.action) for one in self.wordings]
        is_said = generic in texts or _of(application, generic) in texts
        return is_said and (alarm.error, alarm.code) == (self.error, self.code) and "\n" not in alarm.what.strip()


def causes_of(red: Iterable[Standing]) -> list[Cause]:
    """The causes of all alarms, that of most applications first."""
    found: dict[tuple[str, str], list[tuple[str, Alarm]]] = {}
    for standing in red:
        for alarm in standing.alarms:
            found.setdefault((alarm.error, alarm.code), []).append((standing.reports.instance.application_id, alarm))
    return sorted(starmap(_cause, found.items()), key=lambda one: (-len(one.applications), one.code))


def _cause(name: tuple[str, str], alarms: list[tuple[str, Alarm]]) -> Cause:
    said: dict[tuple[str, str], set[str]] = {}
    for application, alarm in alarms:
        said.setdefault(_texts(alarm, application), set()).add(application)
    wordings = [
        Wording(*(texts if len(names) > 1 else _of(min(names), texts)), tuple(sorted(names)))
        for texts, names in said.items()
    ]
    wordings.sort(key=lambda one: (-len(one.applications), one.applications))
    return Cause(
        *name,
        tuple(sorted({application for application, _ in alarms})),
        tuple(wordings[:WORDINGS]),
        len({name for one in wordings[WORDINGS:] for name in one.applications}),
        min((alarm.since for _, alarm in alarms if alarm.since), default=""),
        max(alarm.tried_every for _, alarm in alarms),
    )


def _texts(alarm: Alarm, application: str) -> tuple[str, str]:
    """First line and action of an alarm, with a placeholder for the application's id."""
    named = re.compile(rf"(?<![A-Za-z0-9]){re.escape(application)}(?![A-Za-z0-9])")
    return named.sub(_ANY, alarm.what.strip().partition("\n")[0]), named.sub(_ANY, alarm.action)


def _of(application: str, texts: tuple[str, str]) -> tuple[str, str]:
    what, action = texts
    return what.replace(_ANY, application), action.replace(_ANY, application)
