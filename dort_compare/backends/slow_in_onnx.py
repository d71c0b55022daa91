"""What takes ONNX Runtime longer on the CPU than torch's kernel and two borders between sessions, from some size on.

`benchmarks/left_to_torch.py` times most of them both ways. Activations, norms and their gradients are not among them: a
trial of steps of whole models gained nothing by leaving them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx

from dort_compare.backends.processor import MULTIPLIES_SLOWLY
from dort_compare.fx_graph import reads_result
from dort_compare.layouts import elements, hints

aten = torch.ops.aten

FACTORIZATIONS = {
    aten._linalg_det,
    aten._linalg_slogdet,
    aten._linalg_solve_ex,
    aten.cholesky_inverse,
    aten.cholesky_solve,
    aten.geqrf,
    aten.linalg_cholesky_ex,
    aten.linalg_householder_product,
    aten.linalg_inv_ex,
    aten.linalg_lu,
    aten.linalg_lu_factor_ex,
    aten.linalg_lu_solve,
    aten.linalg_qr,
    aten.linalg_solve_triangular,
    aten.ormqr,
    aten.triangular_solve,
}
"""ONNX has no operator for them: they are loops over columns."""
SPECIAL = {
    aten.digamma,
    aten.erfc,
    aten.erfinv,
    aten.i0,
    aten.igamma,
    aten.igammac,
    aten.lgamma,
    aten.mvlgamma,
    aten.polygamma,
    aten.special_airy_ai,
    aten.special_bessel_j0,
    aten.special_bessel_j1,
    aten.special_bessel_y0,
    aten.special_bessel_y1,
    aten.special_erfcx,
    aten.special_i0e,
    aten.special_i1,
    aten.special_i1e,
    aten.special_log_ndtr,
    aten.special_modified_bessel_i0,
    aten.special_modified_bessel_i1,
    aten.special_modified_bessel_k0,
    aten.special_modified_bessel_k1,
    aten.special_ndtri,
    aten.special_scaled_modified_bessel_k0,
    aten.special_scaled_modified_bessel_k1,
    aten.special_zeta,
}
"""Nor for these functions: they are series, many nodes, each of which reads and writes all elements."""
ELEMENT_BY_ELEMENT = {
    aten._embedding_bag,
    aten._embedding_bag_backward,
    aten._embedding_bag_forward_only,
    aten._embedding_bag_per_sample_weights_backward,
    aten._pdist_backward,
    aten._pdist_forward,
    aten.adaptive_max_pool2d,
    aten.adaptive_max_pool2d_backward,
    aten.adaptive_max_pool3d,
    aten.adaptive_max_pool3d_backward,
    aten.bucketize,
    aten.cummax,
    aten.cummin,
    aten.cumprod,
    aten.exp2,
    aten.fmod,
    aten.grid_sampler_2d_backward,
    aten.index_add,
    aten.index_reduce,
    aten.log2,
    aten.logcumsumexp,
    aten.max_pool2d_with_indices_backward,
    aten.max_pool3d_with_indices_backward,
    aten.median,
    aten.mode,
    aten.nanmedian,
    aten.remainder,
    aten.replication_pad1d_backward,
    aten.replication_pad2d_backward,
    aten.replication_pad3d_backward,
    aten.scatter_add,
    aten.scatter_reduce,
    aten.searchsorted,
    aten.sinh,
    aten.tan,
}
"""What ONNX Runtime's kernels write, gather or compute element by element, or sort for."""
ATTENTION = {
    aten._scaled_dot_product_flash_attention_for_cpu,
    aten._scaled_dot_product_flash_attention_for_cpu_backward,
}
"""Torch's kernels hold few scores at a time, and none behind the diagonal of causal ones."""
LONG = 2**12 if MULTIPLIES_SLOWLY else 2**11
"""Queries of a head from which on attention is left to torch. Where that multiplies slowly it is behind at any number,
but ONNX Runtime takes seven times its memory at 4096 (`benchmarks/by_head.py`)."""
MAPPED = 2**25
"""Bytes from which on glibc has the memory of a tensor mapped anew, and cleared, at every call of torch's."""
WRITES = {
    aten._unsafe_index_put,
    aten.index_add,
    aten.index_put,
    aten.index_reduce,
    aten.put,
    aten.scatter_add,
    aten.scatter_reduce,
}
"""Of these, what is written counts, and not what it is written to."""
READS = {aten._embedding_bag, aten._embedding_bag_forward_only}
"""Of these, what comes out counts, and not the table."""


