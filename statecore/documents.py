"""Versioned JSON documents that this library writes and reads: plans, results, reports, journals.

A document is the JSON form of a frozen dataclass, with ``version`` beside its fields. Two modes of reading:

- **Strict**, for plans, results and journals. Anything but the same value, such as another version, another shape or a
  truncated file, raises ``Invalid``. Unknown fields are refused too, because decisions would be made without them.
- **Open**, for reports. Unknown fields are accepted and preserved: the original document is kept beside the value
  (:class:`Document`), and rewriting the value keeps them.

Either way, versions that are not supported are refused.

A **sealed** document carries the SHA-256 of the rest of it. It is for documents that are executed without another
check: a digit flipped by a failing disk would be read as another number, not as damage.

Text that is not UTF-8 (file names may not be, and messages contain them) is escaped as by Python's ``json``, because
msgspec, which does everything else, refuses it.
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

_ANALYSED: set[type] = set()
_ANALYSIS = threading.Lock()

Fields = dict[str, Any]
"""The fields of a document, without its version."""


def _unchanged(fields: Fields) -> Fields:
    return fields


def plain(value: Any) -> Any:
    """Convert a value to dicts, lists, tuples and scalars."""
    return msgspec.to_builtins(value, str_keys=True, enc_hook=_text)


def _text(value: Any) -> str:
    """The text of a ``str`` subclass with a code (:class:`statecore.errors.Reason`)."""
    if isinstance(value, str):
        return str(value)
    raise NotImplementedError(f"{type(value).__name__} cannot be part of a document")


@dataclass(frozen=True)
class Document(Generic[T]):
    """A document that was read.

    Attributes:
        value: its known fields.
        raw: all of it.
    """

    value: T
    raw: Mapping[str, Any]


@dataclass(frozen=True)
class DocumentType(Generic[T]):
    """One type of document.

    Attributes:
        name: its name in messages: ``plan``.
        version: the version that is written.
        action: what to do about a document that cannot be read.
        older: other supported versions, each with a conversion of its fields to the current ones.
        is_open: whether unknown fields are accepted.
        is_sealed: whether it carries the SHA-256 of the rest of it, as ``seal``.
        form: the fields to write for a value.
        lift: its inverse: the dataclass's fields from those read.
    """

    name: str
    version: int
    type: type[T]
    action: str
    older: Mapping[int, Callable[[Fields], Fields]] = field(default_factory=dict)
    is_open: bool = False
    is_sealed: bool = False
    form: Callable[[T], Fields] = plain
    lift: Callable[[Fields], Fields] = _unchanged

    def encode(self, value: T) -> bytes:
        return encode_json(self._with_version(value))

    def to_json(self, value: T) -> dict[str, Any]:
        """The document of a value, as dicts and lists."""
        document: dict[str, Any] = parse_json(self.encode(value))
        return document

    def decode(self, data: bytes) -> T:
        return self.read(data).value

    def from_json(self, document: Any) -> T:
        version = self.check_version(document)
        fields_read = {name: value for name, value in document.items() if name != "version"}
        seal = fields_read.pop(_SEAL, None) if self.is_sealed else None
        try:
            fields_read = self.older.get(version, _unchanged)(fields_read)
            _analyse(self.type)
            value = msgspec.convert(self.lift(fields_read), type=self.type)
        except msgspec.ValidationError as error:
            raise self._invalid(str(error)) from error
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._invalid(f"it has another shape ({error!r})") from error
        unknown = "" if self.is_open else _unknown(fields_read, self.form(value))
        if unknown:
            raise self._invalid(f"it has the unknown field {unknown}")
        if self.is_sealed and seal != _seal_of(document):
            raise self._invalid("its SHA-256 differs from the one recorded when it was written")
        return value

    def read(self, data: bytes) -> Document[T]:
        try:
            document = parse_json(data)
        except ValueError as error:
            raise self._invalid(f"it is not JSON ({error})") from error
        return Document(self.from_json(document), document)

    def read_intact(self, data: bytes) -> Document[T] | None:
        """A sealed document; ``None`` if it is damaged. Raises ``Invalid`` if it is whole, and of another release."""
        try:
            return self.read(data)
        except Invalid:
            if self.seal_holds(data):
                raise
            return None

    def rewritten(self, document: Document[T], value: T) -> dict[str, Any]:
        """A document with another value; its unknown fields are preserved."""
        before, after = self.to_json(document.value), self.to_json(value)
        changed = {name: new for name, new in after.items() if before.get(name) != new}
        preserved = self.older.get(self.check_version(document.raw), _unchanged)(dict(document.raw))
        return {**preserved, **changed, "version": self.version}

    def unknown(self, document: Mapping[str, Any]) -> Fields:
        """The unknown fields of an open document."""
        known = {"version", _SEAL, *(each.name for each in fields(self.type))}  # type: ignore[arg-type]
        return {name: value for name, value in document.items() if name not in known}

    @staticmethod
    def seal_holds(data: bytes) -> bool:
        """Whether the seal of a document is correct, in any version."""
        try:
            document = parse_json(data)
        except ValueError:
            return False
        return isinstance(document, Mapping) and document.get(_SEAL) == _seal_of(document)

    def check_version(self, document: Any) -> int:
        if not isinstance(document, Mapping):
            raise self._invalid("it is not a JSON object")
        version = document.get("version")
        understood = sorted({self.version, *self.older})
        if type(version) is not int or version not in understood:
            known = ", ".join(map(str, understood))
            raise self._invalid(f"it has version {version}, and this release supports {known}", "format-unsupported")
        return version

    def _with_version(self, value: T) -> Fields:
        document = {"version": self.version, **self.form(value)}
        return self.sealed(document) if self.is_sealed else document

    @staticmethod
    def sealed(document: Mapping[str, Any]) -> Fields:
        """A document, as dicts and lists, with its current seal."""
        return {**document, _SEAL: _seal_of(parse_json(encode_json(document)))}

    def _invalid(self, why: str, code: str = "document-invalid") -> Invalid:
        return Invalid(f"This {self.name} cannot be read: {why}.", code=code, action=self.action, document=self.name)


def preserve_unknown(entries: Sequence[Fields], before: Sequence[Fields], key: str) -> list[Fields]:
    """Entries of a rewritten list; an unchanged entry is taken from the old list, with its unknown fields."""
    known = {entry.get(key): entry for entry in before}
    return [old if _covers(old := known.get(entry[key]), entry) else entry for entry in entries]  # type: ignore[misc]


def _covers(old: Any, new: Any) -> bool:
    """Whether a value that was read contains all of another."""
    if isinstance(old, dict) and isinstance(new, dict):
        return all(name in old and _covers(old[name], value) for name, value in new.items())
    if isinstance(old, list) and isinstance(new, list | tuple):
        return len(old) == len(new) and all(map(_covers, old, new))
    return bool(old == new and isinstance(old, bool) == isinstance(new, bool))


def encode_json(document: Any) -> bytes:
    """JSON of dicts, lists and scalars, one per line."""
    try:
        return msgspec.json.format(msgspec.json.encode(document, enc_hook=_text), indent=1)
    except UnicodeEncodeError:
        return json.dumps(document, indent=1).encode()


def compact(document: Any) -> bytes:
    """JSON of dicts, lists and scalars, without white space."""
    try:
        return msgspec.json.encode(document, enc_hook=_text)
    except UnicodeEncodeError:
        return json.dumps(document, separators=(",", ":")).encode()


def parse_json(data: bytes | str) -> Any:
    """Parse JSON into dicts, lists and scalars."""
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        try:
            return json.loads(data, parse_constant=_no_number)
        except (ValueError, RecursionError):
            raise ValueError(str(error)) from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _analyse(kind: type) -> None:
    """Let msgspec analyse a type in one thread alone: concurrent analysis crashes it."""
    if kind not in _ANALYSED:
        with _ANALYSIS:
            with suppress(msgspec.ValidationError):
                msgspec.convert(None, type=kind)
            _ANALYSED.add(kind)


def _seal_of(document: Mapping[str, Any]) -> str:
    rest = {name: value for name, value in document.items() if name != _SEAL}
    return sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number")


def _unknown(document: Any, understood: Any, path: str = "") -> str:
    """The first field of a document that its value does not have; empty without one."""
    if isinstance(document, dict) and isinstance(understood, dict):
        for name, value in document.items():
            at = f"{path}.{name}" if path else name
            if name not in understood:
                return at
            if found := _unknown(value, understood[name], at):
                return found
    if isinstance(document, list) and isinstance(understood, list | tuple):
        for number, (value, known) in enumerate(zip(document, understood, strict=False)):
            if found := _unknown(value, known, f"{path}[{number}]"):
                return found
    return ""
