"""From what the system or Python says to this library's few kinds of error, for the operator who is paged."""

from __future__ import annotations

import signal
import traceback
from typing import Any

from statecore.errors import Capacity, Invalid, Retryable, StatecoreError
from statecore.filesystem import MOUNT_FOR_WRITING
from statecore.system_errors import Refusal, refusal_of

_STOPPED: dict[Refusal, tuple[type[StatecoreError], str, str]] = {
    Refusal.FULL: (
        Capacity,
        "The disk ran full while",
        "Free room there, or give a staging directory on a larger disk, and start the restore again.",
    ),
    Refusal.READ_ONLY: (
        Invalid,
        "The file system is mounted read-only, which was noticed while",
        MOUNT_FOR_WRITING,
    ),
    Refusal.DENIED: (
        Invalid,
        "The system refused while",
        "Give this user the right to read and write there, or run as the user that the application runs as.",
    ),
    Refusal.FAILED: (
        Retryable,
        "The disk or its file system failed while",
        "Look at the kernel's log (dmesg). Mend the disk or its file system, or name directories on another one, then "
        "start the restore again.",
    ),
}
"""What stops a job although nothing is wrong with its program; any other ``OSError`` is a defect of it."""


def as_statecore_error(error: BaseException, doing: str, **context: Any) -> StatecoreError:
    """The error an operator should see for an exception that stopped something.

    Args:
        error: what was raised.
        doing: what was being done, to follow "while": ``store 'x' of task 0_0 was built in /d``.
        context: names as fields, for machines.
    """
    if isinstance(error, StatecoreError):
        error.context = {**context, **error.context}
        return error
    if isinstance(error, OSError) and (stopped := _STOPPED.get(refusal_of(error))) is not None:
        kind, what, action = stopped
        said = f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else "")
        return kind(f"{what} {doing}: {said}.", action=action, **context)
    if isinstance(error, MemoryError):
        return Capacity(
            f"There was not enough memory while {doing}.",
            action="Give a smaller memory budget, or fewer tasks at once (master local[1]), and start again.",
            **context,
        )
    return StatecoreError(
        f"A defect of this program, while {doing}: {type(error).__name__}: {error}",
        action="Report it together with the trace.",
        **context,
        trace="".join(traceback.format_exception(error)),
    )


def worker_died(number: int, doing: str, trace: str) -> StatecoreError:
    """The error for a process that died in the middle of a task.

    Args:
        number: the signal that ended it; 0 or less where it ended by itself.
        doing: what was being done, to follow "while".
        trace: what ``faulthandler`` left, or nothing.
    """
    if number in (signal.SIGKILL, signal.SIGTERM):
        return Capacity(
            f"A worker process was killed while {doing}; most often the system does that for want of memory.",
            action="Look at the kernel's log (dmesg). Give a smaller memory budget, or fewer processes, and start "
            "again; what was finished is found again.",
        )
    how = f"died of {signal.Signals(number).name}" if number in set(signal.Signals) else "ended"
    return StatecoreError(
        f"A defect of this program: a worker process {how} while {doing}.",
        action="Report it together with the trace; to start again is in vain.",
        trace=f"{trace}\n",
    )
