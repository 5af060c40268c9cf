"""Kinds of values of request fields, read from and written to JSON, command lines and forms.

A kind knows its placeholder in the help (``metavar``), its unit, and its JSON schema. Values are read from three
places:

======================  ============================================================================================
``from_json(value)``    strict. Numbers may be text, because templates render them so; nothing else is converted.
``from_word(text)``     a word of a command line; ``from_words`` combines all words of one field.
``from_form(value)``    a parameter of a run: text as on the command line, lists as JSON.
======================  ============================================================================================

Each raises ``ValueError`` whose text says what is wrong: ``'x' is not a number``.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from statecore.spec.units import DURATION_EXPECTED, format_duration, format_size, parse_duration, parse_size
from statecore.spec.units import SIZE_PATTERN as SIZE_PATTERN


class Value(ABC):
    """A kind of value."""

    may_be_empty = True
    """Whether a form may leave it empty, for its default."""

    @property
    def metavar(self) -> str:
        """Placeholder in a command's help."""
        return ""

    @property
    def unit(self) -> str:
        """Unit in JSON and in Python; empty if it has none."""
        return ""

    @abstractmethod
    def from_json(self, value: Any) -> Any:
        """The value of a JSON document."""

    @abstractmethod
    def schema(self) -> dict[str, Any]:
        """The JSON schema of its parameter, if not empty."""

    def from_word(self, text: str) -> Any:
        """The value of one word of a command line."""
        return self.from_json(text)

    def from_words(self, value: Any) -> Any:
        """The field's value from the results of :meth:`from_word`."""
        return value

    def from_form(self, value: Any) -> Any:
        """The value of a parameter."""
        return self.from_word(value) if isinstance(value, str) else self.from_json(value)

    def to_json(self, value: Any) -> Any:
        """The value as JSON; ``from_json`` is its inverse."""
        return value

    def to_form(self, value: Any) -> Any:
        """The value as a parameter, ``from_form`` is its inverse; as text also for a reader."""
        return self.to_json(value)

    def hint(self) -> str:
        """How to write it in a form, if not obvious: a sentence without its full stop."""
        return ""


@dataclass(frozen=True)
class Text(Value):
    """A text.

    Attributes:
        pattern: regular expression checked by a form; the reader of the value checks it in any case.
    """

    metavar: str = "TEXT"
    pattern: str | None = None

    def from_json(self, value: Any) -> str:
        """See ``Value``. Refuses zero bytes and text that is not valid UTF-8, which files and documents cannot keep.

        In an ASCII locale Python has the bytes of other characters as surrogates, in words and in paths alike.
        """
        try:
            if isinstance(value, str) and "\0" not in value.encode(errors="surrogateescape").decode():
                return value
        except UnicodeError:
            pass
        raise ValueError(f"{value!a} is not text")

    def schema(self) -> dict[str, Any]:
        return {"type": "string", **({"pattern": self.pattern} if self.pattern else {"minLength": 1})}


@dataclass(frozen=True)
class FilePath(Text):
    """The path of a file or directory; on a command line relative to the working directory.

    Attributes:
        where: completes "an absolute path …": on which machines it must exist.
    """

    metavar: str = "DIR"
    where: str = ""

    def from_word(self, text: str) -> str:
        """See ``Value``. An empty word, as from an unset shell variable, is not the working directory."""
        if not text:
            raise ValueError(f"{text!r} is not a path")
        return self.from_json(text)

    def from_words(self, value: str) -> str:
        return str(Path(value).absolute())

    def hint(self) -> str:
        return f"An absolute path {self.where}".rstrip()


@dataclass(frozen=True)
class Flag(Value):
    """True or false; on a command line false unless its option is given."""

    may_be_empty = False

    def from_json(self, value: Any) -> bool:
        """See ``Value``. A text such as ``"false"`` must not count as true."""
        if not isinstance(value, bool):
            raise ValueError(f"{value!r} is not true or false")
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


@dataclass(frozen=True)
class Whole(Value):
    """A whole number, not negative on command lines and in forms.

    Attributes:
        words: what it is, for messages.
        digits: maximum number of digits on a command line.
    """

    metavar: str = "N"
    words: str = "a whole number"
    digits: int = 9

    def from_json(self, value: Any) -> int:
        return int(_number(int, value, "a whole number"))

    def from_word(self, text: str) -> int:
        if not (text.isascii() and text.isdecimal() and len(text) <= self.digits):
            raise ValueError(f"{text!r} is not {self.words}")
        return int(text)

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": 0}


@dataclass(frozen=True)
class Seconds(Value):
    """A length of time.

    Attributes:
        more_than_zero: whether 0 is refused.
    """

    metavar: str = "SECONDS"
    more_than_zero: bool = False
    unit = "seconds"

    def from_json(self, value: Any) -> float:
        return float(_number(float, value, "a number"))

    def schema(self) -> dict[str, Any]:
        return {"type": "number", "exclusiveMinimum" if self.more_than_zero else "minimum": 0}

    def to_form(self, value: float) -> float:
        return int(value) if value == int(value) else value

    def hint(self) -> str:
        return self.unit.capitalize()


