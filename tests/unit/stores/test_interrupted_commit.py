"""Exceptions of signal handlers at any point of a commit: the store knows whether it happened, and so does the disk."""

from __future__ import annotations

import random
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from statecore.stores.base import StateStore
from statecore.stores.delegating_store import DelegatingStore
from statecore.stores.write_buffer_store import WriteBufferStore
from tests.unit.stores.implementations import QUICK, Factory, in_memory, rocksdb
from tests.unit.stores.test_commit_arguments import FACTORIES
from tests.unit.stores.test_conformance import CHANGELOG

KEYS = [b"%02d" % number for number in range(5)]


class Interrupt(Exception):
    """What a handler raises; an ordinary exception, as that of a time-out, is the harder case."""


@contextmanager
def interrupted_at(number: int) -> Iterator[list[str]]:
    """Raise at the n-th line that is run in the stores' modules; the lines that were run."""
    lines: list[str] = []

    def trace(frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        if "/statecore/stores/" not in frame.f_code.co_filename:
            return None
        if event == "line":
            lines.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}")
            if len(lines) == number:
                raise Interrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield lines
    finally:
        sys.settrace(before)


def fill(store: StateStore, number: int) -> None:
    store.put_all([(key, b"%d" % number) for key in KEYS])
    store.delete(b"odd" if number % 2 else b"even")
    store.put(b"even" if number % 2 else b"odd", b"%d" % number)
    store.update_position("in", 0, number)


def check(store: StateStore, before: int, after: int) -> int:
    """What the store says is one of two commits, whole; which one."""
    with store.query_view() as view:
        found = int(view.get(KEYS[0]) or b"0")
        assert found in (before, after)
        assert dict(view.all()) == {
            **dict.fromkeys(KEYS, b"%d" % found),
            b"even" if found % 2 else b"odd": b"%d" % found,
        }
        assert view.position == {"in": {0: found}}
        if store.manages_offsets:
            assert view.committed_offset(CHANGELOG) == store.committed_offset(CHANGELOG) == found
    assert store.position == {"in": {0: after}}, "what is not published is staged"
    assert (store.uncommitted_bytes == 0) == (found == after)
    assert store.get(KEYS[0]) == b"%d" % after
    return found


@pytest.mark.parametrize("factory", FACTORIES.values(), ids=FACTORIES)
def test_an_exception_at_any_line_of_a_commit_leaves_it_done_or_not_done_and_known(
    factory: Factory, tmp_path: Path
) -> None:
    store = factory(tmp_path, QUICK)
    store.open()
    fill(store, 1)
    store.commit({CHANGELOG: 1})
    committed, at = 1, 0
    outcomes = set()
    while True:
        at += 1 if factory in (rocksdb, in_memory) else 7
        fill(store, committed + 1)
        notes: list[str] = []
        with interrupted_at(at) as lines:
            try:
                store.commit({CHANGELOG: committed + 1})
            except Interrupt as interrupt:
                notes = getattr(interrupt, "__notes__", [])
        over = len(lines) < at
        found = check(store, committed, committed + 1)
        outcomes.add(found > committed)
        if notes and not isinstance(store, DelegatingStore):
            assert ("was published" in notes[0]) == (found > committed), lines[-1]
        if at % 10 == 0 and factory is rocksdb:
            store.close()
            store = factory(tmp_path, QUICK)
            store.open()
            assert int(store.get(KEYS[0]) or b"0") == found, "the disk says the same"
            if store.manages_offsets:
                assert (store.position, store.committed_offset(CHANGELOG)) == ({"in": {0: found}}, found)
            store.update_position("in", 0, found)
            store.commit({CHANGELOG: found})
        committed = found
        store.abort()
        if over:
            break
    store.close()
    assert outcomes == {True, False}
    assert at > 30


@pytest.mark.parametrize("factory", [rocksdb, in_memory])
def test_a_read_settles_a_commit_whose_own_settling_was_interrupted_twice(
    factory: Factory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with factory(tmp_path, QUICK) as store:
        assert isinstance(store, WriteBufferStore)
        fill(store, 1)
        store.commit({CHANGELOG: 1})
        fill(store, 2)
        published, interrupts = store._published, [Interrupt(), Interrupt()]

        def interrupted(prepared: object) -> bool:
            if interrupts:
                raise interrupts.pop()
            return published(prepared)

        monkeypatch.setattr(store, "_published", interrupted)
        with pytest.raises(Interrupt):
            store.commit({CHANGELOG: 2})
        assert not interrupts
        assert store.get(KEYS[0]) == b"2"
        assert check(store, 1, 2) == 2, "nothing is staged any more"
        assert store.commit_number == 2


# A file that was opened in the moment of the signal is closed by its destructor, which warns of it.
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", ["rocksdb", "in-memory", "checkpointing"])
def test_a_signal_at_any_moment_of_a_commit_leaves_it_done_or_not_done_and_known(name: str, tmp_path: Path) -> None:
    """The real thing: a timer whose handler raises."""

    def handler(signum: int, frame: FrameType | None) -> None:
        if armed:  # one that comes late is not of this commit any more
            raise Interrupt

    armed: list[bool] = []
    moments = random.Random(7)
    before = signal.signal(signal.SIGALRM, handler)
    interrupted = rounds = 0
    try:
        with FACTORIES[name](tmp_path, QUICK) as store:
            fill(store, 1)
            store.commit({CHANGELOG: 1})
            committed = 1
            while (interrupted < 20 or committed < 20) and (rounds := rounds + 1) < 5000:
                with store.transaction() as transaction:
                    fill(store, committed + 1)
                    try:
                        try:
                            armed.append(True)
                            signal.setitimer(signal.ITIMER_REAL, 10 ** moments.uniform(-5.5, -2))
                            transaction.commit({CHANGELOG: committed + 1})
                        finally:
                            armed.clear()
                            signal.setitimer(signal.ITIMER_REAL, 0)
                    except Interrupt:
                        interrupted += 1
                    found = check(store, committed, committed + 1)
                    assert transaction.ended == (found > committed)
                committed = found
                store.abort()
            assert store.get(KEYS[0]) == b"%d" % committed
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interrupted >= 20
    assert committed >= 20
