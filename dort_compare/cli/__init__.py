"""The ``dort-compare`` command. Exit status: 0 agree, 1 diverge, 2 wrong call or unreadable input, 3 a bug of ours."""

from __future__ import annotations

import errno
import logging
import os
import sys
import traceback
from collections.abc import Sequence

import click

from dort_compare.cli.bisect import bisect
from dort_compare.cli.cache import cache
from dort_compare.cli.check import check
from dort_compare.cli.closed_pipe import ClosedPipeError, Commands
from dort_compare.cli.diff import diff
from dort_compare.cli.doctor import doctor
from dort_compare.cli.interrupt import interruptible
from dort_compare.cli.llama import llama
from dort_compare.cli.options import HELP
from dort_compare.cli.report import report
from dort_compare.cli.repro import repro
from dort_compare.cli.run import run
from dort_compare.errors import DortError, UserCodeError
from dort_compare.plain import printable, readable
from dort_compare.problems import out_of_memory

DIVERGES, WRONG_CALL, BUG, BROKEN_PIPE = 1, 2, 3, 141
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


@click.group(cls=Commands, context_settings=HELP)
@click.version_option(package_name="dort-compare")
def commands() -> None:
    """Runs PyTorch models on ONNX Runtime, forward and backward, and says where they depart from eager.

    \b
    dort-compare run model.py:make --backward     a model of yours
    dort-compare llama --backward 1               a Llama, to see how it looks
    dort-compare COMMAND --help                   every option of a command

    \b
    Exit status: 0 agree, 1 diverge, 2 a wrong call or what cannot be read,
    3 an error in dort-compare itself.
    Completion in bash (zsh and fish alike), in ~/.bashrc:
      eval "$(_DORT_COMPARE_COMPLETE=bash_source dort-compare)"
    """


for command in (bisect, cache, check, diff, doctor, llama, report, repro, run):
    commands.add_command(command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command line (default: that of the process) and exits; a caller's mistake ends in one line."""
    logging.getLogger("onnx_ir").addHandler(logging.NullHandler())  # it would print names of a stranger as they are
    try:
        with interruptible("dort-compare: interrupted", WRONG_CALL):
            agrees = commands.main(arguments, prog_name="dort-compare", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as problem:
        click.echo(problem.format_message(), err=True)
        sys.exit(WRONG_CALL)
    except click.ClickException as problem:
        _give_up(problem.format_message())
    except UserCodeError as problem:
        click.echo(problem.frames, err=True, nl=False)
        _give_up(str(problem))
    except DortError as problem:
        _give_up(str(problem))
    except click.Abort:
        _give_up("interrupted")
    except (BrokenPipeError, ClosedPipeError):
        _leave_stdout()
        sys.exit(BROKEN_PIPE)
    except Exception as problem:  # noqa: BLE001  (a bug must not look like a divergence)
        if short := out_of_memory(problem):
            _give_up(short)
        if isinstance(problem, OSError) and problem.filename is None and problem.errno in _FULL:
            _leave_stdout()
            _give_up(f"cannot write to standard output: {problem.strerror}; send it elsewhere")
        click.echo("\n".join(map(printable, traceback.format_exc().splitlines())), err=True)
        click.echo("dort-compare: an error of its own; please report it with the lines above", err=True)
        sys.exit(BUG)
    sys.exit(DIVERGES if agrees is False else 0)


def _leave_stdout() -> None:
    """Drops what stdout did not take, of which Python would complain when it flushes at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _give_up(reason: str) -> None:
    click.echo(readable(f"dort-compare: {' '.join(reason.split())}"), err=True)
    sys.exit(WRONG_CALL)