@dataclass(frozen=True)
class Duration(Value):
    """A length of time; people write it as ``5m`` (:mod:`statecore.spec.units`)."""

    metavar: str = "TIME"
    unit = "milliseconds"

    def from_json(self, value: Any) -> int:
        return self.from_word(value) if isinstance(value, str) else int(_number(int, value, "a whole number"))

    def from_word(self, text: str) -> int:
        found = parse_duration(text)
        if found is None:
            raise ValueError(f"{text!r} is not {DURATION_EXPECTED}")
        return found

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": "^[0-9]+(ms|s|m|h|d)$"}

    def to_form(self, value: int) -> str:
        return format_duration(value)

    def hint(self) -> str:
        return "Such as 90s, 10m or 24h"


@dataclass(frozen=True)
class Size(Value):
    """An amount of memory; people write it as ``512m`` (:mod:`statecore.spec.units`)."""

    metavar: str = "SIZE"
    unit = "bytes"

    def from_json(self, value: Any) -> int:
        return int(_number(int, value, "a whole number"))

    def from_word(self, text: str) -> int:
        size = parse_size(text)
        if size is None:
            raise ValueError(f"{text!r} is not a size such as 512m, 512MiB or 2g")
        return size

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": SIZE_PATTERN}

    def to_form(self, value: int) -> str:
        return format_size(value)

    def hint(self) -> str:
        return "Such as 512m, 512MiB or 2g"


@dataclass(frozen=True)
class Choice(Value):
    """One of a few values."""

    among: type[StrEnum]
    may_be_empty = False

    @property
    def words(self) -> list[str]:
        """The values as they are written."""
        return [str(one) for one in self.among]

    def from_json(self, value: Any) -> StrEnum:
        try:
            return self.among(value)
        except ValueError as error:
            raise ValueError(f"{value!r} is none of {', '.join(self.words)}") from error

    def from_word(self, text: str) -> str:
        """See ``Value``; the command line checks the choices itself."""
        return text

    def from_words(self, value: str) -> StrEnum:
        return self.from_json(value)

    def from_form(self, value: Any) -> StrEnum:
        return self.from_json(value)

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "enum": self.words}

    def to_json(self, value: StrEnum) -> str:
        return str(value)


@dataclass(frozen=True)
class Document(Value):
    """A mapping, for programs: without an option or a form entry."""

    def from_json(self, value: Any) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            raise ValueError(f"{value!r} is not a mapping")
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": "object"}


@dataclass(frozen=True)
class Several(Value):
    """A list without duplicates; its command line option is repeated. Numbers are sorted, except in JSON."""

    item: Value

    @property
    def metavar(self) -> str:
        return self.item.metavar

    @property
    def unit(self) -> str:
        return self.item.unit

    def from_json(self, value: Any) -> tuple[Any, ...]:
        return tuple(dict.fromkeys(map(self.item.from_json, _items(value))))

    def from_word(self, text: str) -> Any:
        """See ``Value``; one word is one item."""
        return self.item.from_word(text)

    def from_words(self, value: Iterable[Any]) -> tuple[Any, ...]:
        return self._ordered(map(self.item.from_words, value))

    def from_form(self, value: Any) -> tuple[Any, ...]:
        return self._ordered(map(self.item.from_form, _items(value)))

    def _ordered(self, items: Iterable[Any]) -> tuple[Any, ...]:
        return tuple(sorted(set(items)) if isinstance(self.item, Whole) else dict.fromkeys(items))

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": self.item.schema()}

    def to_json(self, value: Iterable[Any]) -> list[Any]:
        return [self.item.to_json(one) for one in value]

    def to_form(self, value: Iterable[Any]) -> list[Any]:
        return [self.item.to_form(one) for one in value]

    def hint(self) -> str:
        """See ``Value``. Airflow's form has lines for a list of texts, and JSON for any other."""
        return "A JSON list such as [0, 3]" if isinstance(self.item, Whole) else "One a line"


_NUMBER = re.compile(r"-?([0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?|inf)")
"""A number in a text, as in JSON, or ``inf``. ``int`` and ``float`` accept more: spaces, ``1_0``, ``٣``."""


def _number(kind: type[int] | type[float], value: Any, words: str) -> int | float:
    try:
        if isinstance(value, str) and _NUMBER.fullmatch(value):
            value = int(value) if value.lstrip("-").isdigit() else float(value)
        if not isinstance(value, bool) and isinstance(value, (int, float)) and kind(value) == value:
            return kind(value)
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"{value!r} is not {words}")


def _items(value: Any) -> Iterable[Any]:
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"{value!r} is not a list")
    return value
