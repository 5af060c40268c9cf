"""The command lines in the README and in docs are ones that the parser takes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from statecore.cli.main import main, parse

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def command_lines(page: Path) -> list[str]:
    """The arguments of ``statecore`` in the blocks of a page."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in re.sub(r"\\\n\s*", " ", block).splitlines()]
    return [found[1] for line in lines if (found := re.match(r"\s*(?:\S*bin/)?statecore (.*)", line))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_command_lines_in_blocks_parse(page: Path) -> None:
    for line in command_lines(page):
        parse(shlex.split(line, comments=True))


def test_the_pages_have_command_lines_of_most_commands() -> None:
    """Else the test above passes on nothing."""
    assert len({line.split()[0] for page in PAGES for line in command_lines(page)}) > 10


def test_options_named_in_sentences_are_those_of_their_commands(capsys: pytest.CaptureFixture[str]) -> None:
    said = {words for page in PAGES for words in re.findall(r"`statecore ([a-z][^`]*)`", page.read_text())}
    assert said
    for words in sorted(said):
        name, *more = shlex.split(words)
        command = [name, *more[:1]] if name == "repo" else [name]
        with pytest.raises(SystemExit, match="0"):
            main([*command, "--help"])
        shown = capsys.readouterr().out
        assert [one for one in more if one.startswith("--") and one not in shown] == [], words
