"""What a field of a request may be: how it is written in JSON, on a command line and in a form, and read from there.

A kind of value says all that the three have to know of it: the word that stands for it in the help (``metavar``), its
unit, and its JSON schema. Values are read from three places:

======================  ============================================================================================
``from_json(value)``    strict. Numbers may come as text, which is how templates render them; nothing else is guessed.
``from_word(text)``     a word of a command line; ``from_words`` makes the field's value of all words for one field.
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

from statecore.spec.duration import EXPECTED, format_duration, parse_duration
from statecore.spec.size import PATTERN as SIZE_PATTERN
from statecore.spec.size import parse_size, size_text


class Value(ABC):
    """A kind of value."""

    may_be_empty = True
    """Whether a form may leave it empty, which means its default."""

    @property
    def metavar(self) -> str:
        """What stands for it in a command's help."""
        return ""

    @property
    def unit(self) -> str:
        """In which unit it counts, in JSON and in Python; empty where it counts nothing."""
        return ""

    @abstractmethod
    def from_json(self, value: Any) -> Any:
        """The value of a JSON document."""

    @abstractmethod
    def schema(self) -> dict[str, Any]:
        """The JSON schema of its parameter, where it is not empty."""

    def from_word(self, text: str) -> Any:
        """The value of one word of a command line."""
        return self.from_json(text)

    def from_words(self, value: Any) -> Any:
        """The field's value, of what :meth:`from_word` made of the command line."""
        return value

    def from_form(self, value: Any) -> Any:
        """The value of a parameter."""
        return self.from_word(value) if isinstance(value, str) else self.from_json(value)

    def to_json(self, value: Any) -> Any:
        """The value as JSON; ``from_json`` is its inverse."""
        return value

    def to_form(self, value: Any) -> Any:
        """The value as a parameter, ``from_form`` is its inverse; as text it is the word for a reader, too."""
        return self.to_json(value)

    def hint(self) -> str:
        """How it is written in a form, where that does not go without saying: a sentence without its full stop."""
        return ""


@dataclass(frozen=True)
class Text(Value):
    """A text.

    Attributes:
        metavar: see ``Value``.
        pattern: regular expression that a form holds it against; whoever uses the value does so in any case.
    """

    metavar: str = "TEXT"
    pattern: str | None = None

    def from_json(self, value: Any) -> str:
        """See ``Value``. No name has a zero byte, and neither files nor documents can keep what is not UTF-8."""
        try:
            if isinstance(value, str) and b"\0" not in value.encode():
                return value
        except UnicodeEncodeError:
            pass
        raise ValueError(f"{value!a} is not text")

    def schema(self) -> dict[str, Any]:
        """See ``Value``."""
        return {"type": "string", **({"pattern": self.pattern} if self.pattern else {"minLength": 1})}


@dataclass(frozen=True)
class FilePath(Text):
    """The path of a file or directory. On a command line a relative one is of the working directory.

    Attributes:
        where: completes "an absolute path …": on which machines it has to be there.
    """

    metavar: str = "DIR"
    where: str = ""

    def from_word(self, text: str) -> str:
        """See ``Value``. Nothing, as a variable of the shell that is not set leaves it, is not this directory."""
        if not text:
            raise ValueError(f"{text!r} is not a path")
        return self.from_json(text)

    def from_words(self, value: str) -> str:
        """See ``Value``."""
        return str(Path(value).absolute())

    def hint(self) -> str:
        """See ``Value``."""
        return f"An absolute path {self.where}".rstrip()


@dataclass(frozen=True)
class Flag(Value):
    """True or false; on a command line it is false unless its option is there."""

    may_be_empty = False

    def from_json(self, value: Any) -> bool:
        """See ``Value``. A text such as ``"false"`` must not count as true."""
        if not isinstance(value, bool):
            raise ValueError(f"{value!r} is not true or false")
        return value

    def schema(self) -> dict[str, Any]:
        """See ``Value``."""
        return {"type": "boolean"}


@dataclass(frozen=True)
class Whole(Value):
    """A whole number, from 0 on where people write it.

    Attributes:
        metavar: see ``Value``.
        words: what it is, for messages.
        digits: how many it may have on a command line.
    """

    metavar: str = "N"
    words: str = "a whole number"
    digits: int = 9

    def from_json(self, value: Any) -> int:
        """See ``Value``."""
        return int(_number(int, value, "a whole number"))

    def from_word(self, text: str) -> int:
        """See ``Value``."""
        if not (text.isascii() and text.isdecimal() and len(text) <= self.digits):
            raise ValueError(f"{text!r} is not {self.words}")
        return int(text)

    def schema(self) -> dict[str, Any]:
        """See ``Value``."""
        return {"type": "integer", "minimum": 0}


@dataclass(frozen=True)
class Seconds(Value):
    """A length of time.

    Attributes:
        metavar: see ``Value``.
        more_than_zero: whether no time at all is none.
    """

    metavar: str = "SECONDS"
    more_than_zero: bool = False
    unit = "seconds"

    def from_json(self, value: Any) -> float:
        """See ``Value``."""
        return float(_number(float, value, "a number"))

    def schema(self) -> dict[str, Any]:
        """See ``Value``."""
        return {"type": "number", "exclusiveMinimum" if self.more_than_zero else "minimum": 0}

    def to_form(self, value: float) -> float:
        """See ``Value``."""
        return int(value) if value == int(value) else value

    def hint(self) -> str:
        """See ``Value``."""
        return self.unit.capitalize()


