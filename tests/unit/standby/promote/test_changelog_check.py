"""Whether the tail after a standby task may be appended to it, by the brokers and the record of the standby."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

from statecore.changelog.delete_retention import ENDLESS_MS
from statecore.changelog.model import LogOffsets, TopicDescription
from statecore.changelog.soundness import BaseEnd
from statecore.errors import Invalid, NotFound, Retryable
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.standby.promote.changelog_check import Ask, StandbyCopy, check_changelogs
from statecore.tasks.changelog_ends import ChangelogEnd
from statecore.tasks.standby_log_state import StandbyLogStates
from statecore.tasks.standby_store import StandbyStoreSpec
from tests.harness.raising import raises

DAY, MINUTE = 86_400_000, 60_000
NOW = 1_800_000_000_000
OLD, NEW = "a" * 32, "b" * 32
TOTALS = TopicPartition("orders-totals-changelog", 0)
LATE = TopicPartition("orders-late-changelog", 0)


def spec_of(changelog: TopicPartition = TOTALS, kind: StoreKind = StoreKind.KEY_VALUE) -> StandbyStoreSpec:
    return StandbyStoreSpec(changelog.topic.split("-")[1], kind, changelog, None, False)


def known(
    tmp_path: Path,
    end: int = 10,
    *,
    read_at: int | None = NOW - MINUTE,
    changelog: TopicPartition = TOTALS,
    topic_id: str = OLD,
    retention_ms: int | None = DAY,
) -> Path:
    """The standby's record of a copy that had come to an end of its topic."""
    file = tmp_path / "logs.json"
    logs = StandbyLogStates(file)
    logs.read()
    logs.record_end(BaseEnd(changelog, topic_id, end, 3, read_at, retention_ms))
    logs.write()
    return file


def now(
    end: int = 10,
    *,
    start: int = 0,
    topic_id: str = OLD,
    epoch_end: int | None = None,
    policy: str = "compact",
    changelog: TopicPartition = TOTALS,
) -> Ask:
    """What the brokers say."""
    topic = TopicDescription(changelog.topic, topic_id, 1, {"cleanup.policy": policy, "delete.retention.ms": str(DAY)})
    told = ChangelogEnd(end, LogOffsets(start, end, end, 4), topic, epoch_end, NOW)
    return lambda stores, epochs: {changelog: told}


def why(file: Path, ask: Ask, copy: StandbyCopy | None = None) -> str:
    """The code of the reason for which a copy cannot be continued, else of the error; empty where nothing is wrong."""
    found = check_changelogs({"0_0": (file, [copy or StandbyCopy(spec_of(), 10)])}, ask).refused
    if not found:
        return ""
    error = found["0_0"]
    assert error.code in ("standby-store-stale", "grace-buffer-behind")
    return str(error.context.get("reason", error.code))


@pytest.mark.parametrize("end", [10, 25])
def test_a_copy_whose_tail_is_younger_than_the_deletes_that_are_kept_is_sound(tmp_path: Path, end: int) -> None:
    assert why(known(tmp_path), now(end)) == ""


def test_a_topic_that_was_created_again_is_no_tail_of_the_copy(tmp_path: Path) -> None:
    assert why(known(tmp_path), now(25, topic_id=NEW)) == "topic-recreated"


def test_a_log_that_begins_behind_the_copy_or_ends_before_it_is_no_tail(tmp_path: Path) -> None:
    file = known(tmp_path)
    assert why(file, now(25, start=12)) == "records-deleted"
    assert why(file, now(9)) == "log-ends-before-base"


def test_a_log_that_was_truncated_below_the_copy_and_has_grown_since_is_no_tail(tmp_path: Path) -> None:
    assert why(known(tmp_path), now(25, epoch_end=8)) == "log-truncated"


def test_the_leader_epoch_of_the_copy_is_asked_for(tmp_path: Path) -> None:
    asked: list[Mapping[TopicPartition, int]] = []

    def ask(stores: Collection[StandbyStoreSpec], epochs: Mapping[TopicPartition, int]) -> Any:
        asked.append(epochs)
        return now()(stores, epochs)

    assert why(known(tmp_path), ask) == ""
    assert asked == [{TOTALS: 3}]


def test_a_copy_whose_tail_may_lack_deletes_is_not_promoted(tmp_path: Path) -> None:
    old = known(tmp_path, read_at=NOW - DAY + 4 * MINUTE)
    assert why(old, now(25)) == "deletes-compacted"
    assert why(old, now(10)) == ""  # there is no tail
    assert why(old, now(25, policy="delete")) == "deletes-compacted", "it was compacted"
    assert why(known(tmp_path, read_at=NOW - DAY, retention_ms=ENDLESS_MS), now(25, policy="delete")) == ""
    old = known(tmp_path, read_at=NOW - DAY + 4 * MINUTE)
    error = check_changelogs({"0_0": (old, [StandbyCopy(spec_of(), 10)])}, now(25)).refused["0_0"]
    assert "statecore standby --once" in error.action


def test_a_copy_of_unknown_age_is_not_promoted(tmp_path: Path) -> None:
    assert why(known(tmp_path, read_at=None), now(25)) == "base-age-unknown"
    assert why(known(tmp_path, read_at=None), now(10)) == ""


def test_a_tail_is_checked_with_the_delete_retention_at_the_read_position(tmp_path: Path) -> None:
    assert why(known(tmp_path, retention_ms=MINUTE), now(25)) == "deletes-compacted"
    assert why(known(tmp_path, retention_ms=None), now(25)) == "retention-unknown"
    assert why(known(tmp_path, retention_ms=None), now(10)) == ""


