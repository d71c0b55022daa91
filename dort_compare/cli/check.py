"""``dort-compare check``: the verdict on a dump alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dort_compare.cli import options
from dort_compare.cli.output import Output, all_rows, outputs


@click.command(context_settings=options.HELP, short_help="A dump against eager PyTorch.")
@options.dump
@options.graph
@options.model
@options.engine
@options.provider("Where ONNX Runtime runs them.")
@options.memory
@options.repeats
@all_rows
@outputs
def check(*, dump: Path, everything: bool, output: Output, **given: Any) -> bool:
    """Compares the graphs of a dump, as they ran when it was made, with eager PyTorch.

    DUMP is a folder that --dump, or compare(..., dump=FOLDER), has written, maybe elsewhere. No code of it is run.

    \b
    dort-compare check dump_models
    dort-compare check dump_models --graph 0 --model optimized.onnx
    """
    from dort_compare.dump import graphs_in
    from dort_compare.offline import check as check_dump
    from dort_compare.offline.runs import files_read

    output.check(read=files_read(dump, given["model"]))
    report = check_dump(dump, **given)
    agrees = output.tell(report, report.text(everything=everything))
    if given["graph"] is None and (left := [each.name for each in graphs_in(dump) if each.run is None]):
        output.echo(f"not compared, for they did not run when the dump was made: {', '.join(left)}")
    return agrees
