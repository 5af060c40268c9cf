"""Which states follow which, and what all stores together are."""

from __future__ import annotations

import pytest

from statecore.global_stores.state import TRANSITIONS, GlobalState, StateMachine, state_of_all

CREATED, RESTORING, RUNNING, ERROR, CLOSED = GlobalState


def test_the_listener_gets_each_change_between_restoring_and_running() -> None:
    told: list[tuple[str, GlobalState, GlobalState]] = []
    machine = StateMachine("rates", lambda *change: told.append(change))
    for state in (RESTORING, RESTORING, RUNNING, RESTORING, RUNNING, CLOSED):
        machine.change_to(state)
    assert [(now, before) for _, now, before in told] == [
        (RESTORING, CREATED),
        (RUNNING, RESTORING),
        (RESTORING, RUNNING),
        (RUNNING, RESTORING),
        (CLOSED, RUNNING),
    ]
    assert {store for store, _, _ in told} == {"rates"}


@pytest.mark.parametrize(
    ("way", "never"),
    [
        ((), RUNNING),
        ((ERROR,), RESTORING),
        ((RESTORING, ERROR), RUNNING),
        ((RESTORING, RUNNING, CLOSED), RESTORING),
        ((CLOSED,), ERROR),
    ],
)
def test_no_state_is_skipped_and_an_end_is_an_end(way: tuple[GlobalState, ...], never: GlobalState) -> None:
    machine = StateMachine("rates")
    for state in way:
        machine.change_to(state)
    before = machine.state
    with pytest.raises(ValueError, match="does not follow"):
        machine.change_to(never)
    assert machine.state is before


def test_every_state_can_be_closed_and_has_a_number_of_its_own() -> None:
    assert all(CLOSED in after for state, after in TRANSITIONS.items() if state is not CLOSED)
    assert [state.number for state in GlobalState] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("states", "together"),
    [
        ([RUNNING, RUNNING], RUNNING),
        ([RUNNING, RESTORING], RESTORING),
        ([RUNNING, RESTORING, ERROR], ERROR),
        ([CLOSED, CLOSED], CLOSED),
        ([], RUNNING),
    ],
)
def test_a_process_restores_while_one_of_its_stores_does(states: list[GlobalState], together: GlobalState) -> None:
    assert state_of_all(states) is together
