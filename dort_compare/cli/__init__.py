"""The ``dort-compare`` command. Exit status: 0 agree, 1 diverge, 2 wrong call or unreadable input."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from dort_compare.cli.bisect import bisect
from dort_compare.cli.check import check
from dort_compare.cli.diff import diff
from dort_compare.cli.llama import llama
from dort_compare.cli.report import report
from dort_compare.cli.repro import repro
from dort_compare.errors import DortError
from dort_compare.report.tables import printable

DIVERGES, WRONG_CALL = 1, 2


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="dort-compare")
def commands() -> None:
    """Runs PyTorch models on ONNX Runtime, forward and backward, and says where they depart from eager."""


commands.add_command(bisect)
commands.add_command(check)
commands.add_command(diff)
commands.add_command(llama)
commands.add_command(report)
commands.add_command(repro)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command line (default: that of the process) and exits; a caller's mistake ends in one line."""
    try:
        agrees = commands.main(arguments, prog_name="dort-compare", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as problem:
        click.echo(problem.format_message(), err=True)
        sys.exit(WRONG_CALL)
    except click.ClickException as problem:
        _give_up(problem.format_message())
    except DortError as problem:
        _give_up(str(problem))
    except click.Abort:
        _give_up("interrupted")
    except (MemoryError, RuntimeError) as problem:
        if isinstance(problem, RuntimeError) and "alloc" not in str(problem):
            raise
        _give_up(f"not enough memory for these sizes: {problem}")
    sys.exit(DIVERGES if agrees is False else 0)


def _give_up(reason: str) -> None:
    click.echo(printable(f"dort-compare: {' '.join(reason.split())}"), err=True)
    sys.exit(WRONG_CALL)
