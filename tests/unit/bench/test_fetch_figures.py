from __future__ import annotations

from dataclasses import replace

from bench.fetch_figures import Requests, Round, middle, requests_of, requests_table, size_tables
from bench.s3_request_log import KINDS

ONE = Round(
    records=17_240_000,
    state_bytes=230_000_000,
    files=4,
    file_bytes=200_000_000,
    streams=62.0,
    alone=10.0,
    with_s3=11.0,
    with_directory=10.5,
    alone_mb=1500.4,
    with_s3_mb=1510.0,
    with_directory_mb=1490.0,
    copied=0,
    linked=200_000_000,
    put=2.0,
    put_objects=1.8,
    upload_files=3.0,
    fetch=3.5,
    inside=2.5,
    phases={"plan": 0.25, "download": 1.0, "build": 0.75, "place": 0.25},
    fetch_mb=200.0,
    started=0.5,
    started_records=0,
    get_objects=0.9,
    running=4.0,
    published_by=dict(zip(KINDS, (8, 2, 3, 4, 0, 1), strict=True)),
    fetched_by=dict(zip(KINDS, (0, 0, 30, 0, 0, 0), strict=True)),
)


def rows(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.startswith("| 0.2 GB")]


def test_every_goal_is_a_column_of_the_tables() -> None:
    phases = ", ".join(("plan 0.25 s", "download 1.00 s", "build 0.75 s", "place 0.25 s"))
    assert rows(size_tables({0.2: [ONE]})) == [
        f"| 0.2 GB | 17.2 M | 230.0 MB | 62.0 s | 3.50 s | 0 records, 0.50 s | 15.5 | {phases} | 4.00 s |",
        "| 0.2 GB | 10.0 s | 11.0 s | 1.10 | 10.5 s | 1.05 | 4 files, 200.0 MB | 200.0 MB | 0.0 MB |",
        "| 0.2 GB | 2.00 s, 100 MB/s | 1.80 s, 111 MB/s | 90% | 3.00 s, 67 MB/s | 150% "
        "| 1.00 s, 200 MB/s | 0.90 s, 222 MB/s | 90% | 36% | 26% |",
        "| 0.2 GB | 200 MiB | 1,510 MiB | 1,490 MiB | 1,500 MiB |",
    ]


def test_headings_have_as_many_cells_as_rows() -> None:
    for table in (size_tables({1.0: [ONE], 2.0: [ONE]}), requests_table(requests_of({1.0: [ONE]}))):
        for part in table.split("\n\n**"):
            lines = [line for line in part.split("\n") if line.startswith("|")]
            assert len({line.count("|") for line in lines}) == 1
            assert len(lines) >= 4


def test_the_medians_of_rounds_are_shown_also_of_phases_and_requests() -> None:
    slow = replace(ONE, fetch=9.0, phases={**ONE.phases, "build": 5.0}, fetched_by={**ONE.fetched_by, "GET": 31})
    slower = replace(slow, fetch=10.0)
    found = middle([slower, ONE, slow])
    assert found.fetch == 9.0
    assert found.phases == {**ONE.phases, "build": 5.0}
    assert found.fetched_by["GET"] == 31
    assert found.streams == ONE.streams


def test_requests_are_shown_by_kind_and_together() -> None:
    lines = requests_table([*requests_of({0.2: [ONE]}), Requests("fetch of little", ONE.fetched_by)]).split("\n")
    cells = [line.strip("|").split(" | ") for line in lines]
    assert cells[2][1:] == [*KINDS, "together "]
    assert [(row[0].split(",")[0].strip(), " ".join(row[1:]).split()) for row in cells[4:7]] == [
        ("restore with S3", ["8", "2", "3", "4", "0", "1", "18"]),
        ("fetch", ["0", "0", "30", "0", "0", "0", "30"]),
        ("fetch of little", ["0", "0", "30", "0", "0", "0", "30"]),
    ]