def _adds(node: fx.Node) -> bool:
    return len(node.args) > 3 and bool(node.args[3])


def _gives_places(node: fx.Node) -> bool:
    return reads_result(node, 1)


def _reads_integers(node: fx.Node) -> bool:
    dtype = node.all_input_nodes[0].meta["val"].dtype
    return not dtype.is_floating_point and dtype != torch.bool


def _writes_many_rows(node: fx.Node) -> bool:
    """Whether a gradient of an embedding is not of few rows of a table whose memory torch would have mapped anew.

    In half precision it always is: ONNX Runtime adds up in a table of float32.
    """
    table, rows = node.meta["val"], node.all_input_nodes[0].meta["val"]
    size, written = elements(table) or 0, elements(rows) or 0
    return table.itemsize < 4 or size * table.itemsize < MAPPED or written * 6 > size


_AT_TIMES: Mapping[Any, Callable[[fx.Node], bool]] = {
    aten.index_put: _adds,
    aten._unsafe_index_put: _adds,
    aten.embedding_dense_backward: _writes_many_rows,
    aten.max_pool2d_with_indices: _gives_places,
    aten.max_pool3d_with_indices: _gives_places,
    aten.put: _adds,
    aten.sum: _reads_integers,
}
"""What is fast but for these calls."""
SIZES: Mapping[Any, int] = (
    dict.fromkeys(FACTORIZATIONS, 2**6)
    | dict.fromkeys(SPECIAL, 2**11)
    | dict.fromkeys(ELEMENT_BY_ELEMENT | _AT_TIMES.keys(), 2**15)
)
"""Elements of the largest tensor that counts, from which on a call is left to torch."""


def is_slow(node: fx.Node) -> bool:
    """Whether a call of an FX graph, as large as it was when it was traced, is better run by torch.

    Complex ones are not asked: where they have no lowering, that is to be said.
    """
    function = getattr(node.target, "overloadpacket", None)
    if function in ATTENTION:
        return _attends_far(node, function)
    if function not in SIZES or (function in _AT_TIMES and not _AT_TIMES[function](node)):
        return False
    counting = (tensor for tensor in _counting(node, function) if not tensor.is_complex())
    return any((elements(tensor) or 0) >= SIZES[function] for tensor in counting)


def _attends_far(node: fx.Node, function: Any) -> bool:
    """Whether long attention is causal, or trained: it hands on the logarithm of its sums, or is the gradient.

    Not in half precision, for which torch's kernels need instructions that not every processor has.
    """
    queries = node.all_input_nodes[0].meta["val"]
    sizes = hints(queries.shape)
    if sizes is None or sizes[2] < LONG or queries.dtype not in (torch.float32, torch.float64):
        return False
    if function is not aten._scaled_dot_product_flash_attention_for_cpu:
        return True
    is_causal = node.args[4] if len(node.args) > 4 else node.kwargs.get("is_causal", False)
    return bool(is_causal) or reads_result(node, 1)


def _counting(node: fx.Node, function: Any) -> list[torch.Tensor]:
    """The tensors that a call reads and makes, or those of them that take its time."""
    read = [operand.meta.get("val") for operand in node.all_input_nodes]
    made = node.meta.get("val")
    results = list(made) if isinstance(made, (tuple, list)) else [made]
    values = read[1:] if function in WRITES else results if function in READS else [*read, *results]
    return [value for value in values if isinstance(value, torch.Tensor)]
