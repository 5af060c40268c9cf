"""Serializers and deserializers of application keys and values, by the names of Kafka's serdes (``Serdes``, Kafka
4.3.1).

=============  =================================================================  ==========================
name           bytes                                                              value in Python
=============  =================================================================  ==========================
``string``     UTF-8                                                              ``str``
``long``       8 bytes, big-endian                                                ``int``
``integer``    4 bytes, big-endian (``int`` is another name)                      ``int``
``short``      2 bytes, big-endian                                                ``int``
``double``     IEEE 754, 8 bytes, big-endian                                      ``float``
``float``      IEEE 754, 4 bytes, big-endian                                      ``float``
``boolean``    01 or 00                                                           ``bool``
``uuid``       its text of 36 characters, UTF-8                                   ``uuid.UUID``
``bytes``      themselves                                                         ``bytes``
``void``       none                                                               ``None``
``json``       JSON text, UTF-8; not one of Kafka's serdes                      what ``json.loads`` returns
=============  =================================================================  ==========================

Null is null in all of them. Malformed data is refused, where Kafka's deserializers replace malformed UTF-8.
"""

from __future__ import annotations

import json
import re
import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from operator import index
from typing import Any

from statecore.errors import Invalid

NUMBERS: dict[str, str] = {"long": ">q", "integer": ">i", "int": ">i", "short": ">h", "double": ">d", "float": ">f"}
"""Number serdes and their :mod:`struct` formats."""

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII)
_SHOWN = 40


@dataclass(frozen=True)
class Serde:
    """A serializer and a deserializer of single keys or values.

    Attributes:
        name: name of the serde.
        write: converts a value other than ``None`` to bytes; :meth:`serialize` translates its exceptions.
        read: converts bytes to a value, likewise.
    """

    name: str
    write: Callable[[Any], bytes]
    read: Callable[[bytes], Any]

    def serialize(self, value: Any) -> bytes | None:
        """Serialize a value; ``None`` stays ``None``. Raises ``Invalid`` for a value that does not fit the serde."""
        if value is None:
            return None
        try:
            return self.write(value)
        except (TypeError, ValueError, OverflowError, struct.error) as error:
            raise Invalid(
                f"{_shown(repr(value))} is not a {self.name}: {error}.",
                code="serialization-failed",
                action="Give a value of that type, or use another serde; nothing was written.",
                serde=self.name,
            ) from error

    def deserialize(self, data: bytes | None) -> Any:
        """Deserialize bytes; ``None`` stays ``None``. Raises ``Invalid`` for bytes that do not fit the serde."""
        if data is None:
            return None
        try:
            return self.read(data)
        except (TypeError, ValueError, struct.error) as error:
            raise Invalid(
                f"The {len(data)} bytes {_shown(bytes(data).hex())} are not a {self.name}: {error}.",
                code="deserialization-failed",
                action="Use the application's serde; the serde bytes accepts all data.",
                serde=self.name,
            ) from error


def serde(name: str) -> Serde:
    """Serde by name. Raises ``Invalid`` for an unknown name."""
    if name in NUMBERS:
        return _number(name)
    if name in _OTHERS:
        return _OTHERS[name]
    raise Invalid(
        f"There is no serde {name!r}.",
        code="serde-unknown",
        action=f"Use one of {', '.join(sorted([*NUMBERS, *_OTHERS]))}.",
    )


def _number(name: str) -> Serde:
    layout = struct.Struct(NUMBERS[name])
    whole = NUMBERS[name][-1] in "qih"

    def write(value: Any) -> bytes:
        if isinstance(value, (bool, str, bytes)):
            raise TypeError(f"it is a {type(value).__name__}")
        return layout.pack(index(value) if whole else float(value))

    def read(data: bytes) -> Any:
        if len(data) != layout.size:
            raise ValueError(f"it has {layout.size} bytes")
        return layout.unpack(data)[0]

    return Serde(name, write, read)


def _write_string(value: Any) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"it is a {type(value).__name__}")
    return value.encode()


def _write_bytes(value: Any) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError(f"it is a {type(value).__name__}")
    return bytes(value)


def _write_boolean(value: Any) -> bytes:
    if not isinstance(value, bool):
        raise TypeError(f"it is a {type(value).__name__}")
    return b"\1" if value else b"\0"


def _read_boolean(data: bytes) -> bool:
    if data not in (b"\0", b"\1"):
        raise ValueError("it is 00 or 01")
    return data == b"\1"


def _write_uuid(value: Any) -> bytes:
    return str(value if isinstance(value, uuid.UUID) else _uuid(value)).encode()


def _uuid(text: str) -> uuid.UUID:
    if not _UUID.fullmatch(text):
        raise ValueError("it is 36 characters, 8-4-4-4-12")
    return uuid.UUID(text)


def _write_nothing(value: Any) -> bytes:
    raise ValueError(f"it is a {type(value).__name__}, and void has only null")


def _read_nothing(_: bytes) -> None:
    raise ValueError("void has only null")


def _write_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


_OTHERS: dict[str, Serde] = {
    one.name: one
    for one in (
        Serde("string", _write_string, lambda data: data.decode()),
        Serde("bytes", _write_bytes, bytes),
        Serde("boolean", _write_boolean, _read_boolean),
        Serde("uuid", _write_uuid, lambda data: _uuid(data.decode())),
        Serde("void", _write_nothing, _read_nothing),
        Serde("json", _write_json, lambda data: json.loads(data.decode())),
    )
}


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
