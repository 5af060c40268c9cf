"""A processor as it runs where only the base package is installed; started by ``test_wheel.py``, which kills it.

Each start adds one row, with the offset that follows the last committed one, looks at it in the ways that there are,
and says so; then it stages a row that is never committed and waits to be killed.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

from statecore import (
    CheckpointSettings,
    NextReader,
    RocksDBStore,
    StoreKind,
    TaskCheckpointer,
    TaskOffsets,
    TaskStore,
    TopicPartition,
    decode_value,
    encode_value,
    serde,
)

KIND = StoreKind.TIMESTAMPED_KEY_VALUE
CHANGELOG = TopicPartition("bare-counts-changelog", 0)


def main(state_dir: Path) -> None:
    """Open, look, commit, look, stage, wait."""
    others = ("cramjam", "llvmlite", "numba", "numpy", "pandas", "pyarrow", "pyspark", "airflow")
    there = [name for name in others if find_spec(name)]
    assert there == [], f"the base package brings {there}"
    task = state_dir / "bare" / "0_0"
    store = RocksDBStore(task / "rocksdb" / "counts", KIND, create_if_missing=True)
    stores = [TaskStore("counts", store, (CHANGELOG,))]
    offsets = TaskOffsets(task, stores, exactly_once=True, next_reader=NextReader.KAFKA_STREAMS_4_3)
    checkpointer = TaskCheckpointer(offsets, CheckpointSettings(interval_ms=0))
    checkpointer.open()
    text, number = serde("string"), serde("long")
    committed = store.committed_offset(CHANGELOG)
    stored = [(text.deserialize(key), decode_value(KIND, value)) for key, value in store.all()]
    found = [(key, number.deserialize(row.value), row.timestamp) for key, row in stored]
    offset = 0 if committed is None else committed + 1
    assert found == [(f"k{one}", one, 1000 + one) for one in range(offset)]

    key, value = text.serialize(f"k{offset}"), encode_value(KIND, number.serialize(offset) or b"", 1000 + offset)
    assert key is not None
    store.put(key, value)
    before = store.query_view()
    checkpointer.commit({"counts": {CHANGELOG: offset}})
    assert (before.get(key), store.query_view().get(key)) == (None, value)
    store.put(b"never", b"committed")
    sys.stdout.write(f"committed {offset}\n")
    sys.stdout.flush()
    sys.stdin.read()  # ends when whoever started this is gone


if __name__ == "__main__":
    main(Path(sys.argv[1]))
