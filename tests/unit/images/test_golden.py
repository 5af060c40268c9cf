"""Stores that Kafka Streams 4.3.1 wrote, rebuilt from their changelogs: the same rows, byte for byte."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from statecore.changelog.model import CHANGELOG_SCHEMA
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import decode_int64, offset_key
from statecore.formats.position import decode_position, encode_position
from statecore.formats.topic_partition import TopicPartition
from statecore.images.image import build_image
from statecore.images.runs import RunBuilder
from tests.unit.images.changelog import stored_rows

GOLDEN = sorted((Path(__file__).parents[2] / "golden").glob("*key-value-*.json"))


def unhex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
@pytest.mark.parametrize("rows_in_a_batch", [1, 1000])
def test_rows_are_those_kafka_streams_wrote(tmp_path: Path, path: Path, rows_in_a_batch: int) -> None:
    golden = json.loads(path.read_text())
    kind = StoreKind(golden["kind"])
    records = golden["records"]
    columns = [
        pa.array([unhex(record["key"]) for record in records], pa.binary()),
        pa.array([unhex(record["value"]) for record in records], pa.binary()),
        pa.array([record["offset"] for record in records], pa.int64()),
        pa.array([record["timestamp"] for record in records], pa.int64()),
    ]
    builder = RunBuilder(kind, tmp_path, memory_budget=1, keep_tombstones=False)
    for batch in pa.Table.from_arrays(columns, schema=CHANGELOG_SCHEMA).to_batches(max_chunksize=rows_in_a_batch):
        builder.add(batch)
    changelog = TopicPartition(golden["changelog"], golden["partition"])
    image = build_image(tmp_path / "image", kind, builder.finish(), {changelog: golden["log_end_offset"] - 1})
    families = golden["families"]
    expected = [(bytes.fromhex(key), bytes.fromhex(value)) for key, value in families[kind.data_column_family]]
    assert len(expected) > 5
    assert stored_rows(tmp_path / "image", kind) == expected
    assert image.rows == len(expected)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_offsets_and_positions_are_read_as_kafka_streams_wrote_them(path: Path) -> None:
    golden = json.loads(path.read_text())
    rows = {bytes.fromhex(key): bytes.fromhex(value) for key, value in golden["families"]["offsets"]}
    assert decode_int64(rows[b"status"]) == 0
    offset = decode_int64(rows[offset_key(TopicPartition(golden["changelog"], golden["partition"]))])
    assert offset == golden["records"][-1]["offset"]
    position = decode_position(rows[b"position"])
    assert set(position) == {golden["input"]}
    assert rows[b"position"].rstrip(b"\0") == encode_position(position).rstrip(b"\0")
