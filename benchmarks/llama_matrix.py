"""Runs ``dort-compare llama`` in every combination and tabulates the verdicts."""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pages import command, processor

SCRIPT = Path(__file__).parent.parent / "scripts" / "compare_llama.py"
PRECISIONS = {
    "float32": [],
    "float16": ["--mixed", "1"],
    "bfloat16": ["--mixed", "1", "--mixed-dtype", "bfloat16"],
}


@dataclass(frozen=True)
class Result:
    """One combination: its flags, and what the report of it says."""

    flags: list[str]
    status: int
    values: int
    output: float
    gradient: float
    worst_ratio: float

    def cells(self) -> list[str]:
        verdict = {0: "agree", 1: "diverge"}.get(self.status, f"exit {self.status}")
        numbers = [f"{number:.1e}" if number else "0" for number in (self.output, self.gradient)]
        return [f"`{' '.join(self.flags)}`", verdict, str(self.values), *numbers, f"{self.worst_ratio:.2f}"]


def combinations(arguments: argparse.Namespace) -> list[list[str]]:
    """The flags of every combination."""
    parts, sources = ("attention", "decoder", "model"), ("native", "hf")
    attentions, directions = ("eager", "sdpa"), ([], ["--backward", "1"])
    product = itertools.product(parts, sources, attentions, PRECISIONS.values(), directions)
    return [
        ["--part", part, "--source", source, "--attention", attention, *precision, *direction, *arguments.flags]
        for part, source, attention, precision, direction in product
    ]


def run(flags: list[str]) -> Result:
    """Runs one combination in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.json"
        done = subprocess.run(
            [sys.executable, str(SCRIPT), *flags, "--json", str(file)], capture_output=True, text=True, check=False
        )
        if not file.exists():
            sys.stderr.write(done.stderr)
            return Result(flags, done.returncode, 0, 0.0, 0.0, 0.0)
        report = json.loads(file.read_text())
    outputs = report["outputs"]
    return Result(
        flags,
        done.returncode,
        sum(row["status"] != "unaligned" for row in report["rows"]),
        _worst(outputs, "output"),
        _worst(outputs, "gradient"),
        max((_ratio(row) for row in outputs), default=0.0),
    )


def _worst(outputs: list[dict[str, Any]], kind: str) -> float:
    return max((float(row["distance"]["max_rel"]) for row in outputs if row["kind"] == kind), default=0.0)


def _ratio(row: dict[str, Any]) -> float:
    """How much further than eager a tensor lies from float64; 0 where there is no float64."""
    ours, eager = row["onnx_vs_float64"], row["torch_vs_float64"]
    return float(ours) / float(eager) if ours and eager else 0.0


def table(results: list[Result]) -> str:
    """The results as a Markdown page."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "onnxruntime-gpu", "transformers"))
    lines = [
        "# The Llama parts, every combination",
        "",
        f"`{command()}`, {datetime.datetime.now(tz=datetime.UTC).date()}, {processor()}, {versions}.",
        "",
        "*output* and *gradient*: the largest distance from eager of any output and any gradient, of both backends,",
        "relative to the tensor's largest element. *ratio*: the largest distance from float64 over eager's own, where",
        "the comparison is mixed.",
        "",
        "| flags | verdict | values | output | gradient | ratio |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    return "\n".join([*lines, *(f"| {' | '.join(result.cells())} |" for result in results), ""])


def main() -> None:
    """Runs all combinations; further flags go to each of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, help="file for the table, beside the screen")
    arguments, flags = parser.parse_known_args()
    arguments.flags = flags
    results = []
    for combination in combinations(arguments):
        results.append(run(combination))
        print(" | ".join(results[-1].cells()), flush=True)
    page = table(results)
    if arguments.write:
        arguments.write.write_text(page)
    agreeing = sum(result.status == 0 for result in results)
    print(f"{agreeing} of {len(results)} agree")
    sys.exit(0 if agreeing == len(results) else 1)


if __name__ == "__main__":
    main()
