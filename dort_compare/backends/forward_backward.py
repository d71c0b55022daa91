"""Cuts the joint graph of AOTAutograd in a forward and a backward one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from functorch.compile import min_cut_rematerialization_partition
from torch import fx
from torch._functorch import config as functorch_config
from torch._functorch._aot_autograd.descriptors import InputMutationAOTOutput
from torch.multiprocessing.reductions import StorageWeakRef

from dort_compare.backends.attention_row_sums import row_sums_of_outputs
from dort_compare.backends.calls import add_call
from dort_compare.backends.duplicates import merge_duplicates
from dort_compare.backends.fills import fill_apart
from dort_compare.backends.gradients_apart import gradients_apart
from dort_compare.backends.recompute import compute_again
from dort_compare.backends.saved_bases import save_bases
from dort_compare.node_meta import PASS
from dort_compare.randomness import draws
from dort_compare.views import history, memories


def cut_joint(
    joint: fx.GraphModule, inputs: Any, *, num_fwd_outputs: int, **given: Any
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Torch's partitioner, which honours activation checkpointing; inductor and aot_eager use it too.

    An input that the model writes in place, such as a buffer, is written when the forward graph has run. Where the
    partitioner saves it, or another view of its memory, for the backward graph, which is to have it as it was, a copy
    is saved. What the backward pass draws is not drawn before, and the gradients that it returns share no memory.
    """
    for node in joint.graph.nodes:
        if draws(node.target) and node.meta.get(PASS) is None:
            node.meta[PASS] = "must_be_in_backward"
    if functorch_config.cse:
        merge_duplicates(joint.graph)
    with functorch_config.patch(cse=False):
        forward, backward = min_cut_rematerialization_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs, **given)
    told = joint.graph.output_node().meta.get("desc") or ()  # the forward graph's is lost where random states are saved
    written, output = _written(forward.graph, told[:num_fwd_outputs]), forward.graph.output_node()
    returned, saved = list(output.args[0][:num_fwd_outputs]), list(output.args[0][num_fwd_outputs:])
    touched = memories(written)
    shared = [node for node in dict.fromkeys(saved) if _shares(node, touched)]
    if shared:
        with forward.graph.inserting_before(output):
            copies = {node: add_call(forward.graph, node, torch.ops.aten.clone.default, node) for node in shared}
        output.args = ((*returned, *(copies.get(node, node) for node in saved)),)
        forward.recompile()
    gradients_apart(backward)
    return forward, backward


def rewritten_and_cut(
    joint: fx.GraphModule, inputs: Any, *, num_fwd_outputs: int, **given: Any
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """``cut_joint``, with what is rewritten where both graphs are at hand: before it, and after."""
    row_sums_of_outputs(joint.graph)
    fill_apart(joint.graph)
    compute_again(joint.graph)
    forward, backward = cut_joint(joint, inputs, num_fwd_outputs=num_fwd_outputs, **given)
    save_bases(forward, backward, num_fwd_outputs)
    return forward, backward


def _written(graph: fx.Graph, told: Sequence[Any]) -> set[fx.Node]:
    """The inputs of which the graph returns a new value, by what is ``told`` of its outputs."""
    written = {result.mutated_input for result in told if isinstance(result, InputMutationAOTOutput)}
    return {node for node in graph.find_nodes(op="placeholder") if node.meta.get("desc") in written}


def _shares(node: Any, written: set[StorageWeakRef]) -> bool:
    """Whether a saved value lies in memory that is ``written``, or is a view of what does."""
    is_tensor = isinstance(node, fx.Node) and isinstance(node.meta.get("val"), torch.Tensor)
    return is_tensor and not written.isdisjoint(memories([node, *history(node)[1]]))
