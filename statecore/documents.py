"""JSON documents that this library writes for itself and reads again: plans, results, reports, journals.

A document is the JSON form of a frozen dataclass, with ``version`` beside its fields. There are two ways to read one:

- **Strictly**, which is how plans, results and journals are read. Whoever reads it gets the same value back, or an
  ``Invalid`` that says what the document is instead: of another version, of another shape, torn. A field that the type
  does not have is refused too, because what a reader drops it would decide without.
- **Open** to what others add, which is how reports are read. A field that the type does not have is no reason to
  refuse, and it is not lost either: the document as it was read stays beside the value (:class:`Document`), and whoever
  writes another value over it keeps what it did not know.

Either way the versions that are understood are stated, and any other is refused by name.

A **sealed** document carries the SHA-256 of the rest of it. It is for what is acted upon without another look: a digit
that a failing disk changed in it would be read as another number, not as damage.

Text that is no UTF-8 (the name of a file may be none, and messages have it) is escaped as Python's ``json`` does it,
and read back: msgspec, which does everything else, refuses it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from hashlib import sha256
from typing import Any, Generic, NoReturn, TypeVar

import msgspec

from statecore.errors import Invalid

T = TypeVar("T")

_SEAL = "seal"

_LEARNED: set[type] = set()
_LEARNING = threading.Lock()

Fields = dict[str, Any]
"""The fields of a document, without its version."""


def _unchanged(fields: Fields) -> Fields:
    return fields


def plain(value: Any) -> Any:
    """A value as dicts, lists, tuples and scalars."""
    return msgspec.to_builtins(value, str_keys=True, enc_hook=_text)


def _text(value: Any) -> str:
    """A sentence that has a code beside it (:class:`statecore.errors.Reason`), as the text that it is."""
    if isinstance(value, str):
        return str(value)
    raise NotImplementedError(f"{type(value).__name__} is no part of a document")


@dataclass(frozen=True)
class Document(Generic[T]):
    """A document that was read.

    Attributes:
        value: what of it is understood.
        raw: all of it.
    """

    value: T
    raw: Mapping[str, Any]


@dataclass(frozen=True)
class DocumentType(Generic[T]):
    """One type of document.

    Attributes:
        name: what messages call it: ``plan``.
        version: of the form that is written.
        type: the dataclass.
        action: what to do about a document that cannot be read.
        older: other versions that are read, each with what makes today's fields of theirs.
        unversioned: the version of a document that says none; ``None`` where that is no document.
        is_open: whether others may add fields.
        is_sealed: whether it carries the SHA-256 of the rest of it, as ``seal``.
        form: the fields that are written of a value.
        lift: its inverse: those of the dataclass, by what was read.
    """

    name: str
    version: int
    type: type[T]
    action: str
    older: Mapping[int, Callable[[Fields], Fields]] = field(default_factory=dict)
    unversioned: int | None = None
    is_open: bool = False
    is_sealed: bool = False
    form: Callable[[T], Fields] = plain
    lift: Callable[[Fields], Fields] = _unchanged

    def encode(self, value: T) -> bytes:
        """The document of a value."""
        return encoded(self._with_version(value))

    def to_json(self, value: T) -> dict[str, Any]:
        """The document of a value, as dicts and lists."""
        document: dict[str, Any] = parsed(self.encode(value))
        return document

    def decode(self, data: bytes) -> T:
        """The value of a document.

        Raises:
            Invalid: it is none, or of another version.
        """
        return self.read(data).value

    def from_json(self, document: Any) -> T:
        """The value of a document that was parsed already.

        Raises:
            Invalid: it is none, or of another version.
        """
        version = self.check_version(document)
        said = {name: value for name, value in document.items() if name != "version"}
        seal = said.pop(_SEAL, None) if self.is_sealed else None
        try:
            said = self.older.get(version, _unchanged)(said)
            _learn(self.type)
            value = msgspec.convert(self.lift(said), type=self.type)
        except msgspec.ValidationError as error:
            raise self._refused(str(error)) from error
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._refused(f"it has another shape ({error!r})") from error
        unknown = "" if self.is_open else _unknown(said, self.form(value))
        if unknown:
            raise self._refused(f"it has a field {unknown} that this release does not know")
        if self.is_sealed and seal != _seal_of(document):
            raise self._refused("it is not what was written (its SHA-256 differs)")
        return value

    def read(self, data: bytes) -> Document[T]:
        """The value of a document, and the document.

        Raises:
            Invalid: it is none, or of another version.
        """
        try:
            document = parsed(data)
        except ValueError as error:
            raise self._refused(f"it is no JSON ({error})") from error
        return Document(self.from_json(document), document)

    def rewritten(self, document: Document[T], value: T) -> dict[str, Any]:
        """A document with another value in its place; what this release does not know of it stays as it was."""
        before, after = self.to_json(document.value), self.to_json(value)
        changed = {name: new for name, new in after.items() if before.get(name) != new}
        kept = self.older.get(self.check_version(document.raw), _unchanged)(dict(document.raw))
        return {**kept, **changed, "version": self.version}

    def unknown(self, document: Mapping[str, Any]) -> Fields:
        """What an open document says that this release does not know."""
        known = {"version", _SEAL, *(each.name for each in fields(self.type))}  # type: ignore[arg-type]
        return {name: value for name, value in document.items() if name not in known}

    @staticmethod
    def seal_holds(data: bytes) -> bool:
        """Whether a sealed document is what was written, of whatever version it is."""
        try:
            document = parsed(data)
        except ValueError:
            return False
        return isinstance(document, Mapping) and document.get(_SEAL) == _seal_of(document)

    def check_version(self, document: Any) -> int:
        """The version of a document that was parsed already.

        Raises:
            Invalid: it is none, or of a version that is not understood.
        """
        if not isinstance(document, Mapping):
            raise self._refused("it is no object")
        version = document.get("version", self.unversioned)
        understood = sorted({self.version, *self.older})
        if type(version) is not int or version not in understood:
            known = ", ".join(map(str, understood))
            raise self._refused(f"it is of version {version}, and this release knows {known}", "format-unsupported")
        return version

    def _with_version(self, value: T) -> Fields:
        document = {"version": self.version, **self.form(value)}
        return self.sealed(document) if self.is_sealed else document

    @staticmethod
    def sealed(document: Mapping[str, Any]) -> Fields:
        """A document, as dicts and lists, with the seal of what it says now."""
        return {**document, _SEAL: _seal_of(parsed(encoded(document)))}

    def _refused(self, why: str, code: str = "document-invalid") -> Invalid:
        return Invalid(f"This {self.name} cannot be read: {why}.", code=code, action=self.action, document=self.name)


def kept(entries: Sequence[Fields], before: Sequence[Fields], key: str) -> list[Fields]:
    """The entries of a list that is written anew, each as it was before where nothing of it has changed, so that what
    this release does not know of them stays.

    Args:
        entries: what is known of each.
        before: the entries of the document that it replaces, as they were read.
        key: the field by which they are told apart.
    """
    known = {entry.get(key): entry for entry in before}
    return [old if _covers(old := known.get(entry[key]), entry) else entry for entry in entries]  # type: ignore[misc]


def _covers(old: Any, new: Any) -> bool:
    """Whether a value that was read says all of another, and perhaps more."""
    if isinstance(old, dict) and isinstance(new, dict):
        return all(name in old and _covers(old[name], value) for name, value in new.items())
    if isinstance(old, list) and isinstance(new, list | tuple):
        return len(old) == len(new) and all(map(_covers, old, new))
    return bool(old == new and isinstance(old, bool) == isinstance(new, bool))


def encoded(document: Any) -> bytes:
    """JSON of dicts, lists and scalars, one to a line."""
    try:
        return msgspec.json.format(msgspec.json.encode(document, enc_hook=_text), indent=1)
    except UnicodeEncodeError:
        return json.dumps(document, indent=1).encode()


def compact(document: Any) -> bytes:
    """JSON of dicts, lists and scalars, without white space: for programs alone."""
    try:
        return msgspec.json.encode(document, enc_hook=_text)
    except UnicodeEncodeError:
        return json.dumps(document, separators=(",", ":")).encode()


def parsed(data: bytes | str) -> Any:
    """The dicts, lists and scalars of JSON.

    Raises:
        ValueError: it is none.
    """
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        try:
            return json.loads(data, parse_constant=_no_number)
        except (ValueError, RecursionError):
            raise ValueError(str(error)) from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _learn(kind: type) -> None:
    """Let msgspec find out what a type is made of, by one thread alone: where several do it at once, it crashes."""
    if kind not in _LEARNED:
        with _LEARNING:
            with suppress(msgspec.ValidationError):
                msgspec.convert(None, type=kind)
            _LEARNED.add(kind)


def _seal_of(document: Mapping[str, Any]) -> str:
    rest = {name: value for name, value in document.items() if name != _SEAL}
    return sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number")


def _unknown(document: Any, understood: Any, place: str = "") -> str:
    """The first field of a document that its value does not have; empty without one."""
    if isinstance(document, dict) and isinstance(understood, dict):
        for name, value in document.items():
            at = f"{place}.{name}" if place else name
            if name not in understood:
                return at
            if found := _unknown(value, understood[name], at):
                return found
    if isinstance(document, list) and isinstance(understood, list | tuple):
        for number, (value, known) in enumerate(zip(document, understood, strict=False)):
            if found := _unknown(value, known, f"{place}[{number}]"):
                return found
    return ""
