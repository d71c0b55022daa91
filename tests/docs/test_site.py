"""The site as Sphinx builds it from the pages."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
from doc_pages import PAGES, ROOT

import dort_compare

HREF = re.compile(r'(?:href|src)="([^"#][^"]*)"')
NOT_OURS = re.compile(r"^(?:[a-z]+:|//)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_spec("sphinx") is None:
        pytest.skip("the site needs Sphinx: pip install 'dort-compare[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", "docs", ".", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_every_page_is_there_and_so_is_all_that_it_links_to_and_nothing_comes_from_elsewhere(site):
    for page in PAGES:
        assert (site / page.relative_to(ROOT).with_suffix(".html")).exists()
    for page in site.rglob("*.html"):
        if page.parent.name == "reports":
            continue
        text = page.read_text(encoding="utf-8")
        assert not re.search(
            r'<(?:script|img|iframe)[^>]* src="(?:https?:)?//|<link rel="stylesheet"[^>]*"https?://', text
        )
        for link in HREF.findall(text):
            if not NOT_OURS.match(link):
                file = page.parent / unquote(urldefrag(link).url.partition("?")[0])
                assert file.exists(), f"{page.relative_to(site)} links to {link}"


@pytest.mark.slow
def test_the_reference_names_everything_public(site):
    text = (site / "docs" / "api.html").read_text(encoding="utf-8")
    for name in dort_compare.__all__:
        home = "errors." if name == "DortError" else ""
        assert f'id="dort_compare.{home}{name}"' in text, name
