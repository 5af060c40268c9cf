"""Checks of many applications beside each other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from statecore.errors import Corrupted, Retryable
from statecore.jobs.checkpoint.due_checks import check_all
from statecore.jobs.checkpoint.schedule import DueVerdict


def test_many_applications_are_looked_at_beside_each_other_and_none_keeps_the_others_waiting() -> None:
    release, together = threading.Event(), threading.Barrier(3, timeout=120)

    def meets() -> DueVerdict:
        together.wait()
        return DueVerdict(False, "met the two others")

    def raises() -> DueVerdict:
        raise Corrupted("The head is torn.", code="test-error", action="Repair it.")

    def is_defect() -> DueVerdict:
        raise KeyError("x")

    def hangs() -> DueVerdict:
        release.wait(300)
        return DueVerdict(False, "too late")

    looks: dict[str, Callable[[], DueVerdict]] = {
        "hangs": hangs,
        "a": meets,
        "broken": raises,
        "b": meets,
        "defect": is_defect,
        "c": meets,
    }
    found = check_all(looks, at_once=4, timeout=5.0)
    release.set()
    assert list(found) == list(looks)
    assert [found[name].why for name in "abc"] == ["met the two others"] * 3
    assert isinstance(found["hangs"].error, Retryable)
    assert "checked whether" not in found["hangs"].why
    assert "took longer than 5 s" in found["hangs"].why
    assert found["broken"] == DueVerdict(True, "The head is torn.", found["broken"].error)
    assert "KeyError" in found["defect"].why
    assert all(found[name].is_due for name in ("hangs", "broken", "defect"))


def test_one_after_the_other_where_only_one_is_let_in() -> None:
    under_way = 0

    def alone() -> DueVerdict:
        nonlocal under_way
        under_way += 1
        assert under_way == 1
        time.sleep(0.01)
        under_way -= 1
        return DueVerdict(True, "")

    found = check_all({str(number): alone for number in range(5)}, at_once=1)
    assert [one.error for one in found.values()] == [None] * 5
