import subprocess
import sys

import pyarrow as pa
import pytest

from statecore.errors import Invalid
from statecore.formats.kinds import StoreKind
from statecore.formats.registry import row_format
from statecore.formats.row_format import RowFormat
from tests.harness.raising import raises
from tests.unit.formats.arrays import int32, int64, records

BUILT = [kind for kind in StoreKind if kind.can_be_built]
BUFFERED = bytes(16) + int32(2) + b"in" + int32(0) + int32(0) + int32(-1) + int32(-1) + int32(1) + b"v" + bytes(8)


@pytest.mark.parametrize("kind", BUILT)
def test_every_kind_that_can_be_built_has_a_format_of_its_own(kind: StoreKind) -> None:
    form = row_format(kind)
    assert form.kind is kind
    assert row_format(kind) is form
    assert (form.time_at is not None) == (form.key_time_at is not None) == kind.is_segmented
    assert (type(form) is RowFormat) == (kind is StoreKind.KEY_VALUE)


@pytest.mark.parametrize("kind", [kind for kind in BUILT if kind.value.startswith("headers")])
def test_kinds_with_headers_have_them_in_rows_except_emit_final_sessions(kind: StoreKind) -> None:
    assert row_format(kind).needs_headers == (kind is not StoreKind.HEADERS_EMIT_FINAL_SESSION)
    assert not row_format(kind).stamped


@pytest.mark.parametrize("kind", [StoreKind.IN_MEMORY, StoreKind.CUSTOM, StoreKind.UNKNOWN])
def test_a_kind_without_rows_is_refused(kind: StoreKind) -> None:
    with raises(Invalid, "kind-without-rows", kind=kind.value):
        row_format(kind)


@pytest.mark.parametrize("kind", [kind for kind in BUILT if kind.is_segmented])
def test_a_key_of_twelve_bytes_is_read_or_refused(kind: StoreKind) -> None:
    # The shortest key of any windowed kind, at the edge of its buffer.
    form = row_format(kind)
    misfit = form.check(records([bytes(12)], [BUFFERED]))
    assert (misfit is None) == ("window" in kind.value)


def test_changelogs_go_through_every_format_without_pandas() -> None:
    # Importing it would be most of a worker's start. The batches come in as a stream: making them would import it.
    keys = {kind: b"k" + bytes(16) for kind in BUILT}
    keys |= {StoreKind.GRACE_BUFFER: bytes(17), StoreKind.LIST: int64(1) + b"\1k"}
    values = {StoreKind.GRACE_BUFFER: BUFFERED, StoreKind.LIST: b"\1" + int32(1) + int32(2) + b"\1v"}
    sink = pa.BufferOutputStream()
    schema = pa.schema({"key": pa.binary(), "value": pa.binary(), "timestamp": pa.int64(), "headers": pa.binary()})
    with pa.ipc.new_stream(sink, schema) as stream:
        for kind in BUILT:
            for headers in ([b"\0", b"\0"], [b"\0", bytes.fromhex("04 02 61 82 01") + bytes(65) + b"\x02b\x01"]):
                columns = [[keys[kind], None], [values.get(kind, b"v"), None], [1, 2], headers]
                stream.write_batch(pa.record_batch([pa.array(column) for column in columns], schema=schema))
    script = """
import sys
import pyarrow as pa
from statecore.formats.key_value import put_on_timestamps
from statecore.formats.kinds import StoreKind
from statecore.formats.registry import row_format
from statecore.formats.row_format import Records
kinds = [kind for kind in StoreKind if kind.can_be_built for _ in range(2)]
for kind, batch in zip(kinds, pa.ipc.open_stream(sys.stdin.buffer), strict=True):
    form, records = row_format(kind), Records(*batch.columns)
    assert form.check(records) is None, (kind, form.check(records))
    keys = form.row_keys(records.keys)
    form.index_keys(keys)
    values = form.row_values(records)
    if form.stamped:
        put_on_timestamps(values, records.timestamps)
print("pandas" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], input=sink.getvalue().to_pybytes(), stdout=subprocess.PIPE, check=True
    )
    assert done.stdout == b"False\n"


@pytest.mark.parametrize("kind", BUILT)
def test_a_format_says_that_it_is_indexed_where_it_has_keys_of_an_index(kind: StoreKind) -> None:
    form = row_format(kind)
    rows = pa.array([bytes(40)], pa.large_binary())
    assert form.indexed is (form.index_keys(rows) is not None)
