from __future__ import annotations

import pytest

from statecore.formats.integers import min_known


@pytest.mark.parametrize(("values", "least"), [([], None), ([3, 1, 2], 1), ([1, None], None), ([0], 0)])
def test_the_least_value_is_known_if_all_are(values: list[int | None], least: int | None) -> None:
    assert min_known(values) == least
