"""Stores that Kafka Streams 4.3.1 wrote, rebuilt from their changelogs: the same rows, byte for byte."""

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from statecore.changelog.decoder import CHANGELOG_SCHEMA, HEADERS_FIELD
from statecore.formats.checkpoint import decode_checkpoint
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import decode_int64, offset_key
from statecore.formats.position import decode_position, encode_position
from statecore.formats.registry import row_format
from statecore.formats.segments import Segmentation, default_segment_interval
from statecore.formats.topic_partition import TopicPartition
from statecore.images.image import SegmentedRuns, build_image
from statecore.images.model import BaseDatabases, Image, Run
from statecore.images.runs import RunBuilder
from statecore.images.versions.build import VersionRunBuilder, build_version_runs
from tests.golden import make
from tests.harness import feeds
from tests.harness.directory import read_database
from tests.unit.changelog.build import header_bytes
from tests.unit.images.changelog import CuttingRunBuilder

GOLDEN = sorted((Path(__file__).parents[2] / "golden").glob("*.json"))
EVERY = pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)

KEYS = {record.key for portion in make.rounds() for record in portion}
KEYS |= {record.key for _, portion in feeds.feed(0, 1) for record in portion}

Rows = dict[str, list[tuple[bytes, bytes]]]


def test_there_is_a_golden_file_of_every_kind_under_both_guarantees() -> None:
    found = {(golden["kind"], golden["guarantee"]) for golden in map(read, GOLDEN)}
    kinds = [kind.value for kind in StoreKind if kind.can_be_built]
    assert found == {(kind, guarantee) for kind in kinds for guarantee in ("exactly_once_v2", "at_least_once")}


@EVERY
def test_rows_are_those_kafka_streams_wrote(tmp_path: Path, path: Path) -> None:
    golden = read(path)
    image = build(tmp_path, golden, [whole(golden)], rows_in_a_batch=1000)
    expected = rows_by_segment(golden)
    assert sum(len(rows) for rows in expected.values()) > 5
    assert built(tmp_path / "image", golden) == expected
    assert image.rows == sum(len(rows) for rows in expected.values())
    for families in databases(tmp_path / "image", golden).values():
        rows = dict(families["offsets"])
        assert decode_int64(rows[b"status"]) == 0
        assert decode_int64(rows[offset_key(changelog_of(golden))]) == golden["log_end_offset"] - 1


