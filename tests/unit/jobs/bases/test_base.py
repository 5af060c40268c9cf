from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from statecore.changelog.model import LogOffsets, TopicDescription
from statecore.changelog.soundness import BaseEnd
from statecore.errors import Reason
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.bases.base import DIRECTORY, SHOWN, Base, Key, Refused, Younger, grouped
from statecore.jobs.bases.choice import ChosenBases, choose
from tests.unit.jobs.published import Shop

CHANGELOG = TopicPartition("changelog", 0)
KEY: Key = ("0_0", "store")
TOPIC = TopicDescription("changelog", "a" * 32, 1, {"cleanup.policy": "compact"})
LOG = LogOffsets(0, 1000, 1000)


class Listed:
    """Candidates in a list; counts how far anybody looked."""

    def __init__(self, *candidates: Base | Refused) -> None:
        self.candidates = candidates
        self.looked = 0

    def of(self, key: Key) -> Iterator[Base | Refused]:
        for candidate in self.candidates:
            self.looked += 1
            yield candidate


def base_of(name: str = "newest", end: int = 900, epoch: int = -1, read_at_ms: int | None = 1) -> Base:
    ends = {CHANGELOG: BaseEnd(CHANGELOG, TOPIC.topic_id, end, epoch, read_at_ms)}
    return Base(name, ends, frozenset([None]))


def chosen(
    candidates: Listed,
    *,
    log: LogOffsets = LOG,
    end: int | None = None,
    epochs: Mapping[TopicPartition, int | None] | None = None,
    by_cost: bool = False,
) -> ChosenBases:
    return choose(
        {KEY: frozenset([CHANGELOG])},
        candidates,
        {"changelog": TOPIC},
        {CHANGELOG: log},
        {CHANGELOG: log.log_end if end is None else end},
        lambda asked: dict.fromkeys(asked) if epochs is None else {part: epochs[part] for part in asked},
        (lambda one, logs: 0 if one is None else logs[CHANGELOG].log_end - one.ends[CHANGELOG].end)
        if by_cost
        else None,
    )


def test_the_first_sound_candidate_is_chosen_and_no_other_is_read() -> None:
    candidates = Listed(base_of("newest"), base_of("older", 500))
    assert chosen(candidates).bases[KEY].name == "newest"
    assert candidates.looked == 1


def test_a_refused_candidate_is_reported_with_the_reason_and_the_next_is_tried() -> None:
    candidates = Listed(
        Refused(*KEY, "damaged", Reason("it is", "blob-damaged", blob="b")),
        base_of("newest", 2000),
        base_of("older", 500),
    )
    found = chosen(candidates)
    assert found.bases[KEY].name == "older"
    assert [one.base for one in found.refused] == ["damaged", "newest"]
    first, second = (one.to_json() for one in found.refused)
    assert (first["code"], first["blob"], first["base"]) == ("blob-damaged", "b", "damaged")
    assert (second["code"], second["log_end"], second["end"]) == ("log-ends-before-base", 1000, 2000)
    assert (second["task"], second["store"], second["topic"]) == (*KEY, CHANGELOG.topic)


def test_a_store_without_another_candidate_has_no_base() -> None:
    found = chosen(Listed(base_of(end=2000)))
    assert not found.bases
    assert [one.base for one in found.refused] == ["newest"]


def test_a_log_truncated_below_the_end_refuses_a_base() -> None:
    candidates = Listed(base_of("newest", 900, epoch=4), base_of("older", 500, epoch=3))
    found = chosen(candidates, log=replace(LOG, leader_epoch=6), epochs={CHANGELOG: 600})
    assert found.bases[KEY].name == "older"
    assert (found.refused[0].code, found.refused[0].values["truncated_at"]) == ("log-truncated", 600)


def test_an_end_beyond_the_end_of_the_read_refuses_a_base() -> None:
    found = chosen(Listed(base_of(end=900)), end=800)
    assert not found.bases
    assert (found.refused[0].code, found.refused[0].values["read_end"]) == ("end-beyond-read", 800)


