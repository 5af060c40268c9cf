"""How results are printed."""

from __future__ import annotations

import pytest
from rich.text import Text

from statecore.cli.output import MOST_ROWS, Output, print_line, print_table, result_console

LONG = "a sentence of many words " * 20 + "that ends here"


def test_in_a_pipe_a_sentence_is_one_line_without_blanks_behind_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    console = result_console()
    print_line(console, LONG)
    print_line(console, "short", indent=0)
    console.print(Text(LONG))
    assert capsys.readouterr().out.splitlines() == [f"  {LONG}", "short", LONG]


def test_in_a_pipe_a_table_keeps_to_its_width(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    print_table(result_console(), "title", ("task", "why"), [("0_0", LONG)], left=("task", "why"))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 200
    assert "ends here" in " ".join(lines)


def test_a_title_is_longer_than_its_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    title = "orders in /var/lib/kafka-streams, for 4.3"
    print_table(result_console(), title, ("task",), [("0_0",)], left=("task",))
    assert capsys.readouterr().out.splitlines()[0] == title


def test_a_sentence_is_wrapped_to_columns(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    print_line(result_console(), LONG)
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 60


def test_what_is_placed_is_not_to_be_resumed() -> None:
    output = Output(json=False)
    output.set_request_id("one")
    output.progress.phase("place", 4, "tasks")
    assert "--request-id one" in output.how_to_resume()
    output.progress.done()
    assert "--request-id" not in output.how_to_resume()


def test_a_very_long_table_is_printed_as_lines(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [(f"0_{number}", "store") for number in range(MOST_ROWS + 1)]
    print_table(result_console(), "", ("task", "store"), rows, left=("task", "store"))
    assert [line.strip() for line in capsys.readouterr().out.splitlines()] == [
        f"task {task}, store {store}" for task, store in rows
    ]
