"""Map exceptions of the system and of Python to this library's few kinds of error, for the operator."""

from __future__ import annotations

import re
import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from statecore.errors import TOKEN_REFUSED, Capacity, Invalid, Retryable, StatecoreError
from statecore.faults import FaultInjected
from statecore.filesystem import READ_ONLY_ACTION
from statecore.system_errors import REPAIR_DISK, Cause, cause_of

_FATAL = re.compile(r"Fatal Python error: ([A-Z][a-z]+([ -][a-z]+)*)")
"""How ``faulthandler`` names the signal that ends a process."""

_FRAME = re.compile(r'File "([^"\n]+)", line (\d+) in (\S+)')
_LESS_AT_ONCE = (
    "Give a smaller memory budget, or fewer tasks at once (master local[1], or --processes 1), and start again"
)

_STOPPED: dict[Cause, tuple[type[StatecoreError], str, str, str]] = {
    Cause.FULL: (
        Capacity,
        "no-space",
        "The disk ran full while",
        "Free room there, or use a larger disk (a restore can stage on another), and start again.",
    ),
    Cause.READ_ONLY: (
        Invalid,
        "read-only-file-system",
        "The file system is mounted read-only, which was noticed while",
        READ_ONLY_ACTION,
    ),
    Cause.DENIED: (
        Invalid,
        "permission-denied",
        "The system refused while",
        "Give this user the right to read and write there, or run as the user that the application runs as.",
    ),
    Cause.FAILED: (Retryable, "disk-failed", "The disk or its file system failed while", REPAIR_DISK),
}
"""System errors that stop a job without a defect of the program; any other ``OSError`` is a defect."""


def as_statecore_error(error: BaseException, doing: str, **context: Any) -> StatecoreError:
    """The error to show an operator for an exception."""
    if isinstance(error, StatecoreError):
        error.context = {**context, **error.context}
        return error
    if isinstance(error, OSError) and (stopped := _STOPPED.get(cause_of(error))) is not None:
        kind, code, what, action = stopped
        text = f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else "")
        return kind(f"{what} {doing}: {text}.", code=code, action=action, **context)
    if isinstance(error, MemoryError):
        return Capacity(
            f"There was not enough memory while {doing}.", code="out-of-memory", action=f"{_LESS_AT_ONCE}.", **context
        )
    return StatecoreError(
        f"A defect of this program, while {doing}: {type(error).__name__}: {error}",
        code="defect",
        action="Report it together with the trace.",
        **context,
        trace="".join(traceback.format_exception(error)),
    )


@contextmanager
def translated_errors(doing: str) -> Iterator[None]:
    """Around a job: raise every exception as the error to show an operator."""
    try:
        yield
    except FaultInjected:
        raise
    except Exception as error:
        raise as_statecore_error(error, doing) from error


def worker_died(
    doing: str, *, number: int | None = None, left: str = "", worker: str = "A worker process"
) -> StatecoreError:
    """The error for a process that died in the middle of a task, on any engine."""
    crash = _FATAL.search(left)
    if number in (signal.SIGKILL, signal.SIGTERM) or (number is None and crash is None):
        return Capacity(
            f"{worker} died while {doing}; most likely the system killed it for lack of memory.",
            code="worker-killed",
            action=f"Check the kernel's log (dmesg). {_LESS_AT_ONCE}; finished work is reused.",
        )
    if crash is not None:
        return _crashed(crash[1], left[crash.end() :], f"{worker} died of a signal ({crash[1]})", doing)
    if number is not None and number > 0:
        name = signal.strsignal(number) or f"signal {number}"
        return _crashed(name, "", f"{worker} died of a signal ({name})", doing)
    return StatecoreError(
        f"A defect of this program: {worker[:1].lower()}{worker[1:]} ended while {doing}.",
        code="worker-ended",
        action="Report it together with the trace; starting again will not help.",
        trace=f"{left}\n",
    )


def _crashed(name: str, left: str, died: str, doing: str) -> StatecoreError:
    """Error for a process that died of a signal in machine code, with the Python frames of ``faulthandler``."""
    frames = _FRAME.findall(left.partition("Current thread ")[2])
    in_kernel = bool(frames) and frames[0][0].endswith("/statecore/kernels/library.py")
    caller = frames[1:2] if in_kernel else frames[:1]
    where = "".join(f" called by {file}, line {line} ({function})," for file, line, function in caller)
    died = f"{died} in {'a kernel' if in_kernel else 'machine code'}{where} while {doing}"
    context = {"signal": name, "trace": "\n".join(f"{file}:{line} {function}" for file, line, function in frames)}
    if name == "Bus error":
        return Retryable(
            f"{died}; most likely a mapped file was truncated, or the disk cannot read it.",
            code="worker-bus-error",
            action="Check the kernel's log (dmesg) and the disk, then start the restore again; files are verified "
            "before they are reused.",
            **context,
        )
    if name == "Illegal instruction":
        return StatecoreError(
            f"{died}; the code was compiled for another CPU.",
            code="worker-illegal-instruction",
            action="Remove the compiled kernels (*.kernel in NUMBA_CACHE_DIR or beside the package), install packages "
            "that fit this CPU; else report it together with the trace.",
            **context,
        )
    return StatecoreError(
        f"{died}; this is a defect, not a lack of memory.",
        code="worker-crashed",
        action="Report it together with the trace. The same work would most likely fail again; finished work is "
        "reused.",
        **context,
    )


def refused_later(error: StatecoreError) -> StatecoreError:
    """The error of a service that a token endpoint refuses after it has given it tokens; any other as it is."""
    if error.code != TOKEN_REFUSED:
        return error
    return Retryable(
        error.what,
        code="token-credentials-expired",
        action="Give the service the new secret of its client and start it again: a process reads it when it starts.",
        **error.context,
    )
