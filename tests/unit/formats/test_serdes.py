"""Serdes by Kafka's names: what they write, what they refuse, and that dumps read the same."""

from __future__ import annotations

import math
import uuid
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.dump.deserializers import NAMES, find_deserializer
from statecore.errors import Invalid
from statecore.formats.serdes import NUMBERS, serde
from tests.harness.raising import raises

SOME_UUID = "3ee6c347-b0d7-47a8-b9f3-19e9218fca70"

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "string": st.text(),
    "long": st.integers(-(2**63), 2**63 - 1),
    "integer": st.integers(-(2**31), 2**31 - 1),
    "int": st.integers(-(2**31), 2**31 - 1),
    "short": st.integers(-(2**15), 2**15 - 1),
    "double": st.floats(allow_nan=False),
    "float": st.floats(width=32, allow_nan=False),
    "boolean": st.booleans(),
    "uuid": st.uuids(),
    "bytes": st.binary(),
    "json": st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=5,
    ).filter(lambda value: value is not None),
}


@pytest.mark.parametrize(
    ("name", "value", "data"),
    [
        ("string", "ключ", "d0bad0bbd18ed187"),
        ("long", -5, "fffffffffffffffb"),
        ("integer", 20, "00000014"),
        ("int", -1, "ffffffff"),
        ("short", 258, "0102"),
        ("double", 1.5, "3ff8000000000000"),
        ("float", 1.5, "3fc00000"),
        ("boolean", True, "01"),
        ("boolean", False, "00"),
        ("uuid", uuid.UUID(SOME_UUID), SOME_UUID.encode().hex()),
        ("bytes", b"\x00\xff", "00ff"),
        ("json", {"a": [1, "ü", None]}, '{"a":[1,"ü",null]}'.encode().hex()),
    ],
)
def test_the_bytes_are_those_of_kafka_s_serializers(name: str, value: Any, data: str) -> None:
    assert serde(name).serialize(value) == bytes.fromhex(data)
    assert serde(name).deserialize(bytes.fromhex(data)) == value


@pytest.mark.parametrize("name", VALUES)
@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_values_come_back(name: str, data: st.DataObject) -> None:
    value = data.draw(VALUES[name])
    one = serde(name)
    assert one.deserialize(one.serialize(value)) == value
    assert one.deserialize(None) is one.serialize(None) is None


@pytest.mark.parametrize("name", [name for name in NAMES if name != "hex"])
@settings(deadline=None, max_examples=50)
@given(data=st.binary(max_size=9) | st.sampled_from([b"\0", b"\1", SOME_UUID.encode()]))
def test_a_dump_reads_the_same(name: str, data: bytes) -> None:
    column = pa.array([None, data], pa.large_binary())
    try:
        expected = serde(name).deserialize(data)
    except Invalid:
        if name != "uuid":  # which a dump shows as the text it is
            with pytest.raises(Invalid):
                find_deserializer(name, "value").convert(column)
        return
    (nothing, shown) = find_deserializer(name, "value").convert(column).to_pylist()
    assert nothing is None
    assert shown == (str(expected) if name == "uuid" else expected) or math.isnan(expected)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("string", b"text"),
        ("string", "\ud800"),
        ("long", 2**63),
        ("long", 1.0),
        ("long", "1"),
        ("long", True),
        ("integer", -(2**31) - 1),
        ("short", 2**15),
        ("double", "1.0"),
        ("double", True),
        ("float", 1e39),
        ("boolean", 1),
        ("uuid", "3ee6c347"),
        ("bytes", "text"),
        ("bytes", 5),
        ("void", 0),
        ("json", {1, 2}),
        ("json", math.nan),
    ],
)
def test_what_is_no_value_of_a_serde_is_refused(name: str, value: Any) -> None:
    with raises(Invalid, "serialization-failed", serde=name):
        serde(name).serialize(value)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("string", b"\xff"),
        ("long", bytes(7)),
        ("integer", bytes(8)),
        ("short", b""),
        ("double", bytes(4)),
        ("float", bytes(8)),
        ("boolean", b"\2"),
        ("boolean", b""),
        ("uuid", b"3ee6c347"),
        ("uuid", b"\xff" * 36),
        ("void", b""),
        ("json", b"{"),
        ("json", b"\xff"),
    ],
)
def test_bytes_of_another_serde_are_refused(name: str, data: bytes) -> None:
    with raises(Invalid, "deserialization-failed", serde=name) as caught:
        serde(name).deserialize(data)
    assert caught.value.context["serde"] == name


def test_a_serde_that_there_is_not_names_those_there_are() -> None:
    with raises(Invalid, "serde-unknown"):
        serde("avro")
    assert set(NUMBERS) <= {*VALUES, "int"}