@EVERY
def test_rows_are_the_same_if_the_changelog_is_split_into_ranges_and_runs(tmp_path: Path, path: Path) -> None:
    golden = read(path)
    end = len(golden["records"])
    cuts = [0, 1, end // 3, 2 * end // 3, end]
    build(tmp_path, golden, list(pairwise(cuts)), rows_in_a_batch=3)
    assert built(tmp_path / "image", golden) == rows_by_segment(golden)


@EVERY
def test_offsets_and_positions_are_read_as_kafka_streams_wrote_them(path: Path) -> None:
    golden = read(path)
    changelog = changelog_of(golden)
    last = golden["records"][-1]["offset"]
    for families in golden.get("segments", {"": golden.get("families")}).values():
        rows = {bytes.fromhex(key): bytes.fromhex(value) for key, value in families["offsets"]}
        assert decode_int64(rows[b"status"]) == 0
        if StoreKind(golden["kind"]).manages_offsets:
            assert decode_int64(rows[offset_key(changelog)]) == last
        position = decode_position(rows[b"position"])
        assert all(topic.startswith(golden["input"]) for topic in position)
        assert rows[b"position"].rstrip(b"\0") == encode_position(position).rstrip(b"\0")
    if "checkpoint" in golden:
        assert decode_checkpoint(golden["checkpoint"].encode(), path.name) == {changelog: last}
    assert ("checkpoint" in golden) is not StoreKind(golden["kind"]).manages_offsets


@EVERY
def test_every_row_that_kafka_streams_wrote_is_decoded(path: Path) -> None:
    golden = read(path)
    form = row_format(StoreKind(golden["kind"]))
    decoded = 0
    for rows in rows_by_segment(golden).values():
        keys, values = (
            pa.array([key for key, _ in rows], pa.binary()),
            pa.array([value for _, value in rows], pa.binary()),
        )
        batch = form.decode(keys, values)
        assert batch.schema.names[0] == "key"
        assert batch.schema.names[-1] == "value"
        decoded += batch.num_rows
        assert set(batch.column("key").to_pylist()) <= KEYS
    assert decoded > 5


def read(path: Path) -> dict[str, Any]:
    golden: dict[str, Any] = json.loads(path.read_text())
    return golden


def whole(golden: dict[str, Any]) -> tuple[int, int]:
    return 0, len(golden["records"])


def changelog_of(golden: dict[str, Any]) -> TopicPartition:
    return TopicPartition(golden["changelog"], golden["partition"])


def segmentation_of(golden: dict[str, Any]) -> Segmentation | None:
    kind = StoreKind(golden["kind"])
    if not kind.is_segmented and not kind.is_versioned:
        return None
    retention = golden.get("retention_ms", (1 << 63) - 1)
    return Segmentation(retention, default_segment_interval(kind, retention))


def build(directory: Path, golden: dict[str, Any], ranges: Sequence[tuple[int, int]], rows_in_a_batch: int) -> Image:
    """The image of a golden file's changelog, read in these ranges of its records."""
    kind, changelog, segmentation = StoreKind(golden["kind"]), changelog_of(golden), segmentation_of(golden)
    runs: list[Run] = []
    versions: list[tuple[int, list[Run]]] = []
    stream_time = -1
    for number, (start, end) in enumerate(ranges):
        at = directory / f"range-{number}"
        at.mkdir()
        builder: RunBuilder | VersionRunBuilder
        if kind.is_versioned:
            builder = VersionRunBuilder(at, memory_budget=1, changelog=changelog)
        else:
            builder = CuttingRunBuilder(
                kind,
                at,
                memory_budget=1,
                base=BaseDatabases(all_databases=number > 0),
                start=golden["records"][start]["offset"],
                segmentation=segmentation,
                changelog=changelog,
            )
        for batch in batches(golden["records"][start:end], rows_in_a_batch):
            builder.add(batch)
        made = builder.finish()
        runs.extend(made)
        versions.append((builder.statistics.stream_time, made))
        stream_time = max(stream_time, builder.statistics.stream_time)
    if kind.is_versioned:
        assert segmentation is not None
        scratch = directory / "versions"
        scratch.mkdir()
        runs = list(build_version_runs(scratch, versions, segmentation))
    segmented = None
    if kind.is_segmented:
        assert segmentation is not None
        segmented = SegmentedRuns(golden["store"], segmentation, stream_time)
    offsets = {changelog: golden["log_end_offset"] - 1}
    return build_image(directory / "image", kind, runs, offsets, segmented=segmented)


def batches(records: list[dict[str, Any]], rows: int) -> Iterator[pa.RecordBatch]:
    columns = [
        pa.array([unhex(record["key"]) for record in records], pa.binary()),
        pa.array([unhex(record["value"]) for record in records], pa.binary()),
        pa.array([record["offset"] for record in records], pa.int64()),
        pa.array([record["timestamp"] for record in records], pa.int64()),
        pa.array(
            [header_bytes([(name.encode(), unhex(value)) for name, value in record["headers"]]) for record in records],
            pa.binary(),
        ),
    ]
    schema = CHANGELOG_SCHEMA.append(HEADERS_FIELD)
    yield from pa.Table.from_arrays(columns, schema=schema).to_batches(max_chunksize=rows)


def unhex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def rows_by_segment(golden: dict[str, Any]) -> Rows:
    """The rows of the data family of every segment that has some; of the one database under the empty name."""
    family = StoreKind(golden["kind"]).data_column_family
    found: Rows = {}
    for segment, families in golden.get("segments", {"": golden.get("families")}).items():
        others = [rows for name, rows in families.items() if name not in (family, "offsets")]
        assert not any(others), "rows in another family"
        if families[family]:
            found[segment] = [(bytes.fromhex(key), bytes.fromhex(value)) for key, value in families[family]]
    return found


def databases(image: Path, golden: dict[str, Any]) -> dict[str, Rows]:
    """The column families of every database of an image, by segment."""
    if not StoreKind(golden["kind"]).is_segmented:
        return {"": read_database(image)}
    return {one.name: read_database(one) for one in sorted(image.iterdir())}


def built(image: Path, golden: dict[str, Any]) -> Rows:
    family = StoreKind(golden["kind"]).data_column_family
    found = {segment: families[family] for segment, families in databases(image, golden).items()}
    return {segment: rows for segment, rows in found.items() if rows}
