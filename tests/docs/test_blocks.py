"""Every fenced block of every page is run, in order, in a folder of its own; what a page shows is what comes out."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import doc_commands
import pytest
import yaml
from doc_folders import START, assume, prepare
from doc_output import difference
from doc_pages import LANGUAGES, PAGES, ROOT, blocks, document, file_name, language, name_of
from sybil import Example
from sybil.evaluators.python import PythonEvaluator

SLOW = {"docs/log.md"}
WITH_BLOCKS = [page for page in PAGES if blocks(page, "console", "python", "sh", "yaml")]
IN_USE = {"CONTRIBUTING.md": ROOT / "dort_compare" / "lowering" / "ops"}
"""Pages whose Python is an excerpt of a program, and where that stands."""


def marked(page: Path) -> object:
    slow = page.parent.name == "gallery" or name_of(page) in SLOW
    return pytest.param(page, id=name_of(page), marks=[pytest.mark.slow] if slow else [])


@pytest.fixture(scope="session")
def assumed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("assumed")
    assume(folder)
    return folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where a reader works. What is imported from there is forgotten after."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("FORCE_COLOR", "NO_COLOR", "TORCH_LOGS"):
        monkeypatch.delenv(name, raising=False)
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(f"{tmp_path}/"):
            del sys.modules[name]


@pytest.mark.parametrize("page", [marked(page) for page in WITH_BLOCKS])
def test_the_blocks_of_a_page_do_what_the_page_says(page, folder, assumed):
    reader = Reader(page, folder)
    followed = document(page, reader.follow)
    followed.namespace.update(prepare(page, folder, assumed))
    for example in followed.examples():
        example.evaluate()


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


class Reader:
    """Does what a page says, block by block."""

    def __init__(self, page: Path, folder: Path) -> None:
        self.page, self.folder = page, folder
        self.apart = page.parent.name == "gallery"

    def follow(self, example: Example) -> str | None:
        known = {"console": self.console, "python": self.python, "sh": self.sh, "yaml": self.yaml}
        return known[language(example)](example) if language(example) in known else None

    def python(self, example: Example) -> str | None:
        """An excerpt of a program stands in it word for word; a file is written; anything else is run, tests too."""
        text = str(example.parsed)
        if excerpts := self._programs():
            assert any(text in program.read_text(encoding="utf-8") for program in excerpts), f"no program has\n{text}"
            return None
        if name := file_name(text):
            (self.folder / name).write_text(text)
            commands = "".join(blocks(self.page, "console", "sh", "yaml"))
            assert name in commands, f"no command of the page runs {name}"
            return None
        PythonEvaluator()(example)
        for name in re.findall(r"^def (test_\w+)", text, re.MULTILINE):
            example.namespace[name]()
        return None

    def sh(self, example: Example) -> str | None:
        for line in str(example.parsed).replace("\\\n", " ").splitlines():
            ran = doc_commands.run(line)
            assert ran.status == (1 if line.endswith("# exit status 1") else 0), f"{line}: {ran}"
        return None

    def yaml(self, example: Example) -> str | None:
        for step in yaml.safe_load(str(example.parsed)):
            if "run" in step:
                assert doc_commands.run(step["run"]).status == 0, step
        return None

    def console(self, example: Example) -> str | None:
        """Each command writes what stands below it; it fails where it diverges, or as ``echo $?`` shows."""
        sessions = re.split(r"^\$ ", str(example.parsed).replace("\\\n", " "), flags=re.MULTILINE)[1:]
        for session, after in zip(sessions, [*sessions[1:], ""], strict=True):
            line, _, shown = session.partition("\n")
            if line == "echo $?":
                continue
            ran = doc_commands.run(line, apart=self.apart)
            status = after.split()[2] if after.startswith("echo $?\n") else str(int(shown.startswith("diverge")))
            assert str(ran.status) == status, f"{line}: {ran}"
            if ran.output is not None and (found := difference(shown, ran.output, self.folder)):
                return f"$ {line}\n{found}"
        return None

    def _programs(self) -> list[Path]:
        if self.apart:
            return list(self.page.parent.glob("*.py"))
        return list(IN_USE[name_of(self.page)].glob("*.py")) if name_of(self.page) in IN_USE else []
