"""The few kinds of error an operator can meet, each with what to do about it and an exit code of its own.

==========  ====  =============================================================================================
kind        exit  what it means to whoever is paged
==========  ====  =============================================================================================
Retryable   10    something outside was not there in time (a broker, a network); the same call may work later
Fenced      11    somebody else owns the state directory; stop them, or stop this
Corrupted   12    bytes are not what they must be; nothing was replaced by them
Invalid     13    the request, the spec or the target is wrong; nothing was changed
NotFound    14    a topic, store or task that was named does not exist (it was looked for, and is absent)
Capacity    15    disk, memory or time is not enough; nothing was changed
==========  ====  =============================================================================================

Exit 0 is success, 1 a defect of this program, 2 a wrong command line, 130 an interrupt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self


class StatecoreError(Exception):
    """What happened, to which task, store and partition, and what the operator should do.

    Args:
        what: one sentence that says what happened, naming topic, task, store, partition and offset where it has them.
        code: the stable name of what happened, one of :data:`statecore.error_codes.ERROR_CODES`. Sentences may change,
            codes do not.
        action: one sentence in the imperative that says what to do now.
        context: the same names as fields, for machines (``task``, ``store``, ``partition``, ``offset``, ``topic`` ...).
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, code: str, action: str, **context: Any) -> None:
        super().__init__(what)
        if code:
            self.add_note(f"Error code: {code}")  # a trace shows it, such as that of a Dag that cannot be imported
        self.what = what
        self.code = code
        self.action = action
        self.context = context

    def __str__(self) -> str:
        return f"{self.what} {self.action}"

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors cross process borders (Spark workers); keyword-only arguments do not survive the default.
        return (_rebuild, (type(self), self.what, self.code, self.action, self.context))

    @classmethod
    def kind(cls) -> type[StatecoreError]:
        """Which of :data:`KINDS` this class is, or is made from; ``StatecoreError`` itself is a defect."""
        return next((one for one in cls.__mro__ if one.__name__ in KINDS), StatecoreError)

    def restated(self, what: str, *, action: str = "", **context: Any) -> StatecoreError:
        """The same error, of the same kind and code, in other words; an empty ``action`` keeps the error's own."""
        return self.kind()(what, code=self.code, action=action or self.action, **{**self.context, **context})

    def to_json(self) -> dict[str, Any]:
        """The error as one JSON object: kind, code, exit code, what, action, context."""
        return {
            "error": self.kind().__name__,
            "code": self.code,
            "exit_code": self.exit_code,
            "what": self.what,
            "action": self.action,
            "context": self.context,
        }


def _rebuild(kind: type[StatecoreError], what: str, code: str, action: str, context: dict[str, Any]) -> StatecoreError:
    return kind(what, code=code, action=action, **context)


class Retryable(StatecoreError):
    """Something outside was not there in time; the same call may work later."""

    exit_code = 10


class Fenced(StatecoreError):
    """Somebody else owns what this call wanted to change."""

    exit_code = 11


class Corrupted(StatecoreError):
    """Bytes are not what they must be."""

    exit_code = 12


class Invalid(StatecoreError):
    """The request, the spec or the target is wrong; nothing was changed."""

    exit_code = 13


def missing_option(what: str, action: str, option: str) -> Invalid:
    """The error for a request or command that lacks an option, by the name of its field."""
    return Invalid(what, code="option-missing", action=action, option=option)


def options_conflict(what: str, action: str, options: Sequence[str]) -> Invalid:
    """The error for options that exclude each other, by the names of their fields."""
    return Invalid(what, code="options-conflict", action=action, options=options)


class NotFound(StatecoreError):
    """What was named was looked for and does not exist."""

    exit_code = 14


class Capacity(StatecoreError):
    """Disk, memory or time is not enough; nothing was changed."""

    exit_code = 15


TOKEN_REFUSED = "token-refused"
"""The code of an :class:`Invalid` about the client of a token endpoint, whose secret a process reads when it starts."""

NOT_READABLE_HERE = "not-readable-here"
"""The code of an :class:`Invalid` about a database that is sound and that this library cannot read: its
application set RocksDB options (``rocksdb.config.setter``) that are missing here. Nobody may wipe or repair it then.
"""


def is_not_readable_here(error: BaseException) -> bool:
    """Whether an error is a limit of this library's reader, and says nothing about the database."""
    return isinstance(error, StatecoreError) and error.code == NOT_READABLE_HERE


KINDS: dict[str, type[StatecoreError]] = {
    kind.__name__: kind for kind in (Retryable, Fenced, Corrupted, Invalid, NotFound, Capacity)
}
"""Every kind by its name, for reading an error back from its JSON form."""


def error_from_json(document: Mapping[str, Any]) -> StatecoreError:
    """The error that :meth:`StatecoreError.to_json` described; one without a code is of an older release's report."""
    kind = KINDS.get(document["error"], StatecoreError)
    return kind(document["what"], code=document.get("code", ""), action=document["action"], **document["context"])


def kind_and_code(document: Mapping[str, Any]) -> str:
    """What a person is told first of an error's JSON form: ``Fenced (application-running)``."""
    kind, code = document.get("error", "unknown"), document.get("code")
    return f"{kind} ({code})" if code else str(kind)


class Reason(str):
    """Why something is refused, or not done: a sentence that has a code and its values, as an error has them."""

    code: str
    context: dict[str, Any]

    def __new__(cls, what: str, code: str = "", **context: Any) -> Self:
        """The sentence, with its code and its values beside it."""
        made = super().__new__(cls, what)
        made.code, made.context = code, context
        return made

    def to_json(self) -> dict[str, Any]:
        """The reason as one JSON object: code, what, and the values."""
        return {"code": self.code, "what": str(self), **self.context}


def worst_of(codes: Iterable[int]) -> int:
    """The exit code of several inspections: damage before what could not be inspected, 0 without any."""
    found = set(codes)
    return Corrupted.exit_code if Corrupted.exit_code in found else max(found, default=0)
