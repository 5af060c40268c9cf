"""The table of a repository's upkeep."""

from __future__ import annotations

from bench.repository_upkeep import Upkeep, upkeep_table
from bench.s3_request_log import KINDS
from statecore.repository.maintenance.collection import Amount


def test_a_month_is_the_price_of_all_that_a_day_asks_of_every_application() -> None:
    nothing = dict.fromkeys(KINDS, 0)
    asked = {"checkpoints": {**nothing, "PUT": 1000, "GET": 500}, "prune": {**nothing, "LIST": 4, "DELETE": 900}}
    amounts = [Amount(1000, 9_000_000), Amount(400, 3_000_000), Amount(300, 2_000_000)]
    table = upkeep_table(Upkeep(288, 30, *amounts, asked))
    lines = table.strip().split("\n")
    assert {line.count("|") for line in lines if line} == {4}
    assert "| after it | 400 | 3.0 MB |" in lines
    assert "| checkpoints | 1000 PUT, 500 GET | $5.20 |" in lines
    assert lines[-1].endswith("| **$7.83** |")  # 50 applications, 30 days, 0.00522 dollars
