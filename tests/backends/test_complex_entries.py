"""torch's operator database in complex numbers: whatever runs in ONNX Runtime of an entry, its results are torch's."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_leaves

pytestmark = pytest.mark.usefixtures("sizes_captured")

DTYPE = torch.complex128
"""In which roundings are too small to be seen behind a matrix that is nearly singular."""
SAMPLES = 2
UNSET = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")
"""What torch leaves open the values of."""
ENTRIES = {info.full_name: info for info in op_db if info.supports_dtype(DTYPE, "cpu") and info.name not in UNSET}


def samples(info: OpInfo) -> Iterator[SampleInput]:
    """Samples that are far apart in the list of the entry's."""
    with_gradient = info.supports_autograd and DTYPE in info.supported_backward_dtypes("cpu")
    torch.manual_seed(0)
    found = list(info.sample_inputs("cpu", DTYPE, requires_grad=with_gradient))
    return islice(found, None, None, max(1, len(found) // SAMPLES))


def results(function: Any, sample: SampleInput) -> tuple[list[Tensor], Any]:
    """What a call returns, and the gradients of what requires one."""
    torch.manual_seed(0)
    args = (sample.input, *sample.args)
    found = [leaf for leaf in tree_leaves(function(*args, **sample.kwargs)) if isinstance(leaf, Tensor)]
    outputs = [leaf for leaf in found if leaf.requires_grad]
    inputs = [leaf for leaf in tree_leaves((args, sample.kwargs)) if isinstance(leaf, Tensor) and leaf.requires_grad]
    if not outputs or not inputs:
        return found, None
    directions = [torch.ones_like(each) for each in outputs]
    return found, torch.autograd.grad(outputs, inputs, directions, allow_unused=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_is_as_traced_torch_computes_it(name: str) -> None:
    info = ENTRIES[name]

    def function(*args: Any, **options: Any) -> Any:
        return info.op(*args, **options)

    for sample in samples(info):
        try:
            expected = results(torch.compile(function, backend="aot_eager", dynamic=False), sample)
        except Exception:  # noqa: BLE001  (what torch cannot trace, or differentiate)
            continue
        torch._dynamo.reset()
        got = results(torch.compile(function, backend="dort", dynamic=False), sample)
        torch._dynamo.reset()
        assert_close(got, expected, equal_nan=True, rtol=1e-7, atol=1e-7)
