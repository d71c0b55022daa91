"""The pages that people read, and the fenced blocks on them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from sybil import Document, Example, Region
from sybil.parsers.markdown.lexers import RawFencedCodeBlockLexer

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "benchmarks" / "results").glob("*.md")),
]
LANGUAGES = {"console", "python", "sh", "text", "yaml"}
"""What a block may be: with output, Python, commands alone, no command at all, a workflow."""

_LEXER = RawFencedCodeBlockLexer(re.compile(r"(?P<language>[^\n]*)\n"))
_FENCED = re.compile(r"^([ \t]*)(`{3,}).*?^\1\2[ \t]*$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"`((?:dort-compare|make|pytest|python) [^`]+)`")


def name_of(page: Path) -> str:
    """A page as the repository names it."""
    return str(page.relative_to(ROOT))


def document(page: Path, evaluate: Callable[[Example], str | None]) -> Document:
    """The page's fenced blocks as examples of Sybil; the language of each is in ``region.lexemes``."""

    def blocks(document: Document) -> Iterator[Region]:
        for region in _LEXER(document):
            region.parsed, region.evaluator = region.lexemes["source"], evaluate
            yield region

    return Document.parse(str(page), blocks)


def blocks(page: Path, *languages: str) -> list[str]:
    """The text of the page's blocks in these languages."""
    return [str(each.parsed) for each in document(page, lambda _: None).examples() if language(each) in languages]


def language(example: Example) -> str:
    """What the block says that it is."""
    return str(example.region.lexemes["language"]).strip()


def inline_commands(page: Path) -> list[str]:
    """The commands that stand within sentences and tables."""
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    return sorted({" ".join(found.split()) for found in _COMMAND.findall(text)})


def file_name(python: str) -> str | None:
    """The file that a block of Python is, where its first line says so: ``# model.py``."""
    found = re.match(r"# ([\w./-]+\.py)\n", python)
    return found[1] if found else None
