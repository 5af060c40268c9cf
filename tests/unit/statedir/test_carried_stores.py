"""Stores that a placement carries over."""

from __future__ import annotations

from pathlib import Path

from statecore.statedir.carried_stores import CarriedStores
from statecore.statedir.task_layout import stores_in
from tests.golden.directories import unpacked
from tests.harness.damage import EXACTLY_ONCE, STAMPED
from tests.harness.damaging import TASK, cut_manifest, database_of


def test_a_store_whose_manifest_lost_its_end_is_not_carried_over(tmp_path: Path) -> None:
    application = unpacked(EXACTLY_ONCE, tmp_path)
    refused: list[tuple[str, str]] = []

    def refuse(code: str, what: str, *, store: str) -> None:
        refused.append((code, store))

    def check() -> list[tuple[str, str]]:
        refused.clear()
        CarriedStores(TASK, {}, True, refuse).check(stores_in(application / TASK))
        return [one for one in refused if one[1] == STAMPED]

    assert check() == []
    cut_manifest(database_of(application, STAMPED), between=True)
    assert check() == [("database-damaged", STAMPED)]
