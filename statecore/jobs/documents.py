"""JSON documents that jobs write for themselves: plans and results, with a version, read strictly.

A document is the JSON form of a frozen dataclass, with ``version`` beside its fields. Whoever reads it gets the same
value back, or an ``Invalid`` that says what the document is instead: of another version, of another shape, torn. A
field that the type does not have is refused too, because what a reader drops it would decide without.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from statecore.errors import Invalid

T = TypeVar("T")


@dataclass(frozen=True)
class DocumentType(Generic[T]):
    """One type of document.

    Attributes:
        name: what messages call it: ``plan``.
        version: of the form that is written, and the only one that is read.
        type: the dataclass.
        action: what to do about a document that cannot be read.
    """

    name: str
    version: int
    type: type[T]
    action: str

    def encode(self, value: T) -> bytes:
        """The document of a value."""
        return msgspec.json.format(msgspec.json.encode(self._with_version(value)), indent=1)

    def to_json(self, value: T) -> dict[str, Any]:
        """The document of a value, as dicts and lists."""
        document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self._with_version(value)))
        return document

    def decode(self, data: bytes) -> T:
        """The value of a document.

        Raises:
            Invalid: it is none, or of another version.
        """
        try:
            document = msgspec.json.decode(data)
        except msgspec.DecodeError as error:
            raise self._refused(f"it is no JSON ({error})") from error
        return self.from_json(document)

    def from_json(self, document: Any) -> T:
        """The value of a document that was parsed already.

        Raises:
            Invalid: it is none, or of another version.
        """
        if not isinstance(document, Mapping):
            raise self._refused("it is no object")
        version = document.get("version")
        if type(version) is not int or version != self.version:
            raise self._refused(f"it is of version {version}, and this release knows {self.version}")
        fields = {name: value for name, value in document.items() if name != "version"}
        try:
            value = msgspec.convert(fields, type=self.type)
        except msgspec.ValidationError as error:
            raise self._refused(str(error)) from error
        unknown = _unknown(fields, msgspec.to_builtins(value))
        if unknown:
            raise self._refused(f"it has a field {unknown} that this release does not know")
        return value

    def _with_version(self, value: T) -> dict[str, Any]:
        return {"version": self.version, **msgspec.to_builtins(value)}

    def _refused(self, why: str) -> Invalid:
        return Invalid(f"This {self.name} cannot be read: {why}.", action=self.action)


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