def test_a_base_of_other_partitions_is_refused() -> None:
    other = TopicPartition("changelog", 1)
    ends = {other: BaseEnd(other, TOPIC.topic_id, 1, -1, None)}
    found = chosen(Listed(Base("newest", ends, frozenset())))
    assert (found.refused[0].code, found.refused[0].values["found"]) == ("partitions-differ", ["changelog-1"])


def test_a_base_that_costs_more_than_the_whole_changelog_is_reported_and_not_chosen() -> None:
    found = chosen(Listed(base_of("newest", 900)), by_cost=True)
    assert not found.bases
    assert [one.base for one in found.costlier] == ["newest"]
    assert not found.refused


def test_a_base_that_costs_as_much_as_the_whole_changelog_is_chosen() -> None:
    here = replace(base_of(DIRECTORY, 1000), databases={None: "/s"})
    assert chosen(Listed(here), by_cost=True).bases[KEY].name == DIRECTORY


@pytest.mark.parametrize(("read_at_ms", "taken"), [(100, True), (99, False), (None, False)])
def test_a_store_that_is_not_advanced_is_inherited_up_to_a_maximum_age(read_at_ms: int | None, *, taken: bool) -> None:
    found = list(Younger(Listed(base_of(read_at_ms=read_at_ms)), {KEY}, 100).of(KEY))
    assert bool(found) is taken


def test_the_age_of_other_stores_is_not_limited() -> None:
    assert list(Younger(Listed(base_of(read_at_ms=None)), {("0_1", "versions")}, 100).of(KEY))


def test_a_store_of_a_snapshot_is_a_base_with_the_ends_of_its_manifest(tmp_path) -> None:
    shop = Shop(tmp_path)
    shop.publish([40, 90])
    app_repository = shop.app_repository
    newest = app_repository.head().snapshots[0]
    task_manifests = app_repository.task_manifests(app_repository.manifest(newest).value.task_manifests)
    (store,) = (one for one in task_manifests["0_0"].manifest.stores if one.store == "clicks")
    found = Base.of_snapshot("newest", store, 17)
    (end,) = found.ends.values()
    assert (end.end, end.read_at_ms, end.topic_id) == (90, 17, store.changelogs[0].topic_id)
    assert found.segments == {database.segment for database in store.databases}
    assert found.stream_time == store.stream_time
    assert not found.is_directory
    assert all(found.below.may_have_rows(segment) for segment in found.segments)
    assert not found.below.may_have_rows(max(segment or 0 for segment in found.segments) + 1)


def refusals(why: str, stores: int = 1, tasks: int = 1, bases: int = 1) -> list[Refused]:
    return [
        Refused(f"0_{task}", f"store-{store}", f"2026112{base}T010203Z-5f3a9c21", why.format(task, base))
        for store in range(stores)
        for task in range(tasks)
        for base in range(bases)
    ]


def test_a_single_refusal_is_one_line() -> None:
    (one,) = refusals("it is damaged")
    assert grouped([one]) == (str(one),)
    assert grouped([]) == ()


def test_refusals_are_grouped_by_store_and_reason() -> None:
    moved = "orders-changelog-{0} begins at 1{1}0 now, after the base's end {1}: the records between are deleted"
    found = grouped([*refusals(moved, tasks=8, bases=5), *refusals("it is damaged", tasks=2)])
    named = [re.findall(r"\b0_\d\b|\d+T\d+Z|\d+ more|changelog-\d", line) for line in found]
    days = ["20261120T010203Z", "20261121T010203Z", "20261122T010203Z"]
    assert named == [["0_0", "0_1", "0_2", "5 more", *days, "2 more", "changelog-0"], ["0_0", "0_1", days[0]]]


def test_lines_of_refusals_are_limited_and_count_the_rest() -> None:
    found = grouped(refusals("it is damaged", stores=SHOWN + 7, tasks=3))
    assert len(found) == SHOWN + 1
    assert "7 more" in found[-1]
