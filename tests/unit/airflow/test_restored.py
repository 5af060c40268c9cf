from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from statecore.airflow.restored import FILES_READ, restored_applications


def entry(store: str, partition: int, rows: int) -> dict[str, Any]:
    return {
        "task": f"0_{partition}",
        "store": store,
        "partition": partition,
        "kind": "key-value",
        "rows": rows,
        "records": 10,
        "committed_offset": 9,
        "tail_left": 0,
        "digest": "d",
    }


def write(directory: Path, application: str, second: int, document: Any) -> Path:
    path = directory / application / f"r{second}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    os.utime(path, (1_700_000_000 + second, 1_700_000_000 + second))
    return path


def done(*entries: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"application_id": "orders", "state_dir": "/s", "seconds": 1.0, "stores": list(entries), **fields}


FAILED = {"error": "Fenced", "exit_code": 11, "what": "It runs.", "action": "Stop it.", "context": {}}


def test_no_reports_directory_means_no_applications(tmp_path: Path) -> None:
    assert restored_applications(tmp_path / "absent") == []


def test_each_store_partition_is_shown_as_it_was_last_restored(tmp_path: Path) -> None:
    write(tmp_path, "orders", 1, done(entry("a", 0, 1), entry("a", 1, 1), entry("b", 0, 1), state_dir="/old"))
    write(tmp_path, "orders", 2, done(entry("a", 1, 2)))
    (one,) = restored_applications(tmp_path)
    assert [(part.store, part.partition, part.rows, part.when.second) for part in one.partitions] == [
        ("a", 0, 1, 21),
        ("a", 1, 2, 22),
        ("b", 0, 1, 21),
    ]
    assert one.state_dir == "/s"


def test_a_failure_is_shown_only_while_nothing_succeeded_since(tmp_path: Path) -> None:
    write(tmp_path, "orders", 1, done(entry("a", 0, 1)))
    write(tmp_path, "orders", 2, FAILED)
    (one,) = restored_applications(tmp_path)
    assert one.failure == FAILED
    assert len(one.partitions) == 1
    write(tmp_path, "orders", 3, done(entry("a", 0, 3)))
    (one,) = restored_applications(tmp_path)
    assert one.failure is None


@pytest.mark.parametrize("broken", ["{half", "[]", "{}", '{"stores": [{"task": "0_0"}]}', '{"stores": 3}'])
def test_a_report_that_cannot_be_read_is_counted_and_hides_no_other(tmp_path: Path, broken: str) -> None:
    write(tmp_path, "orders", 1, done(entry("a", 0, 1)))
    write(tmp_path, "orders", 2, broken)
    (one,) = restored_applications(tmp_path)
    assert one.unreadable == 1
    assert [part.store for part in one.partitions] == ["a"]


def test_years_of_reports_are_not_read(tmp_path: Path) -> None:
    write(tmp_path, "orders", 0, done(entry("old", 0, 1)))
    for second in range(1, FILES_READ + 1):
        write(tmp_path, "orders", second, done(entry("new", 0, 1)))
    (one,) = restored_applications(tmp_path)
    assert {part.store for part in one.partitions} == {"new"}
