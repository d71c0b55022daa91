"""What the verdict says of a small member of each model type of transformers, diffusers or timm, forward and backward.

    python benchmarks/zoo.py --jobs 2 --write docs/zoo.md
    python benchmarks/zoo.py --jobs 2 --ways training --write docs/zoo-training.md
    python benchmarks/zoo.py --library diffusers --ways float32 bfloat16 float16 training

Every type that transformers' ``AutoModel`` knows is made from its own configuration, with few layers, narrow, with
random weights, and compared with eager: in float32, in bfloat16 or float16 autocast, or in float32 in training mode,
where dropout draws and batch norms count. What ran in eager torch instead of ONNX Runtime is counted beside. No fault
is planted: a verdict other than *agree* is a false alarm, or a finding.
Where the verdict says that a model departs before ONNX, it is compiled once more with torch's own backend ``eager``,
and the page says how far that lies from the plain model. A type is not made where its configuration does not fit
together once it is small, is large all the same, or asks for inputs of a kind of its own.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import logging
import os
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from pages import page, show
from torch import nn
from torch.utils._pytree import tree_leaves
from workers import Result, Task, run_tasks, serve
from zoo_members import NotMade

from dort_compare import Report, compare
from dort_compare.errors import nearest

WAYS = {
    "float32": (None, False),
    "bfloat16": (torch.bfloat16, False),
    "float16": (torch.float16, False),
    "training": (None, True),
}
"""By name, the dtype of autocast and whether the model is in training mode."""
LIBRARIES = {
    "transformers": ("zoo_models", "pip install -e '.[hf]'"),
    "diffusers": ("zoo_diffusers", "pip install diffusers"),
    "timm": ("zoo_timm", "pip install timm"),
}
"""By name, the module that builds small members, and what installs the library."""
SECONDS = 600.0
_FOLDERS = re.compile(r"/[\w.-]+/[\w./-]*/")


def measured(members: ModuleType, task: Task) -> Result:
    """Of one type: why it is not ``made``, or by way the verdict, values and calls that ran in eager torch."""
    kind, *ways = task
    try:
        model, arguments = members.build(kind)
    except NotMade as reason:
        return {"not made": str(reason)}
    parameters = sum(each.numel() for each in model.parameters())
    found: Result = {"parameters": parameters}
    for name in ways:
        dtype, in_training = WAYS[name]
        torch.compiler.reset()
        gc.collect()
        model.train(in_training)
        try:
            report = compare(model, (), arguments, backward=True, autocast=dtype)
            verdict = _verdict(report, model, arguments, dtype)
        except Exception as error:  # noqa: BLE001  (one type takes no other along)
            found[name] = {"verdict": f"{type(error).__name__}: {error}"}
            continue
        found[name] = {
            "verdict": verdict,
            "values": sum(row.status != "unaligned" for row in report.rows),
            "fallen back": Counter(fallback.target for fallback in report.fallbacks),
        }
    return found


def _verdict(report: Report, model: nn.Module, arguments: dict[str, Any], dtype: torch.dtype | None) -> str:
    if not report.causes:
        return report.verdict
    cause = report.causes[0]
    if cause.phase != "eager":
        return f"{report.verdict}: {cause.reason}"
    torch.compiler.reset()
    with torch.autocast("cpu", dtype or torch.bfloat16, enabled=dtype is not None), torch.no_grad():
        plain, compiled = (_leaves(each, arguments) for each in (model, torch.compile(model, backend="eager")))
    pairs = [pair for pair in zip(plain, compiled, strict=True) if isinstance(pair[0], torch.Tensor)]
    gaps = [(one.float() - other.float()).abs().max() for one, other in pairs]
    furthest = torch.stack(gaps).max().item()  # NaN where one has NaN
    return f'{report.verdict} before ONNX; torch.compile(backend="eager") lies {furthest:.2g} from plain'


def _leaves(model: Callable[..., Any], arguments: dict[str, Any]) -> list[Any]:
    torch.manual_seed(0)
    return tree_leaves(model(**arguments))


def rows(results: Iterable[tuple[Task, Result]]) -> Iterator[list[str]]:
    """A line for every type that was made."""
    for (kind, *ways), result in results:
        if "parameters" not in result:
            continue
        of = [result[name] for name in ways]
        back = Counter[str]()
        for each in of:
            back.update(each.get("fallen back", {}))
        yield [
            f"`{kind}`",
            f"{result['parameters'] / 1e6:.2f}",
            str(max(each.get("values", 0) for each in of)),
            *(_cell(each["verdict"]) for each in of),
            ", ".join(f"{number} `{target}`" for target, number in back.items()),
        ]


def _cell(text: str) -> str:
    """A text in one line, short and without folders, as a cell of a Markdown table holds it."""
    line = _FOLDERS.sub("", " ".join(text.split()))
    return (line if len(line) <= 160 else f"{line[:160]} …").replace("|", "\\|")


def summary(results: Iterable[tuple[Task, Result]]) -> str:
    """How many types were made, how many agree, and why the others were not made."""
    results = list(results)
    made = [result for _, result in results if "parameters" in result]
    ways = results[0][0][1:]
    agree = {name: sum(result[name]["verdict"] == "agree" for result in made) for name in ways}
    numbers = ", ".join(f"{number} agree in {name}" for name, number in agree.items())
    others = [f"* `{kind}`: {_cell(result['not made'])}" for (kind, *_), result in results if "not made" in result]
    lost = [f"* `{kind}`: {result['lost']}" for (kind, *_), result in results if "lost" in result]
    parts = [f"Of {len(results)} types {len(made)} were made: {numbers}."]
    parts += ["## Not finished", "\n".join(lost)] if lost else []
    parts += ["## Not made", "\n".join(others)] if others else []
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Measures the types named, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", choices=LIBRARIES, default="transformers", help="whose models")
    parser.add_argument("--types", nargs="+", help="only these")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=["float32", "bfloat16"], help="how they run")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time, of one thread each")
    parser.add_argument("--journal", type=Path, help="file from which an interrupted run goes on")
    parser.add_argument("--write", type=Path, help="file for the page, beside the screen")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    module, mend = LIBRARIES[options.library]
    if find_spec(options.library) is None:
        parser.error(f"{options.library} is not installed: {mend}")
    members = importlib.import_module(module)
    if options.worker:
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        torch.set_num_threads(1)
        serve(partial(measured, members))
        return
    known = members.kinds()
    for kind in options.types or ():
        if kind not in known:
            parser.error(f"no type {kind!r} of {options.library}{nearest(kind, known)}; docs/zoo*.md name all of them")
    tasks: list[Task] = [(kind, *options.ways) for kind in options.types or known]
    results: list[tuple[Task, Any]] = []
    worker = [sys.executable, __file__, "--worker", "--library", options.library]
    for task, result in run_tasks(worker, tasks, options.jobs, SECONDS, options.journal):
        results.append((task, result))
        made = "parameters" in result
        verdicts = [result[name]["verdict"] for name in options.ways] if made else list(result.values())
        print(task[0], *verdicts, sep=" | ", flush=True)
    results.sort()
    versions = ("torch", options.library, "onnxruntime-gpu")
    columns = ["type", "million parameters", "values", *options.ways, "calls in eager torch"]
    title = f"The models of {options.library}, {' and '.join(options.ways)}"
    about = __doc__ if options.library == "transformers" else members.__doc__
    text = page(title, about or "", versions, columns, rows(results))
    show(f"{text}\n{summary(results)}", options.write)


if __name__ == "__main__":
    main()
