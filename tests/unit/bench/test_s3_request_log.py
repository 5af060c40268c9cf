from __future__ import annotations

from pathlib import Path

import pytest

from bench.s3_request_log import RequestLog, counted
from tests.harness import s3_server

LINE = "01:51:18 | vgw | {status} |     908.047µs | 127.0.0.1 | {method} | /states/a/b | - | {query}"


def line(method: str, query: str = "", status: int = 200) -> str:
    return LINE.format(method=method, query=query, status=status)


def test_requests_are_counted_by_kind_also_those_that_failed() -> None:
    log = [
        "│  http://127.0.0.1:45677   | like | a | line | of | a | request | but | none │",
        line("PUT"),
        line("PUT", "uploadId=3&partNumber=1", 503),
        line("POST", "uploads="),
        line("GET"),
        line("GET", "list-type=2&prefix=a%2F&encoding-type=url"),
        line("HEAD", status=404),
        line("DELETE"),
    ]
    assert counted("\n".join(log)) == {"PUT": 2, "POST": 1, "GET": 1, "HEAD": 1, "LIST": 1, "DELETE": 1}


def test_a_kind_that_no_table_has_is_not_passed_over() -> None:
    with pytest.raises(ValueError, match="OPTIONS"):
        counted(line("OPTIONS"))


def test_only_what_came_since_is_counted(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(line("GET") + "\n")
    asked = RequestLog(log)
    assert sum(asked.counts().values()) == 0
    with log.open("a") as more:
        more.write(line("HEAD") + "\n")
    assert {kind: count for kind, count in asked.counts().items() if count} == {"HEAD": 1}


def test_the_server_of_the_benchmarks_says_what_it_was_asked() -> None:
    with s3_server.serving() as server:
        server.bucket("states")
        asked, client = RequestLog(server.root / "server.log"), server.client()
        client.put_object(Bucket="states", Key="a/b", Body=b"12345")
        client.get_object(Bucket="states", Key="a/b", Range="bytes=1-2")["Body"].read()
        client.head_object(Bucket="states", Key="a/b")
        client.list_objects_v2(Bucket="states", Prefix="a/")
        client.delete_object(Bucket="states", Key="a/b")
        assert asked.counts() == {"PUT": 1, "POST": 0, "GET": 1, "HEAD": 1, "LIST": 1, "DELETE": 1}
