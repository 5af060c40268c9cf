"""Whatever lies in the work directory has one meaning."""

from __future__ import annotations

import pytest

from statecore.statedir.work_directory import ENTRIES, STAGED, entry_of


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_every_name_is_found_by_itself_or_by_how_it_begins(entry):
    assert entry_of(entry.name + "0123" * entry.is_prefix) == entry
    assert entry.meaning
    assert (entry_of(entry.name + "0123") == entry) is entry.is_prefix


def test_any_other_name_is_that_of_a_plan_which_is_swept_with_its_age():
    assert entry_of("0123456789abcdef") == STAGED
    assert not STAGED.is_kept
    assert not STAGED.is_expected
