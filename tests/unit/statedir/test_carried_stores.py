"""Stores that a placement carries over."""

from __future__ import annotations

from pathlib import Path

from rocksdict import Options, Rdict

from statecore.formats.kinds import StoreKind
from statecore.statedir.carried_stores import CarriedStores
from statecore.statedir.placement_stores import SiblingStore
from statecore.statedir.task_layout import stores_in
from tests.golden.directories import unpacked
from tests.harness.damage_cases import EXACTLY_ONCE, STAMPED
from tests.harness.damage_functions import TASK, cut_manifest, database_of


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


def test_a_damaged_store_without_a_changelog_is_not_to_be_restored_from_one(tmp_path: Path) -> None:
    application = unpacked(EXACTLY_ONCE, tmp_path)
    cut_manifest(database_of(application, STAMPED), between=True)
    for logged in (True, False):
        told: list[str] = []

        def refuse(_: str, what: str, *, store: str, told: list[str] = told) -> None:
            told += [what] * (store == STAMPED)

        declared = {STAMPED: SiblingStore(TASK, STAMPED, StoreKind.UNKNOWN, None, logged=logged)}
        CarriedStores(TASK, declared, True, refuse).check(stores_in(application / TASK))
        assert ["Rebuild the store" in what for what in told] == [logged]


def test_a_store_that_cannot_be_read_here_is_a_reason_to_refuse_and_no_failure(tmp_path: Path) -> None:
    path = tmp_path / "rocksdb" / "reverse"
    path.mkdir(parents=True)
    database = Rdict(str(path), Options(raw_mode=False))  # rocksdict's own comparator
    database["key"] = "value"
    database.close()
    refused: list[tuple[str, str]] = []

    def refuse(code: str, what: str, *, store: str) -> None:
        refused.append((code, store))

    CarriedStores("0_0", {}, True, refuse).check(stores_in(tmp_path))
    assert refused == [("not-readable-here", "reverse")]
