"""Checks of factorizations, as plain calls.

AOTAutograd keeps calls with effects in their order by tokens that each takes and hands on. Of those that it knows,
``aten._linalg_check_errors`` alone says something of values, as ``torch.linalg.inv`` and ``solve`` have it: that a
factorization was completed.
"""

from __future__ import annotations

import torch
from torch import fx

from dort_compare.checks import CHECK_ERRORS

with_effects = torch.ops.higher_order.with_effects


def take_checks_out(graph_module: fx.GraphModule) -> None:
    """Puts checks of factorizations beside the tokens, which are handed on past them.

    Not beside other calls with effects, as those that print, which are to come before a check that raises, or after.
    """
    graph = graph_module.graph
    calls = graph.find_nodes(op="call_function", target=with_effects)
    if any(call.args[1] is not CHECK_ERRORS for call in calls):
        return
    for call in calls:
        token, _, *arguments = call.args
        with graph.inserting_before(call):
            check = graph.call_function(CHECK_ERRORS, tuple(arguments), call.kwargs)
        check.meta = {**call.meta, "val": None}
        for element in list(call.users):  # the token is all that the call returns
            element.replace_all_uses_with(token)
            graph.erase_node(element)
        graph.erase_node(call)
    if calls:
        graph_module.recompile()
