"""A report as JSON and back."""

from __future__ import annotations

import json

from statecore.images.report import RanOn, RestoreReport


def test_where_a_job_ran_is_part_of_the_document_and_comes_back() -> None:
    ran_on = RanOn("spark://m:7077", 3, ("a", "b"))
    report = RestoreReport("orders", "plan", "at_least_once", "/state", 1.5, {"read": 1.0}, (), ran_on=ran_on)
    document = json.loads(json.dumps(report.to_json()))
    assert (document["master"], document["executors"], document["hosts"]) == ("spark://m:7077", 3, ["a", "b"])
    assert RestoreReport.from_json(document) == report
    assert str(ran_on) == "Spark runs on spark://m:7077 with 3 executors on a, b."


def test_a_report_of_an_earlier_release_says_nothing_of_it() -> None:
    document = RestoreReport("orders", "plan", "at_least_once", "/state", 1.5, {}, ()).to_json()
    for name in ("master", "executors", "hosts"):
        del document[name]
    assert RestoreReport.from_json(document).ran_on == RanOn()
