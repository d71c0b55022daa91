"""Runs model.onnx on operands.safetensors and holds what comes out against torch.safetensors and float64.safetensors.

Needs onnxruntime and numpy.
"""

import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

Array = np.ndarray[Any, Any]
HERE = Path(__file__).resolve().parent
DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1"}
DTYPES |= {"U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?"}


def tensors(file: str) -> dict[str, Array]:
    """The arrays in a safetensors file: the length of a JSON header in eight bytes, the header, the data."""
    content = (HERE / file).read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    header.pop("__metadata__", None)
    found = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        found[name] = np.frombuffer(data[begin:end], DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return found


def run() -> dict[str, Array]:
    """What ONNX Runtime makes of the operands, without optimizations, by name."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    providers = json.loads((HERE / "case.json").read_text(encoding="utf-8"))["providers"]
    session = ort.InferenceSession(HERE / "model.onnx", options, providers=providers)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, tensors("operands.safetensors")), strict=True))


def distance(a: Array, b: Array) -> float:
    """The largest |a - b|; inf where shapes differ, or one side alone is not finite. For whole numbers at least 1."""
    if a.shape != b.shape:
        return np.inf
    x, y = a.astype(np.float64), b.astype(np.float64)
    different = (a != b) & ~(np.isnan(x) & np.isnan(y))
    if not different.any():
        return 0.0
    gaps = np.abs(x[different] - y[different])
    if np.isnan(gaps).any():
        return np.inf
    return float(gaps.max()) if a.dtype.kind == "f" else max(1.0, float(gaps.max()))


def rows() -> Iterator[tuple[Any, ...]]:
    """Each result: name, |torch - ONNX|, |torch - float64|, |ONNX - float64|, what is noise, and who departs.

    Of elements for which the others are no measure, as far larger ones, where those are what departs.
    """
    case = json.loads((HERE / "case.json").read_text(encoding="utf-8"))
    torch, exact, also = (tensors(f"{name}.safetensors") for name in ("torch", "float64", "also_right"))
    among = tensors("among.safetensors")
    for name, value in run().items():
        where = among[name] if name in among and value.shape == torch[name].shape else ...
        sides = torch[name][where], value[where]
        apart = distance(*sides)
        errors = [distance(exact[name][where], side) for side in sides] if name in exact else [None, None]
        floor = case["noise_floors"][name]
        is_right = apart <= floor or (errors[1] is not None and errors[1] <= floor)
        is_right |= name in also and distance(also[name], value) == 0
        is_right &= torch[name].dtype == value.dtype
        torch_departs = name in case["torch_departs"] and apart > floor
        yield name, apart, *errors, floor, "torch" if torch_departs else None if is_right else "onnx"


def main() -> None:
    """Prints the differences; exit status 1 where a result departs."""
    print(f"onnxruntime {ort.__version__}, numpy {np.__version__}")
    print("largest |torch - onnx|, |torch - float64|, |onnx - float64| of each result, and what of it is noise")
    status = 0
    for name, *numbers, departs in rows():
        status |= departs is not None
        texts = ("-" if number is None else f"{number:.3g}" for number in numbers)
        what = "agrees " if departs is None else f"DEPARTS ({departs})"
        print(f"{what} {ascii(name)[1:-1]}: {', '.join(texts)}")
    sys.exit(status)


if __name__ == "__main__":
    main()
