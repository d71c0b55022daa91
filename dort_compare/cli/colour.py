"""Prints text, with colours where a person reads it: nothing but verdicts and statuses has one."""

from __future__ import annotations

import re

import click

_PATTERN = re.compile(
    r"^(?P<green>agree|ok)\b"
    r"|^(?P<red>diverges?|also|broken|unaligned)\b"
    r"|^(?P<bright_red>!)(?= )"
    r"|^(?P<bright_black>inherits|absent|─+)",
    re.MULTILINE,
)
"""A group's name is its colour."""


def show(text: str) -> None:
    """Prints ``text`` on stdout; as it is where that is no terminal, or the environment variable NO_COLOR is set."""
    from rich.console import Console
    from rich.text import Text

    console = Console()
    if not console.is_terminal or console.no_color:
        click.echo(text)
        return
    shown = Text(text)
    shown.highlight_regex(_PATTERN)
    console.print(shown, soft_wrap=True)
