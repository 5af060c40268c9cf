"""When the last checkpoint was made, and whether another job has made one since."""

from __future__ import annotations

from dataclasses import replace

from statecore.jobs.checkpoint.last_checkpoint import NO_SNAPSHOT, made_ms, made_since
from statecore.repository.head import SnapshotEntry

MINUTE = 60_000
NOW = 1_800_000_000_000


def entry(
    origin: str = "checkpoint", read_at_ms: int | None = NOW, created_at: str = "2027-01-15T08:00:00.000Z"
) -> SnapshotEntry:
    return SnapshotEntry("s", "", "", created_at, read_at_ms, "", origin, 1, 0, 0)


def test_a_compaction_is_no_checkpoint() -> None:
    assert made_ms([entry("compaction", NOW), entry(read_at_ms=NOW - MINUTE)]) == NOW - MINUTE
    assert made_ms([entry("compaction")]) is None
    assert made_ms([]) is None


def test_a_checkpoint_that_somebody_was_faster_to_make_is_named_and_a_compaction_is_none() -> None:
    fold_of_it, last = replace(entry("compaction"), snapshot="f"), replace(entry(), snapshot="b", created_at="eight")
    earlier = replace(entry(), snapshot="a")
    assert made_since([fold_of_it, last, earlier], "b") is None
    assert made_since([last, earlier], None) is None, "nobody looked: it is wanted anyway"
    for upon in ("a", NO_SNAPSHOT):
        said = made_since([fold_of_it, last, earlier], upon)
        assert said is not None
        assert (said.code, said.context) == ("made-by-another", {"snapshot": "b", "created_at": "eight"})
    assert made_since([fold_of_it], NO_SNAPSHOT) is None
    assert made_since([], NO_SNAPSHOT) is None


def test_where_nobody_knows_when_the_ends_were_read_the_publication_counts() -> None:
    assert made_ms([entry(read_at_ms=None, created_at="2027-01-15T08:00:00.500Z")]) == NOW + 500


def test_a_task_of_whose_end_nobody_could_be_sure_for_long_makes_no_checkpoint_due() -> None:
    stale = entry(read_at_ms=NOW - 5 * MINUTE - 1, created_at="2027-01-15T08:00:00.000Z")
    assert made_ms([stale], 5 * MINUTE) == NOW
    assert made_ms([replace(stale, read_at_ms=NOW - 5 * MINUTE)], 5 * MINUTE) == NOW - 5 * MINUTE


def test_a_compaction_between_two_checkpoints_changes_nothing_of_when_the_next_is_due() -> None:
    later = replace(entry("compaction"), created_at="2099-01-01T00:00:00.000Z")
    assert made_ms([later, entry()]) == made_ms([entry()])