@dataclass(frozen=True)
class Duration(Value):
    """A length of time; people write it as ``5m`` (:mod:`statecore.spec.duration`)."""

    metavar: str = "TIME"
    unit = "milliseconds"

    def from_json(self, value: Any) -> int:
        """See ``Value``."""
        return self.from_word(value) if isinstance(value, str) else int(_number(int, value, "a whole number"))

    def from_word(self, text: str) -> int:
        """See ``Value``."""
        found = parse_duration(text)
        if found is None:
            raise ValueError(f"{text!r} is not {EXPECTED}")
        return found

    def schema(self) -> dict[str, Any]:
        """See ``Value``."""
        return {"type": "string", "pattern": "^[0-9]+(ms|s|m|h|d)$"}

    def to_form(self, value: int) -> str:
        """See ``Value``."""
        return format_duration(value)

    def hint(self) -> str:
        """See ``Value``."""
        return "Such as 90s, 10m or 24h"


@dataclass(frozen=True)
class Size(Value):
    """An amount of memory; people write it as ``512m`` (:mod:`statecore.spec.size`)."""

    metavar: str = "SIZE"
    unit = "bytes"

    def from_json(self, value: Any) -> int:
        """See ``Value``."""
        return int(_number(int, value, "a whole number"))

    def from_word(self, text: str) -> int:
        """See ``Value``."""
        size = parse_size(text)
        if size is None:
            raise ValueError(f"{text!r} is not a size such as 512m, 512MiB or 2g")
        return size

    def schema(self) -> dict[str, Any]:
        """See ``Value``."""
        return {"type": "string", "pattern": SIZE_PATTERN}

    def to_form(self, value: int) -> str:
        """See ``Value``."""
        return size_text(value)

    def hint(self) -> str:
        """See ``Value``."""
        return "Such as 512m, 512MiB or 2g"


@dataclass(frozen=True)
class Choice(Value):
    """One of a few values.

    Attributes:
        among: all of them.
    """

    among: type[StrEnum]
    may_be_empty = False

    @property
    def words(self) -> list[str]:
        """The values as they are written."""
        return [str(one) for one in self.among]

    def from_json(self, value: Any) -> StrEnum:
        """See ``Value``."""
        try:
            return self.among(value)
        except ValueError as error:
            raise ValueError(f"{value!r} is none of {', '.join(self.words)}") from error

    def from_word(self, text: str) -> str:
        """See ``Value``; the command line knows the choices."""
        return text

    def from_words(self, value: str) -> StrEnum:
        """See ``Value``."""
        return self.from_json(value)

    def from_form(self, value: Any) -> StrEnum:
        """See ``Value``."""
        return self.from_json(value)

    def schema(self) -> dict[str, Any]:
        """See ``Value``."""
        return {"type": "string", "enum": self.words}

    def to_json(self, value: StrEnum) -> str:
        """See ``Value``."""
        return str(value)


@dataclass(frozen=True)
class Document(Value):
    """A mapping, for programs: there is no option for it and no entry in a form."""

    def from_json(self, value: Any) -> Mapping[str, Any]:
        """See ``Value``."""
        if not isinstance(value, Mapping):
            raise ValueError(f"{value!r} is not a mapping")
        return value

    def schema(self) -> dict[str, Any]:
        """See ``Value``."""
        return {"type": "object"}


@dataclass(frozen=True)
class Several(Value):
    """A list without repetitions; on a command line its option is repeated. People may give numbers in any order.

    Attributes:
        item: what its items are.
    """

    item: Value

    @property
    def metavar(self) -> str:
        """See ``Value``."""
        return self.item.metavar

    @property
    def unit(self) -> str:
        """See ``Value``."""
        return self.item.unit

    def from_json(self, value: Any) -> tuple[Any, ...]:
        """See ``Value``."""
        return tuple(dict.fromkeys(map(self.item.from_json, _items(value))))

    def from_word(self, text: str) -> Any:
        """See ``Value``; one word is one item."""
        return self.item.from_word(text)

    def from_words(self, value: Iterable[Any]) -> tuple[Any, ...]:
        """See ``Value``."""
        return self._ordered(map(self.item.from_words, value))

    def from_form(self, value: Any) -> tuple[Any, ...]:
        """See ``Value``."""
        return self._ordered(map(self.item.from_form, _items(value)))

    def _ordered(self, items: Iterable[Any]) -> tuple[Any, ...]:
        return tuple(sorted(set(items)) if isinstance(self.item, Whole) else dict.fromkeys(items))

    def schema(self) -> dict[str, Any]:
        """See ``Value``."""
        return {"type": "array", "items": self.item.schema()}

    def to_json(self, value: Iterable[Any]) -> list[Any]:
        """See ``Value``."""
        return [self.item.to_json(one) for one in value]

    def to_form(self, value: Iterable[Any]) -> list[Any]:
        """See ``Value``."""
        return [self.item.to_form(one) for one in value]

    def hint(self) -> str:
        """See ``Value``. Airflow's form has lines for a list of texts, and JSON for any other."""
        return "A JSON list such as [0, 3]" if isinstance(self.item, Whole) else "One a line"


_NUMBER = re.compile(r"-?([0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?|inf)")
"""A number in a text: what JSON takes for one, and no end. ``int`` and ``float`` take more: spaces, ``1_0``, ``٣``."""


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
