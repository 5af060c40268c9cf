"""Names in a repository: each is one that a blob may have, and says whose it is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.errors import Invalid
from statecore.formats.topic_partition import is_topic_name
from statecore.objectstore.base import checked_name
from statecore.repository.layout import Layout, collection_of, hash_of, is_collected
from tests.harness.raising import raises
from tests.unit.repository.snapshots import APPLICATION, FOREIGN

LEGAL = "abcXYZ019._-"
DIGEST = "0123456789abcdef" * 4


def names(layout: Layout) -> list[str]:
    return [
        layout.head,
        layout.manifest("20261123T010203Z-5f3a9c21"),
        layout.task_manifests(DIGEST),
        layout.file(DIGEST),
        layout.pack(DIGEST),
        layout.content(DIGEST),
        layout.job("manual__2026-11-23T01:02:03".replace(":", "-"), "plan"),
        layout.verified,
        layout.retention,
        layout.garbage_list(1, 1 << 40, DIGEST),
        layout.staging("plan-1"),
    ]


def test_every_name_of_this_release_has_a_kind_and_no_other_name_has() -> None:
    layout = Layout(APPLICATION, 3)
    marker = layout.in_progress_marker("request")
    own = [*names(layout), *layout.records, marker, layout.garbage_list(1 << 30, 1 << 60, DIGEST)]
    assert [layout.kind_of(f"{name}/result" if "/staging/" in name else name) for name in own] == [
        name.split("/")[2] for name in own
    ]
    assert [layout.kind_of(name) for name in FOREIGN] == [""] * len(FOREIGN)
    assert layout.kind_of("apps/another/HEAD") == ""


@settings(deadline=None)
@given(st.text(LEGAL, min_size=1, max_size=40), st.text(LEGAL, min_size=1, max_size=40))
def test_every_name_can_be_that_of_a_blob_and_is_one_applications_alone(one: str, other: str) -> None:
    if {one, other} & {".", ".."}:
        return
    mine = names(Layout(one))
    assert [checked_name(name) for name in mine] == mine
    assert len(set(mine)) == len(mine)
    assert all(name.startswith(f"apps/{one}/") for name in mine)
    if one != other:
        assert not {*mine} & {*names(Layout(other))}
        assert not any(name.startswith(Layout(other).manifests) for name in mine)


def test_no_name_is_the_directory_of_another() -> None:
    mine = names(Layout("orders"))
    assert not [(one, other) for one in mine for other in mine if other.startswith(f"{one}/")]


@pytest.mark.parametrize("given", ["", ".", "..", "a/b", "a b", "ä", "a\n", "a:b", "a*", "a" * 250])
def test_what_is_no_application_id_is_refused(given: str) -> None:
    with raises(Invalid, "application-id-invalid") as caught:
        Layout(given)
    assert "application.id" in caught.value.action


@settings(deadline=None)
@given(st.text(min_size=1, max_size=20))
def test_an_application_id_is_what_kafka_takes_in_the_name_of_a_topic(given: str) -> None:
    allowed = is_topic_name(given) and given not in (".", "..")

    def layout() -> Any:
        try:
            return Layout(given)
        except Invalid:
            return None

    assert (layout() is not None) == allowed


def test_files_are_spread_by_the_first_digits_of_their_hash() -> None:
    assert Layout("a").file(DIGEST) == f"apps/a/files/01/{DIGEST}.0"


@pytest.mark.parametrize(
    ("name", "number"),
    [
        (Layout("a", 12).file(DIGEST), 12),
        (Layout("a.5").pack(DIGEST), 0),
        (f"apps/a.5/files/01/{DIGEST}", None),
        (f"apps/a/files/01/{DIGEST}.", None),
        (f"apps/a/files/01/{DIGEST}.1x", None),
        (f"apps/a/files/01/{DIGEST}.-1", None),
    ],
)
def test_the_collection_number_is_the_end_of_a_name(name: str, number: int | None) -> None:
    assert collection_of(name) == number
    assert hash_of(name) == DIGEST
    assert is_collected(name, 14) == (number is not None)
    assert not is_collected(name, 1)
