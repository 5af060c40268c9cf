"""Every finding has a page that says what the catalogue says, and then what a person has to know."""

from __future__ import annotations

import re

import pytest

from scripts.finding_pages import HEADINGS, INDEX, PAGES, index, wanted
from statecore.doctor.finding_catalog import CATALOG, Repair

DOCS = PAGES.parent


def test_every_code_has_a_page_and_every_page_a_code():
    assert {path.stem for path in PAGES.glob("*.md")} - {INDEX.removesuffix(".md")} == set(CATALOG)


def test_heads_and_index_are_those_of_the_catalogue():
    different = [path.name for path, text in wanted().items() if path.read_text() != text]
    assert different == []  # python -m scripts.finding_pages
    assert all(f"]({code}.md)" in index() for code in CATALOG)


@pytest.mark.parametrize("code", CATALOG)
def test_a_page_says_how_a_repair_is_begun_where_there_is_one(code):
    head = (PAGES / f"{code}.md").read_text().partition("## ")[0]
    kind = CATALOG[code]
    assert ("`statecore repair --" in head) == bool(kind.repairs)
    assert "--spec stores.yaml" in head or Repair.REBUILD not in kind.repairs


@pytest.mark.parametrize("code", CATALOG)
def test_a_page_says_all_that_a_page_says(code):
    page = (PAGES / f"{code}.md").read_text()
    sections = re.split(r"^## (.*)\n", page, flags=re.MULTILINE)
    assert tuple(sections[1::2]) == HEADINGS
    assert all(text.strip() for text in sections[2::2])


def test_pages_that_are_named_exist():
    for path in (*PAGES.glob("*.md"), DOCS / "doctor.md"):
        for link in re.findall(r"\]\(([^)#:]+\.md)", path.read_text()):
            assert (path.parent / link).is_file(), (path.name, link)
