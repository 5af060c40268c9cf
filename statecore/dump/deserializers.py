"""Deserializers for keys and values: Kafka's standard ones, hex, or a custom function.

The names are those of :mod:`statecore.formats.serdes`, which decodes single values; a UUID stays text here. Bytes that
do not fit are an error, so that a wrong name does not look like strange data.
A custom function, ``module:function``, gets ``bytes`` and returns a JSON value, or any object, whose ``str`` is used
then.
"""

from __future__ import annotations

import statecore.extras.pipeline

import importlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statecore.errors import Invalid
from statecore.formats.row_format import binary_parts
from statecore.formats.serdes import NUMBERS

Convert = Callable[[pa.Array], pa.Array]

NAMES = ("hex", "bytes", "string", "uuid", "boolean", *NUMBERS)
"""Names of the built-in deserializers."""


@dataclass(frozen=True)
class Deserializer:
    """A deserializer.

    Attributes:
        type: the Arrow type of its results.
        convert: binary array (nulls stay null) to an array of that type. Raises ``Invalid``.
    """

    name: str
    type: pa.DataType
    convert: Convert
    is_json: bool = False


def find_deserializer(name: str, what: str) -> Deserializer:
    """The deserializer of a name: one of :data:`NAMES`, or ``module:function``. Raises ``Invalid``."""
    if name in NUMBERS:
        layout, kind = NUMBERS[name], pa.from_numpy_dtype(np.dtype(NUMBERS[name]).newbyteorder("="))
        return Deserializer(name, kind, lambda array: _numbers(array, layout, kind, name, what))
    if name == "boolean":
        return Deserializer(name, pa.bool_(), lambda array: _booleans(array, what))
    if name == "hex":
        return Deserializer(name, pa.large_string(), _hex)
    if name == "bytes":
        return Deserializer(name, pa.large_binary(), lambda array: array.cast(pa.large_binary()))
    if name in ("string", "uuid"):
        return Deserializer(name, pa.large_string(), lambda array: _text(array, what))
    if ":" in name:
        function = _imported(name, what)
        return Deserializer(
            name, pa.large_string(), lambda array: _convert_by_function(array, function, name, what), is_json=True
        )
    raise Invalid(
        f"There is no deserializer {name!r} for the {what}.",
        code="deserializer-unknown",
        action=f"Use one of {', '.join(NAMES)}, or module:function for a custom one.",
        deserializer=name,
    )


def _numbers(array: pa.Array, layout: str, kind: pa.DataType, name: str, what: str) -> pa.Array:
    wide = array.cast(pa.large_binary())
    size = np.dtype(layout).itemsize
    missing = wide.is_null().to_numpy(zero_copy_only=False)
    offsets, data = binary_parts(wide)
    unfit = (np.diff(offsets) != size) & ~missing
    if unfit.any():
        row = int(np.flatnonzero(unfit)[0])
        raise _misfit(wide[row].as_py(), name, what, f"which has {size}")
    places = offsets[:-1][~missing][:, None] + np.arange(size)
    numbers = np.zeros(len(array), np.dtype(layout).newbyteorder("="))
    if len(places):
        numbers[~missing] = data[places].reshape(-1).view(layout)
    return pa.array(numbers, kind, mask=missing)


def _booleans(array: pa.Array, what: str) -> pa.Array:
    bits = _numbers(array, "u1", pa.uint8(), "boolean", what)
    if (pc.max(bits).as_py() or 0) > 1:
        unfit = next(one for one in array.to_pylist() if one is not None and one > b"\1")
        raise _misfit(unfit, "boolean", what, "which is 00 or 01")
    return bits.cast(pa.bool_())


def _hex(array: pa.Array) -> pa.Array:
    return pa.array([None if one is None else one.hex() for one in array.to_pylist()], pa.large_string())


def _text(array: pa.Array, what: str) -> pa.Array:
    try:
        return array.cast(pa.large_binary()).cast(pa.large_string())
    except pa.ArrowInvalid:
        unfit = next(one for one in array.to_pylist() if one is not None and not _is_utf8(one))
        raise _misfit(unfit, "string", what, "which is UTF-8") from None


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _imported(name: str, what: str) -> Callable[[bytes], Any]:
    module, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise Invalid(
            f"The {what}'s deserializer {name} cannot be imported: {error}.",
            code="deserializer-invalid",
            action="Write module:function, and add the module's directory to PYTHONPATH.",
            deserializer=name,
        ) from error
    if not callable(found):
        raise Invalid(
            f"The {what}'s deserializer {name} is not a function.",
            code="deserializer-invalid",
            action="Write module:function.",
            deserializer=name,
        )
    return found  # type: ignore[no-any-return]


def _convert_by_function(array: pa.Array, function: Callable[[bytes], Any], name: str, what: str) -> pa.Array:
    """JSON texts of a custom function's results; the only loop over rows, because the function takes single values."""
    made = []
    for one in array.to_pylist():
        try:
            made.append(None if one is None else json.dumps(function(one), default=str, ensure_ascii=False))
        except Exception as error:
            raise Invalid(
                f"{name} failed at the {what} {_shown(one)}: {type(error).__name__}: {error}.",
                code="deserializer-failed",
                action=f"Correct the function, or use --{what} hex.",
                deserializer=name,
            ) from error
    return pa.array(made, pa.large_string())


def _misfit(data: bytes, name: str, what: str, which: str) -> Invalid:
    return Invalid(
        f"The {what} {_shown(data)} of {len(data)} bytes is no {name}, {which}.".replace("which has", "which takes"),
        code="deserialization-failed",
        action=f"Use another --{what}; hex shows any bytes.",
        deserializer=name,
    )


def _shown(data: bytes | None) -> str:
    if data is None:
        return "null"
    return data[:32].hex() + ("..." if len(data) > 32 else "")


def finite(array: pa.Array) -> pa.Array:
    """Replace floating point numbers that JSON cannot hold (NaN, infinities) by null; other arrays are unchanged."""
    if not pa.types.is_floating(array.type):
        return array
    return pc.if_else(pc.is_finite(array), array, pa.scalar(None, array.type))
