"""Which snapshots a head goes on naming: few, the newest, what is pinned; and nothing that was dropped is missed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.repository.head import Retention, SnapshotEntry
from statecore.repository.retention import entries_with_reasons, retained_entries

KEEP = Retention()
NEWEST = KEEP.last
BOUND = KEEP.last + KEEP.hourly + KEEP.daily + KEEP.weekly
START = datetime(2026, 11, 23, tzinfo=UTC)

ORIGINS = st.sampled_from(["checkpoint", "checkpoint", "checkpoint", "compaction", "restore", "backup"])
STEPS = st.sampled_from([1, 5, 5, 5, 20, 60, 600, 1440, 5 * 1440, 30 * 1440])
"""Minutes between two snapshots."""


def entry(number: int, made: datetime | str, origin: str = "checkpoint", *, pinned: bool = False) -> SnapshotEntry:
    """A snapshot."""
    text = made if isinstance(made, str) else made.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return SnapshotEntry(f"s{number}", "a" * 64, "b" * 64, text, 5, f"q{number}", origin, 1, 10, 10, pinned=pinned)


@st.composite
def histories(draw: st.DrawFn, clocks: st.SearchStrategy[int] = STEPS) -> list[SnapshotEntry]:
    """All snapshots that there ever were, newest first."""
    made, found = START, []
    steps = draw(st.lists(st.tuples(clocks, ORIGINS, st.sampled_from([False] * 9 + [True])), max_size=150))
    for number, (minutes, origin, pinned) in enumerate(steps):
        made += timedelta(minutes=minutes)
        found.append(entry(number, made, origin, pinned=pinned))
    return found[::-1]


WRONG_CLOCKS = STEPS | STEPS.map(lambda minutes: -minutes)


def thinned(history: Sequence[SnapshotEntry]) -> tuple[SnapshotEntry, ...]:
    """What is left where every snapshot has made a new head of the one before."""
    head: tuple[SnapshotEntry, ...] = ()
    for one in reversed(history):
        head = retained_entries((one, *head), KEEP)
    return head


def unpinned(entries: Sequence[SnapshotEntry]) -> list[SnapshotEntry]:
    return [one for one in entries if not one.pinned]


@settings(deadline=None, max_examples=150)
@given(histories(WRONG_CLOCKS))
def test_what_is_kept_is_bounded_in_its_order_and_has_the_newest_and_all_pinned(
    history: list[SnapshotEntry],
) -> None:
    kept = retained_entries(history, KEEP)
    assert len(unpinned(kept)) <= BOUND
    assert list(kept) == [one for one in history if one in kept]
    assert {one for one in history if one.pinned or one in history[:NEWEST]} <= set(kept)


@settings(deadline=None, max_examples=100)
@given(histories(WRONG_CLOCKS))
def test_to_thin_twice_is_to_thin_once(history: list[SnapshotEntry]) -> None:
    kept = retained_entries(history, KEEP)
    assert retained_entries(kept, KEEP) == kept


@settings(deadline=None, max_examples=100)
@given(histories(WRONG_CLOCKS))
def test_a_head_that_was_thinned_step_by_step_has_what_one_of_all_snapshots_would_keep(
    history: list[SnapshotEntry],
) -> None:
    """So a snapshot that was dropped is never wanted again, whatever the clocks of those who made them said."""
    assert thinned(history) == retained_entries(history, KEEP)


@settings(deadline=None, max_examples=60)
@given(histories(), st.randoms(use_true_random=False))
def test_pins_that_come_and_go_change_nothing_of_what_is_kept_besides(
    history: list[SnapshotEntry], random: object
) -> None:
    head: tuple[SnapshotEntry, ...] = ()
    plain = [replace(one, pinned=False) for one in history]
    for number, one in enumerate(reversed(plain)):
        head = retained_entries((one, *head), KEEP)
        expected = {each.snapshot for each in retained_entries(plain[len(plain) - number - 1 :], KEEP)}
        assert {each.snapshot for each in head if not each.pinned} <= expected <= {each.snapshot for each in head}
        flipped = random.choice(head)  # type: ignore[attr-defined]
        head = tuple(replace(each, pinned=not each.pinned) if each == flipped else each for each in head)
        head = tuple(each for each in head if each.pinned or each.snapshot in expected)  # as the next head will be


@pytest.mark.full
def test_a_quarter_of_a_year_of_checkpoints_every_five_minutes_leaves_what_the_rules_say() -> None:
    head: tuple[SnapshotEntry, ...] = ()
    for number in range(90 * 288):
        head = retained_entries((entry(number, START + timedelta(minutes=5 * number)), *head), KEEP)
        assert len(head) <= BOUND
    made = [datetime.fromisoformat(one.created_at) for one in head]
    last = START + timedelta(minutes=5 * (90 * 288 - 1))
    assert made[:NEWEST] == [last - timedelta(minutes=5 * number) for number in range(NEWEST)]
    assert made[NEWEST : NEWEST + 23] == [last - timedelta(hours=number) for number in range(1, 24)]
    days = [last - timedelta(days=number) for number in range(1, 7)]
    assert last.weekday() == 5, "a Saturday, so the day before is the newest of no week, and three Sundays are"
    assert made[NEWEST + 23 :] == [*days, *(last - timedelta(days=number) for number in (13, 20))]


def test_an_old_day_stays_until_seven_newer_days_have_one() -> None:
    head: tuple[SnapshotEntry, ...] = ()
    there = []
    for number in range(20 * 24):
        head = retained_entries((entry(number, START + timedelta(hours=number)), *head), KEEP)
        there += [number for one in head if one.snapshot == "s23"]  # the last of a Monday
        assert ("s22" in {one.snapshot for one in head}) is (22 <= number < 22 + 24)
    assert there == list(range(23, 7 * 24))


def test_an_application_that_rested_keeps_what_it_had() -> None:
    old = [entry(number, START + timedelta(minutes=5 * number)) for number in range(2000)]
    before = thinned(old[::-1])
    after = retained_entries((entry(2000, START + timedelta(days=400)), *before), KEEP)
    assert len(set(before) - set(after)) <= 4, "one new hour, day and week"


@pytest.mark.parametrize(
    "made", ["", "yesterday", "9999-99-99T00:00:00Z", "2026-11-23T00:00:00", "0001-01-01T00:00:00+14:00"]
)
def test_an_unreadable_time_does_not_keep_all_snapshots(made: str) -> None:
    history = [entry(number, made) for number in range(100)]
    assert len(retained_entries(history, KEEP)) == NEWEST
    mixed = [entry(100 + number, START - timedelta(hours=number)) for number in range(30)]
    assert len(retained_entries([*history, *mixed], KEEP)) <= BOUND


def test_hours_are_those_of_utc_whatever_zone_a_time_is_written_in() -> None:
    newer = [entry(100 + number, START + timedelta(days=1, minutes=number)) for number in range(NEWEST, 0, -1)]
    one = [entry(2, "2026-11-23T09:50:00+09:30"), entry(1, "2026-11-23T00:10:00Z")]
    assert [each.snapshot for each in retained_entries([*newer, *one], KEEP)[NEWEST:]] == ["s2"]


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        (Retention(1, 0, 0, 0), [39]),
        (Retention(0, 0, 3, 0), [39, 23, -1]),
        (Retention(2, 0, 0, 0, within_ms=3 * 3_600_000), [39, 38, 37, 36, 35]),
        (Retention(0, 0, 0, 0, monthly=2), [39, -1]),
        (Retention(0, 0, 0, 0, yearly=5), [39, -1, -9600]),
    ],
)
def test_a_retention_keeps_what_it_says(keep: Retention, expected: Sequence[int]) -> None:
    hours = [*range(39, -2, -1), -9600]
    start = datetime(2027, 1, 1, tzinfo=UTC)
    history = [entry(hour, start + timedelta(hours=hour)) for hour in hours]
    assert [one.snapshot for one in retained_entries(history, keep)] == [f"s{hour}" for hour in expected]


def test_each_reason_is_said() -> None:
    history = [entry(2, START), entry(1, START - timedelta(days=1), pinned=True), entry(0, START - timedelta(days=1))]
    found = entries_with_reasons(history, Retention(1, 1, 2, 0))
    assert [one.reasons for one in found] == [("last", "hourly", "daily"), ("pinned", "daily"), ()]


def test_one_clock_that_is_wrong_makes_no_other_snapshot_too_old() -> None:
    within = Retention(0, 0, 0, 0, within_ms=30 * 86_400_000)
    made = [START - timedelta(days=number) for number in range(5)]
    for newest in (START + timedelta(days=365), START - timedelta(days=365)):
        entries = [entry(number, time) for number, time in enumerate([newest, *made])]
        assert retained_entries(entries, within) == tuple(entries)
    later = [entry(number, START + timedelta(days=40 - 20 * number)) for number in range(4)]
    assert retained_entries(later, within) == tuple(later[:3]), "of those that are right the second newest counts"


@pytest.mark.parametrize("wrong", [timedelta(days=400), timedelta(days=-400)])
@pytest.mark.parametrize("snapshots", [1, 2, 50])
def test_no_clock_makes_snapshots_of_others_too_old_however_many_it_has_made(wrong: timedelta, snapshots: int) -> None:
    within = Retention(0, 0, 0, 0, within_ms=14 * 86_400_000)
    right = [entry(number, START - timedelta(days=number)) for number in range(1, 20)]
    head = tuple(right)
    for number in range(snapshots):
        now = START + timedelta(minutes=5 * number)
        head = retained_entries((entry(100 + number, now + wrong), *head), within, now.timestamp())
    assert set(right[:13]) <= set(head)
    later = START + timedelta(days=1)
    head = retained_entries((entry(200, later), *head), within, later.timestamp())
    assert set(right[:13]) <= set(head)
    assert not set(right[15:]) & set(head), "what is too old by the right clocks goes"
