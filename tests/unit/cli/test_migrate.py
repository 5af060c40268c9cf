"""What ``statecore migrate`` prints: a line for each thing that is done, whatever the number of its tasks."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import pytest

from statecore.cli.main import main
from statecore.cli.migrate import show
from statecore.conversion.inspection import TaskInspection
from statecore.conversion.upward import plan_upward
from statecore.formats.releases import RELEASES
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.attempt import Attempt
from statecore.jobs.migrate.planner import migrated_task
from statecore.jobs.migrate.report import MigratedStore, MigratedTask, MigrateReport, MigrationOutcome
from tests.golden.make import HERE
from tests.unit.conversion.inspections import at, plain
from tests.unit.conversion.inspections import buffer as buffer_of


@pytest.mark.parametrize("offset", [20, 1_234_567])
def test_the_same_step_of_many_tasks_is_printed_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, offset: int
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with tarfile.open(HERE / "kafka-streams-4.2.0-task.tar.gz") as archive:
        archive.extractall(tmp_path / "old420", filter="data")
    task = tmp_path / "old420" / "0_1"
    shutil.copytree(task, tmp_path / "old420" / "0_0")
    for number in range(2):
        file = tmp_path / "old420" / f"0_{number}" / ".checkpoint"
        file.write_text(file.read_text().replace(" 1 20", f" {number} {offset + number}"))
    assert main(["migrate", "--application-id", "old420", "--state-dir", str(tmp_path), "--to", "4.3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1:3] for line in lines if line.split()[:1] in (["plain"], ["stamped"])] == [
        ["0_0,", "0_1"]
    ] * 2


def report(
    *tasks: MigratedTask, outcome: MigrationOutcome = MigrationOutcome.PLANNED, to: str = "4.3"
) -> MigrateReport:
    attempt = Attempt.begin("app", "/state", "one")
    return MigrateReport(**vars(attempt), finished="now", to=to, outcome=outcome, plan_id="p", tasks=tasks)


def test_a_step_is_printed_without_its_offsets(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    buffer = TaskInspection("0_0", (buffer_of("late-Buffer"),), {at("late-Buffer"): 1_234})
    both = {TopicPartition("prices", number): 10_000 + number for number in range(2)}
    table = TaskInspection("global", (plain("g", seen_changelog="prices"),), both)
    tasks = [migrated_task(plan_upward(seen, RELEASES["4.3"])) for seen in (buffer, table)]
    show(report(*tasks))
    words = " ".join(capsys.readouterr().out.split())
    assert ".checkpoint_late-Buffer" in words
    assert "its offsets" in words
    assert ": its offset" not in words
    assert "its offset, its offset" not in words
    assert not {"1,234", "10,000"} & set(words.replace(";", " ").split())


def test_where_all_is_left_no_empty_table_is_printed_and_no_opening_as_it_is_promised(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    left = MigratedTask("0_0", "4.2", left=("There is no .checkpoint in 0_0: it is restored from the start.",))
    show(report(left, outcome=MigrationOutcome.UNCHANGED))
    heading, said, result = capsys.readouterr().out.splitlines()
    assert heading.startswith("app in /state, ")
    assert said.endswith(f"0_0: {left.left[0]}")
    assert "4.3" in result
    whole = MigratedTask("0_0", "4.3", stores=(MigratedStore("a", "?", (), {}),))
    show(report(whole, outcome=MigrationOutcome.UNCHANGED))
    assert capsys.readouterr().out.splitlines()[-1] != result


@pytest.mark.parametrize(("words", "said"), [([], "Nothing was changed."), (["--apply"], "Every task is complete")])
def test_an_interruption_prints_the_state_of_the_tasks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("statecore.jobs.migrate.run.run_migrate", stopped)
    assert main(["migrate", "--application-id", "app", "--state-dir", "/state", "--to", "4.3", *words]) == 130
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"statecore: Interrupted. {said}")
    assert ("command again" in line) == bool(words)
