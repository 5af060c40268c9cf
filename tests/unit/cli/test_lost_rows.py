"""A database that has lost rows is damage to ``backup`` and ``dump``, as it is to ``doctor``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from statecore.cli.main import main
from statecore.repository.repository import create_repository
from tests.golden.directories import golden_directories, unpacked
from tests.harness.damage_functions import cut, cut_manifest, manifest_of

GOLDEN = "4.4.0-at-least-once-clean"


def without_current(database: Path) -> None:
    (database / "CURRENT").unlink()


def half_a_manifest(database: Path) -> None:
    manifest = manifest_of(database)
    cut(manifest, manifest.stat().st_size // 2)


def shorter_manifest(database: Path) -> None:
    cut_manifest(database)


@pytest.mark.parametrize("command", ["backup", "dump"])
@pytest.mark.parametrize("place", ["rocksdb/key-value", "timestamped-window/timestamped-window.1357034400000"])
@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (without_current, "store-incomplete"),
        (half_a_manifest, "database-damaged"),
        (shorter_manifest, "database-damaged"),
    ],
)
def test_damage_ends_with_its_code_and_names_task_and_store(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    command: str,
    place: str,
    damage: Callable[[Path], None],
    code: str,
) -> None:
    application = unpacked(GOLDEN, tmp_path / "state")
    damage(application / "0_0" / place)
    spec = tmp_path / "stores.yaml"
    spec.write_text(golden_directories()[GOLDEN].stores_yaml())
    create_repository((tmp_path / "repository").as_uri())
    store = Path(place).name.partition(".")[0]
    further = {
        "backup": ["--offline", "--plan", "--repository", (tmp_path / "repository").as_uri()],
        "dump": ["--store", store],
    }[command]
    exit_code = main([command, "--json", "--spec", str(spec), "--state-dir", str(application.parent), *further])
    said = json.loads(capfd.readouterr().out)
    assert (exit_code, said["error"], said["code"]) == (12, "Corrupted", code)
    assert (said["context"]["task"], said["context"]["store"]) == ("0_0", store)


def test_a_dump_of_another_task_passes_the_damage_by(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    application = unpacked(GOLDEN, tmp_path)
    without_current(application / "0_0" / "rocksdb" / "key-value")
    words = ["--state-dir", str(tmp_path), "--application-id", GOLDEN, "--store", "key-value", "--task", "0_1"]
    assert main(["dump", "--json", *words]) == 0
    assert {row["task"] for row in json.loads(capfd.readouterr().out)["rows"]} == {"0_1"}


def test_a_dump_reads_past_a_segment_that_had_expired(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    application = unpacked(GOLDEN, tmp_path / "state")
    store = application / "0_0" / "timestamped-window"
    expired = store / "timestamped-window.0"
    expired.mkdir()
    (expired / "000010.sst").write_bytes(b"rows")
    spec = tmp_path / "stores.yaml"
    spec.write_text(golden_directories()[GOLDEN].stores_yaml())
    words = ["--state-dir", str(tmp_path / "state"), "--store", "timestamped-window", "--spec", str(spec)]
    assert main(["dump", "--json", *words]) == 0
    assert json.loads(capfd.readouterr().out)["rows"]
