"""``dort-compare doctor``: what works here, and the command that mends what does not."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dort_compare.cli import options
from dort_compare.cli.colour import show
from dort_compare.files import check_writable, write
from dort_compare.plain import printable

if TYPE_CHECKING:
    from dort_compare.doctor import Finding

_SCHEMA = 1
_WIDTH, _INDENT = 80, 36


@click.command(context_settings=options.HELP, short_help="What works here, and the command that mends the rest.")
@options.json_file
def doctor(*, json_file: Path | None) -> bool:
    """Looks at versions, execution providers, the GPU, folders and threads, and compares a small model.

    A provider is tried, not only listed. Exit status: 0 if models can be compared on the CPU, 1 if not. What is
    absent, such as a GPU, is no fault; the line below tells how to get it.
    """
    from dort_compare.doctor import findings

    if json_file is not None:
        check_writable(json_file)
    found = []
    for each in findings():
        found.append(each)
        show(_lines(each))
    broken = [each.what for each in found if each.state == "broken"]
    show(f"broken: {', '.join(broken)}" if broken else "models can be compared on the CPU")
    if json_file is not None:
        record = {"schema": _SCHEMA, "works": not broken, "findings": [each.to_json() for each in found]}
        write(json_file, json.dumps(record, indent=1) + "\n")
    return not broken


def _lines(each: Finding) -> str:
    """State, name and what was found, wrapped; a command that mends it is never cut."""
    wrapper = textwrap.TextWrapper(_WIDTH, break_long_words=False, break_on_hyphens=False)
    wrapper.initial_indent, wrapper.subsequent_indent = f"{each.state:8}{each.what:28}", " " * _INDENT
    found = wrapper.fill(printable(each.found))
    return found + (f"\n{'':8}mend: {printable(each.mend)}" if each.mend else "")
