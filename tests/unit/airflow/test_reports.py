from __future__ import annotations

import errno
import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from statecore.airflow import reports
from statecore.jobs.history.report_head import ReportOutcome, read_head
from statecore.repository.publish.publication import Published
from tests.unit.jobs.reports import FAILURE, attempt, done, failed


def entry(store: str, partition: int, **fields: Any) -> dict[str, Any]:
    return {
        "task": f"0_{partition}",
        "store": store,
        "partition": partition,
        "kind": "key-value",
        "changelog": f"orders-{store}-changelog",
        "committed_offset": 10 * partition + 9,
        "records": 10,
        "rows": 7,
        "bytes": 100,
        "tombstones": 1,
        "null_keys": 0,
        "aborted": 2,
        "digest": f"{partition:032x}",
        "seconds": 0.5,
        "tail_left": partition,
        **fields,
    }


def report(*entries: dict[str, Any]) -> dict[str, Any]:
    return {
        "application_id": "orders",
        "plan_id": "p",
        "state_dir": "/s",
        "totals": {"rows": 1},
        "stores": list(entries),
    }


def test_two_requests_never_share_a_report_file(tmp_path: Path) -> None:
    ids = [
        "d/manual__2026-01-01T00:00:00+00:00/restore/0",
        "d/manual__2026-01-01T00:00:00-00:00/restore/0",
        "d_r",
        "d/r",
    ]
    paths = {reports.report_path(tmp_path, "orders", one) for one in ids}
    assert len(paths) == len(ids)
    assert all(path.parent == tmp_path / "orders" for path in paths)
    assert reports.report_path(tmp_path, "orders", ids[0]) in paths


def test_the_line_of_a_snapshot_counts_what_others_published_meanwhile() -> None:
    snapshot = Published("S", "i", "2026-11-29T10:00:00Z", tasks=2, file_bytes=9_000, new_bytes=4_000, concurrent=3)
    document = {"repository": "file:///r", "published": asdict(snapshot)}
    assert reports.published(document) == (
        "snapshot S published in file:///r: 2 tasks, 9,000 bytes, 4,000 of them new, "
        "3 of other jobs were published meanwhile"
    )


def test_a_request_cannot_leave_the_reports_directory(tmp_path: Path) -> None:
    path = reports.report_path(tmp_path, "../evil", "../../../etc/passwd")
    assert path.resolve().is_relative_to(tmp_path)
    assert len(reports.report_path(tmp_path, "a", "x" * 5000).name) < 200


