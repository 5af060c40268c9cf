"""The word of a checkpoint that takes long, and who hears it."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from statecore.errors import Retryable
from statecore.jobs.engine.protocol import HandedOver
from statecore.jobs.in_progress_marker import LOST, marked_in_progress, marker_age
from statecore.jobs.planning.frozen_plan import request_name
from statecore.objectstore.base import Blobs
from statecore.repository.application_repository import ApplicationRepository
from tests.unit.jobs.backup.snapshots import World


@pytest.fixture
def app_repository(tmp_path: Path) -> ApplicationRepository:
    return World(tmp_path).app_repository


said_quickly = partial(marked_in_progress, first=0.05, again=0.05)


def heard(app_repository: ApplicationRepository, seconds: float = 120.0) -> float | None:
    """Wait until somebody says it."""
    until = time.monotonic() + seconds
    while (ago := marker_age(app_repository, time.time())) is None and time.monotonic() < until:
        time.sleep(0.01)
    return ago


def test_what_takes_long_is_heard_of_until_it_ends(app_repository: ApplicationRepository) -> None:
    assert marker_age(app_repository, time.time()) is None
    with said_quickly(app_repository, "mine"):
        assert heard(app_repository) is not None
    assert marker_age(app_repository, time.time()) is None
    with suppress(Retryable), said_quickly(app_repository, "mine"):
        assert heard(app_repository) is not None
        raise Retryable("The brokers are away.", code="test-error", action="Wait.")
    assert marker_age(app_repository, time.time()) is None, "who failed is not under way"


def test_what_is_done_soon_says_nothing_and_does_not_wait_for_that(app_repository: ApplicationRepository) -> None:
    place = app_repository.repository.object_store._replace(blobs=cast(Blobs, None))  # whoever uses it fails
    with marked_in_progress(
        ApplicationRepository(app_repository.repository._replace(object_store=place), app_repository.application_id),
        "mine",
        first=threading.TIMEOUT_MAX,
    ):
        pass


def test_a_marker_is_renewed_and_expires_soon(app_repository: ApplicationRepository) -> None:
    name = app_repository.names.in_progress_marker(request_name("mine"))
    with suppress(HandedOver), said_quickly(app_repository, "mine"):
        assert heard(app_repository) is not None
        first = app_repository.blobs.head(name).modified
        until = time.monotonic() + 120
        while (last := app_repository.blobs.head(name).modified) == first and time.monotonic() < until:
            time.sleep(0.01)
        assert last > first
        raise HandedOver  # so that the last word stays
    said = app_repository.blobs.head(name).modified
    assert marker_age(app_repository, said + LOST - 1) == LOST - 1
    assert marker_age(app_repository, said + LOST + 1) is None, "it was killed"
    assert marker_age(app_repository, said - LOST - 1) is None, "a clock was wrong, once"


def test_a_failed_marker_update_is_retried_and_stops_nothing(
    app_repository: ApplicationRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    away, tried = threading.Event(), threading.Event()
    away.set()
    replace = app_repository.blobs.replace

    def put(name: str, content: bytes) -> None:
        tried.set()
        if away.is_set():
            raise Retryable("The store is away.", code="test-error", action="Wait.")
        replace(name, content)

    monkeypatch.setattr(app_repository.blobs, "replace", put)
    with said_quickly(app_repository, "mine"):
        assert tried.wait(120)
        assert marker_age(app_repository, time.time()) is None
        away.clear()
        assert heard(app_repository) is not None


def test_who_hands_its_work_over_leaves_the_word_behind_and_says_it_even_where_it_was_quick(
    app_repository: ApplicationRepository,
) -> None:
    with pytest.raises(HandedOver), marked_in_progress(app_repository, "mine"):
        raise HandedOver
    assert marker_age(app_repository, time.time()) is not None


def test_a_resumed_job_clears_its_marker(app_repository: ApplicationRepository) -> None:
    with suppress(HandedOver), marked_in_progress(app_repository, "mine"):
        raise HandedOver
    with marked_in_progress(app_repository, "mine"):
        pass
    assert marker_age(app_repository, time.time()) is not None, "it may be another's"
    with marked_in_progress(app_repository, "mine") as word:
        word.delete_at_end()
        assert marker_age(app_repository, time.time()) is not None
    assert marker_age(app_repository, time.time()) is None


def test_what_is_known_to_take_long_says_so_at_once(app_repository: ApplicationRepository) -> None:
    with marked_in_progress(app_repository, "mine", at_once=True):
        assert marker_age(app_repository, time.time()) is not None
    assert marker_age(app_repository, time.time()) is None


def test_a_job_that_ends_first_leaves_the_marker_of_another(app_repository: ApplicationRepository) -> None:
    with marked_in_progress(app_repository, "long", at_once=True):
        with marked_in_progress(app_repository, "refused", at_once=True):
            pass
        assert marker_age(app_repository, time.time()) is not None
    assert marker_age(app_repository, time.time()) is None
