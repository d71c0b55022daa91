"""Follows a page as a reader does who tries everything."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import doc_commands
import yaml
from doc_output import difference
from doc_pages import ROOT, blocks, document, file_name, language, name_of
from sybil import Example
from sybil.evaluators.python import PythonEvaluator

IN_USE = {"CONTRIBUTING.md": ROOT / "dort_compare" / "lowering" / "ops"}
"""Pages whose Python is an excerpt of a program, and where that stands."""


class Reader:
    """Does what a page says, block by block."""

    def __init__(self, page: Path, folder: Path) -> None:
        self.page, self.folder = page, folder

    def read(self, names: Mapping[str, Any]) -> None:
        """Follows the page from its first block to its last; its Python code knows these names."""
        followed = document(self.page, self.follow)
        followed.namespace.update(names)
        for example in followed.examples():
            example.evaluate()

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
            ran = doc_commands.run(line)
            status = after.split()[2] if after.startswith("echo $?\n") else str(int(shown.startswith("diverge")))
            assert str(ran.status) == status, f"{line}: {ran}"
            if ran.output is not None and (found := difference(shown, ran.output, self.folder)):
                return f"$ {line}\n{found}"
        return None

    def _programs(self) -> list[Path]:
        folder = IN_USE.get(name_of(self.page), self.page.parent if self.page.parent.name == "gallery" else None)
        return list(folder.glob("*.py")) if folder else []