@pytest.mark.parametrize("content", [None, "", "{half", "[1]"])
def test_a_report_that_is_absent_or_half_written_is_an_error(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "r.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(reports.ReportError, match=r"r\.json"):
        reports.read_report(path)


def test_a_store_entry_has_the_totals_of_its_store_alone() -> None:
    parts = reports.reports_by_store(report(entry("b", 1), entry("a", 0), entry("b", 0)))
    assert list(parts) == ["a", "b"]
    assert parts["b"]["totals"] == {
        "records": 20, "rows": 14, "bytes": 200, "tombstones": 2, "null_keys": 0, "aborted": 4
    }  # fmt: skip
    assert parts["b"]["committed_offsets"] == {"0": 9, "1": 19}
    assert [one["partition"] for one in parts["b"]["partitions"]] == [0, 1]
    assert parts["b"]["tail_left"] == 1
    assert parts["a"]["totals"]["records"] == 10


def test_a_store_entry_stays_below_its_limit_and_its_totals_count_everything() -> None:
    whole = report(*(entry("a", partition) for partition in range(100)))
    part = reports.reports_by_store(whole, limit=5_000)["a"]
    assert 0 < len(part["partitions"]) < 100
    assert len(part["partitions"]) + part["partitions_left_out"] == 100
    assert len(json.dumps(part["partitions"])) <= 5_000 + 2 * 100
    assert part["totals"]["records"] == 1000
    assert f"{part['partitions_left_out']} more partitions" in reports.table(part)


def test_the_digest_of_a_store_depends_on_every_partition_and_not_on_their_order() -> None:
    first, second = entry("a", 0), entry("a", 1)

    def digest_of(*entries: dict[str, Any]) -> str:
        return str(reports.reports_by_store(report(*entries))["a"]["digest"])

    digest = digest_of(first, second)
    assert digest == digest_of(second, first)
    assert digest != digest_of({**first, "digest": second["digest"]}, {**second, "digest": first["digest"]})
    assert digest != digest_of(first)


def test_the_summary_names_the_stores_and_leaves_their_partitions_out() -> None:
    summary = reports.summary(report(entry("b", 0), entry("a", 0), entry("a", 1)))
    assert summary["stores"] == ["a", "b"]
    assert summary["application_id"] == "orders"


def test_a_store_restored_by_kafka_streams_is_marked() -> None:
    left = entry("v", 0, committed_offset=-4, records=0, rows=0, restored_by_kafka_streams=True)
    parts = reports.reports_by_store(report(entry("a", 0), left))
    assert [parts[store]["restored_by_kafka_streams"] for store in ("a", "v")] == [False, True]
    assert "Kafka Streams restores" in reports.table(parts["v"])
    assert "Kafka Streams restores" not in reports.table(parts["a"])


def test_the_table_shows_each_partition_in_a_row() -> None:
    lines = reports.table(
        reports.reports_by_store(report(entry("a", 0), entry("a", 1, rows=1_234_567)))["a"]
    ).splitlines()
    assert lines[0].split() == [
        "task", "store", "partition", "records", "rows", "committed", "offset", "tail", "left", "seconds", "digest"
    ]  # fmt: skip
    assert lines[3].split() == ["0_1", "a", "1", "10", "1,234,567", "19", "1", "0.50", f"{1:032x}"]
    assert lines[-1].startswith("20 records became 1,234,574 rows")


def test_store_entries_and_summary_name_their_instance() -> None:
    whole = {**report(entry("a", 0)), "host": "node-1", "finished": "2026-01-01T00:00:00.000Z"}
    part = reports.reports_by_store(whole)["a"]
    assert (part["host"], part["state_dir"], part["finished"]) == ("node-1", "/s", "2026-01-01T00:00:00.000Z")
    assert reports.summary(whole)["host"] == "node-1"


def test_a_failure_is_recorded_unless_stores_were_restored(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    mine = attempt(9, host="worker")
    reports.record_failure(path, mine, FAILURE)
    assert read_head(reports.read_report(path)).attempt == mine
    path.write_text(json.dumps(attempt(1, host="driver").begun()))
    reports.record_failure(path, mine, FAILURE)
    head = read_head(reports.read_report(path))
    assert (head.outcome, head.attempt.host, head.error["error"]) == (ReportOutcome.FAILED, "driver", "Fenced")
    path.write_text(json.dumps(failed(attempt(2), what="Of an earlier try.")))
    reports.record_failure(path, mine, FAILURE)
    assert read_head(reports.read_report(path)).attempt == mine
    path.write_text(json.dumps(done(attempt(2), entry("a", 0))))
    reports.record_failure(path, mine, FAILURE)
    assert "error" not in json.loads(path.read_text())
    (tmp_path / "file").touch()
    reports.record_failure(tmp_path / "file" / "r.json", mine, FAILURE)


def test_on_a_full_disk_the_report_before_a_failure_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r.json"
    reports.record_failure(path, attempt(1), FAILURE)
    before = path.read_bytes()

    def full(file: Path, data: bytes) -> int:
        file.touch()
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(Path, "write_bytes", full)
    reports.record_failure(path, attempt(2), FAILURE)
    assert [one.read_bytes() for one in tmp_path.iterdir()] == [before]


def test_the_failure_of_a_try_is_kept_while_the_next_one_runs(tmp_path: Path) -> None:
    """Else the page would not know the cause of an outage for as long as each try waits for its end."""
    path = tmp_path / "r.json"
    for second in (1, 2):
        path.write_text(json.dumps(failed(attempt(second))))
        reports.clear(path)
        assert not path.exists()
        assert read_head(reports.read_report(reports.earlier_path(path))).attempt == attempt(second)
    path.write_text(json.dumps(attempt(3).begun()))
    reports.clear(path)
    assert read_head(reports.read_report(reports.earlier_path(path))).attempt == attempt(2)
    path.write_text(json.dumps(done(attempt(4), entry("a", 0))))
    reports.clear(path)
    path.write_text(json.dumps(failed(attempt(5))))
    reports.clear(path)
    assert read_head(reports.read_report(reports.earlier_path(path))).attempt == attempt(4), "a success is kept"


def plan(partitions: int) -> dict[str, Any]:
    one = {"store": "s", "kind": "key-value", "topic": "t", "start": 5, "end": 10, "log_end": 12, "ranges": [[5, 10]]}
    return {
        "application_id": "a",
        "processing_guarantee": "exactly_once_v2",
        "partitions": [{**one, "task": f"0_{number}", "partition": number} for number in range(partitions)],
    }


def test_a_wide_plan_is_counted_whole_and_shown_as_far_as_it_fits() -> None:
    shown = reports.bounded_plan(plan(1000), limit=2000)
    assert 0 < len(shown["partitions"]) < 20
    assert len(shown["partitions"]) + shown["partitions_left_out"] == 1000
    assert shown["totals"] == {"partitions": 1000, "offsets": 5000}
    assert f"and {shown['partitions_left_out']} more partitions" in reports.plan_table(shown)


def test_a_small_plan_is_shown_whole() -> None:
    lines = reports.plan_table(reports.bounded_plan(plan(2))).splitlines()
    assert lines[0].split()[:2] == ["task", "store"]
    assert [line.split()[0] for line in lines[2:4]] == ["0_0", "0_1"]
    assert re.findall(r"\d+", lines[-1]) == ["2", "10"]
