"""Every fenced block of every page is run, in order, in a folder of its own; what a page shows is what comes out."""

from __future__ import annotations

import re

import pytest
from doc_folders import START, prepare
from doc_pages import LANGUAGES, PAGES, ROOT, blocks, document, language, name_of
from doc_reader import Reader

SLOW = {"docs/log.md"}
RUN = [page for page in PAGES if blocks(page, "console", "python", "sh", "yaml") and page.parent.name != "gallery"]
"""Those of the gallery are run by test_gallery.py."""


def marked(page):
    return pytest.param(page, id=name_of(page), marks=[pytest.mark.slow] if name_of(page) in SLOW else [])


@pytest.mark.parametrize("page", [marked(page) for page in RUN])
def test_the_blocks_of_a_page_do_what_the_page_says(page, folder, assumed):
    Reader(page, folder).read(prepare(page, folder, assumed))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_says_what_it_is(page):
    kinds = set(map(language, document(page, lambda _: None).examples()))
    assert {kind for kind in kinds if not kind.startswith("{")} <= LANGUAGES
    for text in blocks(page, "text"):
        assert not re.search(r"^\s*(\$ |(dort-compare|make|pytest|python) )", text, re.MULTILINE), text
    for text in blocks(page, "console"):
        assert text.startswith("$ "), text


def test_the_verdict_on_the_front_page_is_that_of_the_first_steps():
    (shown,) = blocks(ROOT / "docs" / "index.md", "text")
    assert any(shown in text for text in blocks(START, "console"))
