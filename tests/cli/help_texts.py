"""The help of every command, in tests/cli/help. ``python tests/cli/help_texts.py`` writes it anew."""

from __future__ import annotations

from pathlib import Path

import click

from dort_compare.cli import commands

FOLDER = Path(__file__).parent / "help"
WIDTH = 80


def help_texts() -> dict[str, str]:
    """By the names of their files, what ``--help`` prints on a terminal of 80 columns."""
    everything = {
        "dort-compare": commands,
        **{f"dort-compare-{name}": each for name, each in commands.commands.items()},
    }
    return {
        f"{name}.txt": _help(name.replace("dort-compare-", "dort-compare "), each) for name, each in everything.items()
    }


def _help(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=name, terminal_width=WIDTH, **command.context_settings)
    return command.get_help(context) + "\n"


if __name__ == "__main__":
    for old in FOLDER.glob("*.txt"):
        old.unlink()
    FOLDER.mkdir(exist_ok=True)
    for file, text in help_texts().items():
        (FOLDER / file).write_text(text, encoding="utf-8")
