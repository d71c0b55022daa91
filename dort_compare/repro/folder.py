"""Writes a case as a folder that can be attached to a bug report."""

from __future__ import annotations

import json
import platform
import shutil
from importlib.metadata import version
from pathlib import Path

import onnx
import onnxruntime as ort
import torch

from dort_compare.dtypes import dtype_name
from dort_compare.dump.files import writing
from dort_compare.dump.staging import staged
from dort_compare.dump.tensors import save_tensors
from dort_compare.measure.distance.metrics import distance
from dort_compare.plain import printable
from dort_compare.repro.case import Case, Result
from dort_compare.repro.cut import fed_as, for_numpy

_SHIPPED = Path(__file__).parent / "shipped"
_README = """\
# {target} on ONNX Runtime

FX node `{node}`{place}, {phase} graph, as ONNX nodes: {nodes}.

    python repro.py    # the differences; exit status 1 where a result departs
    pytest             # fails for as long as one does

Both need nothing but `onnxruntime` and `numpy` (and `pytest`).

{results}

| file | what it holds |
| --- | --- |
| `model.onnx` | the ONNX nodes; what is bfloat16 goes in and out as float32, and is cast inside |
| `operands.safetensors` | the operands that torch had, by the names of the model's inputs |
| `torch.safetensors` | what torch's kernel makes of them, by the names of the model's outputs |
| `float64.safetensors` | the same, computed in float64 |
| `also_right.safetensors` | what is as right as torch's value, such as another order of equal elements |
| `among.safetensors` | the elements that are held to the noise, where others are far larger and no measure for them |
| `case.json` | the execution providers, how much of a difference is noise, and where it is torch that departs |

Written with {versions}.
"""


def write_case(case: Case, folder: Path) -> None:
    """Writes the folder, whole or not at all.

    Raises DumpError where it is there and not empty, or cannot be written.
    """
    with staged(folder, replaces_dumps=False) as stage, writing(folder):
        onnx.save(case.model, stage / "model.onnx")
        save_tensors(stage / "operands.safetensors", for_numpy(case.operands))
        results = {result.name: result for result in case.results}
        save_tensors(stage / "torch.safetensors", for_numpy({name: r.expected for name, r in results.items()}))
        exact = {fed_as(name, r.expected): r.exact for name, r in results.items() if r.exact is not None}
        save_tensors(stage / "float64.safetensors", exact)
        open_results = {r.name: r.value for r in case.results if r.is_open and r.value is not None}
        save_tensors(stage / "also_right.safetensors", for_numpy(open_results))
        among = {fed_as(r.name, r.expected): r.among for r in case.results if r.among is not None}
        save_tensors(stage / "among.safetensors", among)
        (stage / "case.json").write_text(json.dumps(_settings(case), indent=1) + "\n", encoding="utf-8")
        (stage / "README.md").write_text(_readme(case), encoding="utf-8")
        for script in ("repro.py", "test_repro.py"):
            shutil.copyfile(_SHIPPED / script, stage / script)


def _settings(case: Case) -> dict[str, object]:
    floors = {fed_as(result.name, result.expected): result.noise_floor for result in case.results}
    torch_departs = [fed_as(result.name, result.expected) for result in case.results if result.torch_departs]
    return {"providers": list(case.providers), "noise_floors": floors, "torch_departs": torch_departs}


def _readme(case: Case) -> str:
    origin = case.origin
    place = f" in module `{printable(origin.module)}`" if origin.module else ""
    place += f" at `{printable(origin.source)}`" if origin.source else ""
    return _README.format(
        target=origin.aten_target,
        node=origin.fx_node,
        place=place,
        phase=origin.phase,
        nodes=printable(", ".join(node.op_type for node in case.model.graph.node)),
        results="\n".join(_measured(result) for result in case.results),
        versions=", ".join(f"{name} {number}" for name, number in _versions().items()),
    )


def _measured(result: Result) -> str:
    name = f"`{printable(result.name)}`"
    shape = f"{dtype_name(result.expected.dtype)} {list(result.expected.shape)}"
    if result.value is None:
        return f"{name} ({shape}): {printable(str(result.error))}."
    found = distance(result.expected, result.value).between("torch", "ONNX")
    apart = found.finding or f"largest |torch - onnx| is {found.max_abs:.3g}"
    if result.among is not None:
        departing = distance(result.judged(result.expected), result.judged(result.value))
        apart += f"; of {departing.numel} elements for which the others are no measure, {departing.max_abs:.3g}"
    judged = "; it is torch that departs" if result.torch_departs else "; both are right" if result.is_open else ""
    return f"{name} ({shape}): {apart}, of which {result.noise_floor:.3g} would be noise{judged}."


def _versions() -> dict[str, str]:
    return {
        "dort-compare": version("dort-compare"),
        "torch": str(torch.__version__),
        "onnx": onnx.__version__,
        "onnxruntime": ort.__version__,
        "Python": platform.python_version(),
    } | {"on": platform.platform()}
