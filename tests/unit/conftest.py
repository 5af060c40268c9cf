from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.forked import Forks
from tests.unit.templates import TEMPLATES


@pytest.fixture(scope="session", autouse=True)
def templates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Databases are made once for all tests and their processes: making them would take longer than using them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(TEMPLATES, str(tmp_path_factory.mktemp("templates")))
        yield


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """Starts processes of this worker's tests, one at a time."""
    with Forks() as made:
        yield made
