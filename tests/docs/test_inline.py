"""The commands within sentences and tables exist and have the options that they are given."""

from __future__ import annotations

import doc_commands
import pytest
from doc_pages import PAGES, inline_commands, name_of

COMMANDS = [(page, command) for page in PAGES for command in inline_commands(page)]


@pytest.mark.parametrize(
    ("page", "command"), [pytest.param(*each, id=f"{name_of(each[0])}: {each[1]}") for each in COMMANDS]
)
def test_a_command_in_a_sentence_is_one_that_exists(page, command):
    doc_commands.read(command)
