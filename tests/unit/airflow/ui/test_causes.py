"""Causes of alarms, each once."""

from __future__ import annotations

from statecore.airflow.ui.causes import WORDINGS, causes_of
from statecore.airflow.ui.standing import Standing
from statecore.jobs.history.report_head import read_head
from statecore.jobs.history.report_index import InstanceReports
from tests.unit.jobs.reports import BEGAN, attempt, failed


def standing(application: str, **error: str) -> Standing:
    """An application whose last attempt failed."""
    tried = attempt(0, "", application=application)
    head = read_head(failed(tried, **{"error": "Retryable", "code": "c", "action": "Act.", **error}))
    return Standing(InstanceReports(tried.instance, (head,), ()), BEGAN + 1)


def test_the_ids_of_applications_make_no_other_text() -> None:
    one, two, three = (standing(name, what=f"No topic {name}-log.") for name in ("a", "b", "b-2"))
    (found,) = causes_of([one, two, three])
    assert found.applications == ("a", "b", "b-2")
    assert [(text.what, text.applications) for text in found.wordings] == [
        ("No topic <application>-log.", ("a", "b", "b-2"))
    ]
    assert all(found.says(each.alarms[0], each.reports.instance.application_id) for each in (one, two, three))
    (alone,) = causes_of([one])
    assert alone.wordings[0].what == "No topic a-log."
    assert alone.says(one.alarms[0], "a")


def test_of_a_cause_the_most_frequent_texts_are_said_and_the_others_counted() -> None:
    red = [standing(f"app-{number}", what=f"Cluster {max(number - 3, 0)}.") for number in range(8)]
    (found,) = causes_of(red)
    assert [one.what for one in found.wordings] == ["Cluster 0.", "Cluster 1."]
    assert (len(found.wordings), found.unsaid) == (WORDINGS, 3)
    said = [found.says(one.alarms[0], one.reports.instance.application_id) for one in red]
    assert said == [True] * 5 + [False] * 3


def test_the_cause_of_most_applications_comes_first_and_another_code_is_another_cause() -> None:
    red = [standing("a", code="x"), standing("b", code="y"), standing("c", code="y"), standing("b", code="y")]
    assert [(one.code, one.applications) for one in causes_of(red)] == [("y", ("b", "c")), ("x", ("a",))]
    assert causes_of([]) == []


def test_a_text_of_several_lines_is_said_in_its_first_one_and_below() -> None:
    red = standing("a", what="It is wrong:\n- here")
    (found,) = causes_of([red])
    assert found.wordings[0].what == "It is wrong:"
    assert not found.says(red.alarms[0], "a")
