"""``dort-compare cache``: the graphs that are kept on disk."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dort_compare.cli import options
from dort_compare.errors import UsageError

if TYPE_CHECKING:
    from dort_compare.cache import folder as kept


_LISTED = 20


@click.command(context_settings=options.HELP, short_help="The compiled graphs on disk.")
@click.option("--clear", is_flag=True, help="Remove them.")
@click.option("--all", "everything", is_flag=True, help=f"Show all of them, not the {_LISTED} that were used last.")
@click.option(
    "--folder",
    type=options.FILE,
    metavar="FOLDER",
    default=None,
    help="Where they are kept.  [default: the user's cache]",
)
def cache(*, clear: bool, everything: bool, folder: Path | None) -> None:
    """Shows or removes the compiled graphs on disk.

    They are those of torch.compile(model, backend="dort"), for other processes.
    """
    from dort_compare.cache import folder as kept

    where = folder or kept.default_folder()
    try:
        if folder is not None and not folder.is_dir():
            raise UsageError(f"{folder} is no folder; name the one that was given as the option cache")
        found = kept.clear(where) if clear else kept.entries(where)
        text = (
            f"removed {_sum(found)} from {where}" if clear else _listed(where, found, None if everything else _LISTED)
        )
    except OSError as problem:
        raise UsageError(f"{where}: {problem.strerror}; name another folder with --folder") from None
    click.echo(text)


def _listed(where: Path, found: Sequence[kept.File], limit: int | None) -> str:
    from dort_compare.report.tables import new_table, rendered

    head = f"{where}: {_sum(found)}"
    if not found:
        return head
    table = new_table("last used", "phase", "nodes", "in torch", "bytes", "key")
    for file in found[:limit]:
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(file.used))
        table.add_row(used, *_about(file.path), str(file.size), file.path.name[:12])
    left = len(found[limit:]) if limit else 0
    more = f"\nand {left} more; --all shows them" if left else ""
    return f"{head}\n\n{rendered(table)}{more}"


def _about(path: Path) -> tuple[str, str, str]:
    from dort_compare.cache.entry import DamagedEntryError, Entry

    try:
        entry = Entry.described(path)
    except DamagedEntryError:
        return "unreadable", "", ""
    except FileNotFoundError:
        return "removed", "", ""  # by another process, just now
    return entry.phase, str(entry.nodes), str(len(entry.refused))


def _sum(files: Sequence[kept.File]) -> str:
    size = sum(file.size for file in files)
    return f"{len(files)} graph{'' if len(files) == 1 else 's'}, {size / 2**20:.1f} MiB"