@pytest.mark.parametrize("policy", ["compact", "delete"])
@pytest.mark.parametrize("written", [None, b"", bytes(40)], ids=["missing", "empty", "zeros"])
def test_a_copy_of_an_unknown_topic_is_not_continued(tmp_path: Path, policy: str, written: bytes | None) -> None:
    """The topic may have been created again and have grown past the copy, whatever its policy."""
    file = tmp_path / "logs.json"
    if written is not None:
        file.write_bytes(written)
    assert why(file, now(25, policy=policy)) == "topic-id-unknown"
    error = check_changelogs({"0_0": (file, [StandbyCopy(spec_of(), 10)])}, now(25, policy=policy)).refused["0_0"]
    assert (error.context["partition"], error.context["end"], error.context["log_end"]) == (0, 10, 25)
    assert why(file, now(10, policy=policy)) == ""


def test_a_topic_id_of_zeros_is_unknown(tmp_path: Path) -> None:
    assert why(known(tmp_path, topic_id="0" * 32), now(25)) == "topic-id-unknown"
    assert why(known(tmp_path, topic_id="0" * 32), now(10)) == ""


def test_a_record_that_cannot_be_read_refuses_its_task_alone(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "logs.json").symlink_to("/proc/self/mem")  # whose first page cannot be read: EIO
    tasks = {
        "0_0": (known(tmp_path), [StandbyCopy(spec_of(), 10)]),
        "0_1": (tmp_path / "other" / "logs.json", [StandbyCopy(spec_of(), 10)]),
    }
    judged = check_changelogs(tasks, now())
    assert (set(judged.refused), set(judged.ends)) == ({"0_1"}, {"0_0"})
    assert judged.refused["0_1"].code == "disk-failed"


def test_clocks_that_are_wrong_prove_no_age(tmp_path: Path) -> None:
    assert why(known(tmp_path, read_at=NOW + 10 * MINUTE), now(25)) == "clocks-disagree"


@pytest.mark.parametrize("position", [0, 10])
def test_a_grace_buffer_with_a_tail_is_refused_because_kafka_streams_would_give_it_wrong_keys(
    tmp_path: Path, position: int
) -> None:
    file = known(tmp_path, changelog=LATE)
    copy = StandbyCopy(spec_of(LATE, StoreKind.GRACE_BUFFER), position)
    assert why(file, now(11, changelog=LATE), copy) == "grace-buffer-behind"
    assert why(file, now(position, changelog=LATE), copy) == ""


def test_a_task_whose_topic_is_missing_is_refused_and_the_others_are_checked(tmp_path: Path) -> None:
    def ask(stores: Collection[StandbyStoreSpec], epochs: Mapping[TopicPartition, int]) -> Any:
        if any(one.changelog == LATE for one in stores):
            raise NotFound("There is no such topic.", code="test-error", action="Look.")
        return now()(stores, epochs)

    tasks = {
        "0_0": (known(tmp_path), [StandbyCopy(spec_of(), 10)]),
        "1_0": (tmp_path / "none.json", [StandbyCopy(spec_of(LATE), 4)]),
    }
    found = check_changelogs(tasks, ask).refused
    assert {task: type(error) for task, error in found.items()} == {"1_0": NotFound}


@pytest.mark.parametrize("one_is_gone", [False, True])
def test_a_task_whose_partition_has_no_leader_is_refused_and_the_others_are_checked(
    tmp_path: Path, one_is_gone: bool
) -> None:
    gone = TopicPartition("orders-gone-changelog", 0)

    def ask(stores: Collection[StandbyStoreSpec], epochs: Mapping[TopicPartition, int]) -> Any:
        if any(one.changelog == gone for one in stores):
            raise NotFound("There is no such topic.", code="test-error", action="Look.")
        if any(one.changelog == LATE for one in stores):
            raise Retryable("No leader.", code="test-error", action="Start its broker.", topics=[LATE.topic])
        return now()(stores, epochs)

    tasks = {
        "0_0": (known(tmp_path), [StandbyCopy(spec_of(), 10)]),
        "1_0": (tmp_path / "none.json", [StandbyCopy(spec_of(LATE), 4)]),
    }
    if one_is_gone:
        tasks["2_0"] = (tmp_path / "none.json", [StandbyCopy(spec_of(gone), 4)])
    judged = check_changelogs(tasks, ask)
    errors = {task: type(error) for task, error in judged.refused.items()}
    assert errors == {"1_0": Retryable} | ({"2_0": NotFound} if one_is_gone else {})
    assert set(judged.ends) == {"0_0"}


def test_brokers_that_do_not_answer_end_the_promotion_and_offline_is_named(tmp_path: Path) -> None:
    def ask(stores: Collection[StandbyStoreSpec], epochs: Mapping[TopicPartition, int]) -> Any:
        raise Retryable("None answers.", code="broker-unreachable", action="Start one.")

    with raises(Retryable, "broker-unreachable") as refused:
        check_changelogs({"0_0": (known(tmp_path), [StandbyCopy(spec_of(), 10)])}, ask)
    assert "--offline" in refused.value.action


def test_every_error_of_a_copy_names_its_store(tmp_path: Path) -> None:
    error = check_changelogs({"0_0": (known(tmp_path), [StandbyCopy(spec_of(), 10)])}, now(9)).refused["0_0"]
    assert isinstance(error, Invalid)
    assert error.context == {
        "task": "0_0",
        "store": "totals",
        "topic": TOTALS.topic,
        "partition": TOTALS.partition,
        "log_end": 9,
        "end": 10,
        "reason": "log-ends-before-base",
    }
