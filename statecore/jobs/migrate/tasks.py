"""The tasks of a migration, as an engine's workers do them: convert the copy of a task directory, and look at it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from statecore.conversion import TaskConversion
from statecore.faults import fault_points_from_environment
from statecore.jobs.engine import Failure
from statecore.jobs.failures import as_statecore_error


@dataclass(frozen=True)
class ConvertTask:
    """Convert the copy of one task directory.

    Attributes:
        plan: what is to be done to it.
        copy: the copy, below the application's directory.
        done: a file that is made when it is done, for whoever counts.
    """

    plan: TaskConversion
    copy: str
    done: str


@dataclass(frozen=True)
class Converted:
    """A copy that is what its plan says, durable, and was looked at.

    Attributes:
        task: the task.
        seconds: wall time that it took.
    """

    task: str
    seconds: float


def convert_tasks(tasks: Sequence[ConvertTask]) -> list[Converted | Failure]:
    """Convert one copy after the other, up to the first that fails: nothing is put in place then."""
    done: list[Converted | Failure] = []
    for one in tasks:
        try:
            done.append(_converted(one))
        except Exception as error:
            doing = f"task {one.plan.task} was converted for Kafka Streams {one.plan.to.name} in {one.copy}"
            done.append(Failure(as_statecore_error(error, doing, task=one.plan.task).to_json()))
            break
    return done


def _converted(one: ConvertTask) -> Converted:
    from statecore.conversion.execute import convert, verify_conversion

    began = time.monotonic()
    copy = Path(one.copy)
    convert(one.plan, copy, fault_points_from_environment())
    verify_conversion(one.plan, copy)
    Path(one.done).touch()
    return Converted(one.plan.task, time.monotonic() - began)
